package executor

import (
	"context"
	"testing"

	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/sandbox"
)

// Get, List and a Follower have the position of an execution that waits for a slot, and no other
// execution has one.
func TestPositionInTheQueue(t *testing.T) {
	exits := make(chan sandbox.Exit)
	x := newExecutor(t, t.TempDir(), func(context.Context, sandbox.Spec, sandbox.IO) (process, error) {
		return &fakeProcess{exit: exits}, nil
	})
	var ids []string
	for range 4 {
		ids = append(ids, execute(t, x, scriptRequest()))
	}
	// The first two have the slots.
	checkPositions(t, x, ids, 0, 0, 1, 2)
	if _, err := x.Cancel(t.Context(), who, ids[2], "me", "", 0); err != nil {
		t.Fatal(err)
	}
	checkPositions(t, x, ids, 0, 0, 0, 1)
	exits <- sandbox.Exit{End: sandbox.Exited}
	untilStarted(t, x, ids[3])
	checkPositions(t, x, ids, 0, 0, 0, 0)
	exits <- sandbox.Exit{End: sandbox.Exited}
	exits <- sandbox.Exit{End: sandbox.Exited}
	for _, id := range ids {
		for i, e := range follow(t, x, id) {
			if e.Seq != uint64(i+1) {
				t.Errorf("event %d of %s has the sequence %d: a position is stored", i+1, id, e.Seq)
			}
		}
	}
}

// checkPositions compares the positions of executions in every way to ask for them.
func checkPositions(t *testing.T, x *Executor, ids []string, want ...int) {
	t.Helper()
	list, _, err := x.List(t.Context(), who, Filter{OldestFirst: true})
	if err != nil || len(list) != len(ids) {
		t.Fatalf("got %d executions, %v", len(list), err)
	}
	for i, id := range ids {
		e, err := x.Get(t.Context(), who, id)
		if err != nil {
			t.Fatal(err)
		}
		f, err := x.Follow(t.Context(), who, id, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := [3]int{e.Position, list[i].Position, f.Position()}; got != [3]int{want[i], want[i], want[i]} {
			t.Errorf("execution %d: get, list and follow have the positions %v, want %d", i+1, got, want[i])
		}
		f.Close()
	}
	stranger := permission.Principal{Tenant: "stranger", Name: who.Name}
	if _, err := x.Follow(t.Context(), stranger, ids[len(ids)-1], 0); err == nil {
		t.Error("another tenant can ask for the position")
	}
}
