package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSocketLimitIsReadBack(t *testing.T) {
	dir := t.TempDir()
	g := Group{Dirs: map[string]string{"memory": dir, "pids": dir}}
	for name, text := range map[string]string{"memory.limit_in_bytes": "65536", "pids.max": "9", SocketLimit: ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.LimitSockets(65536); err != nil {
		t.Error(err)
	}
	if err := g.Verify(65536, 9); err != nil {
		t.Error(err)
	}
	if err := g.LimitSockets(1 << 20); err != nil {
		t.Error(err)
	}
	if err := g.Verify(65536, 9); err == nil || !strings.Contains(err.Error(), SocketLimit+" is 131072, want 8192") {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(filepath.Join(dir, SocketLimit)); err != nil {
		t.Fatal(err)
	}
	if err := g.LimitSockets(65536); err == nil {
		t.Error("a kernel without such a limit has it set")
	}
}

// On cgroup v2 only the kernel's command line can keep buffers out of the memory limit.
func TestUncountedSockets(t *testing.T) {
	for line, want := range map[string]string{
		"": "", "BOOT_IMAGE=/vmlinuz quiet": "", "cgroup.memory=nokmem": "", "xcgroup.memory=nosocket": "",
		"quiet cgroup.memory=nosocket":    "the kernel was started with cgroup.memory=nosocket",
		"cgroup.memory=nokmem,nosocket\n": "the kernel was started with cgroup.memory=nokmem,nosocket",
	} {
		if got := UncountedSockets(line); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}
