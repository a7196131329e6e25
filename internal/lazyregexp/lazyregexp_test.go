package lazyregexp

import (
	"os"
	"testing"
)

// A test finds a wrong text at once; a program finds it at the first use.
func TestNew(t *testing.T) {
	if got := New("b+").FindString("abbc"); got != "bb" {
		t.Errorf("got %q", got)
	}
	panics := func(f func()) (does bool) {
		defer func() { does = recover() != nil }()
		f()
		return false
	}
	if !panics(func() { New("(") }) {
		t.Error("a wrong text does not panic in a test")
	}
	name := os.Args[0]
	defer func() { os.Args[0] = name }()
	os.Args[0] = "skillrund"
	r := New("(")
	if !panics(func() { r.MatchString("") }) {
		t.Error("a wrong text does not panic at its use")
	}
}
