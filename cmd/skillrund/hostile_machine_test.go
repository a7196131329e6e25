package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// ownMachineVar is set on a machine that tests may change and that is thrown away after
// them: the virtual machine of make test-cgroup2. Its value is the directory with the modules
// that the kernel has loaded.
const ownMachineVar = "SKILLRUN_OWN_MACHINE"

const changesTheMachine = "changes the whole machine: TestHostileMachine does that, in the virtual machine of make test-cgroup2"

// ownMachine skips a test unless it runs on a machine that it may change.
func ownMachine(t *testing.T) (modules string) {
	t.Helper()
	modules, ok := os.LookupEnv(ownMachineVar)
	if !ok {
		t.Skip("changes the whole machine: make test-cgroup2 runs it in a virtual machine")
	}
	return modules
}

// TestHostileMachine runs the cases that change the whole machine. No other test may run at
// the same time.
func TestHostileMachine(t *testing.T) {
	modules := ownMachine(t)
	t.Run("fault-11-clock-jump", clockJump)
	t.Run("clock under load", func(t *testing.T) {
		row := &faultRow{fault: "clock set forward and back by an hour"}
		clockJumps(t, row)
		row.wantNone(t)
		fmt.Print(faultTable([]*faultRow{row}))
	})
	t.Run("fault-12-fail-closed", func(t *testing.T) {
		t.Run("user.max_user_namespaces=0", func(t *testing.T) {
			setForNow(t, "/proc/sys/user/max_user_namespaces", "0")
			refusesToStart(t, "", nil, "user namespace is missing")
		})
		t.Run("core_pattern that pipes to a program", pipedDumps)
		t.Run("core_pattern that names a socket", dumpsToASocket)
		t.Run("no overlay module", func(t *testing.T) {
			unload(t, "overlay", modules)
			refusesToStart(t, "", nil, "overlay workspace is missing", "modprobe overlay")
		})
	})
	// All changes are undone, so a daemon starts again.
	d := startHostile(t, "")
	d.run(code("hostile", "print('still here')")).wantStdout(t, "still here\n")
}

// unified reports whether the machine has cgroup v2 only.
func unified() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

// badParents has cgroups v2 whose sandboxes would have no limits.
var badParents = []struct {
	name string
	make func(*testing.T) string // returns the value for cgroup_parent
	want string                  // part of the daemon's error
}{
	{"that is not there", func(*testing.T) string { return "/hostile-none" }, "cgroup_parent: stat "},
	{"that gets no controllers", func(t *testing.T) string {
		return newGroup(t, newGroup(t, "", nil), nil)
	}, "has no controller memory"},
	{"that gets some of the controllers", func(t *testing.T) string {
		outer := newGroup(t, "", map[string]string{"cgroup.subtree_control": "+memory +cpu"})
		return newGroup(t, outer, nil)
	}, "has no controller pids"},
	{"that is threaded", func(t *testing.T) string {
		return newGroup(t, newGroup(t, "", nil), map[string]string{"cgroup.type": "threaded"})
	}, "has no controller memory"},
	{"that holds a process", func(t *testing.T) string {
		group := newGroup(t, "", nil)
		cmd := exec.Command("/usr/bin/cat")
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		dir, err := os.Open("/sys/fs/cgroup" + group)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		return group
	}, "has other processes"},
}

// newGroup makes a cgroup v2 in parent and writes to its files. It removes the cgroup when
// the test ends. It returns the path without /sys/fs/cgroup.
func newGroup(t *testing.T, parent string, files map[string]string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/sys/fs/cgroup"+parent, "hostile-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Rmdir(dir); err != nil {
			t.Errorf("remove %s: %v", dir, err)
		}
	})
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	return strings.TrimPrefix(dir, "/sys/fs/cgroup")
}

// setForNow writes a setting of the kernel and restores it when the test ends.
func setForNow(t *testing.T, path, value string) {
	t.Helper()
	was, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(path, bytes.TrimSpace(was), 0); err != nil {
			t.Error(err)
		}
	})
}

// unload removes a module of the kernel and loads it again when the test ends.
func unload(t *testing.T, name, modules string) {
	t.Helper()
	file, err := os.Open(filepath.Join(modules, name+".ko"))
	if err != nil {
		t.Fatal(err)
	}
	// Mounts of ended sandboxes use the module until the kernel has destroyed them.
	if !await(func() bool { err = unix.DeleteModule(name, unix.O_NONBLOCK); return err == nil }) {
		t.Fatalf("unload %s: %v", name, err)
	}
	t.Cleanup(func() {
		defer file.Close()
		if err := unix.FinitModule(int(file.Fd()), "", 0); err != nil {
			t.Errorf("load %s: %v", name, err)
		}
	})
}

// refusesToStart runs a daemon and checks that it exits, prints each of words and never
// listens. by is a command that executes its arguments; nil: none. extra is more
// configuration.
func refusesToStart(t *testing.T, extra string, by []string, words ...string) {
	t.Helper()
	dir := newDir(t)
	if err := os.Chmod(dir, 0o777); err != nil { // the daemon of a case may not be root
		t.Fatal(err)
	}
	config := filepath.Join(dir, "c.yaml")
	text := "state_dir: state\nrun_dir: run\nskills: []\nlisten: {unix: s.sock}\n" + extra
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "skillrund")
	if out, err := exec.Command("install", "-m", "0755", binary(t, "skillrund"), bin).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	args := append(append([]string{}, by...), bin, "--config", config)
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Errorf("it serves, or hangs: %v\n%s", err, tail(string(out), 1500))
	}
	for _, want := range words {
		if !strings.Contains(string(out), want) {
			t.Errorf("it says %s\nwant a word of %q", tail(string(out), 1500), want)
		}
	}
	if _, err := os.Lstat(dir + "/s.sock"); err == nil {
		t.Error("it listens")
	}
}

