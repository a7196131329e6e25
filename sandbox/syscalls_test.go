package sandbox

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	seccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "write the golden files anew")

// tryCalls makes every system call by its number with invalid arguments, each in a new
// process, since some calls end it. It prints the answers. EPERM and ENOSYS come from the
// filter. Any other answer shows that the call reached the kernel's code, and so does a call
// that does not return.
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
    print(n, {errno.EPERM: "EPERM", errno.ENOSYS: "ENOSYS"}.get(code, "reached"))
`

// maxCalls is larger than the number of any system call of this and of coming kernels.
const maxCalls = 600

// TestReachableCalls tries each system call in a sandbox and compares the reachable ones
// with the list in testdata. Every change of the list shows in a review:
// go test -run TestReachableCalls -update. The hostile suite checks the daemon's sandboxes
// against the same list.
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
	answers := map[int]string{}
	for line := range strings.Lines(got.stdout) {
		var n int
		var answer string
		if _, err := fmt.Sscan(line, &n, &answer); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		answers[n] = answer
	}
	// uretprobe and uprobe: newer kernels let them pass every filter, and kill a process
	// that calls them outside of a probe's trampoline.
	delete(answers, 335)
	delete(answers, 336)
	list := listCalls(answers, seccomp.ArchAMD64)
	golden := filepath.Join("testdata", "syscalls-x86_64.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(list), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]bool{}
	for line := range strings.Lines(string(want)) {
		before[line] = true
	}
	for line := range strings.Lines(list) {
		if newer := strings.Replace(line, " ENOSYS\n", " reached\n", 1); !before[line] && before[newer] && !kernelHas(t, line) {
			t.Logf("this kernel has no such call: %s", strings.TrimSpace(newer))
			line = newer
		}
		if !before[line] {
			t.Errorf("now: %s", strings.TrimSpace(line))
		}
		delete(before, line)
	}
	for line := range before {
		t.Errorf("gone: %s", strings.TrimSpace(line))
	}
}

// listCalls lists system calls with their answers, in the order of their numbers.
func listCalls(answers map[int]string, arch seccomp.ScmpArch) string {
	var list strings.Builder
	unnamed := map[string]int{}
	for _, n := range slices.Sorted(maps.Keys(answers)) {
		name, err := seccomp.ScmpSyscall(n).GetNameByArch(arch)
		if err != nil {
			// This libseccomp is older than the kernel, or the number has no call.
			if name = newerNumbers[n]; name == "" {
				unnamed[answers[n]]++
				continue
			}
		}
		fmt.Fprintf(&list, "%d %s %s\n", n, name, answers[n])
	}
	for _, answer := range slices.Sorted(maps.Keys(unnamed)) {
		fmt.Fprintf(&list, "(%d numbers without a name) %s\n", unnamed[answer], answer)
	}
	return list.String()
}

// TestFilteredCalls runs the script's filter of each architecture in a virtual machine, with
// the same arguments, and compares the calls that pass with the lists in testdata. So the
// list of arm64 can be checked on another machine. The list of x86_64 comes from a kernel and
// shows that the virtual machine answers like the kernel.
func TestFilteredCalls(t *testing.T) {
	p, err := parsePolicy()
	if err != nil {
		t.Fatal(err)
	}
	const bad = math.MaxUint64
	for _, arch := range filterArchs {
		name := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch.name]
		t.Run(name, func(t *testing.T) {
			vm := loadFilter(t, shorten(compileFor(t, p, arch, nil)))
			answers := map[int]string{}
			for n := range maxCalls {
				answers[n] = answer(t, vm, arch.audit, uint32(n), bad, bad, bad, bad, bad, bad)
				if answers[n] == "allowed" {
					answers[n] = "reached"
				}
			}
			if arch.name == "amd64" {
				delete(answers, 335)
				delete(answers, 336)
			}
			got := listCalls(answers, arch.scmp)
			golden := filepath.Join("testdata", "syscalls-"+name+".golden")
			if *update && arch.name == "arm64" {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			// The kernel refuses this call on processors without shadow stacks.
			text := strings.Replace(string(want), "map_shadow_stack ENOSYS", "map_shadow_stack reached", 1)
			if got != text {
				t.Errorf("the list is another one; after a change that is meant: go test -run 'TestFilteredCalls|TestReachableCalls' -update\n%s", difference(text, got))
			}
		})
	}
}

// difference lists the lines that are in only one of two texts.
func difference(was, is string) string {
	var b strings.Builder
	for line := range strings.Lines(was) {
		if !strings.Contains("\n"+is, "\n"+line) {
			b.WriteString("gone: " + line)
		}
	}
	for line := range strings.Lines(is) {
		if !strings.Contains("\n"+was, "\n"+line) {
			b.WriteString("now: " + line)
		}
	}
	return b.String()
}

// kernelHas says whether the kernel knows the call in a line of the list. It makes the call
// outside of every sandbox, with invalid arguments.
func kernelHas(t *testing.T, line string) bool {
	t.Helper()
	var n uintptr
	if _, err := fmt.Sscan(line, &n); err != nil {
		t.Fatalf("line %q: %v", line, err)
	}
	const bad = ^uintptr(0)
	_, _, err := unix.Syscall6(n, bad, bad, bad, bad, bad, bad)
	return err != unix.ENOSYS
}

// newerNumbers are calls without a name in libseccomp 2.5.4, from syscall_64.tbl of the
// kernel.
var newerNumbers = map[int]string{
	449: "futex_waitv", 450: "set_mempolicy_home_node", 451: "cachestat", 452: "fchmodat2", 453: "map_shadow_stack",
	454: "futex_wake", 455: "futex_wait", 456: "futex_requeue", 457: "statmount", 458: "listmount",
	459: "lsm_get_self_attr", 460: "lsm_set_self_attr", 461: "lsm_list_modules", 462: "mseal",
	463: "setxattrat", 464: "getxattrat", 465: "listxattrat", 466: "removexattrat", 467: "open_tree_attr",
	468: "file_getattr", 469: "file_setattr",
}
