package main

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A dumpTaker is a program that the kernel starts for each crash, like apport and
// systemd-coredump, core(5). It writes a line to lines for each crash.
type dumpTaker struct{ path, lines string }

// takeDumps installs a dumpTaker until the test ends. With core_pipe_limit the kernel lets
// a crashed process end only after the dumpTaker has ended, so a test that waited for the
// process sees the line.
func takeDumps(t *testing.T) dumpTaker {
	t.Helper()
	dir := newDir(t)
	taker := dumpTaker{filepath.Join(dir, "taker"), filepath.Join(dir, "lines")}
	program := fmt.Sprintf("#!/bin/bash\n/usr/bin/cat >/dev/null\necho \"$*\" >>%s\n", taker.lines)
	if err := os.WriteFile(taker.path, []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	setForNow(t, "/proc/sys/kernel/core_pipe_limit", "16")
	pattern := "|" + taker.path + " signal %s limit %c of %e"
	if len(pattern) > 127 { // CORENAME_MAX_SIZE - 1: the kernel truncates longer patterns
		t.Fatalf("%q is too long", pattern)
	}
	setForNow(t, "/proc/sys/kernel/core_pattern", pattern)
	return taker
}

// wantTaken compares the lines since the last call by their first words.
func (d dumpTaker) wantTaken(t *testing.T, what string, want ...string) {
	t.Helper()
	data, err := os.ReadFile(d.lines)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	os.Remove(d.lines)
	var got []string
	for line := range strings.Lines(string(data)) {
		got = append(got, strings.TrimSpace(line))
	}
	bad := len(got) != len(want)
	for i := 0; !bad && i < len(want); i++ {
		bad = !strings.HasPrefix(got[i], want[i]+" ")
	}
	if bad {
		t.Errorf("%s: what takes dumps was started for %q, want %q", what, got, want)
	}
}

// crashOutside crashes a process outside of every sandbox with this RLIMIT_CORE, and reports
// whether the kernel dumped it.
func crashOutside(t *testing.T, limit int64) bool {
	t.Helper()
	err := exec.Command("/usr/bin/python3", "-c", fmt.Sprintf(
		"import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (%[1]d, %[1]d)); os.abort()", limit)).Run()
	exit, ok := err.(*exec.ExitError)
	if !ok {
		t.Fatalf("got %v, want a crash", err)
	}
	status := exit.Sys().(syscall.WaitStatus)
	if status.Signal() != unix.SIGABRT {
		t.Fatalf("got %v, want SIGABRT", exit)
	}
	return status.CoreDump()
}

// crashes starts processes. Each one tries to change its RLIMIT_CORE and then dies by another
// signal, or in another way, than the others.
const crashes = `
import ctypes, os, resource, signal, struct, threading
libc = ctypes.CDLL(None)
machine = {"x86_64": (160, 302, 62), "aarch64": (164, 261, 183)}[os.uname().machine]
print("parent", os.getppid())

def change():
    libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE
    for value in (0, 2, 4096, (1 << 64) - 1):
        limit = (ctypes.c_ulong * 2)(value, value)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for high in (0, 1 << 32, 1 << 63):
            libc.syscall(ctypes.c_long(machine[0]), ctypes.c_long(4 | high), limit)
            for pid in (0, os.getpid(), os.getppid()):
                for old in (None, (ctypes.c_ulong * 2)()):
                    libc.syscall(ctypes.c_long(machine[1]), ctypes.c_long(pid), ctypes.c_long(4 | high), limit, old)

def by(number):
    def crash():
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return crash

def null():
    ctypes.string_at(0)

def thread():
    t = threading.Thread(target=null)
    t.start()
    t.join()

# A program whose only segment would lie in the kernel: exec fails when there is
# nothing to go back to.
def execute():
    with open("/tmp/bad", "wb") as f:
        f.write(b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 2, machine[2], 1, 0x400000, 64, 0, 0, 64, 56, 1, 0, 0, 0))
        f.write(struct.pack("<IIQQQQQQ", 1, 5, 0, 0xffff800000000000, 0, 4096, 4096, 4096))
    os.chmod("/tmp/bad", 0o700)
    os.execv("/tmp/bad", ["bad"])

for name, crash in (("SEGV", by(11)), ("ABRT", by(6)), ("QUIT", by(3)), ("SYS", by(31)), ("null", null), ("thread", thread), ("exec", execute)):
    pid = os.fork()
    if pid == 0:
        change()
        crash()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    print(name, os.WIFSIGNALED(status) and signal.Signals(os.WTERMSIG(status)).name, os.WCOREDUMP(status), flush=True)
change()
os.abort()
`

// crashesPrint is the output of crashes without its first line.
const crashesPrint = `SEGV SIGSEGV False
ABRT SIGABRT False
QUIT SIGQUIT False
SYS SIGSYS False
null SIGSEGV False
thread SIGSEGV False
exec SIGSEGV False
`

// crashesInCPrint is the output of machine/dumps.c, a program like crashes with attacks that
// need C.
const crashesInCPrint = `null SEGV
illegal ILL
abort ABRT
quit QUIT
cpu XCPU
stack SEGV
thread SEGV
memory SEGV
`

// pipedDumps: most distributions pipe core dumps to a program. A crash in a sandbox does not
// start this program, whatever the script does before the crash.
func pipedDumps(t *testing.T) {
	taker := takeDumps(t)
	// For a process outside of the sandboxes the kernel starts the program, even with limit 0.
	// Only limit 1 prevents it (fs/coredump.c). Processes in sandboxes have this limit.
	for _, tt := range []struct {
		limit  int64
		dumped bool
		taken  []string
	}{{0, true, []string{"signal 6 limit 0"}}, {-1, true, []string{fmt.Sprintf("signal 6 limit %d", uint64(math.MaxUint64))}}, {1, false, nil}} {
		if got := crashOutside(t, tt.limit); got != tt.dumped {
			t.Errorf("outside, limit %d: dumped %v, want %v", tt.limit, got, tt.dumped)
		}
		taker.wantTaken(t, "outside", tt.taken...)
	}
	for _, extra := range []string{"prepared: {zygote: false, sandboxes: 0, python_zygotes: 0}\n", ""} {
		d := startHostile(t, extra)
		taker.wantTaken(t, "start of the daemon")
		var found []string
		for _, b := range d.capabilities().Boundaries {
			if strings.Contains(b.Name, "core dumps") {
				found = append(found, fmt.Sprint(b.Name, " ", b.GetFound()))
				if b.Name == "core dumps" && !strings.Contains(b.Detail, taker.path) {
					t.Errorf("%s: %q doesn't name what takes dumps", b.Name, b.Detail)
				}
			}
		}
		if got, want := strings.Join(found, ", "), "core dumps true, no core dumps true"; got != want {
			t.Errorf("boundaries: got %s, want %s", got, want)
		}
		crashInside(t, d, taker, extra == "")
		onlyTheLimit(t, d, taker)
		d.wantNothingLeft()
		d.stop()
		taker.wantTaken(t, "end of the daemon")
	}
}

// crashInside runs scripts that crash. If forked, it repeats the Python script until a script
// was forked from a Python zygote.
func crashInside(t *testing.T, d *running, taker dumpTaker, forked bool) {
	r := d.run(shell("hostile", "ulimit -c 0; ulimit -c unlimited; bash -c 'ulimit -c 0; kill -SEGV $$'; echo $?; kill -ABRT $$"))
	r.wantStdout(t, "139\n")
	wantAborted(t, r)
	taker.wantTaken(t, "bash")
	source, err := os.ReadFile(filepath.Join(hostileDir, "machine/dumps.c"))
	if err != nil {
		t.Fatal(err)
	}
	inC := hostileCase{ID: "dumps", Lang: "c", Code: string(source), Limits: catalogueLimits}
	inC.Limits.WallMS = patience.Milliseconds()
	r = d.run(inC.request())
	r.wantStdout(t, crashesInCPrint)
	wantAborted(t, r)
	taker.wantTaken(t, "C")
	for kind := ""; kind == "" || forked && kind != "0"; {
		r := d.run(code("hostile", crashes))
		first, rest, _ := strings.Cut(r.stdout.String(), "\n")
		kind = strings.TrimPrefix(first, "parent ") // getppid is 0 for a forked script: its parent is outside of the sandbox
		if rest != crashesPrint {
			t.Fatalf("Python %s: got %q, want %q; stderr %q", kind, rest, crashesPrint, r.stderr.String())
		}
		wantAborted(t, r)
		taker.wantTaken(t, "Python with parent "+kind)
	}
	if limit := dumpLimitOf(t, strconv.Itoa(d.cmd.Process.Pid)); limit == nil || limit.Cur > 1 {
		t.Errorf("the daemon has the limit %v", limit)
	}
	for _, b := range boxesOf(d.instance()) {
		for _, pid := range b.pids {
			limit := dumpLimitOf(t, pid)
			if limit != nil && (limit.Cur != 1 || limit.Max != 1) {
				t.Errorf("process %s of %s has the limit %v", pid, b.name, *limit)
			}
		}
	}
}

func wantAborted(t *testing.T, r *result) {
	t.Helper()
	if r.outcome.End != pb.ExecutionEnd_EXECUTION_END_SIGNALED || r.outcome.GetExitCode() != -int32(unix.SIGABRT) {
		t.Errorf("ended as %v, want SIGABRT; stderr %q", r.outcome, r.stderr.String())
	}
}

// onlyTheLimit changes the limit of a script's process from outside. Now the crash starts
// the dumpTaker, which shows that only the limit prevented it before.
func onlyTheLimit(t *testing.T, d *running, taker dumpTaker) {
	wait, release := startHeld(t, d, hostileCase{Lang: "bash", Code: "echo held; read line; kill -ABRT $$", Limits: catalogueLimits})
	changed := 0
	for _, b := range usedBoxes(d.instance()) {
		for _, pid := range b.pids {
			if statusOf(pid)["Name"] != "bash" {
				continue
			}
			n, err := strconv.Atoi(pid)
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.Prlimit(n, unix.RLIMIT_CORE, &unix.Rlimit{}, nil); err != nil {
				t.Fatal(err)
			}
			changed++
		}
	}
	release()
	wantAborted(t, wait())
	if changed != 1 {
		t.Errorf("%d processes of a script, want 1", changed)
	}
	taker.wantTaken(t, "a script with another limit", "signal 6 limit 0")
}

// dumpLimitOf returns RLIMIT_CORE of a process, nil if the process has ended.
func dumpLimitOf(t *testing.T, pid string) *unix.Rlimit {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Prlimit(n, unix.RLIMIT_CORE, nil, &limit); err == unix.ESRCH {
		return nil
	} else if err != nil {
		t.Fatal(err)
	}
	return &limit
}

// dumpsToASocket: since Linux 6.16 core_pattern may name a socket. For a socket the kernel
// ignores limit 1, so the daemon executes nothing unless the configuration allows it.
func dumpsToASocket(t *testing.T) {
	setForNow(t, "/proc/sys/kernel/core_pattern", "@/run/dumps")
	dir := newDir(t)
	writeHostileSkill(t, dir)
	d := launch(t, dir, "")
	d.dial("unix://" + dir + "/s.sock")
	for _, b := range d.capabilities().Boundaries {
		if want := b.Name != "core dumps"; b.GetFound() != want {
			t.Errorf("%s: found %v: %s", b.Name, b.GetFound(), b.Detail)
		} else if !want && (!strings.Contains(b.Detail, "a socket, /run/dumps") || !strings.Contains(b.Detail, "sysctl kernel.core_pattern")) {
			t.Errorf("got %q, want what takes the dumps and how to end that", b.Detail)
		}
	}
	_, err := d.try(code("hostile", "print(1)"))
	wantStatus(t, err, "FailedPrecondition", "BOUNDARY_MISSING")
	d.stop()
	d = startDaemonIn(t, dir, "boundaries: {allow_missing: [core dumps]}\n")
	d.works()
	d.stop()
}
