// Package tenant has the configuration of each tenant, a group of callers, as an immutable value. It has no I/O and
// no locks on the path of a call.
//
// Theory of operation. The configuration makes the Tenants and puts them into a [Set]. Each call
// looks up its caller's Tenant in the Set, once, and works with that value until its end. A reload
// replaces all Tenants of the Set together. So a call sees one version of its tenant, and an
// execution keeps the version with which it was accepted.
package tenant

import (
	"path"
	"slices"
	"sync/atomic"
	"time"

	"github.com/skillrun/skillrun/internal/admission"
	"github.com/skillrun/skillrun/internal/permission"
)

// A Tenant is the configuration of one tenant. It does not change after it is in a Set.
type Tenant struct {
	// Name identifies the tenant, except in a Set made by [Single].
	Name string
	// Policy has the permissions of the tenant's callers.
	Policy permission.Policy
	// Runtimes are the languages of scripts, code and interpreters in command lines that the tenant may
	// use. Nil: all.
	Runtimes []string
	// Images are the root file systems that the tenant's executions may use, by name; HostImage is the
	// machine's own. Nil: all.
	Images []string
	// Bounds are the limits on the tenant's executions.
	Bounds Bounds
	// Quota bounds the tenant's executions together.
	Quota admission.Quota
	// QueueTimeout is how long a request waits for a slot if it does not set queue_timeout.
	QueueTimeout time.Duration
	// Streams is the number of the tenant's streams that may be open at once. Zero: no bound.
	Streams int
	// StateBytes bounds the output, artifacts and records of the tenant's executions: the oldest ended ones
	// go, then nothing new is taken. Zero: no bound.
	StateBytes int64
	// SharedSkills are patterns of the daemon's skills that the tenant sees; see SeesShared. Nil: all.
	SharedSkills []string
	// SkillSources are patterns of hosts. The tenant may push skills only from hosts that these patterns and the daemon's
	// configuration allow. Nil: all hosts that the daemon allows.
	SkillSources []string
	// SkillBytes and SkillVersions bound the skills that the tenant's callers push: the bytes of all
	// kept versions together, and the number of kept versions of each skill. Zero: no bound.
	SkillBytes    int64
	SkillVersions int
	// Sessions is the number of the tenant's sessions, and SessionBytes bounds what all of their versions
	// have on disk. Zero: no bound.
	Sessions     int
	SessionBytes int64
	// Cgroup bounds all of the tenant's sandboxes together.
	Cgroup Cgroup
}

// HostImage is the name of the machine's own root file system in Tenant.Images.
const HostImage = "host"

// Limits bound one execution. In a request, zero means "derive it". The header in the record
// has them as JSON.
type Limits struct {
	Wall           time.Duration `json:"wall"`
	CPU            time.Duration `json:"cpu"` // zero also when derived: no bound
	MemoryBytes    int64         `json:"memory_bytes"`
	Processes      int           `json:"processes"`
	OutputBytes    int64         `json:"output_bytes"` // of each stream
	WorkspaceBytes int64         `json:"workspace_bytes"`
	WorkspaceFiles int           `json:"workspace_files"`
	OpenFiles      int           `json:"open_files"`
	MilliCPUs      int           `json:"milli_cpus,omitempty"` // zero also when derived: all that the machine has
}

// Bounds are the limits on executions: the defaults and the maxima.
type Bounds struct {
	Default     Limits        // for limits that neither the request nor the skill sets
	CommandWall time.Duration // the default wall time of commands
	Max         Limits        // the maxima of every execution
	// SetBy says in errors who set the maxima. Empty: the daemon.
	SetBy string
}

// A Cgroup bounds all processes of a tenant's executions together. Zero fields do not bound anything.
type Cgroup struct {
	MemoryBytes int64
	Processes   int
	// CPUWeight is the tenant's part of busy processors, 1 to 10000, relative to the other tenants.
	// Zero: 100.
	CPUWeight int
}

// SeesShared reports whether the tenant sees a skill of the daemon. name is the skill's full name. A
// pattern is a name in which * stands for any characters but "/" ([path.Match]).
func (t *Tenant) SeesShared(name string) bool {
	return t.SharedSkills == nil || slices.ContainsFunc(t.SharedSkills, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// CheckPattern returns why a text can't be a pattern of SharedSkills, or nil.
func CheckPattern(pattern string) error {
	_, err := path.Match(pattern, "")
	return err
}

// A Set has all tenants of a daemon, by name. Its methods may be called concurrently.
type Set struct {
	single *Tenant // nil: a Set of New
	byName atomic.Pointer[map[string]*Tenant]
}

// New makes a Set. Tenants with equal names are a mistake of the caller; the last one counts.
func New(tenants ...*Tenant) *Set {
	s := &Set{}
	s.Replace(tenants...)
	return s
}

// Single makes a Set for a daemon without configured tenants: t is the tenant of all callers, whatever
// tenants their credentials name. Executions still belong to the credential's tenant, so callers of
// different tenants don't see each other's; they only share the quota. Replace must not be called.
func Single(t *Tenant) *Set { return &Set{single: t} }

// IsSingle reports whether Single made the Set.
func (s *Set) IsSingle() bool { return s.single != nil }

// Get returns a tenant. It takes no lock. The name of a tenant of Single can be another.
func (s *Set) Get(name string) (*Tenant, bool) {
	if s.single != nil {
		return s.single, true
	}
	t, ok := (*s.byName.Load())[name]
	return t, ok
}

// All returns the tenants in the order of their names.
func (s *Set) All() []*Tenant {
	if s.single != nil {
		return []*Tenant{s.single}
	}
	all := *s.byName.Load()
	list := make([]*Tenant, 0, len(all))
	for _, t := range all {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b *Tenant) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return list
}

// Replace puts other tenants into the Set. Each Get sees either all of the old ones or all of the new
// ones.
func (s *Set) Replace(tenants ...*Tenant) {
	if s.single != nil {
		panic("tenant: Replace of a Set with a single tenant")
	}
	byName := make(map[string]*Tenant, len(tenants))
	for _, t := range tenants {
		byName[t.Name] = t
	}
	s.byName.Store(&byName)
}
