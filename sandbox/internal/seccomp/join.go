package seccomp

import (
	"encoding/binary"
	"maps"
	"slices"
)

// A bpfInstruction is a struct sock_filter.
type bpfInstruction struct {
	code   uint16
	jt, jf uint8  // of a jump: how many instructions to skip if the condition holds, and if not
	k      uint32 // the operand
}

// The instructions that joinFilters writes.
const (
	bpfLoad    = 0x20 // loads the word at offset k of struct seccomp_data (seccomp(2))
	bpfJump    = 0x05 // skips k instructions
	bpfEqual   = 0x15 // compares the loaded word with k, and skips jt or jf instructions
	loadNumber = 0    // offset of the call's number in struct seccomp_data
	loadArch   = 4    // offset of the architecture
)

// headLen is the number of instructions at the start of every program of libseccomp. They
// check the architecture.
const headLen = 2

// startsWithHead says that a program begins as joinFilters expects: the architecture is
// loaded and compared. Another version of libseccomp may write something else.
func startsWithHead(p []bpfInstruction) bool {
	return len(p) > headLen &&
		p[0] == bpfInstruction{code: bpfLoad, k: loadArch} &&
		p[1].code == bpfEqual && headLen+int(p[1].jf) < len(p)
}

// joinFilters returns a program that answers the calls in parts like their parts, and all
// other calls like plain. Each program must start with the head. Jumps with k reach any
// instruction; jt and jf only the next 255, hence the pairs of a comparison and a jump.
func joinFilters(plain []bpfInstruction, parts map[uint32][]bpfInstruction) []bpfInstruction {
	numbers := slices.Sorted(maps.Keys(parts))
	out := []bpfInstruction{
		plain[0],
		{code: bpfEqual, k: plain[1].k, jt: 1},
		plain[headLen+int(plain[1].jf)], // the answer to all calls of other architectures
		{code: bpfLoad, k: loadNumber},
	}
	for _, n := range numbers {
		out = append(out, bpfInstruction{code: bpfEqual, k: n, jf: 1}, bpfInstruction{code: bpfJump, k: n})
	}
	out = append(out, bpfInstruction{code: bpfJump})
	to := func(at, target int) { out[at] = bpfInstruction{code: bpfJump, k: uint32(target - at - 1)} }
	to(len(out)-1, len(out)+int(plain[1].jt))
	out = append(out, plain[headLen:]...)
	for i, n := range numbers {
		part := parts[n]
		to(5+2*i, len(out)+int(part[1].jt))
		out = append(out, part[headLen:]...)
	}
	return out
}

// decodeBPF reads instructions that libseccomp has written in the machine's byte order, which is
// little-endian on amd64 and arm64.
func decodeBPF(b []byte) []bpfInstruction {
	p := make([]bpfInstruction, len(b)/InstructionSize)
	for i := range p {
		at := b[i*InstructionSize:]
		p[i] = bpfInstruction{binary.LittleEndian.Uint16(at), at[2], at[3], binary.LittleEndian.Uint32(at[4:])}
	}
	return p
}

// encodeBPF is the reverse of decodeBPF.
func encodeBPF(p []bpfInstruction) []byte {
	var b []byte
	for _, i := range p {
		b = binary.LittleEndian.AppendUint16(b, i.code)
		b = append(b, i.jt, i.jf)
		b = binary.LittleEndian.AppendUint32(b, i.k)
	}
	return b
}
