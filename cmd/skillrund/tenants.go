package main

import (
	"context"
	"reflect"
	"runtime"
	"slices"
	"time"

	"github.com/skillrun/skillrun/internal/admission"
	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/tenant"
)

// A tenantConfig is one entry of tenants, or one file of tenants_dir. A key that is not set has the
// daemon's value (inherit).
type tenantConfig struct {
	// The tenant's rows of identity.callers.
	Callers []tenantCaller `yaml:"callers"`
	// The tenant's own folders of skills, and patterns of the daemon's skills.
	Skills       []skillRoot `yaml:"skills"`
	SharedSkills []string    `yaml:"shared_skills"`
	// Nothing here is wider than the daemon's own keys.
	Policy struct {
		Network             networkConfig `yaml:"network"`
		Shell               bool          `yaml:"shell"`
		Code                bool          `yaml:"code"`
		WithoutAllowedTools commandRules  `yaml:"without_allowed_tools"`
		Runtimes            []string      `yaml:"runtimes"`
		Images              []string      `yaml:"images"`
		SkillSources        []string      `yaml:"skill_sources"`
	} `yaml:"policy"`
	Limits struct {
		Default         limits   `yaml:"default"`
		CommandWallTime duration `yaml:"command_wall_time"`
		Max             limits   `yaml:"max"`
	} `yaml:"limits"`
	// Of all executions, skills and streams of the tenant together. 0 means no quota, if the key is not
	// weight, running, queued or queue_timeout.
	Quotas struct {
		Weight          int      `yaml:"weight"`
		StartsPerSecond rate     `yaml:"starts_per_second"`
		Burst           int      `yaml:"burst"`
		CallsPerSecond  rate     `yaml:"calls_per_second"`
		Running         int      `yaml:"running"`
		Queued          int      `yaml:"queued"`
		QueueTimeout    duration `yaml:"queue_timeout"`
		Memory          size     `yaml:"memory"`
		CPUs            cpus     `yaml:"cpus"`
		Streams         int      `yaml:"streams"`
		StateBytes      size     `yaml:"state_bytes"`
		SkillBytes      size     `yaml:"skill_bytes"`
		SkillVersions   int      `yaml:"skill_versions"`
		Sessions        int      `yaml:"sessions"`
		SessionBytes    size     `yaml:"session_bytes"`
	} `yaml:"quotas"`
	// Of all sandboxes of the tenant together. 0: no bound.
	Cgroup struct {
		Memory    size `yaml:"memory"`
		Processes int  `yaml:"processes"`
		CPUWeight int  `yaml:"cpu_weight"`
	} `yaml:"cgroup"`
}

// A tenantCaller is an identity.Row without its tenant.
type tenantCaller struct {
	Caller string        `yaml:"caller"`
	Role   identity.Role `yaml:"role"`
}

// Defaults of quotas that the daemon does not have.
const (
	defaultStreams       = 1000
	defaultSkillBytes    = size(1 << 30)
	defaultSkillVersions = 20
	// defaultCallsPerProcessor is the default of quotas.calls_per_second, for each processor of the machine. Starts do
	// not count. An agent makes a few other calls in a second.
	defaultCallsPerProcessor = 50
)

// manyTenants reports whether tenants are configured. If not, all callers share the daemon's quotas.
func (c *config) manyTenants() bool { return len(c.Tenants) > 0 || c.TenantsDir != "" }

// inherit sets the keys that a tenant's file does not set, and makes paths absolute. lines has the keys that
// the file sets; key is the tenant's key in it, or "".
func (t *tenantConfig) inherit(c *config, dir, key string, lines map[string]int) {
	set := func(name string) bool { return lines[join(key, name)] > 0 }
	for i := range t.Skills {
		// From here on only the path without links counts: the checks compare this path, and each reload opens it. A link
		// that a tenant puts there later is not followed.
		t.Skills[i].Path = realPath(absolute(dir, t.Skills[i].Path))
	}
	if !set("policy.network") {
		t.Policy.Network = c.Network
	}
	if !set("policy.shell") {
		t.Policy.Shell = c.Shell
	}
	if !set("policy.code") {
		t.Policy.Code = true
	}
	if !set("policy.without_allowed_tools") {
		t.Policy.WithoutAllowedTools = slices.Clone(c.WithoutAllowedTools)
	}
	t.inheritLimits(c, set)
	q, daemon := &t.Quotas, c.Concurrency
	unset(set, "quotas.weight", &q.Weight, 1)
	unset(set, "quotas.calls_per_second", &q.CallsPerSecond, rate(defaultCallsPerProcessor*runtime.NumCPU()))
	unset(set, "quotas.running", &q.Running, daemon.Running)
	unset(set, "quotas.queued", &q.Queued, daemon.Queued)
	unset(set, "quotas.queue_timeout", &q.QueueTimeout, daemon.QueueTimeout)
	unset(set, "quotas.streams", &q.Streams, defaultStreams)
	unset(set, "quotas.skill_bytes", &q.SkillBytes, defaultSkillBytes)
	unset(set, "quotas.skill_versions", &q.SkillVersions, defaultSkillVersions)
	unset(set, "quotas.sessions", &q.Sessions, c.Sessions.Count)
	unset(set, "quotas.session_bytes", &q.SessionBytes, c.Sessions.TotalBytes)
}

// unset gives a key its default, unless the file sets it.
func unset[T any](set func(string) bool, key string, value *T, def T) {
	if !set(key) {
		*value = def
	}
}

