package executor

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/admission"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/tenant"
	"github.com/skillrun/skillrun/sandbox"
)

// newTenant returns a tenant with the limits of newExecutor.
func newTenant(name string, change func(*tenant.Tenant)) *tenant.Tenant {
	t := &tenant.Tenant{Name: name, Bounds: StandardBounds(), Quota: admission.Quota{Running: 2, Queued: 2}, QueueTimeout: time.Minute}
	t.Bounds.SetBy = "tenant"
	if change != nil {
		change(t)
	}
	return t
}

// withTenants returns an executor with tenants, whose programs end when the test lets them.
func withTenants(t *testing.T, f *fakeProcess, list ...*tenant.Tenant) *Executor {
	t.Helper()
	return newExecutor(t, t.TempDir(), f.runs, func(c *Config) { c.Tenants = tenant.New(list...) })
}

func of(name string) permission.Principal {
	return permission.Principal{Tenant: name, Name: "somebody"}
}

func requestOf(name string) Request {
	r := scriptRequest()
	r.Principal = of(name)
	return r
}

// Each tenant has its own limits, and its own room in the queue.
func TestTenantsHaveTheirOwnBoundsAndQuotas(t *testing.T) {
	f := newFake()
	x := withTenants(t, f,
		newTenant("small", func(t *tenant.Tenant) {
			t.Bounds.Max.MemoryBytes, t.Bounds.Default.MemoryBytes = 64<<20, 32<<20
			t.Quota = admission.Quota{Running: 1}
		}),
		newTenant("large", nil),
	)
	req := requestOf("small")
	req.Limits.MemoryBytes = 65 << 20
	_, _, err := x.Execute(t.Context(), req)
	want := LimitError{Field: "limits.memory_bytes", Asked: "68157440 bytes", Ceiling: "67108864 bytes", SetBy: "tenant"}
	if got, ok := errors.AsType[*LimitError](err); !ok || *got != want {
		t.Errorf("got %v, want %v", err, &want)
	}
	id := execute(t, x, requestOf("small"))
	if e, err := x.Get(t.Context(), of("small"), id); err != nil || e.Header.Limits.MemoryBytes != 32<<20 {
		t.Errorf("got %+v, %v", e.Header.Limits, err)
	}
	_, _, err = x.Execute(t.Context(), requestOf("small"))
	if full, ok := errors.AsType[*QuotaError](err); !ok || full.Quota != admission.Running || full.Limit != 1 || full.Used != 1 {
		t.Errorf("got %v, want the quota of running executions", err)
	}
	other := execute(t, x, requestOf("large"))
	for range 2 {
		f.exit <- sandbox.Exit{End: sandbox.Exited}
	}
	followAs(t, x, of("small"), id)
	followAs(t, x, of("large"), other)
}

// The policy of a tenant holds for Check as for Execute.
func TestTenantsHaveTheirOwnPolicies(t *testing.T) {
	f := newFake()
	x := withTenants(t, f,
		newTenant("none", func(t *tenant.Tenant) { t.Runtimes = []string{"bash"} }),
		newTenant("image", func(t *tenant.Tenant) { t.Images = []string{"data"} }),
		newTenant("no-code", func(t *tenant.Tenant) { t.Policy.NoCode = true }),
		newTenant("all", func(t *tenant.Tenant) {
			t.Runtimes, t.Images = []string{"python", "bash"}, []string{tenant.HostImage}
		}),
	)
	script := permission.Source{Kind: permission.Script, Script: "scripts/go.py"}
	code := permission.Source{Kind: permission.Code, Code: "print(1)"}
	command := permission.Source{Kind: permission.Command, Command: "python {baseDir}/scripts/go.py a.csv"}
	for _, tt := range []struct {
		tenant string
		source permission.Source
		want   string
	}{
		{"none", script, "the policy of tenant none has no runtime python; its runtimes are bash"},
		{"none", code, "the policy of tenant none has no runtime python; its runtimes are bash"},
		{"none", command, "the policy of tenant none has no runtime python; its runtimes are bash"},
		{"image", script, "the policy of tenant image has no image host, in which this runs; its images are data"},
		{"no-code", code, "inline code is switched off"},
		{"nobody", script, "the tenant nobody of the credential is not configured"},
		{"all", script, ""},
		{"all", code, ""},
		{"all", command, ""},
	} {
		sk, err := x.Skills.Resolve("demo")
		if err != nil {
			t.Fatal(err)
		}
		_, checked := x.Check(of(tt.tenant), sk, tt.source, nil)
		req := Request{Principal: of(tt.tenant), Skill: "demo", Source: tt.source}
		id, _, err := x.Execute(t.Context(), req)
		if tt.want == "" {
			if checked != nil || err != nil {
				t.Fatalf("%s, %s: got %v, %v", tt.tenant, tt.source.Kind, checked, err)
			}
			f.exit <- sandbox.Exit{End: sandbox.Exited}
			followAs(t, x, of(tt.tenant), id)
			continue
		}
		if err == nil || checked == nil || err.Error() != checked.Error() || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s, %s: Execute says %v, Check says %v, want %q", tt.tenant, tt.source.Kind, err, checked, tt.want)
		}
	}
}

// A tenant that is removed gets nothing new, and its running execution ends as if nothing had happened.
func TestRemovedTenant(t *testing.T) {
	f := newFake()
	x := withTenants(t, f, newTenant("a", nil), newTenant("b", nil))
	running := execute(t, x, requestOf("a"))
	b, _ := x.Tenants.Get("b")
	x.SetTenants(b)
	_, _, err := x.Execute(t.Context(), requestOf("a"))
	if unknown, ok := errors.AsType[*UnknownTenantError](err); !ok || unknown.Tenant != "a" {
		t.Errorf("got %v", err)
	}
	// Between the look-up of the tenant and its ticket.
	if _, err := x.enter(newTenant("a", nil), of("a")); !errors.As(err, new(*UnknownTenantError)) {
		t.Errorf("got %v", err)
	}
	f.exit <- sandbox.Exit{End: sandbox.Exited}
	if events := followAs(t, x, of("a"), running); events[len(events)-1].Outcome.End != Exited {
		t.Errorf("got %+v", events)
	}
	x.SetTenants(newTenant("a", nil), b)
	again := execute(t, x, requestOf("a"))
	f.exit <- sandbox.Exit{End: sandbox.Exited}
	followAs(t, x, of("a"), again)
}
