package record

import (
	"fmt"
	"testing"
	"time"
)

func TestGrow(t *testing.T) {
	s := openStore(t, Config{})
	if err := s.Grow(t.Context(), 3); err == nil {
		t.Error("an empty record: got nil, want an error")
	}
	l := create(t, s, Execution{ID: "e1", Skill: "hello", Key: "k", Labels: map[string]string{"team": "x"}, Created: time.Now()})
	appendOutput(t, l, "what it said")
	end(t, l, "EXITED", time.Now())
	if err := s.Grow(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	const n = 300
	if err := s.Grow(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	s = reopenStore(t, s)

	ids := listAll(t, s, Filter{Tenant: "a"})
	if got, want := len(ids), n+1; got != want {
		t.Fatalf("got %d executions, want %d", got, want)
	}
	if ids[0] != "e1" {
		t.Errorf("the newest: got %s, want e1", ids[0])
	}
	if got := listAll(t, s, Filter{Tenant: "a", Labels: map[string]string{"team": "x"}}); len(got) != 1 {
		t.Errorf("with the label: got %v, want e1 alone", got)
	}
	original := readAll(t, s, "a", "e1", 0)
	for _, i := range []int{0, n / 2, n - 1} {
		id := fmt.Sprintf(growID, i)
		x := get(t, s, "a", id)
		if x.State != Ended || x.End != "EXITED" || x.Skill != "hello" || x.Key != "" || !x.Created.Before(time.Now()) {
			t.Errorf("got %+v, want a copy of e1", x)
		}
		checkEvents(t, readAll(t, s, "a", id, 0), original)
	}
	// A copy is removed as any other execution is.
	removed, _, err := s.Sweep(t.Context(), time.Now())
	if err != nil || removed != 0 {
		t.Errorf("sweep: got %d, %v, want nothing removed", removed, err)
	}
	s.config.MaxAge = time.Hour
	if removed, _, err = s.Sweep(t.Context(), time.Now().Add(2*time.Hour)); err != nil || removed != n+1 {
		t.Errorf("sweep: got %d, %v, want all %d removed", removed, err, n+1)
	}
}
