package executor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func enter(t *testing.T, a *admission) *place {
	t.Helper()
	p, err := a.enter()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAdmissionServesFirstComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(1, 3)
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
	a := newAdmission(1, 1)
	running, queued := enter(t, a), enter(t, a)
	var full *SaturatedError
	if _, err := a.enter(); !errors.As(err, &full) || full.Running != 1 || full.Queued != 1 || full.RetryAfter <= 0 {
		t.Errorf("got %v, want a SaturatedError with 1 running and 1 queued", err)
	}
	queued.leave()
	if _, err := a.enter(); err != nil {
		t.Errorf("after one left the queue: %v", err)
	}
	running.leave()
}

func TestAdmissionQueueTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(1, 1)
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
	a := newAdmission(1, 1)
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
	a := newAdmission(1, 2)
	first, second := enter(t, a), enter(t, a)
	first.leave()  // second has the slot now
	second.leave() // without ever having waited
	if r, q, _ := a.counts(); r != 0 || q != 0 {
		t.Errorf("got %d running, %d queued; want none", r, q)
	}
}

func TestAdmissionDraining(t *testing.T) {
	a := newAdmission(1, 1)
	enter(t, a)
	queued := enter(t, a)
	a.close()
	if _, err := a.enter(); !errors.Is(err, ErrDraining) {
		t.Errorf("got %v, want ErrDraining", err)
	}
	if err := queued.wait(t.Context(), 0); !errors.Is(err, errQueueTime) {
		t.Errorf("who waited before is out: %v", err)
	}
}
