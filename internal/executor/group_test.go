package executor

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/tenant"
	"github.com/skillrun/skillrun/sandbox"
)

// fakeGroups records the calls of SetGroup and RemoveGroup.
type fakeGroups struct {
	mu    sync.Mutex
	calls []string
}

func (g *fakeGroups) SetGroup(name string, l sandbox.GroupLimits) error {
	g.add(fmt.Sprintf("set %s %d %d %d", name, l.MemoryBytes, l.Processes, l.CPUWeight))
	return nil
}

func (g *fakeGroups) RemoveGroup(name string) { g.add("remove " + name) }

func (g *fakeGroups) add(call string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, call)
}

// take returns the calls since the last take.
func (g *fakeGroups) take() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	calls := g.calls
	g.calls = nil
	return calls
}

// The default tenant without limits uses the default group, so it needs no second zygote.
func TestGroupOfTenant(t *testing.T) {
	limited := &tenant.Tenant{Cgroup: tenant.Cgroup{Processes: 100}}
	for _, tt := range []struct {
		tenant *tenant.Tenant
		who    string
		want   string
	}{
		{&tenant.Tenant{}, "default", ""},
		{limited, "default", "default"},
		{&tenant.Tenant{}, "acme", "acme"},
		{limited, "acme", "acme"},
	} {
		if got := groupOf(tt.tenant, permission.Principal{Tenant: tt.who, Name: "x"}); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.who, got, tt.want)
		}
		of := *tt.tenant
		of.Name = tt.who
		if got := GroupOf(tenant.New(&of), tt.who); got != tt.want {
			t.Errorf("a build of %s: got %q, want %q", tt.who, got, tt.want)
		}
	}
	if got := GroupOf(tenant.New(), "default"); got != "default" {
		t.Errorf("a build of a removed tenant: got %q", got)
	}
}

// The group of a removed tenant goes when its last execution has ended, and not when it was added again.
func TestGroupsFollowTenants(t *testing.T) {
	f := newFake()
	acme := newTenant("acme", func(t *tenant.Tenant) { t.Cgroup = tenant.Cgroup{MemoryBytes: 1 << 30, Processes: 500, CPUWeight: 200} })
	globex := newTenant("globex", nil)
	x := withTenants(t, f, acme, globex, newTenant("default", nil))
	groups := &fakeGroups{}
	x.sandboxes = groups
	expect := func(when string, want ...string) {
		t.Helper()
		if got := groups.take(); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", when, got, want)
		}
	}
	id := execute(t, x, requestOf("acme"))
	x.SetTenants(globex)
	expect("acme is removed, and has an execution", "set globex 0 0 0", "remove default")
	f.exit <- sandbox.Exit{End: sandbox.Exited}
	done := x.find(id).done
	<-done
	expect("its execution has ended", "remove acme")
	x.SetTenants(globex, acme)
	expect("acme is added again", "set globex 0 0 0", "set acme 1073741824 500 200")
	x.SetTenants(acme)
	expect("globex is removed, and has none", "set acme 1073741824 500 200", "remove globex")
}
