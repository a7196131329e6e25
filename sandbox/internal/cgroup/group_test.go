package cgroup

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Most tests of this package test cgroup v2, also on a machine with v1. They read and write in
// a directory that looks like a cgroup. They kill and remove in a real cgroup v2, which has no
// controllers on a machine with v1. make test-cgroup2 runs them on v2.

// fakeGroup is a hierarchy whose base is a directory with these files.
func fakeGroup(t *testing.T, files map[string]string) (*Hierarchy, string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &Hierarchy{Unified: true, prefix: "/x", Base: map[string]string{"": dir}}, dir
}

// realGroup makes a new, empty cgroup v2. It reaches the cgroup through a mount that is
// attached nowhere (fsmount(2)), so that a killed test leaves no mount on the machine.
func realGroup(t *testing.T) *Hierarchy {
	t.Helper()
	fs, err := unix.Fsopen("cgroup2", unix.FSOPEN_CLOEXEC)
	if err != nil {
		t.Skipf("cgroup v2 can't be mounted: %v", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		t.Skipf("cgroup v2 can't be mounted: %v", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		t.Skipf("cgroup v2 can't be mounted: %v", err)
	}
	t.Cleanup(func() { unix.Close(mount) })
	dir := fmt.Sprintf("/proc/self/fd/%d/skillrun-test-%s", mount, rand.Text())
	h := &Hierarchy{Unified: true, Base: map[string]string{"": dir}}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no cgroup can be made: %v", err)
	}
	t.Cleanup(func() {
		if err := h.Group().Clear(patience); err != nil {
			t.Error(err)
		}
	})
	return h
}

// patience is how long the kernel may take to end processes.
const patience = 10 * time.Second

// enter starts a process in g that waits for its input to end.
func enter(t *testing.T, g Group) *exec.Cmd {
	t.Helper()
	if err := os.MkdirAll(g.Dirs[""], 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(g.Dirs[""])
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command("cat")
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestUnifiedKill(t *testing.T) {
	h := realGroup(t)
	g := h.Group("a")
	outer, inner := enter(t, g), enter(t, h.Group("a", "b"))
	if pids, err := g.Pids(); err != nil || !slices.Equal(pids, []int{outer.Process.Pid}) {
		t.Errorf("pids: got %v, %v, want %d", pids, err, outer.Process.Pid)
	}
	if children := g.Children(); len(children) != 1 || children[0].Dirs[""] != h.Group("a", "b").Dirs[""] {
		t.Errorf("children: got %v", children)
	}
	if err := g.Remove(); err == nil || !strings.Contains(err.Error(), "remove cgroup") {
		t.Errorf("a cgroup with processes was removed: %v", err)
	}
	// The parent can't have controllers for children while it has processes (cgroups(7)).
	if err := (&Hierarchy{Unified: true, Base: g.Dirs}).Prepare(); err == nil || !strings.Contains(err.Error(), strconv.Itoa(outer.Process.Pid)) {
		t.Errorf("prepare: got %v, want it to name %d", err, outer.Process.Pid)
	}
	killed := make(chan error, 2)
	for _, cmd := range []*exec.Cmd{outer, inner} {
		go func() { killed <- cmd.Wait() }()
	}
	if err := g.Clear(patience); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-killed; err == nil || err.Error() != "signal: killed" {
			t.Errorf("a process ended with %v, want killed", err)
		}
	}
	if _, err := os.Stat(g.Dirs[""]); !os.IsNotExist(err) {
		t.Errorf("the cgroup is left: %v", err)
	}
	if pids, err := g.Pids(); len(pids) > 0 || err != nil {
		t.Errorf("pids of no cgroup: got %v, %v", pids, err)
	}
}
