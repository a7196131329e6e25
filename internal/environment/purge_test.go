package environment

import (
	"errors"
	"slices"
	"testing"

	"github.com/skillrun/skillrun/internal/runtime"
)

// Purge removes the environments of one tenant, unless one is in use or being built.
func TestPurge(t *testing.T) {
	t.Parallel()
	s := newStore(t, newIndex(t, base, top).from)
	sk := newSkill(t, "python_packages: [sk-top]\n", nil)
	inv := python(t, sk, runtime.System)
	mustPrepare(t, s, "acme", sk, runtime.System)
	mustPrepare(t, s, "globex", sk, runtime.System)
	lease, err := s.Acquire(useOf("acme", sk, inv))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Purge("acme"); !errors.Is(err, ErrInUse) {
		t.Errorf("with a lease: got %v", err)
	}
	lease.Release()
	s.mu.Lock()
	s.flights[flightKey{"acme", "x"}] = &flight{}
	s.mu.Unlock()
	if _, _, err := s.Purge("acme"); !errors.Is(err, ErrInUse) {
		t.Errorf("during a build: got %v", err)
	}
	s.mu.Lock()
	delete(s.flights, flightKey{"acme", "x"})
	s.mu.Unlock()
	if n, bytes, err := s.Purge("acme"); n != 1 || bytes <= 0 || err != nil {
		t.Errorf("got %d, %d bytes, %v", n, bytes, err)
	}
	if n, _, err := s.Purge("acme"); n != 0 || err != nil {
		t.Errorf("again: got %d, %v", n, err)
	}
	var missing *PackagesError
	if _, err := s.Acquire(useOf("acme", sk, inv)); !errors.As(err, &missing) {
		t.Errorf("got %v, want missing packages", err)
	}
	theirs, err := s.Acquire(useOf("globex", sk, inv))
	if err != nil {
		t.Fatal(err)
	}
	theirs.Release()
	if left := leftIn(t, s); slices.ContainsFunc(left, func(name string) bool { return name == "acme" }) {
		t.Errorf("left %v", left)
	}
	mustPrepare(t, s, "acme", sk, runtime.System)
}
