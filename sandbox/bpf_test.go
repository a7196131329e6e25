package sandbox

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// compiled returns all filters of an architecture as libseccomp writes them.
func compiled(t *testing.T, a filterArch) [][]byte {
	t.Helper()
	p, err := parsePolicy()
	if err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	for _, extra := range [][]string{nil, p.Init, append(slices.Clone(p.Init), "move_mount")} {
		all = append(all, compileFor(t, p, a, extra))
	}
	return all
}

// A shortened filter answers every call like the original. The test tries each number with
// many arguments, including the constants of the filter.
func TestShortFilterAnswersTheSame(t *testing.T) {
	for _, a := range filterArchs {
		for i, long := range compiled(t, a) {
			t.Run(fmt.Sprint(a.name, " ", i), func(t *testing.T) { compareShort(t, long) })
		}
	}
}

func compareShort(t *testing.T, long []byte) {
	was, short := decodeBPF(long), shorten(long)
	if got := len(decodeBPF(short)); got > len(was)*2/3 {
		t.Errorf("%d instructions became %d", len(was), got)
	}
	before, after := loadFilter(t, long), loadFilter(t, short)
	// Uniformly random numbers and arguments would match no rule.
	words := []uint32{0, 1, 1<<30 - 1, 1 << 30, 1<<30 + 1, 1 << 31, math.MaxUint32 - 1, math.MaxUint32}
	for _, in := range was {
		words = append(words, in.k-1, in.k, in.k+1)
	}
	slices.Sort(words)
	words = slices.Compact(words)
	random := rand.New(rand.NewPCG(1, 2))
	for _, number := range words {
		for range 100 {
			var data [64]byte
			binary.BigEndian.PutUint32(data[0:], number)
			binary.BigEndian.PutUint32(data[4:], was[1].k)
			if random.IntN(20) == 0 {
				binary.BigEndian.PutUint32(data[4:], words[random.IntN(len(words))])
			}
			for at := 16; at < len(data); at += 4 {
				if random.IntN(3) > 0 { // the upper halves of most arguments are zero
					binary.BigEndian.PutUint32(data[at:], words[random.IntN(len(words))])
				}
			}
			got, err := after.Run(data[:])
			want, werr := before.Run(data[:])
			if got != want || err != nil || werr != nil {
				t.Fatalf("call % x: got %#x, want %#x (%v, %v)", data, got, want, err, werr)
			}
		}
	}
}

// shorten returns a program unchanged that libseccomp would not write.
func TestShortenLeavesOthersAlone(t *testing.T) {
	allow := bpfInstruction{code: bpfAnswer, k: 0x7fff0000}
	arch := bpfInstruction{code: bpfLoad, k: loadArch}
	number := bpfInstruction{code: bpfLoad, k: loadNumber}
	for name, p := range map[string][]bpfInstruction{
		"nothing":                               {},
		"an answer":                             {allow},
		"no architecture":                       {number, {code: bpfEqual, k: 1}, allow, allow},
		"an unknown one":                        {arch, {code: bpfEqual, k: 1, jt: 1}, allow, {code: 0x87}, allow},
		"the architecture late":                 {arch, {code: bpfEqual, k: 1, jt: 1}, allow, arch, allow},
		"no end":                                {arch, {code: bpfEqual, k: 1, jt: 1}, allow, number, {code: bpfEqual, k: 1}},
		"a jump over it":                        {arch, {code: bpfEqual, k: 1, jt: 1}, allow, number, {code: bpfJump, k: 9}, allow},
		"the architecture's comparison goes on": {arch, {code: bpfEqual, k: 1, jt: 1}, allow, {code: bpfEqual, k: 2}, allow},
		"another's call is looked at":           {arch, {code: bpfEqual, k: 1, jf: 1}, allow, number, allow},
		"an argument without end":               {arch, {code: bpfEqual, k: 1, jt: 1}, allow, {code: bpfLoad, k: 16}, {code: bpfEqual, k: 1}},
		"short enough":                          {arch, {code: bpfEqual, k: 1, jt: 1}, allow, number, {code: bpfEqual, k: 5, jt: 1}, allow, {code: bpfAnswer}},
	} {
		b := encodeBPF(p)
		if got := shorten(b); !slices.Equal(got, b) {
			t.Errorf("%s: got %v", name, decodeBPF(got))
		}
	}
	// More ranges than a jump can skip.
	long := []bpfInstruction{arch, {code: bpfEqual, k: 1, jt: 1}, allow, number}
	for n := range uint32(400) {
		long = append(long, bpfInstruction{code: bpfEqual, k: 2 * n, jf: 1}, allow)
	}
	b := encodeBPF(append(long, bpfInstruction{code: bpfAnswer}))
	if got := shorten(b); !slices.Equal(got, b) {
		t.Error("a program with too many ranges was shortened")
	}
}