// inheritLimits derives the limits that the file does not set. A maximum is the daemon's. A default is the
// daemon's, but at most the tenant's maximum.
// Reflection keeps the two lists of limits equal: a new field of limits needs no line here. Every
// field is an integer (a duration, a size or a count).
func (t *tenantConfig) inheritLimits(c *config, set func(string) bool) {
	most, def := reflect.ValueOf(&t.Limits.Max).Elem(), reflect.ValueOf(&t.Limits.Default).Elem()
	daemonMost, daemonDef := reflect.ValueOf(c.Limits.Max), reflect.ValueOf(c.Limits.Default)
	for i := range most.NumField() {
		name := most.Type().Field(i).Tag.Get("yaml")
		if !set("limits.max." + name) {
			most.Field(i).Set(daemonMost.Field(i))
		}
		if set("limits.default." + name) {
			continue
		}
		def.Field(i).Set(daemonDef.Field(i))
		if ceiling := most.Field(i); ceiling.Int() > 0 && def.Field(i).Int() > ceiling.Int() {
			def.Field(i).Set(ceiling)
		}
	}
	if !set("limits.command_wall_time") {
		t.Limits.CommandWallTime = min(c.Limits.CommandWallTime, t.Limits.Max.WallTime)
	}
}

// tenant converts the configuration of a tenant, which check has accepted. daemon is the network of the daemon.
// The value is shared by many goroutines from then on, and never changes.
func (t *tenantConfig) tenant(name string, daemon permission.Network) *tenant.Tenant {
	q := t.Quotas
	to := &tenant.Tenant{
		Name: name,
		Policy: permission.Policy{
			Network: t.Policy.Network.network().Tighten(daemon), Shell: t.Policy.Shell, NoCode: !t.Policy.Code,
			Unlisted: permission.ParseUnlisted(t.Policy.WithoutAllowedTools),
		},
		Runtimes: t.Policy.Runtimes, Images: t.Policy.Images,
		Bounds: executor.Bounds{
			Default: t.Limits.Default.limits(), CommandWall: time.Duration(t.Limits.CommandWallTime), Max: t.Limits.Max.limits(), SetBy: "tenant",
		},
		Quota: admission.Quota{
			Weight: q.Weight, Running: q.Running, Queued: q.Queued, StartsPerSecond: float64(q.StartsPerSecond), Burst: q.Burst, CallsPerSecond: float64(q.CallsPerSecond),
			Resources: admission.Resources{MemoryBytes: int64(q.Memory), MilliCPUs: int64(q.CPUs)},
		},
		QueueTimeout: time.Duration(q.QueueTimeout), Streams: q.Streams, StateBytes: int64(q.StateBytes),
		SharedSkills: t.SharedSkills, SkillSources: t.Policy.SkillSources, SkillBytes: int64(q.SkillBytes), SkillVersions: q.SkillVersions,
		Sessions: q.Sessions, SessionBytes: int64(q.SessionBytes),
		Cgroup: tenant.Cgroup{MemoryBytes: int64(t.Cgroup.Memory), Processes: t.Cgroup.Processes, CPUWeight: t.Cgroup.CPUWeight},
	}
	return to
}

// privateRoots returns the folders of skills that tenants have for themselves.
func privateRoots(sources []*tenantSource) map[string][]skill.Root {
	all := map[string][]skill.Root{}
	for _, s := range sources {
		all[s.name] = roots(s.config.Skills)
		for i := range all[s.name] {
			all[s.name][i].NoLinks = true
		}
	}
	return all
}

// roots converts folders of skills.
func roots(list []skillRoot) (to []skill.Root) {
	for _, r := range list {
		to = append(to, skill.Root{Dir: r.Path, Namespace: r.Namespace, Recursive: r.Recursive})
	}
	return to
}

// onlyTenant returns the tenant of a daemon without configured tenants.
// Its executions may have other tenants in their records: a credential still names one, for the
// isolation of data.
func (c *config) onlyTenant() *tenant.Tenant {
	return &tenant.Tenant{
		Name: identity.DefaultTenant,
		Policy: permission.Policy{
			Network: c.Network.network(), Shell: c.Shell, Unlisted: permission.ParseUnlisted(c.WithoutAllowedTools),
		},
		Bounds:       c.bounds(),
		Quota:        admission.Quota{Running: c.Concurrency.Running, Reserved: c.Concurrency.Reserved, Queued: c.Concurrency.Queued},
		QueueTimeout: time.Duration(c.Concurrency.QueueTimeout),
		SkillBytes:   int64(c.Snapshots.PushedBytes), SkillVersions: c.Snapshots.PushedVersions,
		Sessions: c.Sessions.Count, SessionBytes: int64(c.Sessions.TotalBytes),
	}
}

// tenantSet returns the tenants of the configuration.
func (c *config) tenantSet() *tenant.Set {
	if !c.manyTenants() {
		return tenant.Single(c.onlyTenant())
	}
	var list []*tenant.Tenant
	for _, s := range c.loaded {
		list = append(list, s.config.tenant(s.name, c.Network.network()))
	}
	return tenant.New(list...)
}

// sweepTenants removes the oldest executions of each tenant that has used up its quota of state_bytes, also if
// the tenant starts no executions.
// sweepRecords calls it after the retention of all tenants, so that it removes as little as possible.
func (d *daemon) sweepTenants(ctx context.Context) {
	for _, t := range d.executor.Tenants.All() {
		if t.StateBytes <= 0 {
			continue
		}
		if _, err := d.executor.MakeRoom(ctx, t); err != nil && ctx.Err() == nil && !executor.IsHandedOver(err) {
			d.log.Error("retention of a tenant", "tenant", t.Name, "err", err)
		}
	}
}
