package cgroup

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTryUnified(t *testing.T) {
	h, dir := fakeGroup(t, map[string]string{"cgroup.controllers": "cpu memory pids\n"})
	if got, err := h.Try(); got != "cgroup v2 at "+dir || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if left, _ := filepath.Glob(dir + "/skillrun*"); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	for _, tt := range []struct {
		files map[string]string
		want  string
	}{
		{nil, "no such file"},
		{map[string]string{"cgroup.controllers": "cpu memory.x pids\n"}, "has no controller memory"},
		{map[string]string{"cgroup.controllers": "cpu memory pids", "cgroup.type": "", "cgroup.procs": "1"}, "has other processes"},
	} {
		h, _ := fakeGroup(t, tt.files)
		if got, err := h.Try(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: got %q, %v, want %q", tt.files, got, err, tt.want)
		}
	}
	v1 := &Hierarchy{Base: map[string]string{"memory": t.TempDir(), "pids": t.TempDir()}}
	if _, err := v1.Try(); err == nil || !strings.Contains(err.Error(), "no controller cpuacct") {
		t.Errorf("v1 without cpuacct: got %v", err)
	}
	v1.Base["pids"] = "/dev/null/x"
	if _, err := v1.Try(); err == nil {
		t.Error("a cgroup was made in a file")
	}
}

func TestTrySwap(t *testing.T) {
	with, _ := fakeGroup(t, map[string]string{"memory.swap.max": "max"})
	without, _ := fakeGroup(t, nil)
	for _, tt := range []struct {
		name string
		h    *Hierarchy
		good bool
	}{
		{"v1 with swapaccount", &Hierarchy{swap: true}, true},
		{"v1 without", &Hierarchy{}, false},
		{"v2", with, true},
		{"v2 at its root", &Hierarchy{Unified: true, Base: map[string]string{"": UnifiedRoot}}, true},
		{"v2 without swap accounting", without, false},
	} {
		if got, err := tt.h.TrySwap(); (err == nil) != tt.good {
			t.Errorf("%s: got %q, %v", tt.name, got, err)
		}
	}
}

// A real cgroup v2 without controllers is refused, and the error names the controllers.
func TestUnifiedWithoutControllers(t *testing.T) {
	h := realGroup(t)
	have, err := os.ReadFile(filepath.Join(h.Base[""], "cgroup.controllers"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(have, []byte("memory")) {
		t.Skip("the machine has cgroup v2 with controllers: make test-cgroup2 is for it")
	}
	if _, err := h.Try(); err == nil || !strings.Contains(err.Error(), "has no controller memory") {
		t.Errorf("try: got %v", err)
	}
	if err := h.Prepare(); err == nil || !strings.Contains(err.Error(), "enable controller memory") {
		t.Errorf("prepare: got %v", err)
	}
}

// A thread of the daemon may be ending while the daemon moves into its leaf. It stays behind for a moment.
func TestPassOnAwaitsWhatEnds(t *testing.T) {
	h := realGroup(t)
	have, err := os.ReadFile(filepath.Join(h.Base[""], "cgroup.controllers"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(have, []byte("memory")) {
		t.Skip("the machine's cgroup v2 has no controllers: make test-cgroup2 is for it")
	}
	last := enter(t, h.Group())
	if err := os.WriteFile(filepath.Join(h.Base[""], "cgroup.subtree_control"), []byte("+memory"), 0); !errors.Is(err, unix.EBUSY) {
		t.Fatalf("with a process in the cgroup: got %v, want %v", err, unix.EBUSY)
	}
	passed := make(chan error, 1)
	go func() { passed <- passOn(h.Base[""], "memory") }()
	if err := errors.Join(last.Process.Kill(), last.Wait()); err == nil {
		t.Error("the process was not killed")
	}
	if err := <-passed; err != nil {
		t.Error(err)
	}
}

func TestCgroupsOfThisNamespace(t *testing.T) {
	const own = "30 25 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
	const outer = "30 25 0:27 /../.. /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
	for _, tt := range []struct {
		name, info string
		ok         bool
	}{
		{"the machine's own", own, true},
		{"a container's own", outer + own, true},
		{"the machine's in a container", outer, false},
		{"the same where nobody minds", strings.Replace(outer, "nsdelegate,", "", 1), true},
		{"of another place", strings.Replace(outer, "/sys/fs/cgroup", "/mnt", 1), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := ofThisNamespace(tt.info)
			if (err == nil) != tt.ok {
				t.Errorf("got %v", err)
			}
			if err != nil && !strings.Contains(err.Error(), "mount -t cgroup2") {
				t.Errorf("%q does not say what to do", err)
			}
		})
	}
}
