package seccomp_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"github.com/skillrun/skillrun/sandbox/internal/seccomp"
	"golang.org/x/sys/unix"
)

// zygotePolicies are the lists of the zygotes, by file.
func zygotePolicies(t *testing.T) map[string]seccomp.Policy {
	t.Helper()
	all := map[string]seccomp.Policy{}
	for name, text := range map[string][]byte{"zygote": seccomp.ZygoteText, "python": seccomp.PythonText} {
		p, err := seccomp.Parse(name, text)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = p
	}
	return all
}

// Each further call of a zygote has a reason and a known name, and a script may not make it
// with the same arguments.
func TestZygotePolicyNames(t *testing.T) {
	base, err := seccomp.ParsePolicy()
	if err != nil {
		t.Fatal(err)
	}
	var always []string
	for _, a := range base.Allow {
		always = append(always, a.Calls...)
	}
	for name, p := range zygotePolicies(t) {
		if len(p.Deny)+len(p.PretendWhen)+len(p.RefuseWhen)+len(p.Init)+len(p.Unknown) > 0 {
			t.Errorf("%s: says more than what is allowed", name)
		}
		check := func(why string, calls ...string) {
			for _, c := range calls {
				if _, err := libseccomp.GetSyscallFromName(c); err != nil {
					t.Errorf("%s: unknown call %s", name, c)
				}
				if why == "" || slices.Contains(always, c) {
					t.Errorf("%s: %s has no reason, or a script has it anyway", name, c)
				}
			}
		}
		for _, a := range p.Allow {
			check(a.Why, a.Calls...)
		}
		for _, w := range p.AllowWhen {
			check(w.Why, w.Call)
			for _, a := range w.Args {
				if len(a.Value) == 0 || a.Mask == 0 {
					t.Errorf("%s: %s: argument %d has no mask or no value", name, w.Call, a.Index)
				}
			}
		}
	}
}

// zygoteFilters returns the compiled filters of the script, the zygote and a Python zygote,
// for each architecture.
func zygoteFilters(t *testing.T, a filterArch) map[string][]byte {
	t.Helper()
	base, err := seccomp.ParsePolicy()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{"script": compileFor(t, base, a, nil)}
	for name, p := range zygotePolicies(t) {
		all[name] = compileFor(t, base.With(p), a, nil)
	}
	return all
}

// Child processes inherit filters. So the zygotes' filters allow every call that the script's
// filter allows, and the zygote's filter every call of a Python zygote, with all arguments.
func TestZygoteFiltersAllowWhatComesLater(t *testing.T) {
	for _, a := range filterArchs {
		all := zygoteFilters(t, a)
		for _, pair := range [][2]string{{"script", "zygote"}, {"script", "python"}, {"python", "zygote"}} {
			t.Run(a.name+" "+pair[0]+" on "+pair[1], func(t *testing.T) {
				wantAllowed(t, all[pair[0]], all[pair[1]])
			})
		}
	}
}

// wantAllowed compares two filters for each number and many arguments, including the
// constants of the filters.
func wantAllowed(t *testing.T, later, under []byte) {
	code := decode(later)
	words := []uint32{0, 1, 1 << 30, 1 << 31, math.MaxUint32}
	for _, in := range append(decode(under), code...) {
		if in.Op != bpfAnswer && in.Op != bpfJump {
			words = append(words, in.K-1, in.K, in.K+1)
		}
	}
	slices.Sort(words)
	words = slices.Compact(words)
	above, below := loadFilter(t, later), loadFilter(t, under)
	random, allowed := rand.New(rand.NewPCG(3, 4)), 0
	for number := range uint32(maxCalls) {
		for range 300 {
			var data [64]byte
			binary.BigEndian.PutUint32(data[0:], number)
			binary.BigEndian.PutUint32(data[4:], code[1].K)
			for at := 16; at < len(data); at += 4 {
				if at%8 == 0 || random.IntN(4) == 0 { // the upper halves are mostly zero
					binary.BigEndian.PutUint32(data[at:], words[random.IntN(len(words))])
				}
			}
			got, err := above.Run(data[:])
			if err != nil {
				t.Fatal(err)
			}
			if uint32(got) != unix.SECCOMP_RET_ALLOW {
				continue
			}
			allowed++
			if got, err := below.Run(data[:]); err != nil || uint32(got) != unix.SECCOMP_RET_ALLOW {
				t.Fatalf("call % x is allowed, and answered %#x beneath (%v)", data, got, err)
			}
		}
	}
	if allowed < 10000 {
		t.Errorf("%d calls were allowed and tried", allowed)
	}
}

