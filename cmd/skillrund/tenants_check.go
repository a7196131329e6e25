package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/tenant"
)

// Bounds of a tenant's keys. cgroup.cpu_weight is cgroup v2's cpu.weight.
const (
	maxWeight    = 10_000
	maxCPUWeight = 10_000
)

// check reports every mistake in one tenant that does not depend on other tenants. bad gets the keys
// beneath the tenant.
// It runs after inherit, so every key has its final value. The rule is always the same: a tenant
// may narrow the daemon's keys, never widen them.
func (t *tenantConfig) check(c *config, bad badFunc) {
	for n, row := range t.Callers {
		key := index("callers", n)
		c.checkCredential(join(key, "caller"), row.Caller, bad)
		if row.Role == identity.None {
			bad(join(key, "role"), "is not set; write read, invoke or admin")
		}
		// An operator sees all tenants, so a tenant's file must not make one: another person may
		// write it.
		if row.Role == identity.Operator {
			bad(join(key, "role"), "operator is a role for the whole daemon; write read, invoke or admin, or add the caller to identity.callers")
		}
	}
	t.checkSkills(c, bad)
	t.checkPolicy(c, bad)
	checkLimitSet(bad, t.Limits.Default, t.Limits.Max, t.Limits.CommandWallTime)
	for i, f := range limitFields(t.Limits.Max) {
		// 0 of the tenant means no limit, which is above any limit of the daemon.
		if top := limitFields(c.Limits.Max)[i]; top.n > 0 && (f.n > top.n || f.n == 0) {
			bad("limits.max."+f.key, "%s is above the daemon's limits.max.%s, %s; lower it", f.value, f.key, top.value)
		}
	}
	t.checkQuotas(c, bad)
}

// checkSkills checks the folders and patterns of skills.
func (t *tenantConfig) checkSkills(c *config, bad badFunc) {
	for i, root := range t.Skills {
		key := index("skills", i)
		if root.Path == "" {
			bad(join(key, "path"), "is empty; write the folder that holds the skills")
		}
		if root.Namespace != "" && !skill.ValidNamespace(root.Namespace) {
			bad(join(key, "namespace"), "%q is not a namespace; write at most 64 lowercase letters, digits and single hyphens", root.Namespace)
		}
		if root.Path != "" && (liesIn(root.Path, c.StateDir) || liesIn(c.StateDir, root.Path)) {
			bad(key, "%s shares files with state_dir, %s, which belongs to the daemon; write a folder outside of it", root.Path, c.StateDir)
		}
	}
	for i, pattern := range t.SharedSkills {
		if err := tenant.CheckPattern(pattern); err != nil || pattern == "" {
			bad(index("shared_skills", i), "%q is not a pattern of names; write names such as pdf, team/* or *", pattern)
		}
	}
}

// liesIn reports whether path is dir or lies in it.
func liesIn(path, dir string) bool {
	rel, err := filepath.Rel(realPath(dir), realPath(path))
	return err == nil && filepath.IsLocal(rel)
}

// realPath follows links, as far as the path exists. It returns "" for "".
func realPath(path string) string {
	if path == "" {
		return ""
	}
	rest := ""
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		// A folder may be missing now and be made later. The part that exists decides where it will be.
		if to, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(to, rest)
		}
		if at == filepath.Dir(at) {
			return filepath.Clean(path)
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}

// checkPolicy checks that the policy is not wider than the daemon's.
func (t *tenantConfig) checkPolicy(c *config, bad badFunc) {
	p := t.Policy
	p.Network.check("policy.network", bad)
	if p.Network.on && !c.Network.on {
		bad("policy.network", "rules are wider than the daemon's network, none; write none, or set network: {allow: [public]} for the daemon")
	}
	if p.Shell && !c.Shell {
		bad("policy.shell", "true is wider than the daemon's shell, false; write false, or set shell: true for the daemon")
	}
	// The entries are compared as words, not by their effect: a narrower rule that is not in
	// the daemon's list is refused, too.
	for i, entry := range p.WithoutAllowedTools {
		key := index("policy.without_allowed_tools", i)
		if reason := permission.CheckUnlisted(entry); reason != "" {
			bad(key, "%q: %s", entry, reason)
		} else if !slices.Contains(c.WithoutAllowedTools, entry) {
			bad(key, "%q is wider than the daemon's without_allowed_tools, which does not have it; remove it, or add it there", entry)
		}
	}
	for i, language := range p.Runtimes {
		if !slices.Contains(runtime.Languages(), language) {
			bad(index("policy.runtimes", i), "%q is unknown; write %s", language, orList(runtime.Languages()))
		}
	}
	checkSources("policy.skill_sources", p.SkillSources, bad)
	// Images without a language have no interpreter, so no execution could use them.
	known := append([]string{tenant.HostImage}, c.usedImages()...)
	for i, name := range p.Images {
		if !slices.Contains(known, name) {
			bad(index("policy.images", i), "%q is not a root file system of the daemon's runtimes; write %s", name, orList(known))
		}
	}
}

