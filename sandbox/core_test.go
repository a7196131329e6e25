package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/preflight"
)

// changeCoreLimit tries every call that could change the limit of core dumps. It prints
// the answers and the limit afterwards, and makes children that crash.
const changeCoreLimit = `
import ctypes, errno, os, resource, signal
libc = ctypes.CDLL(None, use_errno=True)
SETRLIMIT, PRLIMIT64 = {"x86_64": (160, 302), "aarch64": (164, 261)}[os.uname().machine]
CORE, MORE = resource.RLIMIT_CORE, resource.RLIM_INFINITY & (1 << 64) - 1

def call(*args):
    ctypes.set_errno(0)
    r = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return "%d %s" % (r, errno.errorcode.get(ctypes.get_errno(), ""))

said = {"setrlimit": set(), "prlimit": set(), "prlimit and old": set()}
old = (ctypes.c_ulong * 2)(7, 7)
for soft in (0, 2, 4096, MORE):
    for hard in (0, 1, 2, 4096, MORE):
        limit = (ctypes.c_ulong * 2)(soft, hard)
        for high in (0, 1 << 32, 1 << 63, 0xffffffff << 32):
            said["setrlimit"].add(call(SETRLIMIT, CORE | high, limit))
            for pid in (0, os.getpid(), 1 << 32):
                said["prlimit"].add(call(PRLIMIT64, pid, CORE | high, limit, 0))
                said["prlimit and old"].add(call(PRLIMIT64, pid, CORE | high, limit, old))
for name, answers in said.items():
    print(name, *sorted(answers))
print("old", *old)
resource.setrlimit(CORE, (0, 0))
print("limit", *resource.getrlimit(CORE))
print("read by prlimit", call(PRLIMIT64, 0, CORE, 0, old), *old)
# The others are as ever.
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 64))
except ValueError as e:
    print(e)
print("files", *resource.getrlimit(resource.RLIMIT_NOFILE), *resource.prlimit(0, resource.RLIMIT_NOFILE, (16, 32)))
for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGQUIT, signal.SIGSYS):
    pid = os.fork()
    if pid == 0:
        libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        os._exit(1)
    status = os.waitpid(pid, 0)[1]
    print(signal.Signals(os.WTERMSIG(status)).name, os.WCOREDUMP(status), flush=True)
libc.prctl(4, 1, 0, 0, 0)
ctypes.string_at(0)
`

const coreLimitStays = `setrlimit 0 
prlimit 0 
prlimit and old -1 EPERM
old 7 7
limit %[1]d %[1]d
read by prlimit 0  %[1]d %[1]d
not allowed to raise maximum limit
files 32 32 32 32
SIGSEGV False
SIGABRT False
SIGQUIT False
SIGSYS False
`

// TestCoreLimitStays tries to change the one limit with which a crash starts no program
// of the machine, in each kind of sandbox. TestHostileMachine of cmd/skillrund tries it
// on a machine whose core_pattern starts a program.
func TestCoreLimitStays(t *testing.T) {
	for _, tt := range []struct {
		name string
		open func(*testing.T) *Host
		spec Spec
	}{
		{"direct", func(t *testing.T) *Host {
			c := testConfig(t)
			c.Prewarmed = 0
			return openWith(t, c)
		}, Spec{Program: command("python3", "-c", changeCoreLimit), Env: testEnv}},
		{"prewarmed", func(t *testing.T) *Host { return openPrewarmed(t) }, Spec{Program: command("python3", "-c", changeCoreLimit), Env: testEnv}},
		{"forked", func(t *testing.T) *Host { return openForkServer(t) }, pythonSpec(nil, "-c", changeCoreLimit)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := tt.open(t)
			if tt.name == "forked" {
				run(t, h, tt.spec, "") // makes the pool start a Python zygote
				waitForReady(t, h, tt.spec)
			}
			got := run(t, h, tt.spec, "")
			if want := fmt.Sprintf(coreLimitStays, preflight.DumpLimit()); got.stdout != want {
				t.Errorf("got\n%s%s\nwant\n%s", got.stdout, got.stderr, want)
			}
			if got.exit.End != Signaled || got.exit.Signal != unix.SIGSEGV {
				t.Errorf("ended as %+v", got.exit)
			}
			noLeftovers(t, h)
		})
	}
}

// TestCoreLimitUnderZero runs the test of the limit in a process with a hard limit of 0.
// With CAP_SYS_RESOURCE nothing changes. Without it sandboxes have 0, and the boundary says
// so (TestCrashUnderZero of package preflight).
func TestCoreLimitUnderZero(t *testing.T) {
	needsRoot(t)
	self := fmt.Sprintf("/proc/%d/exe", os.Getpid()) // which may have no other name
	out, err := exec.Command("bash", "-c", `ulimit -c 0 && exec "$0" "$@"`, self, "-test.v", "-test.run=^TestCoreLimitStays$").CombinedOutput()
	if err != nil || strings.Count(string(out), "\n--- PASS: ") != 1 {
		t.Errorf("got %v\n%s", err, out)
	}
}

// TestCoreLimitInShell: a script that turns dumps off continues.
func TestCoreLimitInShell(t *testing.T) { eachMaker(t, testCoreLimitInShell) }

func testCoreLimitInShell(t *testing.T, h *Host) {
	got := run(t, h, Spec{Program: bash("set -e; ulimit -c 0; ulimit -Sc 0; ulimit -c; ulimit -n 64; ulimit -n"), Env: testEnv}, "")
	if want := "0\n64\n"; got.stdout != want || got.stderr != "" || got.exit.Code != 0 {
		t.Errorf("got %q, %q, %+v, want %q", got.stdout, got.stderr, got.exit, want)
	}
	for name, status := range map[string]int{"SEGV": 139, "ABRT": 134} {
		got := run(t, h, Spec{Program: bash(fmt.Sprintf("ulimit -c 0; ulimit -c unlimited; (trap - %[1]s; kill -%[1]s $BASHPID); echo $?", name)), Env: testEnv}, "")
		// After a dump bash would print that, too.
		if got.stdout != fmt.Sprintln(status) || strings.Contains(got.stderr, "dumped") || strings.Contains(got.stderr, "ulimit") {
			t.Errorf("%s: got %q, %q, %+v", name, got.stdout, got.stderr, got.exit)
		}
	}
}
