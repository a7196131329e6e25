package seccomp_test

import (
	"math"
	"slices"
	"testing"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"github.com/skillrun/skillrun/sandbox/internal/seccomp"
	"github.com/skillrun/skillrun/sandbox/internal/seccomp/seccomptest"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// This file searches the compiled filters for a call whose answer differs from
// seccomp.yaml. It computes the expected answer from the file's text alone, without
// libseccomp. A filter only compares words with constants. So it is
// enough to try every number with the values around these constants.

// numbersOf returns the numbers around all constants of a filter. They include all numbers
// of an architecture, x32's, and larger ones.
func numbersOf(program []byte) (all []uint32) {
	const x32 = 1 << 30
	for n := range uint32(1024) {
		all = append(all, n, n|x32, n|1<<31, n|x32|1<<31, math.MaxUint32-n)
	}
	for _, in := range decode(program) {
		all = append(all, in.K-1, in.K, in.K+1, in.K|x32)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestFilterSaysWhatIsWritten(t *testing.T) {
	p, err := seccomp.ParsePolicy()
	if err != nil {
		t.Fatal(err)
	}
	of := func(name string, text []byte) seccomp.Policy {
		more, err := seccomp.Parse(name, text)
		if err != nil {
			t.Fatal(err)
		}
		return p.With(more)
	}
	for _, arch := range filterArchs {
		for _, f := range []struct {
			name   string
			policy seccomp.Policy
			extra  []string
		}{
			{"script", p, nil}, {"init", p, p.Init},
			{"zygote", of("seccomp_zygote.yaml", seccomp.ZygoteText), nil}, {"Python zygote", of("seccomp_python.yaml", seccomp.PythonText), nil},
		} {
			t.Run(arch.name+" "+f.name, func(t *testing.T) {
				t.Parallel()
				program := compileFor(t, f.policy, arch, f.extra)
				s := search{t: t, policy: &f.policy, arch: arch, extra: f.extra, program: decode(program)}
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

// The instructions of filters.
const (
	bpfLoad    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS // loads the word at offset K of struct seccomp_data
	bpfAnd     = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	bpfJump    = unix.BPF_JMP | unix.BPF_JA
	bpfEqual   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	bpfGreater = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K
	bpfAtLeast = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	bpfAnswer  = unix.BPF_RET | unix.BPF_K

	numberAt, archAt = 0, 1 // words of struct seccomp_data
)

// after returns how many instructions a comparison with a skips.
func after(in bpf.RawInstruction, a uint32) int {
	holds := a == in.K
	switch in.Op {
	case bpfGreater:
		holds = a > in.K
	case bpfAtLeast:
		holds = a >= in.K
	}
	if holds {
		return int(in.Jt)
	}
	return int(in.Jf)
}

type search struct {
	t              *testing.T
	policy         *seccomp.Policy
	arch           filterArch
	extra          []string
	program        []bpf.RawInstruction
	asked, allowed int
}

// answer runs the program like the kernel (seccomp_run_filters in kernel/seccomp.c), on the
// words of a struct seccomp_data, and returns its answer.
func (s *search) answer(audit, number uint32, args [6]uint64) string {
	data := [16]uint32{numberAt: number, archAt: audit}
	for i, a := range args {
		data[4+2*i], data[5+2*i] = uint32(a), uint32(a>>32)
	}
	var a uint32
	for at := 0; ; at++ {
		switch in := s.program[at]; in.Op {
		case bpfLoad:
			a = data[in.K/4]
		case bpfAnd:
			a &= in.K
		case bpfJump:
			at += int(in.K)
		case bpfEqual, bpfGreater, bpfAtLeast:
			at += after(in, a)
		case bpfAnswer:
			return seccomptest.ActionName(in.K)
		default:
			s.t.Fatalf("instruction %#x", in.Op)
		}
	}
}

// number compares the answers for one number, with all critical arguments.
func (s *search) number(n uint32) {
	name, err := libseccomp.ScmpSyscall(int32(n)).GetNameByArch(s.arch.scmp)
	if err != nil || int32(n) < 0 {
		name = "" // this architecture lacks the call, so no rule of the file applies
	}
	seccomptest.Product(seccomptest.Critical(s.policy, name), func(args [6]uint64) {
		want, clear := seccomptest.Says(s.policy, name, s.extra, args)
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