// checkQuotas checks the quotas and the cgroup. A quota below the present use is not a mistake:
// running executions may finish.
func (t *tenantConfig) checkQuotas(c *config, bad badFunc) {
	q := t.Quotas
	between := func(key string, n, least, most int, why string) {
		if n < least || n > most {
			bad(key, "%d; must be %d to %d%s", n, least, most, why)
		}
	}
	between("quotas.weight", q.Weight, 1, maxWeight, "")
	between("quotas.running", q.Running, 1, max(1, c.Concurrency.Running), ", the daemon's concurrency.running")
	between("quotas.queued", q.Queued, 0, max(0, c.Concurrency.Queued), ", the daemon's concurrency.queued")
	if q.QueueTimeout <= 0 || q.QueueTimeout > duration(executor.MaxQueue) {
		bad("quotas.queue_timeout", "%s; must be more than 0s and at most %s", q.QueueTimeout, executor.MaxQueue)
	}
	for _, f := range []struct {
		key string
		n   int
	}{{"quotas.burst", q.Burst}, {"quotas.streams", q.Streams}, {"quotas.skill_versions", q.SkillVersions}, {"quotas.sessions", q.Sessions}, {"cgroup.processes", t.Cgroup.Processes}} {
		if f.n < 0 {
			bad(f.key, "%d is negative; write 0 or more", f.n)
		}
	}
	if q.Burst > 0 && q.StartsPerSecond == 0 {
		bad("quotas.burst", "%d, but quotas.starts_per_second is not set, so starts have no limit; set both", q.Burst)
	}
	// Otherwise a request that sets no limit could never start.
	if need := t.Limits.Default.Memory; q.Memory > 0 && q.Memory < need {
		bad("quotas.memory", "%s is less than one execution gets by default (limits.default.memory), %s; raise it or lower limits.default.memory", q.Memory, need)
	}
	// An execution without a limit counts as one processor.
	if need := cmp.Or(t.Limits.Default.CPUs, t.Limits.Max.CPUs, 1000); q.CPUs > 0 && q.CPUs < need {
		bad("quotas.cpus", "%s is less than one execution counts by default (limits.default.cpus), %s; raise it or lower limits.default.cpus", q.CPUs, need)
	}
	if most := c.Concurrency.Memory; most > 0 && q.Memory > most {
		bad("quotas.memory", "%s is above the daemon's concurrency.memory, %s; lower it", q.Memory, most)
	}
	if most := c.Concurrency.CPUs; most > 0 && q.CPUs > most {
		bad("quotas.cpus", "%s is above the daemon's concurrency.cpus, %s; lower it", q.CPUs, most)
	}
	if q.StateBytes > c.Retention.Bytes {
		bad("quotas.state_bytes", "%s is above the daemon's retention.bytes, %s; lower it", q.StateBytes, c.Retention.Bytes)
	}
	if need := t.Limits.Default.Memory; t.Cgroup.Memory > 0 && t.Cgroup.Memory < need {
		bad("cgroup.memory", "%s is less than one execution gets by default (limits.default.memory), %s; raise it or lower limits.default.memory", t.Cgroup.Memory, need)
	}
	// limits.default.processes counts neither the program itself nor its sandbox's init.
	if n, need := t.Cgroup.Processes, t.Limits.Default.Processes+2; n > 0 && n < need {
		bad("cgroup.processes", "%d are less than one execution gets by default (limits.default.processes, its program and an init), %d; raise it or lower limits.default.processes", n, need)
	}
	between("cgroup.cpu_weight", t.Cgroup.CPUWeight, 0, maxCPUWeight, "; 0 means 100")
}

// claims have the callers and folders of skills that belong to one tenant only.
type claims struct {
	callers map[string]string // to the owner, in words
	beneath map[string]string // patterns that cover a caller of another tenant, to the caller with its owner
	daemon  []callerRow       // of identity.callers
	roots   map[string]string // to the owner, in words
	above   map[string]string // the directories above a root, to its owner
}

