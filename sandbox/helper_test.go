package sandbox

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// The kernel kills a helper that uses more memory than its limit, refuses it more processes, and Close
// leaves nothing.
func TestHelperGroup(t *testing.T) {
	h := openHost(t)
	start := func(script string, l HelperLimits) (*HelperGroup, *exec.Cmd, func() error) {
		t.Helper()
		g, err := h.NewHelperGroup("acme", l)
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command("sh", "-c", "read line; "+script)
		in, err := c.StdinPipe()
		if err == nil {
			err = c.Start()
		}
		if err == nil {
			err = g.Enter(c.Process.Pid)
		}
		if err != nil {
			t.Fatal(err)
		}
		in.Close()
		return g, c, c.Wait
	}
	light, err := h.NewHelperGroup("acme", HelperLimits{MemoryBytes: 32 << 20, Processes: 8, CPUWeight: 50})
	if err != nil {
		t.Fatal(err)
	}
	file, want := "cpu.shares", "512"
	if light.group.Unified {
		file, want = "cpu.weight", "50"
	}
	if got, err := light.group.Read("cpu", file); err != nil || got != want {
		t.Errorf("%s: got %q, %v, want %s", file, got, err, want)
	}
	if err := light.Close(); err != nil {
		t.Error(err)
	}
	greedy, c, wait := start("exec tail /dev/zero", HelperLimits{MemoryBytes: 32 << 20, Processes: 8})
	if err := wait(); c.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || !greedy.OutOfMemory() {
		t.Errorf("beyond its memory: %v, out of memory %t", err, greedy.OutOfMemory())
	}
	many, c, wait := start("sleep 1000 & sleep 1000 & sleep 1000", HelperLimits{MemoryBytes: 32 << 20, Processes: 2})
	if err := wait(); c.ProcessState.ExitCode() != 2 || many.OutOfMemory() {
		t.Errorf("beyond its processes: %v", err)
	}
	lives, _, wait := start("sleep 1000", HelperLimits{MemoryBytes: 32 << 20, Processes: 2})
	first, ids := int(h.config.FirstHelperID), map[int]bool{greedy.ID(): true, many.ID(): true, lives.ID(): true}
	for id := range ids {
		if id < first || id >= first+HelperIDs || len(ids) != 3 {
			t.Errorf("ids: %v, want three different ones from %d on", ids, first)
		}
	}
	for _, g := range []*HelperGroup{greedy, many, lives} {
		if err := g.Close(); err != nil || g.group.Unremoved() != "" {
			t.Errorf("%v %s", err, g.group.Unremoved())
		}
	}
	if err := wait(); err == nil {
		t.Error("a process has outlived its group")
	}
	if err := lives.Enter(1); err == nil {
		t.Error("a process entered a removed group")
	}
	if _, err := h.NewHelperGroup("../acme", HelperLimits{MemoryBytes: 32 << 20, Processes: 2}); err == nil || !strings.Contains(err.Error(), "cgroup of a helper") {
		t.Errorf("a name that is a path: %v", err)
	}
	if _, err := h.NewHelperGroup("acme", HelperLimits{MemoryBytes: 32 << 20, Processes: -2}); err == nil {
		t.Error("limits that the kernel refuses")
	}
	noLeftovers(t, h)
}

// No two helpers of the machine have the same id at the same time.
func TestHelperIDs(t *testing.T) {
	needsRoot(t)
	const first = 1 << 30
	claim := func(number, want uint32) *os.File {
		t.Helper()
		id, lock, err := claimHelperID(first, number)
		if err != nil || id != want {
			t.Fatalf("got %d, %v, want %d", id, err, want)
		}
		return lock
	}
	a := claim(5, first+5)
	defer claim(5, first+6).Close()
	defer claim(HelperIDs+6, first+7).Close()
	a.Close()
	claim(5, first+5).Close()
	last := claim(HelperIDs-1, first+HelperIDs-1)
	defer last.Close()
	claim(HelperIDs-1, first).Close()
	if _, _, err := claimHelperID(1<<32-2, 0); err == nil {
		t.Error("ids past the last one")
	}
}
