package record

import (
	"bytes"
	"errors"
	"sync"
	"testing"
)

func TestKeyClaimed(t *testing.T) {
	s := openStore(t, Config{})
	x := Execution{ID: NewID(), Tenant: "a", Skill: "hello", Key: "k", RequestHash: []byte("hash"), Created: start}
	l := createInFile(t, s, x)
	appendOutput(t, l, "x")
	claim := func(tenant, key string) (*KeyClaimed, error) {
		_, err := s.Create(t.Context(), Execution{ID: NewID(), Tenant: tenant, Key: key, RequestHash: []byte("other")}, nil)
		claimed, _ := errors.AsType[*KeyClaimed](err)
		return claimed, err
	}
	check := func(when string, state State, seq uint64) {
		t.Helper()
		claimed, err := claim("a", "k")
		if claimed == nil {
			t.Fatalf("%s: got %v", when, err)
		}
		got := claimed.Existing
		if got.ID != x.ID || !bytes.Equal(got.RequestHash, x.RequestHash) || got.State != state || got.LastSeq != seq {
			t.Errorf("%s: got %+v", when, got)
		}
	}
	check("open", Queued, 2)
	// Nothing of the second is left.
	if left := files(t, s); len(left) != 1 || rowsIn(t, s, "executions") != 1 {
		t.Errorf("left %v", left)
	}
	end(t, l, "EXITED", start)
	check("ended", Ended, 3)
	s = reopenStore(t, s)
	check("later", Ended, 3)
	for _, test := range []struct{ tenant, key string }{{"b", "k"}, {"a", "K"}, {"a", ""}, {"a", ""}, {"", "k"}} {
		if _, err := claim(test.tenant, test.key); err != nil {
			t.Errorf("%q, %q: got %v", test.tenant, test.key, err)
		}
	}
}

// Of many at once one gets the key, and the others can read its execution.
func TestKeyRace(t *testing.T) {
	s := openStore(t, Config{})
	for range 20 {
		key := NewID()
		won := make(chan *Log, 16)
		var wg sync.WaitGroup
		for range cap(won) {
			wg.Go(func() {
				l, err := s.Create(t.Context(), Execution{ID: NewID(), Tenant: "a", Key: key}, []byte("header"))
				if err == nil {
					won <- l
					return
				}
				claimed, ok := errors.AsType[*KeyClaimed](err)
				if !ok {
					t.Error(err)
					return
				}
				r, err := s.Read(t.Context(), "a", claimed.Existing.ID, 0)
				if err != nil {
					t.Error(err)
					return
				}
				defer r.Close()
				if e, err := r.Next(t.Context()); string(e.Data) != "header" || err != nil {
					t.Errorf("got %q, %v", e.Data, err)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("%d have the key", len(won))
		}
	}
}

func TestByKey(t *testing.T) {
	s := openStore(t, Config{})
	x := Execution{ID: NewID(), Tenant: "a", Skill: "hello", Key: "k", RequestHash: []byte("hash"), Created: start}
	createInFile(t, s, x)
	for range 2 {
		got, err := s.ByKey(t.Context(), "a", "k")
		if err != nil || got.ID != x.ID || !bytes.Equal(got.RequestHash, x.RequestHash) {
			t.Errorf("got %+v, %v", got, err)
		}
		for _, other := range [][2]string{{"b", "k"}, {"a", "K"}, {"", "k"}} {
			if _, err := s.ByKey(t.Context(), other[0], other[1]); !errors.Is(err, ErrNotFound) {
				t.Errorf("%q: %v", other, err)
			}
		}
		s = reopenStore(t, s)
	}
}