// newClaims returns the claims of the daemon itself.
func (c *config) newClaims() *claims {
	k := &claims{callers: map[string]string{}, beneath: map[string]string{}, daemon: c.Identity.Callers, roots: map[string]string{}, above: map[string]string{}}
	for n, row := range c.Identity.Callers {
		k.callers[row.Caller] = index("identity.callers", n)
	}
	for i, root := range c.Skills {
		k.addRoot(root.Path, "the daemon's "+index("skills", i))
	}
	return k
}

// add reports the conflicts of a tenant with earlier ones. Without a conflict, it adds the tenant's claims.
func (k *claims) add(s *tenantSource) bool {
	n := len(s.found.list)
	for i, row := range s.config.Callers {
		key := join(index("callers", i), "caller")
		same := func(o tenantCaller) bool { return o.Caller == row.Caller }
		if owner, ok := k.callers[row.Caller]; ok {
			s.bad(key, "%s belongs to %s already; remove one of the two", row.Caller, owner)
		} else if slices.ContainsFunc(s.config.Callers[:i], same) {
			s.bad(key, "%s is listed twice; remove one of the two", row.Caller)
		} else if other := k.overlap(s.name, row.Caller); other != "" {
			s.bad(key, "%s overlaps with %s; give each tenant IDs that nobody else has", row.Caller, other)
		}
	}
	for i, root := range s.config.Skills {
		if owner := k.rootOwner(root.Path); owner != "" {
			s.bad(index("skills", i), "%s shares files with %s; give each tenant folders that nobody else has", root.Path, owner)
		}
	}
	if len(s.found.list) > n {
		return false
	}
	owner := "tenant " + s.name
	for _, row := range s.config.Callers {
		k.callers[row.Caller] = owner
		for _, pattern := range identity.Patterns(row.Caller) {
			k.beneath[pattern] = row.Caller + " of " + owner
		}
	}
	for i, root := range s.config.Skills {
		k.addRoot(root.Path, index("skills", i)+" of "+owner+", "+root.Path)
	}
	return true
}

// overlap returns a caller of another tenant, with its owner, that has SPIFFE IDs in common with a caller of a tenant, or
// "" if no other tenant has such a caller. Such an overlap is a mistake: the longer of two patterns counts, so one tenant
// could take over callers of the other.
func (k *claims) overlap(name, caller string) string {
	if other := k.beneath[caller]; other != "" {
		return other
	}
	for _, pattern := range identity.Patterns(caller) {
		if owner := k.callers[pattern]; owner != "" && !strings.HasPrefix(owner, "identity.") {
			return pattern + " of " + owner
		}
	}
	for n, row := range k.daemon {
		if row.Tenant != name && (identity.Covers(row.Caller, caller) || identity.Covers(caller, row.Caller)) {
			return row.Caller + " of " + index("identity.callers", n)
		}
	}
	return ""
}

// addRoot adds a folder of skills. The folder of the same root under another name is the same folder.
func (k *claims) addRoot(dir, owner string) {
	dir = realPath(dir)
	k.roots[dir] = owner
	for dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		k.above[dir] = owner
	}
}

// rootOwner returns the owner of a root that is dir, contains dir or lies in dir. It is empty if there is
// none.
func (k *claims) rootOwner(dir string) string {
	dir = realPath(dir)
	if owner := k.above[dir]; owner != "" {
		return owner
	}
	for {
		if owner := k.roots[dir]; owner != "" || dir == filepath.Dir(dir) {
			return owner
		}
		dir = filepath.Dir(dir)
	}
}

// unknownTenants returns the tenants that identity names and known does not have. They are no mistake: an operator
// removes a tenant by its file, and the daemon must start afterwards. Their credentials are refused. An operator needs no
// tenant: the calls about the daemon work without.
func (c *config) unknownTenants(known func(name string) bool) (list []problem) {
	if !c.manyTenants() {
		return nil
	}
	check := func(key, name string) {
		if name != "" && identity.CheckTenant(name) == nil && !known(name) {
			list = append(list, problem{key, 0, fmt.Sprintf("the tenant %s is not configured, so its credentials are refused; remove the name, or configure the tenant", name)})
		}
	}
	for n, row := range c.Identity.Callers {
		if row.Role != identity.Operator {
			check(join(index("identity.callers", n), "tenant"), row.Tenant)
		}
	}
	for n, i := range c.Identity.Issuers {
		key := index("identity.issuers", n)
		check(join(key, "tenant"), i.Tenant)
		for k, name := range i.Tenants {
			check(index(join(key, "tenants"), k), name)
		}
	}
	return list
}

// configured reports whether the file, or a file of tenants_dir, has the tenant.
func (c *config) configured(name string) bool {
	return slices.ContainsFunc(c.loaded, func(s *tenantSource) bool { return s.name == name })
}
