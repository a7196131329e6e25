package skill

import (
	"errors"
	"sync"
	"testing"
)

// A result is kept by its key, errors are not kept, and all callers get the same result.
func TestDerived(t *testing.T) {
	type one struct{}
	type two struct{ path string }
	s := &Skill{}
	wrong := errors.New("wrong")
	if got, err := Derived(s, one{}, func() (*int, error) { return nil, wrong }); got != nil || err != wrong {
		t.Fatalf("after an error: %v, %v", got, err)
	}
	first := new(int)
	if got, err := Derived(s, one{}, func() (*int, error) { return first, nil }); got != first || err != nil {
		t.Fatalf("got %p, %v, want %p", got, err, first)
	}
	if got, err := Derived(s, one{}, func() (*int, error) { return nil, wrong }); got != first || err != nil {
		t.Errorf("made a second time: %v, %v", got, err)
	}
	for _, key := range []any{two{"a"}, two{"b"}} {
		if got, err := Derived(s, key, func() (any, error) { return key, nil }); got != key || err != nil {
			t.Errorf("key %v: %v, %v", key, got, err)
		}
	}
	var all sync.WaitGroup
	got := make([]*int, 8)
	for i := range got {
		all.Go(func() { got[i], _ = Derived(s, two{"c"}, func() (*int, error) { return new(int), nil }) })
	}
	all.Wait()
	for i := range got {
		if got[i] == nil || got[i] != got[0] {
			t.Errorf("caller %d has %p, the first one %p", i, got[i], got[0])
		}
	}
}
