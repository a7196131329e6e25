package cgroup

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// If the kernel refuses a limit, or sets another one, no program starts.
func TestProcessorsAreReadBack(t *testing.T) {
	for _, tt := range []struct {
		milli int
		want  string
	}{
		{10, "1000 100000"}, {500, "50000 100000"}, {1500, "150000 100000"}, {0, "max 100000"},
	} {
		h, dir := fakeGroup(t, map[string]string{"cpu.max": ""})
		if err := h.Group().LimitCPU(tt.milli); err != nil {
			t.Errorf("%d: %v", tt.milli, err)
		}
		if got, _ := os.ReadFile(filepath.Join(dir, "cpu.max")); string(got) != tt.want {
			t.Errorf("%d: got %q, want %q", tt.milli, got, tt.want)
		}
	}
	h, _ := fakeGroup(t, map[string]string{"cpu.max": "500000 1000000 more than is written"})
	if err := h.Group().LimitCPU(500); err == nil || !strings.Contains(err.Error(), "want 50000 100000") {
		t.Errorf("another value: got %v", err)
	}
	h, _ = fakeGroup(t, nil)
	if err := h.Group().LimitCPU(500); err == nil {
		t.Error("without a file: no error")
	}
	if err := (Group{Dirs: map[string]string{"memory": t.TempDir()}}).LimitCPU(500); err == nil || !strings.Contains(err.Error(), "no cpu controller") {
		t.Errorf("without the controller: got %v", err)
	}
}

// On v1 a group can't have more than its parent, and the error says so.
func TestProcessorsOfTheGroupAbove(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes cgroups")
	}
	h, err := Open("")
	if err != nil {
		t.Fatal(err)
	}
	if h.Unified {
		t.Skip("cgroup v2 lets a group ask for more than it gets")
	}
	name := "skillrun-test-" + rand.Text()
	above, within := h.Group(name), h.Group(name, "within")
	for _, g := range []Group{above, within} {
		if err := os.Mkdir(g.Dirs["cpu"], 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := above.LimitCPU(100); err != nil {
		t.Fatal(err)
	}
	if err := within.LimitCPU(200); err == nil || !strings.Contains(err.Error(), "above") {
		t.Errorf("got %v, want that there is less above", err)
	}
	if err := within.LimitCPU(50); err != nil {
		t.Error(err)
	}
	if err := within.LimitCPU(0); err != nil {
		t.Errorf("lifted: %v", err)
	}
	for _, g := range []Group{within, above} {
		if err := os.Remove(g.Dirs["cpu"]); err != nil {
			t.Error(err)
		}
	}
}
