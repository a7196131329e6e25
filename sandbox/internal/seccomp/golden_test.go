package seccomp_test

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

	libseccomp "github.com/seccomp/libseccomp-golang"
	"github.com/skillrun/skillrun/sandbox/internal/seccomp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// maxCalls is larger than the number of any system call of this and of coming kernels.
const maxCalls = 600

// listCalls lists system calls with their answers, in the order of their numbers.
func listCalls(answers map[int]string, arch libseccomp.ScmpArch) string {
	var list strings.Builder
	unnamed := map[string]int{}
	for _, n := range slices.Sorted(maps.Keys(answers)) {
		name, err := libseccomp.ScmpSyscall(n).GetNameByArch(arch)
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
// invalid arguments, and compares the calls that pass with the lists in testdata. Every change
// of a list shows in a review: go test -run TestFilteredCalls -update. TestReachableCalls of
// package sandbox and the hostile suite compare a kernel's answers with the list of x86_64.
func TestFilteredCalls(t *testing.T) {
	p, err := seccomp.ParsePolicy()
	if err != nil {
		t.Fatal(err)
	}
	const bad = math.MaxUint64
	for _, arch := range filterArchs {
		name := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch.name]
		t.Run(name, func(t *testing.T) {
			vm := loadFilter(t, compileFor(t, p, arch, nil))
			answers := map[int]string{}
			for n := range maxCalls {
				answers[n] = answer(t, vm, arch.audit, uint32(n), bad, bad, bad, bad, bad, bad)
				if answers[n] == "allowed" {
					answers[n] = "reached"
				}
			}
			if arch.name == "amd64" {
				// uretprobe and uprobe: newer kernels let them pass every filter.
				delete(answers, 335)
				delete(answers, 336)
			}
			got := listCalls(answers, arch.scmp)
			golden := filepath.Join("testdata", "syscalls-"+name+".golden")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("the list is another one; after a change that is meant: go test -run TestFilteredCalls -update\n%s", difference(string(want), got))
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

// newerNumbers are calls without a name in libseccomp 2.5.4, from syscall_64.tbl of the
// kernel.
var newerNumbers = map[int]string{
	449: "futex_waitv", 450: "set_mempolicy_home_node", 451: "cachestat", 452: "fchmodat2", 453: "map_shadow_stack",
	454: "futex_wake", 455: "futex_wait", 456: "futex_requeue", 457: "statmount", 458: "listmount",
	459: "lsm_get_self_attr", 460: "lsm_set_self_attr", 461: "lsm_list_modules", 462: "mseal",
	463: "setxattrat", 464: "getxattrat", 465: "listxattrat", 466: "removexattrat", 467: "open_tree_attr",
	468: "file_getattr", 469: "file_setattr",
}
