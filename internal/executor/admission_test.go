package executor

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skillrun/skillrun/internal/permission"
)

var (
	alice = permission.Principal{Tenant: "default", Name: "alice"}
	bob   = permission.Principal{Tenant: "default", Name: "bob"}
	carol = permission.Principal{Tenant: "default", Name: "carol"}
)

func enter(t *testing.T, a *admission) *place {
	t.Helper()
	return enterAs(t, a, alice)
}

func enterAs(t *testing.T, a *admission, who permission.Principal) *place {
	t.Helper()
	p, err := a.enter(who)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAdmissionServesFirstComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(1, 3, 0)
		running := enter(t, a)
		if err := running.wait(t.Context(), 0); err != nil {
			t.Fatalf("the first place is not a slot: %v", err)
		}
		var order []int
		for i := range 3 {
			p := enter(t, a)
			go func() {
				if err := p.wait(t.Context(), time.Minute); err == nil {
					order = append(order, i)
				}
				p.leave()
			}()
			synctest.Wait()
		}
		running.leave()
		synctest.Wait()
		if len(order) != 3 || order[0] != 0 || order[1] != 1 || order[2] != 2 {
			t.Errorf("got %v, want [0 1 2]", order)
		}
		if r, q, _ := a.counts(); r != 0 || q != 0 {
			t.Errorf("left %d running, %d queued", r, q)
		}
	})
}

func TestAdmissionRefusesWhenFull(t *testing.T) {
	a := newAdmission(1, 1, 0)
	running, queued := enter(t, a), enter(t, a)
	var full *SaturatedError
	if _, err := a.enter(alice); !errors.As(err, &full) || full.Running != 1 || full.Queued != 1 || full.RetryAfter <= 0 {
		t.Errorf("got %v, want a SaturatedError with 1 running and 1 queued", err)
	}
	queued.leave()
	if _, err := a.enter(alice); err != nil {
		t.Errorf("after one left the queue: %v", err)
	}
	running.leave()
}

func TestAdmissionQueueTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(1, 1, 0)
		enter(t, a)
		p := enter(t, a)
		began := time.Now()
		if err := p.wait(t.Context(), 30*time.Second); !errors.Is(err, errQueueTime) {
			t.Errorf("got %v, want errQueueTime", err)
		}
		if waited := time.Since(began); waited != 30*time.Second {
			t.Errorf("waited %s, want 30s", waited)
		}
	})
}

func TestAdmissionCancelledWhileWaiting(t *testing.T) {
	a := newAdmission(1, 1, 0)
	enter(t, a)
	p := enter(t, a)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := &cancellation{by: "someone"}
	cancel(cause)
	if err := p.wait(ctx, time.Hour); !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause", err)
	}
	p.leave()
	if r, q, _ := a.counts(); r != 1 || q != 0 {
		t.Errorf("got %d running, %d queued; want 1, 0", r, q)
	}
}

// A slot that is handed to a place whose owner gives up at the same moment must
// not be lost.
func TestAdmissionSlotHandedToOneWhoLeaves(t *testing.T) {
	a := newAdmission(1, 2, 0)
	first, second := enter(t, a), enter(t, a)
	first.leave()  // second has the slot now
	second.leave() // without ever having waited
	if r, q, _ := a.counts(); r != 0 || q != 0 {
		t.Errorf("got %d running, %d queued; want none", r, q)
	}
}

func TestAdmissionDraining(t *testing.T) {
	a := newAdmission(1, 1, 0)
	enter(t, a)
	queued := enter(t, a)
	a.close()
	if _, err := a.enter(alice); !errors.Is(err, ErrDraining) {
		t.Errorf("got %v, want ErrDraining", err)
	}
	if err := queued.wait(t.Context(), 0); !errors.Is(err, errQueueTime) {
		t.Errorf("who waited before is out: %v", err)
	}
}

