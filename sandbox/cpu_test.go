package sandbox

import (
	"testing"
	"time"
)

// The kernel holds a program to a fifth of a processor, with all its processes together.
func TestProcessors(t *testing.T) { eachMaker(t, testProcessors) }

func testProcessors(t *testing.T, h *Host) {
	spec := Spec{
		ID: "spins", Program: bash("while :; do :; done & while :; do :; done"), Env: testEnv,
		Limits: Limits{MilliCPUs: 200, Wall: 5 * time.Minute},
	}
	p, err := h.Start(t.Context(), spec, IO{})
	if err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	g := h.running["spins"].sandbox.group
	h.mu.Unlock()
	want := map[string]string{"cpu.cfs_quota_us": "20000", "cpu.cfs_period_us": "100000"}
	if g.Unified {
		want = map[string]string{"cpu.max": "20000 100000"}
	}
	for file, text := range want {
		if got, err := g.Read("cpu", file); got != text {
			t.Errorf("%s: got %q, %v, want %q", file, got, err, text)
		}
	}
	until(t, "it was never held up", func() bool {
		n, err := g.Value("cpu", "cpu.stat", "nr_throttled")
		if err != nil {
			t.Fatal(err)
		}
		return n > 0
	})
	p.Stop(0)
	if _, err := p.Wait(); err != nil {
		t.Error(err)
	}
}
