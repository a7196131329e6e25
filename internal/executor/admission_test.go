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

func enter(t *testing.T, a *admission) *ticket {
	t.Helper()
	return enterAs(t, a, alice)
}

func enterAs(t *testing.T, a *admission, who permission.Principal) *ticket {
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
			t.Fatalf("the first ticket has no slot: %v", err)
		}
		var order []int
		for i := range 3 {
			waiting := enter(t, a)
			go func() {
				if err := waiting.wait(t.Context(), time.Minute); err == nil {
					order = append(order, i)
				}
				waiting.release()
			}()
			synctest.Wait()
		}
		running.release()
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
	queued.release()
	if _, err := a.enter(alice); err != nil {
		t.Errorf("after one left the queue: %v", err)
	}
	running.release()
}

func TestAdmissionQueueTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(1, 1, 0)
		enter(t, a)
		waiting := enter(t, a)
		began := time.Now()
		if err := waiting.wait(t.Context(), 30*time.Second); !errors.Is(err, errQueueTime) {
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
	waiting := enter(t, a)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := &cancellation{by: "someone"}
	cancel(cause)
	if err := waiting.wait(ctx, time.Hour); !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause", err)
	}
	waiting.release()
	if r, q, _ := a.counts(); r != 1 || q != 0 {
		t.Errorf("got %d running, %d queued; want 1, 0", r, q)
	}
}

// A slot must not be lost if it goes to a ticket whose owner gives up at that moment.
func TestAdmissionSlotHandedToReleasedTicket(t *testing.T) {
	a := newAdmission(1, 2, 0)
	first, second := enter(t, a), enter(t, a)
	first.release()  // its slot goes to second
	second.release() // which has never waited for it
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
		t.Errorf("a ticket that waited before the drain lost its turn: %v", err)
	}
}

// hasSlot reports whether a ticket holds a slot, without waiting.
func hasSlot(p *ticket) bool {
	select {
	case <-p.ready:
		return true
	default:
		return false
	}
}

// One caller takes every slot and the whole queue. The first execution of another caller
// still runs at once, and its second one waits.
func TestAdmissionReservesSlots(t *testing.T) {
	a := newAdmission(2, 2, 1)
	hog := []*ticket{enter(t, a), enter(t, a), enter(t, a)}
	if !hasSlot(hog[0]) || !hasSlot(hog[1]) || hasSlot(hog[2]) {
		t.Fatal("want the first two of one caller's three to run")
	}
	first, second := enterAs(t, a, bob), enterAs(t, a, bob)
	if !hasSlot(first) || hasSlot(second) {
		t.Error("want the first of bob's two to run in the reserved slot")
	}
	if third := enterAs(t, a, carol); hasSlot(third) {
		t.Error("more run than there are slots")
	}
	// The reserved slot goes to bob, with nothing running, and not to alice, who waited longer.
	first.release()
	if !hasSlot(second) || hasSlot(hog[2]) {
		t.Error("the reserved slot went to a caller with something running")
	}
}

// No slot stays free while a caller waits that may have it.
func TestAdmissionLeavesNoSlotFree(t *testing.T) {
	a := newAdmission(1, 4, 1)
	mine, yours := enter(t, a), enterAs(t, a, bob)
	next := []*ticket{enter(t, a), enter(t, a)}
	mine.release() // alice has nothing running now and may have the reserved slot
	if !hasSlot(next[0]) || hasSlot(next[1]) {
		t.Error("want one of alice's two to run together with bob's")
	}
	yours.release()
	next[0].release()
	if !hasSlot(next[1]) {
		t.Error("a slot stays free while a ticket waits")
	}
	next[1].release()
	if r, q, _ := a.counts(); r != 0 || q != 0 || len(a.callers) != 0 || a.turns.Len() != 0 {
		t.Errorf("left %d running, %d queued, %d callers, %d turns", r, q, len(a.callers), a.turns.Len())
	}
}

func TestAdmissionGoesRoundTheCallers(t *testing.T) {
	a := newAdmission(1, 9, 0)
	running := enter(t, a)
	names := map[*ticket]string{}
	for range 3 {
		names[enter(t, a)] = "a"
	}
	for range 2 {
		names[enterAs(t, a, bob)] = "b"
	}
	names[enterAs(t, a, carol)] = "c"
	order := ""
	for len(names) > 0 {
		running.release()
		for p, name := range names {
			if hasSlot(p) {
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

// Other callers can still use their shares of a queue that one caller has filled; the
// queue stays bounded.
func TestAdmissionKeepsSharesOfTheQueue(t *testing.T) {
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
		t.Error("the caller that filled the queue gets one more ticket")
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
		t.Error("a ticket waits in a queue of length 0")
	}
}