// isSlot reports whether a place is a slot, without waiting.
func isSlot(p *place) bool {
	select {
	case <-p.ready:
		return true
	default:
		return false
	}
}

// One caller may have every slot and every place. Another one, of whom nothing runs,
// runs at once all the same, and a second one of theirs waits.
func TestAdmissionReservesSlots(t *testing.T) {
	a := newAdmission(2, 2, 1)
	hog := []*place{enter(t, a), enter(t, a), enter(t, a)}
	if !isSlot(hog[0]) || !isSlot(hog[1]) || isSlot(hog[2]) {
		t.Fatal("one caller has not exactly the slots of all")
	}
	first, second := enterAs(t, a, bob), enterAs(t, a, bob)
	if !isSlot(first) || isSlot(second) {
		t.Error("a caller of whom nothing runs has to wait, or has two reserved slots")
	}
	if third := enterAs(t, a, carol); isSlot(third) {
		t.Error("more run than there are slots")
	}
	// The reserved slot is the next one's of whom nothing runs, whoever came before.
	first.leave()
	if !isSlot(second) || isSlot(hog[2]) {
		t.Error("the reserved slot went to a caller of whom something runs")
	}
}

// A free slot that a waiting caller may have, is had.
func TestAdmissionLeavesNoSlotFree(t *testing.T) {
	a := newAdmission(1, 4, 1)
	mine, yours := enter(t, a), enterAs(t, a, bob)
	next := []*place{enter(t, a), enter(t, a)}
	mine.leave() // of alice nothing runs now, so the reserved slot is hers
	if !isSlot(next[0]) || isSlot(next[1]) {
		t.Error("want one of alice's two to run beside bob's")
	}
	yours.leave()
	next[0].leave()
	if !isSlot(next[1]) {
		t.Error("a slot stays free while somebody waits")
	}
	next[1].leave()
	if r, q, _ := a.counts(); r != 0 || q != 0 || len(a.callers) != 0 || a.turns.Len() != 0 {
		t.Errorf("left %d running, %d queued, %d callers, %d turns", r, q, len(a.callers), a.turns.Len())
	}
}

func TestAdmissionGoesRoundTheCallers(t *testing.T) {
	a := newAdmission(1, 9, 0)
	running := enter(t, a)
	names := map[*place]string{}
	for range 3 {
		names[enter(t, a)] = "a"
	}
	for range 2 {
		names[enterAs(t, a, bob)] = "b"
	}
	names[enterAs(t, a, carol)] = "c"
	order := ""
	for len(names) > 0 {
		running.leave()
		for p, name := range names {
			if isSlot(p) {
				order += name
				running = p
				delete(names, p)
			}
		}
	}
	if want := "abcaba"; order != want {
		t.Errorf("got %s, want %s", order, want)
	}
}

// A queue that one caller has filled has places for others, and not without end.
func TestAdmissionKeepsPlacesInTheQueue(t *testing.T) {
	const queued = 32 // so that a share is 2
	a := newAdmission(1, queued, 0)
	for range 1 + queued {
		enter(t, a)
	}
	refused := func(who permission.Principal) bool {
		_, err := a.enter(who)
		var full *SaturatedError
		if err != nil && !errors.As(err, &full) {
			t.Fatal(err)
		}
		return err != nil
	}
	if !refused(alice) {
		t.Error("who has filled the queue gets one more place")
	}
	for i := range queueLatecomer {
		who := permission.Principal{Name: fmt.Sprint(i)}
		for range 2 {
			if refused(who) {
				t.Errorf("%d: another caller is refused within their share", i)
			}
		}
		if !refused(who) {
			t.Errorf("%d: another caller has more than their share of a full queue", i)
		}
	}
	if !refused(carol) {
		t.Error("the queue has no end")
	}
	if a := newAdmission(1, 0, 0); enter(t, a) == nil {
		t.Error("no slot")
	} else if _, err := a.enter(bob); err == nil {
		t.Error("somebody waits where nobody may")
	}
}
