package pyzygote

import (
	"math/bits"
	"slices"
)

// A Set is a set of Modules, one bit for each.
type Set [4]uint64

// NewSet returns the set of these names. It ignores names that Modules lacks.
func NewSet(names ...string) (m Set) {
	for _, name := range names {
		if i := slices.Index(modules, name); i >= 0 {
			m[i/64] |= 1 << (i % 64)
		}
	}
	return m
}

// Or returns the modules of m and of n.
func (m Set) Or(n Set) Set {
	for i := range m {
		m[i] |= n[i]
	}
	return m
}

// And returns the modules that both sets have.
func (m Set) And(n Set) Set {
	for i := range m {
		m[i] &= n[i]
	}
	return m
}

// Covers reports whether m has all modules of n.
func (m Set) Covers(n Set) bool { return m.And(n) == n }

// Count returns the number of modules.
func (m Set) Count() (n int) {
	for _, word := range m {
		n += bits.OnesCount64(word)
	}
	return n
}
