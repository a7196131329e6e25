package main

import (
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// zygotePid returns the pid of the daemon's zygote, "" if none runs.
func (d *running) zygotePid() string {
	for _, b := range boxesOf(d.instance()) {
		for _, pid := range b.pids {
			// A sandbox that the zygote has just cloned is still in the zygote's cgroups.
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

// Killing the zygote ends the executions in its sandboxes. The daemon reports them as lost,
// leaves nothing, and starts another zygote.
func TestZygoteDies(t *testing.T) {
	t.Parallel()
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
		if o.End == pb.ExecutionEnd_EXECUTION_END_EXITED || o.ExitCode != nil && o.GetExitCode() == 0 || o.Advice == "" {
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

// The daemon never uses waiting sandboxes that were killed.
func TestWaitingSandboxesAreKilled(t *testing.T) {
	t.Parallel()
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
