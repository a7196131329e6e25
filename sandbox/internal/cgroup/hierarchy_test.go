package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestUnifiedPrepare(t *testing.T) {
	self := strconv.Itoa(os.Getpid())
	read := func(path string) string {
		_ = os.Chmod(path, 0o600) // made without rights, because the kernel makes the real one
		b, _ := os.ReadFile(path)
		return string(b)
	}
	t.Run("alone in its cgroup", func(t *testing.T) {
		h, dir := fakeGroup(t, map[string]string{"cgroup.type": "domain\n", "cgroup.procs": self + "\n", "cgroup.subtree_control": ""})
		if err := h.Prepare(); err != nil {
			t.Fatal(err)
		}
		if got := read(filepath.Join(dir, daemonLeaf, "cgroup.procs")); got != self {
			t.Errorf("the daemon's leaf got %q, want %s", got, self)
		}
		// A real file collects them; this one has the last.
		if got := read(filepath.Join(dir, "cgroup.subtree_control")); got != "+cpu" {
			t.Errorf("subtree_control got %q", got)
		}
	})
	t.Run("in its leaf already", func(t *testing.T) {
		h, dir := fakeGroup(t, map[string]string{"cgroup.type": "domain\n", "cgroup.procs": "", "cgroup.subtree_control": ""})
		if err := h.Prepare(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, daemonLeaf)); err == nil {
			t.Error("a leaf was made for nobody")
		}
	})
	t.Run("root of the machine", func(t *testing.T) {
		h, dir := fakeGroup(t, map[string]string{"cgroup.procs": "1\n" + self + "\n", "cgroup.subtree_control": ""})
		if err := h.Prepare(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, daemonLeaf)); err == nil {
			t.Error("the root was left")
		}
	})
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"others in it", map[string]string{"cgroup.type": "", "cgroup.procs": self + "\n1\n"}, "has other processes, such as 1,"},
		{"no list of processes", map[string]string{"cgroup.type": ""}, "no such file"},
		{"odd list of processes", map[string]string{"cgroup.type": "", "cgroup.procs": "x"}, "invalid syntax"},
		{"the leaf's name is taken", map[string]string{"cgroup.type": "", "cgroup.procs": self, daemonLeaf: ""}, "not a directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, _ := fakeGroup(t, tt.files)
			if err := h.Prepare(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
		})
	}
	t.Run("v1", func(t *testing.T) {
		if err := (&Hierarchy{}).Prepare(); err != nil {
			t.Error(err)
		}
	})
}

func TestOwnGroup(t *testing.T) {
	root := t.TempDir()
	for path, procs := range map[string]string{"alone": strconv.Itoa(os.Getpid()), "shared": strconv.Itoa(os.Getpid()) + "\n1", "odd": "x"} {
		if err := os.MkdirAll(filepath.Join(root, path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path, "cgroup.procs"), []byte(procs), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{"/alone": "/alone", "/shared": "/", "/service/" + daemonLeaf: "/service"} {
		if got, err := ownGroup(root, path); got != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"/odd", "/none"} {
		if got, err := ownGroup(root, path); err == nil {
			t.Errorf("%s: got %q, want an error", path, got)
		}
	}
}

func TestLoadHierarchy(t *testing.T) {
	h, _ := fakeGroup(t, nil)
	path := filepath.Join(t.TempDir(), "h.json")
	if err := h.Save(path); err != nil {
		t.Fatal(err)
	}
	got, err := Load(path)
	if err != nil || !got.Unified || got.Base[""] != h.Base[""] {
		t.Errorf("got %+v, %v, want %+v", got, err, h)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("half a file: got %v", err)
	}
	if _, err := Load(path + ".none"); !os.IsNotExist(err) {
		t.Errorf("no file: got %v", err)
	}
}

// A parent that is missing on v2 is an error before the start.
func TestExists(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		h    Hierarchy
		want bool
	}{
		{Hierarchy{Unified: true, Base: map[string]string{"": dir}}, true},
		{Hierarchy{Unified: true, Base: map[string]string{"": dir + "/none"}}, false},
		{Hierarchy{Base: map[string]string{"memory": dir + "/none"}}, true},
	} {
		if err := tt.h.Exists(); (err == nil) != tt.want {
			t.Errorf("%+v: got %v", tt.h, err)
		}
	}
}
