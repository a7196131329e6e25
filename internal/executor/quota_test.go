package executor

import (
	"errors"
	"testing"

	"github.com/skillrun/skillrun/internal/admission"
	"github.com/skillrun/skillrun/internal/tenant"
	"github.com/skillrun/skillrun/sandbox"
)

// The tenant's quotas bound the memory and processors of its executions. A refused execution gives back
// everything.
func TestQuotaOfTheTenant(t *testing.T) {
	f := newFake()
	x := newExecutor(t, t.TempDir(), f.runs)
	tenant, limits := "default", Limits{MemoryBytes: 64 << 20, MilliCPUs: 1500}
	x.admission.SetTenant(tenant, admission.Quota{Running: 2, Resources: admission.Resources{MemoryBytes: 100 << 20, MilliCPUs: 2000}})

	req := scriptRequest()
	req.Limits = Limits{MemoryBytes: 101 << 20, MilliCPUs: 10}
	_, _, err := x.Execute(t.Context(), req)
	want := LimitError{Field: "limits.memory_bytes", Asked: "105906176 bytes", Ceiling: "104857600 bytes", SetBy: "tenant"}
	if large, ok := errors.AsType[*LimitError](err); !ok || *large != want {
		t.Errorf("got %v, want %v", err, &want)
	}
	req.Limits = Limits{MemoryBytes: 64 << 20, MilliCPUs: 2001}
	_, _, err = x.Execute(t.Context(), req)
	want = LimitError{Field: "limits.milli_cpus", Asked: "2001", Ceiling: "2000", SetBy: "tenant"}
	if large, ok := errors.AsType[*LimitError](err); !ok || *large != want {
		t.Errorf("got %v, want %v", err, &want)
	}

	req.Limits = limits
	id := execute(t, x, req)
	if got := x.admission.Usage(tenant); got.Resources != (admission.Resources{MemoryBytes: 64 << 20, MilliCPUs: 1500}) {
		t.Errorf("in use: %+v", got)
	}
	req.Limits.MilliCPUs = 500
	_, _, err = x.Execute(t.Context(), req)
	if full, ok := errors.AsType[*QuotaError](err); !ok || full.Quota != admission.Memory || full.Used != 64<<20 || full.RetryAfter <= 0 {
		t.Errorf("got %v, want the quota of memory", err)
	}
	req.Limits = Limits{MemoryBytes: 32 << 20} // and one processor, because it has no limit
	_, _, err = x.Execute(t.Context(), req)
	if full, ok := errors.AsType[*QuotaError](err); !ok || full.Quota != admission.Processors {
		t.Errorf("got %v, want the quota of processors", err)
	}
	f.exit <- sandbox.Exit{End: sandbox.Exited}
	follow(t, x, id)
	x.Drain(t.Context(), t.Context()) // until its slot is free
	if got := x.admission.Usage(tenant); got != (admission.Usage{}) {
		t.Errorf("left in use: %+v", got)
	}
}

// At the quota of stored bytes the oldest execution that has ended goes. With nothing that has ended, nothing
// new is taken.
func TestQuotaOfState(t *testing.T) {
	f := newFake()
	x := newExecutor(t, t.TempDir(), f.runs)
	who := scriptRequest().Principal
	only, _ := x.Tenants.Get(who.Tenant)
	full := *only
	full.Name = who.Tenant
	x.admission.SetTenant(full.Name, full.Quota)
	x.Tenants = tenant.New(&full)
	first := execute(t, x, scriptRequest())
	used := x.StateBytes(&full)
	if used != x.Record.BytesOf(who.Tenant) || used == 0 {
		t.Fatalf("%d bytes", used)
	}
	full.StateBytes = used
	_, _, err := x.Execute(t.Context(), scriptRequest())
	if got, ok := errors.AsType[*QuotaError](err); !ok || got.Quota != admission.State || got.Limit != used || got.Used != used || got.RetryAfter < retryState {
		t.Errorf("got %v, want the quota of state", err)
	}
	if got := x.admission.Usage(who.Tenant); got.Running != 1 || got.Queued != 0 {
		t.Errorf("the refused execution left %+v", got)
	}
	f.exit <- sandbox.Exit{End: sandbox.Exited}
	follow(t, x, first)
	second := execute(t, x, scriptRequest())
	f.exit <- sandbox.Exit{End: sandbox.Exited}
	follow(t, x, second)
	if _, err := x.Get(t.Context(), who, first); !errors.Is(err, ErrNotFound) {
		t.Errorf("the first execution: got %v", err)
	}
	if _, err := x.Get(t.Context(), who, second); err != nil {
		t.Error(err)
	}
	if list, err := x.listed(t.Context(), who.Tenant, first); len(list) != 0 || err != nil {
		t.Errorf("artifacts of a removed execution: got %v, %v", list, err)
	}
	x.Tenants = tenant.Single(only)
	if got, err := x.StateBytes(only), x.CheckState(t.Context(), only); got != x.Record.Bytes() || err != nil {
		t.Errorf("a tenant without the quota: got %d, %v", got, err)
	}
}
