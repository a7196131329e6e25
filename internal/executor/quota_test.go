package executor

import (
	"errors"
	"testing"

	"github.com/skillrun/skillrun/internal/admission"
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
	x.Drain(t.Context()) // until its slot is free
	if got := x.admission.Usage(tenant); got != (admission.Usage{}) {
		t.Errorf("left in use: %+v", got)
	}
}
