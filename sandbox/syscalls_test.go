package sandbox

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/sandbox/internal/seccomp"
	"github.com/skillrun/skillrun/sandbox/internal/seccomp/seccomptest"
	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "write the golden files anew")

// tryCalls makes every system call by its number with invalid arguments, each in a new
// process, since some calls end it. It prints the answers. EPERM and ENOSYS come from the
// filter, and EINVAL where the list has it. Any other answer shows that the call reached the kernel's code, and so
// does a call that does not return.
const tryCalls = `
import ctypes, errno, os, signal
L = ctypes.CDLL(None, use_errno=True)
bad = [ctypes.c_long(-1)] * 6
for n in range(%d):
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open("/dev/null", os.O_RDWR), 1)
        signal.setitimer(signal.ITIMER_REAL, 2)
        ctypes.set_errno(0)
        r = L.syscall(ctypes.c_long(n), *bad)
        os._exit(ctypes.get_errno() if r == -1 else 0)
    status = os.waitpid(pid, 0)[1]
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0
    print(n, {errno.EPERM: "EPERM", errno.ENOSYS: "ENOSYS", errno.EINVAL: "EINVAL"}.get(code, "reached"))
`

// maxCalls is larger than the number of any system call of this and of coming kernels.
const maxCalls = 600

// TestReachableCalls tries each system call in a sandbox and compares the answers with the
// list of package seccomp, which has the answers of the filter alone.
func TestReachableCalls(t *testing.T) {
	arch := machine(t)
	if !strings.Contains(arch, "x86_64") {
		t.Skipf("the list in testdata is x86_64's, this is %s", arch)
	}
	h := openHost(t)
	got := run(t, h, Spec{Program: command("python3", "-c", fmt.Sprintf(tryCalls, maxCalls)), Env: testEnv}, "")
	if got.exit.End != Exited || got.exit.Code != 0 {
		t.Fatalf("got %+v", got)
	}
	listed, tried := listedCalls(t), 0
	for line := range strings.Lines(got.stdout) {
		var n int
		var answer string
		if _, err := fmt.Sscan(line, &n, &answer); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		tried++
		want := cmp.Or(listed[n], "ENOSYS") // the list has the calls with a name
		if answer == "EINVAL" && want != answer {
			answer = "reached"
		}
		switch {
		case n == 335 || n == 336:
			// uretprobe and uprobe: newer kernels let them pass every filter, and kill a
			// process that calls them outside of a probe's trampoline.
		case answer == "ENOSYS" && want == "reached" && !kernelHas(n):
			t.Logf("this kernel has no call %d", n)
		case answer != want:
			t.Errorf("call %d: got %s, want %s", n, answer, want)
		}
	}
	if tried != maxCalls || len(listed) < 300 {
		t.Errorf("%d calls were tried, %d are listed", tried, len(listed))
	}
}

// listedCalls returns the answers of the script's filter on x86_64, by number.
func listedCalls(t *testing.T) map[int]string {
	t.Helper()
	text, err := os.ReadFile("internal/seccomp/testdata/syscalls-x86_64.golden")
	if err != nil {
		t.Fatal(err)
	}
	answers := map[int]string{}
	for line := range strings.Lines(string(text)) {
		var n int
		var name, answer string
		if _, err := fmt.Sscan(line, &n, &name, &answer); err == nil {
			answers[n] = answer
		}
	}
	return answers
}

// kernelHas says whether the kernel knows a call. It makes the call outside of every sandbox,
// with invalid arguments.
func kernelHas(n int) bool {
	const bad = ^uintptr(0)
	_, _, err := unix.Syscall6(uintptr(n), bad, bad, bad, bad, bad, bad)
	return err != unix.ENOSYS
}

// askKernel reads lines with a call's number and six arguments, makes each call, and reports
// for each whether the filter refused it.
const askKernel = `
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
for line in sys.stdin:
    number, *args = map(int, line.split())
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_ulong, args))
    if result >= 0 and number == 41:
        os.close(result)
    print("refused" if result == -1 and ctypes.get_errno() == errno.ENOSYS else "reached")
`

// TestKernelSaysWhatIsWritten tries calls without effects in a sandbox: calls with a
// descriptor or a path that does not exist, and sockets, which it closes.
func TestKernelSaysWhatIsWritten(t *testing.T) {
	if arch := machine(t); !strings.Contains(arch, "x86_64") {
		t.Skipf("the numbers are x86_64's, this is %s", arch)
	}
	p, err := seccomp.ParsePolicy()
	if err != nil {
		t.Fatal(err)
	}
	const none = math.MaxUint64
	var input strings.Builder
	var want, what []string
	for _, call := range []struct {
		number int
		name   string
		fixed  map[int]uint64
	}{
		{16, "ioctl", map[int]uint64{0: none, 2: 0}}, {41, "socket", nil}, {54, "setsockopt", map[int]uint64{0: none, 3: 0, 4: 0}},
		{72, "fcntl", map[int]uint64{0: none, 2: 0}}, {133, "mknod", map[int]uint64{0: 0}}, {259, "mknodat", map[int]uint64{0: none, 1: 0}},
	} {
		values := seccomptest.Critical(&p, call.name)
		for i := range values {
			if v, ok := call.fixed[i]; ok || len(values[i]) == 2 { // no rule has a condition on this argument
				values[i] = []uint64{v}
			}
		}
		seccomptest.Product(values, func(args [6]uint64) {
			fmt.Fprintln(&input, call.number, args[0], args[1], args[2], args[3], args[4], args[5])
			said, _ := seccomptest.Says(&p, call.name, nil, args)
			want = append(want, map[bool]string{true: "refused", false: "reached"}[said == "ENOSYS"])
			what = append(what, fmt.Sprintf("%s%#x", call.name, args))
		})
	}
	h := openHost(t)
	out := run(t, h, Spec{Program: command("python3", "-c", askKernel), Env: testEnv}, input.String())
	got := strings.Fields(out.stdout)
	if len(got) != len(want) || !slices.Contains(want, "refused") || !slices.Contains(want, "reached") {
		t.Fatalf("%d answers to %d calls: %v %s", len(got), len(want), out.exit, out.stderr)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%s: got %s, want %s", what[i], got[i], want[i])
		}
	}
	t.Logf("%d calls", len(got))
}
