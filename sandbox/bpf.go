package sandbox

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
)

// This file makes libseccomp's filters shorter. The kernel translates a filter each time
// that a process loads it, twice for each sandbox, and the time grows with the filter's
// length. libseccomp writes one or two instructions for every system call, although calls
// with adjacent numbers mostly have the same answer.

// A bpfInstruction is a struct sock_filter.
type bpfInstruction struct {
	code   uint16
	jt, jf uint8
	k      uint32
}

// The instructions of libseccomp's programs.
const (
	bpfLoad     = 0x20 // loads the word at offset k of struct seccomp_data
	bpfAnd      = 0x54
	bpfJump     = 0x05
	bpfEqual    = 0x15
	bpfGreater  = 0x25
	bpfAtLeast  = 0x35
	bpfAnswer   = 0x06
	loadNumber  = 0 // offsets in struct seccomp_data
	loadArch    = 4
	longestJump = math.MaxUint8
)

// shorten returns a program that answers every call like the given one. It consists of a
// search for the range of numbers that holds the call's number, and of the unchanged
// instructions that check arguments. If shorten doesn't recognize the program as
// libseccomp's, it returns the program unchanged.
func shorten(program []byte) []byte {
	p := decodeBPF(program)
	s := shortener{program: p}
	if !s.understands() {
		return program
	}
	short, ok := s.write()
	if !ok || len(short) >= len(p) {
		return program
	}
	return encodeBPF(short)
}

// joinFilters returns a program that answers the calls in parts like their parts, and all
// other calls like plain.
func joinFilters(plain []bpfInstruction, parts map[uint32][]bpfInstruction) []bpfInstruction {
	const head = 2 // instructions at the start of every program that check the architecture
	numbers := slices.Sorted(maps.Keys(parts))
	out := []bpfInstruction{
		plain[0],
		{code: bpfEqual, k: plain[1].k, jt: 1},
		plain[head+int(plain[1].jf)], // the answer to all calls of other architectures
		{code: bpfLoad, k: loadNumber},
	}
	for _, n := range numbers {
		out = append(out, bpfInstruction{code: bpfEqual, k: n, jf: 1}, bpfInstruction{code: bpfJump, k: n})
	}
	out = append(out, bpfInstruction{code: bpfJump})
	to := func(at, target int) { out[at] = bpfInstruction{code: bpfJump, k: uint32(target - at - 1)} }
	to(len(out)-1, len(out)+int(plain[1].jt))
	out = append(out, plain[head:]...)
	for i, n := range numbers {
		part := parts[n]
		to(5+2*i, len(out)+int(part[1].jt))
		out = append(out, part[head:]...)
	}
	return out
}

func decodeBPF(b []byte) []bpfInstruction {
	p := make([]bpfInstruction, len(b)/sockFilterSize)
	for i := range p {
		at := b[i*sockFilterSize:]
		p[i] = bpfInstruction{binary.LittleEndian.Uint16(at), at[2], at[3], binary.LittleEndian.Uint32(at[4:])}
	}
	return p
}

func encodeBPF(p []bpfInstruction) []byte {
	var b []byte
	for _, i := range p {
		b = binary.LittleEndian.AppendUint16(b, i.code)
		b = append(b, i.jt, i.jf)
		b = binary.LittleEndian.AppendUint32(b, i.k)
	}
	return b
}

type shortener struct{ program []bpfInstruction }

// A bpfLeaf is the point that a program reaches for a call's number alone: an answer, or
// the first instruction that loads an argument.
type bpfLeaf struct {
	looks bool
	value uint32 // the answer, or the index of the instruction if looks is true
}

// understands says whether the program begins with a check of the architecture, has no
// other check of it, and consists only of the instructions above.
func (s shortener) understands() bool {
	p := s.program
	for i, in := range p {
		known := slices.Contains([]uint16{bpfLoad, bpfAnd, bpfJump, bpfEqual, bpfGreater, bpfAtLeast, bpfAnswer}, in.code)
		if !known || in.code == bpfLoad && in.k == loadArch && i > 0 {
			return false
		}
	}
	return len(p) > 2 && p[0] == bpfInstruction{code: bpfLoad, k: loadArch} && p[1].code == bpfEqual
}

// follow returns the leaf that the program reaches from instruction at, for a call with
// that number.
func (s shortener) follow(at int, number uint32) (bpfLeaf, bool) {
	loaded := false
	for at < len(s.program) {
		in := s.program[at]
		at++
		switch in.code {
		case bpfAnswer:
			return bpfLeaf{value: in.k}, true
		case bpfLoad:
			if in.k != loadNumber {
				return bpfLeaf{looks: true, value: uint32(at - 1)}, true
			}
			loaded = true
		case bpfJump:
			at += int(in.k)
		default:
			if !loaded || in.code == bpfAnd {
				return bpfLeaf{}, false // it compares another word than the number
			}
			at += in.after(number)
		}
	}
	return bpfLeaf{}, false
}

// after returns how many instructions a comparison with a skips.
func (in bpfInstruction) after(a uint32) int {
	holds := a == in.k
	switch in.code {
	case bpfGreater:
		holds = a > in.k
	case bpfAtLeast:
		holds = a >= in.k
	}
	if holds {
		return int(in.jt)
	}
	return int(in.jf)
}

