package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skillrun/skillrun/internal/admission"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/tenant"
	"github.com/skillrun/skillrun/sandbox"
)

// An observed notes the calls of an observer.
type observed struct {
	mu      sync.Mutex
	ended   map[End]int
	started []time.Duration
	refused []error
	calls   []string // tenants of refused calls
	tenants map[string]bool
}

func (o *observed) Ended(tenant string, started time.Duration, out Outcome, _ string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended[out.End]++
	o.started = append(o.started, started)
	o.tenants[tenant] = true
}

func (o *observed) Refused(tenant string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refused = append(o.refused, err)
	o.tenants[tenant] = true
}

// Without configured tenants, the observer is told of a bounded number of names.
func TestObservedNamesAreBounded(t *testing.T) {
	x := newExecutor(t, t.TempDir(), newFake().runs)
	seen := map[string]bool{}
	for range 2 {
		for i := range 10 * maxNames {
			seen[x.observed(fmt.Sprint("tenant-", i))] = true
		}
	}
	if len(seen) != maxNames+1 || !seen[""] || !seen["tenant-0"] {
		t.Errorf("%d names, want the first %d and none for the others", len(seen), maxNames)
	}
}

// The observer is told of each end and of each refusal, once.
func TestObserver(t *testing.T) {
	f := newFake()
	x := newExecutor(t, t.TempDir(), f.runs)
	o := &observed{ended: map[End]int{}, tenants: map[string]bool{}}
	x.Observer = o
	f.exit <- sandbox.Exit{End: sandbox.Exited}
	follow(t, x, execute(t, x, scriptRequest()))
	f.exit <- sandbox.Exit{End: sandbox.Signaled, Signal: 9}
	follow(t, x, execute(t, x, scriptRequest()))
	wrong := scriptRequest()
	wrong.Skill = "none"
	if _, _, err := x.Execute(t.Context(), wrong); err == nil {
		t.Fatal("an unknown skill ran")
	}
	x.calls.Wait() // readers see an end before the observer is told
	if want := map[End]int{Exited: 1, Signaled: 1}; !maps.Equal(o.ended, want) {
		t.Errorf("ends %v, want %v", o.ended, want)
	}
	for _, d := range o.started {
		if d <= 0 {
			t.Errorf("a program started after %s", d)
		}
	}
	if len(o.refused) != 1 || !errors.Is(o.refused[0], skill.ErrNotFound) {
		t.Errorf("refused %v", o.refused)
	}
	if len(o.tenants) != 1 || !o.tenants[who.Tenant] {
		t.Errorf("tenants %v", o.tenants)
	}
	if use := x.Usages(); len(use) != 1 || use[who.Tenant].Running != 0 {
		t.Errorf("left %v", use)
	}
}

func (o *observed) CallRefused(tenant string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls = append(o.calls, tenant)
}

// A call within the quota of the next seconds waits for its turn. If its context ends first, it fails.
func TestEnterCallWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		acme := &Tenant{Name: "acme", Quota: admission.Quota{Running: 1, CallsPerSecond: 2}}
		x := &Executor{admission: admission.New(admission.Config{Slots: 1})}
		x.admission.SetTenant(acme.Name, acme.Quota)
		began := time.Now()
		for n, want := range []time.Duration{0, 0, 500 * time.Millisecond, time.Second} {
			if err := x.EnterCall(t.Context(), acme); err != nil || time.Since(began) != want {
				t.Errorf("call %d: got %v after %s, want %s", n, err, time.Since(began), want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := x.EnterCall(ctx, acme); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of the context", err)
		}
	})
}

// A call that starts an execution does not count. A refused request and a repeated one do.
func TestStartsDoNotCountAsCalls(t *testing.T) {
	f := newFake()
	acme := newTenant("acme", func(t *tenant.Tenant) { t.Quota.CallsPerSecond = 0.001 })
	x := withTenants(t, f, acme)
	called := func() {
		t.Helper()
		if err := x.EnterCall(t.Context(), acme); err != nil {
			t.Fatal(err)
		}
		if u := x.Use(acme); u.Called != 1 {
			t.Fatalf("got the use %+v, want one call", u)
		}
	}
	req := requestOf("acme")
	req.Key = "k"
	called()
	execute(t, x, req)
	if u := x.Use(acme); u.Called != 0 {
		t.Errorf("after a start: got the use %+v, want no call", u)
	}
	called()
	if _, duplicate, err := x.Execute(t.Context(), req); err != nil || !duplicate {
		t.Fatalf("got %v, %v; want the earlier execution", duplicate, err)
	}
	if u := x.Use(acme); u.Called != 1 {
		t.Errorf("after a repetition: got the use %+v, want one call", u)
	}
	x.admission.Uncall("acme")
	called()
	req = requestOf("acme")
	req.Skill = "nosuchskill"
	if _, _, err := x.Execute(t.Context(), req); err == nil {
		t.Fatal("no error for an unknown skill")
	}
	if u := x.Use(acme); u.Called != 1 {
		t.Errorf("after a refusal: got the use %+v, want one call", u)
	}
	f.exit <- sandbox.Exit{End: sandbox.Exited}
}

// Calls beyond the tenant's quota are refused and counted, and a new quota holds from then on. They do not use up
// the quotas of executions.
func TestEnterCall(t *testing.T) {
	x := withTenants(t, newFake())
	o := &observed{ended: map[End]int{}, tenants: map[string]bool{}}
	x.Observer = o
	acme := &Tenant{Name: "acme", Quota: admission.Quota{Running: 1, CallsPerSecond: 0.001}}
	free := &Tenant{Name: "free", Quota: admission.Quota{Running: 1}}
	x.SetTenants(acme, free)
	if err := x.EnterCall(t.Context(), acme); err != nil {
		t.Errorf("the first call: %v", err)
	}
	for range 3 {
		full, ok := errors.AsType[*QuotaError](x.EnterCall(t.Context(), acme))
		if !ok || full.Quota != admission.Calls || full.Limit != 1 || full.RetryAfter <= 0 {
			t.Errorf("got %+v, want the quota of calls", full)
		}
		if err := x.EnterCall(t.Context(), free); err != nil {
			t.Errorf("a tenant without the quota: %v", err)
		}
	}
	if want := []string{"acme", "acme", "acme"}; !slices.Equal(o.calls, want) {
		t.Errorf("the observer was told of %v, want %v", o.calls, want)
	}
	if u := x.Use(acme); u.CallBurst != 1 || u.Called != 1 || u.Burst != 0 || u.Started != 0 {
		t.Errorf("got the use %+v", u)
	}
	x.SetTenants(&Tenant{Name: "acme", Quota: admission.Quota{Running: 1}}, free)
	if err := x.EnterCall(t.Context(), acme); err != nil {
		t.Errorf("without the quota: %v", err)
	}
	x.SetTenants(free)
	if err := x.EnterCall(t.Context(), acme); err != nil {
		t.Errorf("a removed tenant, which other checks refuse: %v", err)
	}
}