// TestZygoteCalls compares the further calls of each zygote, with their arguments, with
// testdata: go test -run TestZygoteCalls -update.
func TestZygoteCalls(t *testing.T) {
	const bad = math.MaxUint64
	for _, a := range filterArchs {
		arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[a.name]
		filters := zygoteFilters(t, a)
		script := loadFilter(t, filters["script"])
		var list strings.Builder
		for _, name := range []string{"zygote", "python"} {
			vm := loadFilter(t, filters[name])
			p := zygotePolicies(t)[name]
			tried := map[string]bool{}
			for n := range maxCalls {
				call, err := libseccomp.ScmpSyscall(n).GetNameByArch(a.scmp)
				args := []uint64{bad, bad, bad, bad, bad, bad}
				got := answer(t, vm, a.audit, uint32(n), args...)
				if was := answer(t, script, a.audit, uint32(n), args...); got != was {
					fmt.Fprintf(&list, "%s: %s %s, a script's %s\n", name, call, got, was)
				}
				tried[call] = err == nil
			}
			for _, w := range p.AllowWhen {
				n, err := libseccomp.GetSyscallFromNameByArch(w.Call, a.scmp)
				if err != nil || !tried[w.Call] {
					t.Errorf("%s: %s is no call of %s", name, w.Call, arch)
					continue
				}
				var values []string
				for _, arg := range w.Args {
					values = append(values, fmt.Sprintf("%d&%#x in %#x", arg.Index, arg.Mask, []uint64(arg.Value)))
				}
				args := make([]uint64, 6)
				for _, arg := range w.Args {
					args[arg.Index] = arg.Value[len(arg.Value)-1]
				}
				fmt.Fprintf(&list, "%s: %s(%s) %s\n", name, w.Call, strings.Join(values, ", "), answer(t, vm, a.audit, uint32(n), args...))
			}
		}
		golden := filepath.Join("testdata", "syscalls-zygotes-"+arch+".golden")
		if *update {
			if err := os.WriteFile(golden, []byte(list.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got := list.String(); got != string(want) {
			t.Errorf("%s: the list is another one\n%s", arch, difference(string(want), got))
		}
	}
}

// The filters refuse every call that no zygote needs, with all arguments. These are the calls
// that exploits use to gain rights.
func TestZygotesAreRefused(t *testing.T) {
	for _, a := range filterArchs {
		for name, code := range zygoteFilters(t, a) {
			vm := loadFilter(t, code)
			for _, call := range []string{
				"acct", "add_key", "bpf", "delete_module", "finit_module", "fsmount", "fsopen", "init_module", "io_uring_setup", "kcmp", "kexec_load",
				"mq_open", "name_to_handle_at", "open_by_handle_at", "open_tree", "perf_event_open", "personality", "pidfd_getfd", "pidfd_send_signal",
				"pivot_root", "process_vm_readv", "process_vm_writev", "ptrace", "quotactl", "reboot", "request_key", "sethostname", "shmget",
				"swapon", "umount2", "userfaultfd",
			} {
				if name == "zygote" && (call == "pivot_root" || call == "umount2") {
					continue // a sandbox enters its root with it
				}
				n, err := libseccomp.GetSyscallFromNameByArch(call, a.scmp)
				if err != nil {
					t.Fatalf("%s: %v", call, err)
				}
				for _, arg := range []uint64{0, 1, 4, 1000, math.MaxUint64} {
					if got := answer(t, vm, a.audit, uint32(n), arg, arg, arg, arg, arg, arg); got != "EPERM" {
						t.Errorf("%s, %s: %s(%#x, ...): got %s, want EPERM", a.name, name, call, arg, got)
					}
				}
			}
		}
	}
}
