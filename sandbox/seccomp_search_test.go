package sandbox

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	seccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// This file searches the compiled filters for a call whose answer differs from
// seccomp.yaml. It computes the expected answer from the file's text alone, without
// libseccomp and without shorten. A filter only compares words with constants. So it is
// enough to try every number with the values around these constants.

// says returns the answer of seccomp.yaml to a call, and whether the answer is unique.
func (p *seccompPolicy) says(name string, extra []string, args [6]uint64) (said string, clear bool) {
	var all []string
	if slices.Contains(extra, name) {
		all = append(all, "allowed")
	} else if listed(p.Deny, name) {
		all = append(all, "EPERM")
	}
	if listed(p.Allow, name) {
		all = append(all, "allowed")
	}
	for _, rules := range []struct {
		when   []seccompWhen
		answer func(seccompWhen) string
	}{
		{p.AllowWhen, func(seccompWhen) string { return "allowed" }},
		{p.PretendWhen, func(seccompWhen) string { return "pretended" }},
		{p.RefuseWhen, func(w seccompWhen) string { return errnoName(w.Errno) }},
	} {
		for _, w := range rules.when {
			if w.Call == name && w.holds(args) {
				all = append(all, rules.answer(w))
			}
		}
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) == 0 {
		return "ENOSYS", true
	}
	return all[0], len(all) == 1
}

func listed(lists []seccompCalls, name string) bool {
	return slices.ContainsFunc(lists, func(l seccompCalls) bool { return slices.Contains(l.Calls, name) })
}

func (w seccompWhen) holds(args [6]uint64) bool {
	return !slices.ContainsFunc(w.Args, func(a seccompArg) bool {
		if a.Not != nil {
			return args[a.Index] == *a.Not
		}
		return !slices.Contains(a.Value, args[a.Index]&a.Mask)
	})
}

// errnoName returns the name that answer uses for an error.
func errnoName(errno int16) string {
	if unix.Errno(errno) == unix.EPERM {
		return "EPERM"
	}
	return fmt.Sprintf("%#x", unix.SECCOMP_RET_ERRNO|uint32(errno))
}

// critical returns, for each argument, the values that a filter with these rules or this
// program may distinguish: each constant and its neighbors, also with the bits outside of a
// mask set, with one bit inverted, and with several upper halves.
func (p *seccompPolicy) critical(name string) (values [6][]uint64) {
	for i := range values {
		values[i] = []uint64{0, math.MaxUint64}
	}
	for _, w := range slices.Concat(p.AllowWhen, p.PretendWhen, p.RefuseWhen) {
		if w.Call != name {
			continue
		}
		for _, a := range w.Args {
			mask, constants := a.Mask, []uint64(a.Value)
			if a.Not != nil {
				mask, constants = math.MaxUint64, []uint64{*a.Not}
			}
			v := &values[a.Index]
			for _, k := range constants {
				*v = append(*v, k, k-1, k+1, k|^mask, k|1<<63, k|1<<32, k|0xffffffff<<32, k^1<<31)
				for _, bit := range []int{1, 7, 12, 19, 63} { // a sample
					if mask>>bit&1 == 1 && len(constants) < 3 {
						*v = append(*v, k^1<<bit)
					}
				}
			}
		}
	}
	for i := range values {
		slices.Sort(values[i])
		values[i] = slices.Compact(values[i])
	}
	return values
}

// product calls do with every combination of values.
func product(values [6][]uint64, do func([6]uint64)) {
	var args [6]uint64
	var next func(int)
	next = func(i int) {
		if i == len(args) {
			do(args)
			return
		}
		for _, v := range values[i] {
			args[i] = v
			next(i + 1)
		}
	}
	next(0)
}

