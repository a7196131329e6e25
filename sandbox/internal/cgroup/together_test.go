package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The limits of a parent group on cgroup v2, and what the kernel may answer to each.
func TestUnifiedLimitsTogether(t *testing.T) {
	files := map[string]string{"memory.max": "", "pids.max": "", "cpu.weight": ""}
	limits := Together{MemoryBytes: int64(os.Getpagesize()) + 1, Processes: 9, CPUWeight: 50}
	for _, tt := range []struct {
		limits Together
		want   map[string]string
	}{
		{limits, map[string]string{"memory.max": "4096", "pids.max": "9", "cpu.weight": "50"}},
		{Together{}, map[string]string{"memory.max": "max", "pids.max": "max", "cpu.weight": "100"}},
	} {
		h, dir := fakeGroup(t, files)
		if err := h.Group().LimitTogether(tt.limits); err != nil {
			t.Fatal(err)
		}
		for name, want := range tt.want {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || strings.TrimSpace(string(got)) != want && os.Getpagesize() == 4096 {
				t.Errorf("%+v: %s is %q, %v, want %q", tt.limits, name, got, err, want)
			}
		}
	}
	for name := range files {
		for _, l := range []Together{limits, {}} {
			h, dir := fakeGroup(t, files)
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			if err := h.Group().LimitTogether(l); !os.IsNotExist(err) {
				t.Errorf("without %s: got %v", name, err)
			}
		}
		// A limit that the kernel takes and does not keep.
		h, dir := fakeGroup(t, files)
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/dev/null", filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if err := h.Group().LimitTogether(limits); err == nil || !strings.Contains(err.Error(), name+": got ") {
			t.Errorf("%s forgets: got %v", name, err)
		}
	}
}

func TestUnifiedReachedMemoryLimit(t *testing.T) {
	for text, want := range map[string]bool{"low 0\noom 0\noom_kill 2\n": false, "low 0\noom 1\noom_kill 0\n": true, "": false} {
		h, _ := fakeGroup(t, map[string]string{"memory.events.local": text})
		if got := h.Group().ReachedMemoryLimit(); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestMakeUnifiedParent(t *testing.T) {
	h, dir := fakeGroup(t, nil)
	for range 2 { // the second one finds them
		if err := h.MakeParent("a", "b"); err != nil {
			t.Fatal(err)
		}
		// The kernel's files can be opened; made-up ones get mode 0, which stops all but root.
		for _, group := range []string{"a", "a/b"} {
			if err := os.Chmod(filepath.Join(dir, group, "cgroup.subtree_control"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "a/b/cgroup.subtree_control")); err != nil || string(got) != "+memory +pids +cpu" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.MakeParent("file", "b"); err == nil || !strings.Contains(err.Error(), "enable controllers in") {
		t.Errorf("beneath a file: got %v", err)
	}
	if err := h.MakeParent("none/a"); err == nil || !strings.Contains(err.Error(), "make cgroup") {
		t.Errorf("without a parent: got %v", err)
	}
}