// A bpfRange is a range of numbers with the same leaf. It ends before the next range.
type bpfRange struct {
	first uint32
	leaf  bpfLeaf
}

// ranges returns the ranges of all numbers, ascending. A range can only begin at a number
// for which the result of a comparison changes.
func (s shortener) ranges() ([]bpfRange, bool) {
	firsts := []uint32{0}
	for _, in := range s.program {
		firsts = append(firsts, in.k)
		if in.k < math.MaxUint32 {
			firsts = append(firsts, in.k+1)
		}
	}
	slices.Sort(firsts)
	var all []bpfRange
	for _, first := range slices.Compact(firsts) {
		leaf, ok := s.follow(2+int(s.program[1].jt), first)
		if !ok {
			return nil, false
		}
		if len(all) == 0 || all[len(all)-1].leaf != leaf {
			all = append(all, bpfRange{first, leaf})
		}
	}
	return all, true
}

// write returns the short program: the check of the architecture, the search, the leaves,
// and the instructions that check arguments.
func (s shortener) write() ([]bpfInstruction, bool) {
	ranges, ok := s.ranges()
	if !ok {
		return nil, false
	}
	// The answer to all calls of other architectures.
	foreign, ok := s.follow(2+int(s.program[1].jf), 0)
	if !ok || foreign.looks || s.program[2+int(s.program[1].jf)].code != bpfAnswer {
		return nil, false
	}
	leaves := []bpfLeaf{foreign}
	for _, r := range ranges {
		if !slices.Contains(leaves, r.leaf) {
			leaves = append(leaves, r.leaf)
		}
	}
	const head = 3
	search := head + len(ranges) - 1 // where the leaves begin
	out := []bpfInstruction{
		{code: bpfLoad, k: loadArch},
		{code: bpfEqual, k: s.program[1].k, jf: uint8(min(search-2, longestJump))},
		{code: bpfLoad, k: loadNumber},
	}
	if search+len(leaves) > longestJump {
		return nil, false
	}
	place := func(l bpfLeaf) int { return search + slices.Index(leaves, l) }
	out = appendSearch(out, ranges, place)
	out, ok = s.appendLeaves(out, leaves)
	return out, ok
}

// appendSearch appends a binary search for a range. It takes one comparison less than there
// are ranges. All jumps are forward, as BPF demands.
func appendSearch(out []bpfInstruction, ranges []bpfRange, place func(bpfLeaf) int) []bpfInstruction {
	if len(ranges) == 1 {
		return out // the comparison before jumps to the leaf directly
	}
	middle := len(ranges) / 2
	low, high := ranges[:middle], ranges[middle:]
	at := len(out)
	to := func(part []bpfRange, begins int) uint8 {
		if len(part) == 1 {
			begins = place(part[0].leaf)
		}
		return uint8(begins - at - 1)
	}
	out = append(out, bpfInstruction{})
	out = appendSearch(out, low, place)
	highAt := len(out)
	out = appendSearch(out, high, place)
	out[at] = bpfInstruction{code: bpfAtLeast, k: high[0].first, jt: to(high, highAt), jf: to(low, at+1)}
	return out
}

// appendLeaves appends one instruction for each leaf: an answer, or a jump to the check of
// arguments. Then it appends the instructions of those checks, in their order.
func (s shortener) appendLeaves(out []bpfInstruction, leaves []bpfLeaf) ([]bpfInstruction, bool) {
	kept := make([]bool, len(s.program))
	for _, l := range leaves {
		if l.looks && !s.keep(kept, int(l.value)) {
			return nil, false
		}
	}
	place := make([]int, len(s.program)) // new index in out, by old index of a kept instruction
	next := len(out) + len(leaves)
	for i := range s.program {
		place[i] = next
		if kept[i] {
			next++
		}
	}
	for _, l := range leaves {
		if l.looks {
			out = append(out, bpfInstruction{code: bpfJump, k: uint32(place[l.value] - len(out) - 1)})
		} else {
			out = append(out, bpfInstruction{code: bpfAnswer, k: l.value})
		}
	}
	for i, in := range s.program {
		if !kept[i] {
			continue
		}
		// Between two kept instructions some may be left out, so no jump becomes longer.
		distance := func(to int) int { return place[to] - place[i] - 1 }
		switch in.code {
		case bpfJump:
			in.k = uint32(distance(i + 1 + int(in.k)))
		case bpfEqual, bpfGreater, bpfAtLeast:
			in.jt, in.jf = uint8(distance(i+1+int(in.jt))), uint8(distance(i+1+int(in.jf)))
		}
		out = append(out, in)
	}
	return out, true
}

// keep marks the instruction at and all that the program can reach from it. It returns
// false if the program can run past its end.
func (s shortener) keep(kept []bool, at int) bool {
	for at < len(s.program) && !kept[at] {
		kept[at] = true
		in := s.program[at]
		switch in.code {
		case bpfAnswer:
			return true
		case bpfJump:
			at += int(in.k)
		case bpfEqual, bpfGreater, bpfAtLeast:
			if !s.keep(kept, at+1+int(in.jt)) {
				return false
			}
			at += int(in.jf)
		}
		at++
	}
	return at < len(s.program)
}