// withoutSeccomp returns a command that executes its arguments as on a kernel without
// seccomp. It loads a filter that makes all calls fail that would load another filter.
func withoutSeccomp(t *testing.T) []string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the filter has the numbers of system calls on x86-64")
	}
	return []string{"/usr/bin/python3", "-c", `
import ctypes, os, struct, sys
LOAD, EQUAL, RET, ALLOW, ERRNO = 0x20, 0x15, 0x06, 0x7fff0000, 0x00050000
ENOSYS, EINVAL, SECCOMP, PRCTL, SET_SECCOMP, FILTER = 38, 22, 317, 157, 22, 2
program = b"".join(struct.pack("HBBI", *i) for i in [
    (LOAD, 0, 0, 0),
    (EQUAL, 0, 1, SECCOMP), (RET, 0, 0, ERRNO | ENOSYS),
    (EQUAL, 0, 3, PRCTL), (LOAD, 0, 0, 16), (EQUAL, 0, 1, SET_SECCOMP), (RET, 0, 0, ERRNO | EINVAL),
    (RET, 0, 0, ALLOW),
])
class Prog(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_char_p)]
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(SET_SECCOMP, FILTER, ctypes.byref(Prog(len(program) // 8, program)), 0, 0):
    raise OSError(ctypes.get_errno(), "prctl")
os.execv(sys.argv[1], sys.argv[1:])
`}
}

// clockJump sets the clock forward and back by an hour while executions run. Every deadline
// still comes at its time.
func clockJump(t *testing.T) {
	d := startHostile(t, "")
	held := hostileCase{Lang: "bash", Code: "echo held; read line; echo done", Limits: catalogueLimits}
	held.Limits.WallMS = (10 * time.Minute).Milliseconds()
	type execution struct {
		wait    func() *result
		release func()
	}
	var all []execution
	start := func() {
		wait, release := startHeld(t, d, held)
		all = append(all, execution{wait, release})
	}
	// A deadline ends an execution, whatever the clock says.
	late := func() {
		t.Helper()
		r := d.run(wall(shell("hostile", "sleep 1000"), time.Second))
		if r.outcome.End != pb.ExecutionEnd_EXECUTION_END_TIMED_OUT || r.outcome.Evidence.GetDeadline() != pb.ExecutionDeadline_EXECUTION_DEADLINE_WALL {
			t.Errorf("ended as %v, want the wall deadline", r.outcome)
		}
		if got := r.outcome.Usage.GetWallTime().AsDuration(); got < time.Second || got >= jump {
			t.Errorf("a second took %s", got)
		}
	}
	start()
	jumpBy(t, jump)
	d.works()
	late()
	start()
	jumpBy(t, -2*jump)
	d.works()
	late()
	start()
	jumpBy(t, jump)
	for _, e := range all {
		e.release()
		r := e.wait()
		r.wantExit(t, 0)
		r.wantStdout(t, "held\ndone\n")
		if got := r.outcome.Usage.GetWallTime().AsDuration(); got < 0 || got >= jump {
			t.Errorf("it took %s", got)
		}
	}
	d.works()
	d.wantNothingLeft()
}

// clockJumps is a row like the rows of TestFaults: the clock jumps under load. No execution ends for that reason.
func clockJumps(t *testing.T, row *faultRow) {
	dir := newDir(t)
	writeHostileSkill(t, dir)
	d := startDaemonIn(t, dir, faultConfig)
	l := startLoad(t, d)
	for _, by := range []time.Duration{jump, -2 * jump, jump} {
		l.untilAnswers(4)
		jumpBy(t, by)
		row.times++
	}
	l.untilAnswers(4)
	endLoad(t, d, l, row)
}

// jump is the size of a change of the clock.
const jump = time.Hour

// jumpBy changes the clock of the machine.
func jumpBy(t *testing.T, by time.Duration) {
	t.Helper()
	now := unix.NsecToTimeval(time.Now().Add(by).UnixNano())
	if err := unix.Settimeofday(&now); err != nil {
		t.Fatal(err)
	}
}

// inItsService makes a daemon start in a new cgroup v2, as systemd starts a service with
// Delegate=yes. SKILLRUN_TEST_SLICE names the parent. If it is not set, the daemon starts in
// the cgroup of the test.
func inItsService(t testing.TB, cmd *exec.Cmd, name string) {
	t.Helper()
	slice := os.Getenv("SKILLRUN_TEST_SLICE")
	if slice == "" {
		return
	}
	service := daemonGroup(t, slice, name+".service")
	// A cgroup v2 with controllers for its children takes no process (cgroups(7), no internal
	// processes). So the next daemon starts in the leaf into which the last one has moved, as
	// with DelegateSubgroup=.
	leaf, group := filepath.Join(service, "skillrun-daemon"), service
	if _, err := os.Stat(leaf); err == nil {
		group = leaf
	}
	dir, err := os.Open(group)
	if err != nil {
		t.Fatal(err)
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	t.Cleanup(func() { dir.Close() })
}

// daemonGroup makes a cgroup v2 for a daemon, unless it exists. When the test ends, it
// removes the cgroup and the leaf into which a daemon moves.
func daemonGroup(t testing.TB, slice, name string) string {
	t.Helper()
	group := filepath.Join(slice, name)
	if err := os.MkdirAll(group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// If another daemon of the same directory still runs in the cgroup, the removal fails
		// here, and the cleanup of that daemon's test removes the cgroup.
		for _, dir := range []string{filepath.Join(group, "skillrun-daemon"), group} {
			if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT && err != unix.EBUSY && err != unix.ENOTEMPTY {
				t.Error(err)
			}
		}
	})
	return group
}
