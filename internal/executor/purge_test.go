package executor

import (
	"errors"
	"testing"

	"github.com/skillrun/skillrun/internal/tenant"
	"github.com/skillrun/skillrun/sandbox"
)

// Without configured tenants every credential's tenant can use the daemon, so none is purged.
func TestPurgeOfTheOnlyTenant(t *testing.T) {
	x := newExecutor(t, t.TempDir(), newFake().runs)
	for _, name := range []string{"default", "acme"} {
		_, err := x.Purge(t.Context(), of("default"), name)
		if e, ok := errors.AsType[*TenantConfiguredError](err); !ok || !e.Single || e.Tenant != name {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// Purge is refused until the last execution and the last build of packages of the tenant have ended.
func TestPurgeWhileBusy(t *testing.T) {
	f := newFake()
	x := withTenants(t, f, newTenant("a", nil), newTenant("b", nil))
	id := execute(t, x, requestOf("a"))
	end, err := x.beginPrepare(of("a"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = x.Purge(t.Context(), of("b"), "a")
	if e, ok := errors.AsType[*TenantConfiguredError](err); !ok || e.Single {
		t.Errorf("got %v", err)
	}
	b, _ := x.Tenants.Get("b")
	x.SetTenants(b)
	wantBusy := func(want string) {
		t.Helper()
		_, err := x.Purge(t.Context(), of("b"), "a")
		if e, ok := errors.AsType[*TenantBusyError](err); !ok || e.Reason != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	wantBusy("1 of its executions run or wait")
	x.mu.Lock()
	r := x.live[id]
	x.mu.Unlock()
	f.exit <- sandbox.Exit{End: sandbox.Exited}
	<-r.done
	wantBusy("packages of its skills are being built")
	end()
	if _, err := x.beginPrepare(of("a")); !errors.As(err, new(*UnknownTenantError)) {
		t.Errorf("a build of a removed tenant: got %v", err)
	}
	if done, err := x.Purge(t.Context(), of("b"), "a"); err != nil || done.Executions != 1 || done.ExecutionBytes == 0 {
		t.Errorf("got %+v, %v", done, err)
	}
	if _, err := x.Get(t.Context(), of("a"), id); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

// The earlier daemon of a takeover may have bytes of each tenant. A purge works when that daemon has ended.
func TestPurgeBesideAnEarlierDaemon(t *testing.T) {
	x, _, _, earlier := newDead(t, func(c *Config) { c.Tenants = tenant.New(newTenant("a", nil)) })
	_, err := x.Purge(t.Context(), of("a"), "gone")
	if e, ok := errors.AsType[*TenantBusyError](err); !ok || e.Reason != "the earlier daemon of a takeover has not ended" {
		t.Errorf("got %v", err)
	}
	if err := errors.Join(earlier.Close(), x.Record.Adopt(t.Context()), x.Adopt(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Purge(t.Context(), of("a"), "gone"); err != nil {
		t.Error(err)
	}
}