// numbersOf returns the numbers around all constants of a filter. They include all numbers
// of an architecture, x32's, and larger ones.
func numbersOf(program []byte) (all []uint32) {
	const x32 = 1 << 30
	for n := range uint32(1024) {
		all = append(all, n, n|x32, n|1<<31, n|x32|1<<31, math.MaxUint32-n)
	}
	for _, in := range decodeBPF(program) {
		all = append(all, in.k-1, in.k, in.k+1, in.k|x32)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestFilterSaysWhatIsWritten(t *testing.T) {
	p, err := parsePolicy()
	if err != nil {
		t.Fatal(err)
	}
	of := func(name string, text []byte) seccompPolicy {
		more, err := parsePolicyOf(name, text)
		if err != nil {
			t.Fatal(err)
		}
		return p.with(more)
	}
	for _, arch := range filterArchs {
		for _, f := range []struct {
			name   string
			policy seccompPolicy
			extra  []string
		}{
			{"script", p, nil}, {"init", p, p.Init},
			{"zygote", of("seccomp_zygote.yaml", seccompZygoteText), nil}, {"Python zygote", of("seccomp_python.yaml", seccompPythonText), nil},
		} {
			t.Run(arch.name+" "+f.name, func(t *testing.T) {
				t.Parallel()
				program := shorten(compileFor(t, f.policy, arch, f.extra))
				s := search{t: t, policy: &f.policy, arch: arch, extra: f.extra, program: decodeBPF(program)}
				numbers := numbersOf(program)
				for _, n := range numbers {
					s.number(n)
				}
				s.otherArchitectures(numbers)
				if s.asked < 100_000 || s.allowed == 0 {
					t.Errorf("%d calls asked for, %d allowed: that is no search", s.asked, s.allowed)
				}
			})
		}
	}
}

type search struct {
	t              *testing.T
	policy         *seccompPolicy
	arch           filterArch
	extra          []string
	program        []bpfInstruction
	asked, allowed int
}

// answer runs the program like the kernel (seccomp_run_filters in kernel/seccomp.c), on the
// words of a struct seccomp_data, and returns its answer.
func (s *search) answer(audit, number uint32, args [6]uint64) string {
	data := [16]uint32{loadNumber / 4: number, loadArch / 4: audit}
	for i, a := range args {
		data[4+2*i], data[5+2*i] = uint32(a), uint32(a>>32)
	}
	var a uint32
	for at := 0; ; at++ {
		switch in := s.program[at]; in.code {
		case bpfLoad:
			a = data[in.k/4]
		case bpfAnd:
			a &= in.k
		case bpfJump:
			at += int(in.k)
		case bpfEqual, bpfGreater, bpfAtLeast:
			at += in.after(a)
		case bpfAnswer:
			return actionName(in.k)
		default:
			s.t.Fatalf("instruction %#x", in.code)
		}
	}
}

// number compares the answers for one number, with all critical arguments.
func (s *search) number(n uint32) {
	name, err := seccomp.ScmpSyscall(int32(n)).GetNameByArch(s.arch.scmp)
	if err != nil || int32(n) < 0 {
		name = "" // this architecture lacks the call, so no rule of the file applies
	}
	product(s.policy.critical(name), func(args [6]uint64) {
		want, clear := s.policy.says(name, s.extra, args)
		if !clear {
			s.t.Errorf("seccomp.yaml says two things of %s%#x", name, args)
		}
		got := s.answer(s.arch.audit, n, args)
		if got != want {
			s.t.Errorf("%d (%s)%#x: got %s, want %s", n, name, args, got, want)
		}
		if s.asked++; got == "allowed" {
			s.allowed++
		}
	})
}

// otherArchitectures checks that every call of another architecture is refused.
func (s *search) otherArchitectures(numbers []uint32) {
	for _, audit := range []uint32{
		unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_ARM, unix.AUDIT_ARCH_AARCH64,
		0, s.arch.audit ^ 1<<31, s.arch.audit ^ 1<<30, s.arch.audit + 1, math.MaxUint32,
	} {
		if audit == s.arch.audit {
			continue
		}
		for _, n := range numbers {
			if got := s.answer(audit, n, [6]uint64{}); got != "ENOSYS" {
				s.t.Errorf("call %d of architecture %#x: got %s", n, audit, got)
			}
		}
	}
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
	p, err := parsePolicy()
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
		values := p.critical(call.name)
		for i := range values {
			if v, ok := call.fixed[i]; ok || len(values[i]) == 2 { // no rule has a condition on this argument
				values[i] = []uint64{v}
			}
		}
		product(values, func(args [6]uint64) {
			fmt.Fprintln(&input, call.number, args[0], args[1], args[2], args[3], args[4], args[5])
			said, _ := p.says(call.name, nil, args)
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
