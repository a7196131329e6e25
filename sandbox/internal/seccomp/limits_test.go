package seccomp_test

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"github.com/skillrun/skillrun/sandbox/internal/seccomp"
	"github.com/skillrun/skillrun/sandbox/internal/seccomp/seccomptest"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// A filterArch is an architecture as filters see it: its number in linux/audit.h, and the
// numbers of two calls.
type filterArch struct {
	name                 string
	scmp                 libseccomp.ScmpArch
	audit                uint32
	setrlimit, prlimit64 uint32
}

var filterArchs = []filterArch{
	{"amd64", libseccomp.ArchAMD64, unix.AUDIT_ARCH_X86_64, 160, 302},
	{"arm64", libseccomp.ArchARM64, unix.AUDIT_ARCH_AARCH64, 164, 261},
}

// compileFor calls compileFor for any architecture.
func compileFor(t *testing.T, p seccomp.Policy, a filterArch, extra []string) []byte {
	t.Helper()
	b, err := p.CompileFor(a.scmp, extra)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// decode returns the instructions of a filter.
func decode(code []byte) (program []bpf.RawInstruction) {
	for i := range slices.Chunk(code, seccomp.InstructionSize) {
		program = append(program, bpf.RawInstruction{Op: binary.NativeEndian.Uint16(i), Jt: i[2], Jf: i[3], K: binary.NativeEndian.Uint32(i[4:])})
	}
	return program
}

// loadFilter makes a virtual machine from a filter's bytes.
func loadFilter(t *testing.T, code []byte) *bpf.VM {
	t.Helper()
	var program []bpf.Instruction
	for _, raw := range decode(code) {
		program = append(program, raw.Disassemble())
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

// answer returns a filter's answer to a call. bpf.VM reads words in network order, and the
// kernel in the processor's order. So the words of struct seccomp_data are swapped.
func answer(t *testing.T, vm *bpf.VM, arch, call uint32, args ...uint64) string {
	t.Helper()
	var data [64]byte
	binary.BigEndian.PutUint32(data[0:], call)
	binary.BigEndian.PutUint32(data[4:], arch)
	for i, a := range args {
		binary.BigEndian.PutUint32(data[16+8*i:], uint32(a)) // both are little-endian
		binary.BigEndian.PutUint32(data[20+8*i:], uint32(a>>32))
	}
	n, err := vm.Run(data[:])
	if err != nil {
		t.Fatal(err)
	}
	return seccomptest.ActionName(uint32(n))
}

// TestFilterKeepsCoreLimit runs the compiled filters on many arguments of the two calls that
// set limits: with any bits above the 32 of a resource, and with any bit of a pointer set.
func TestFilterKeepsCoreLimit(t *testing.T) {
	p, err := seccomp.ParsePolicy()
	if err != nil {
		t.Fatal(err)
	}
	highs := []uint64{0, 1 << 32, 1 << 63, 0xffffffff << 32}
	pointers := []uint64{0, 1, 1 << 31, 1 << 32, 1 << 63, 0x7ffc_0000_0000, math.MaxUint64}
	resources := []uint64{math.MaxUint32, 1 << 31, 1<<31 | 4, 20, 260}
	for r := range uint64(18) {
		resources = append(resources, r)
	}
	for _, arch := range filterArchs {
		for name, extra := range map[string][]string{"script": nil, "init": p.Init} {
			t.Run(arch.name+" "+name, func(t *testing.T) {
				vm := loadFilter(t, compileFor(t, p, arch, extra))
				for _, low := range resources {
					for _, high := range highs {
						resource := low | high
						other := "ENOSYS"
						if low < 16 {
							other = "allowed"
						}
						for _, limit := range pointers {
							want := other
							if low == unix.RLIMIT_CORE {
								want = "pretended"
							}
							if got := answer(t, vm, arch.audit, arch.setrlimit, resource, limit); got != want {
								t.Errorf("setrlimit(%#x, %#x): got %s, want %s", resource, limit, got, want)
							}
							for _, old := range pointers {
								want := other
								if low == unix.RLIMIT_CORE {
									switch {
									case limit == 0:
										want = "allowed"
									case old == 0:
										want = "pretended"
									default:
										want = "EPERM"
									}
								}
								for _, pid := range []uint64{0, 7, 7 | 1<<32} {
									if got := answer(t, vm, arch.audit, arch.prlimit64, pid, resource, limit, old); got != want {
										t.Errorf("prlimit64(%#x, %#x, %#x, %#x): got %s, want %s", pid, resource, limit, old, got, want)
									}
								}
							}
						}
					}
				}
			})
		}
	}
}
