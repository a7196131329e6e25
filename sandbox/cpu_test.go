package sandbox

import (
	"os"
	"path/filepath"
	"strings"
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
	if g.unified {
		want = map[string]string{"cpu.max": "20000 100000"}
	}
	for file, text := range want {
		if got, err := g.read("cpu", file); got != text {
			t.Errorf("%s: got %q, %v, want %q", file, got, err, text)
		}
	}
	until(t, "it was never held up", func() bool {
		n, err := g.value("cpu", "cpu.stat", "nr_throttled")
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

// If the kernel refuses a limit, or sets another one, no program starts.
func TestProcessorsAreReadBack(t *testing.T) {
	for _, tt := range []struct {
		milli int
		want  string
	}{
		{10, "1000 100000"}, {500, "50000 100000"}, {1500, "150000 100000"}, {0, "max 100000"},
	} {
		h, dir := fakeGroup(t, map[string]string{"cpu.max": ""})
		if err := h.group().limitCPU(tt.milli); err != nil {
			t.Errorf("%d: %v", tt.milli, err)
		}
		if got, _ := os.ReadFile(filepath.Join(dir, "cpu.max")); string(got) != tt.want {
			t.Errorf("%d: got %q, want %q", tt.milli, got, tt.want)
		}
	}
	h, _ := fakeGroup(t, map[string]string{"cpu.max": "500000 1000000 more than is written"})
	if err := h.group().limitCPU(500); err == nil || !strings.Contains(err.Error(), "want 50000 100000") {
		t.Errorf("another value: got %v", err)
	}
	h, _ = fakeGroup(t, nil)
	if err := h.group().limitCPU(500); err == nil {
		t.Error("without a file: no error")
	}
	if err := (group{dirs: map[string]string{"memory": t.TempDir()}}).limitCPU(500); err == nil || !strings.Contains(err.Error(), "no cpu controller") {
		t.Errorf("without the controller: got %v", err)
	}
}

// On v1 a group can't have more than its parent, and the error says so.
func TestProcessorsOfTheGroupAbove(t *testing.T) {
	h := openHost(t)
	if h.cgroups.unified {
		t.Skip("cgroup v2 lets a group ask for more than it gets")
	}
	above := h.cgroups.group("above-" + h.groupName())
	within := h.cgroups.group("above-"+h.groupName(), "within")
	for _, g := range []group{above, within} {
		if err := os.Mkdir(g.dirs["cpu"], 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := above.limitCPU(100); err != nil {
		t.Fatal(err)
	}
	if err := within.limitCPU(200); err == nil || !strings.Contains(err.Error(), "above") {
		t.Errorf("got %v, want that there is less above", err)
	}
	if err := within.limitCPU(50); err != nil {
		t.Error(err)
	}
	if err := within.limitCPU(0); err != nil {
		t.Errorf("lifted: %v", err)
	}
	for _, g := range []group{within, above} {
		if err := os.Remove(g.dirs["cpu"]); err != nil {
			t.Error(err)
		}
	}
}
