package executor

import (
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/tenant"
	"github.com/skillrun/skillrun/sandbox"
)

// Each tenant has a group of sandboxes: a block of ids, a parent cgroup, a zygote, prewarmed sandboxes
// and Python zygotes that no other tenant's executions use (docs/tenants.md, Isolation).

// defaultTenant is the tenant of a daemon without configured tenants. If it has no limits for all of
// its sandboxes together, they are in the default group, which always has a zygote.
const defaultTenant = "default"

// sandboxGroups is the part of [sandbox.Host] that sets the limits of groups.
type sandboxGroups interface {
	SetGroup(name string, l sandbox.GroupLimits) error
	RemoveGroup(name string)
}

// groupOf returns the group of sandboxes for executions of a caller of the tenant t. A Set with a
// single tenant has callers of other names; each name has a group.
func groupOf(t *tenant.Tenant, who permission.Principal) string {
	if who.Tenant == defaultTenant && t.Cgroup == (tenant.Cgroup{}) {
		return ""
	}
	return who.Tenant
}

// GroupOf is groupOf for a tenant's builds of packages. They run with the tenant's bounds of the moment.
func GroupOf(all *tenant.Set, name string) string {
	t, ok := all.Get(name)
	if !ok {
		return name // a removed tenant; its group starts nothing
	}
	return groupOf(t, permission.Principal{Tenant: name})
}

// setGroups gives the groups of configured tenants their limits.
func (x *Executor) setGroups(list []*tenant.Tenant) {
	if x.Tenants.IsSingle() || x.sandboxes == nil {
		return
	}
	for _, t := range list {
		name := groupOf(t, permission.Principal{Tenant: t.Name})
		if name == "" {
			continue
		}
		err := x.sandboxes.SetGroup(name, sandbox.GroupLimits{
			MemoryBytes: t.Cgroup.MemoryBytes, Processes: int64(t.Cgroup.Processes), CPUWeight: t.Cgroup.CPUWeight,
		})
		if err != nil {
			x.Log.Warn("the limits of a tenant's sandboxes are not in force yet; until they are, it starts nothing", "tenant", t.Name, "err", err)
		}
	}
}

// removeGroup frees the ids, the cgroup and the zygote of a removed tenant if all its executions have ended.
// Otherwise the end of each of them calls removeGroup again.
func (x *Executor) removeGroup(name string) {
	if _, configured := x.Tenants.Get(name); configured || x.sandboxes == nil {
		return
	}
	x.groups.Lock() // so that SetTenants does not add the tenant at the same time
	defer x.groups.Unlock()
	if _, configured := x.Tenants.Get(name); configured {
		return
	}
	if u := x.admission.Usage(name); u.Running+u.Queued == 0 {
		x.sandboxes.RemoveGroup(name)
	}
}
