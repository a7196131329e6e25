package main

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// until waits for something that the daemon does by itself.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// zygotePid is the process that makes the daemon's sandboxes ahead; "" if there is none.
func (d *running) zygotePid() string {
	for _, b := range boxesOf(d.instance()) {
		for _, pid := range b.pids {
			// A sandbox that it just made is in its cgroups yet.
			if b.name == zygoteBox && statusOf(pid)["Name"] == zygoteComm {
				return pid
			}
		}
	}
	return ""
}

func killPid(t testing.TB, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatalf("process %q: %v", pid, err)
	}
	if err := unix.Kill(n, unix.SIGKILL); err != nil && err != unix.ESRCH {
		t.Fatal(err)
	}
}

// Whoever kills the zygote of the sandboxes ends what runs in them. The daemon says so,
// leaves nothing, and goes on with another.
func TestZygoteDies(t *testing.T) {
	dir := newDir(t)
	writeHostileSkill(t, dir)
	d := startDaemonIn(t, dir, "")
	d.works()
	until(t, "no sandbox waits", func() bool { return len(d.waitingBoxes()) > 0 })
	ids := d.hold(3, code("hostile", stubborn))
	first := d.zygotePid()
	killPid(t, first)
	for _, id := range ids {
		o := d.attach(id, 0).outcome
		if o.End == pb.End_END_EXITED || o.ExitCode != nil && o.GetExitCode() == 0 || o.Advice == "" {
			t.Errorf("%s ended as %v, want that it was lost", id, o)
		}
		d.untilNoProcess(id)
	}
	until(t, "there is no other zygote", func() bool { pid := d.zygotePid(); return pid != "" && pid != first })
	until(t, "no sandbox waits any more", func() bool { d.works(); return len(d.waitingBoxes()) > 0 })
	d.wantNothingLeft()
	d.wantNoProcess()
	if !strings.Contains(d.log.String(), "serving") || d.cmd.Process.Signal(syscall.Signal(0)) != nil {
		t.Error("the daemon is gone")
	}
}

// Sandboxes that were killed while they waited are given to nobody.
func TestWaitingSandboxesAreKilled(t *testing.T) {
	dir := newDir(t)
	writeHostileSkill(t, dir)
	d := startDaemonIn(t, dir, "")
	d.works()
	for range 3 {
		until(t, "no sandbox waits", func() bool { return len(d.waitingBoxes()) > 0 })
		for _, b := range boxesOf(d.instance()) {
			if b.waits() {
				killPid(t, b.init)
				until(t, "it lives on", func() bool { return len(processesIn(b.paths)) == 0 })
			}
		}
		d.works()
	}
	d.wantNothingLeft()
	d.wantNoProcess()
}
