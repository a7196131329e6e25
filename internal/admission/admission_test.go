package admission

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

const (
	alice, bob, carol = "alice", "bob", "carol" // callers of one tenant
	tenant1           = "default"
)

// newOne returns an Admission with one tenant, which may use the whole machine.
func newOne(running, queued, reserved int) *Admission {
	a := New(Config{Slots: running + reserved, Jitter: func() float64 { return 0 }})
	a.SetTenant(tenant1, Quota{Running: running, Queued: queued, Reserved: reserved})
	return a
}

func enter(t *testing.T, a *Admission) *Ticket {
	t.Helper()
	return enterAs(t, a, alice)
}

func enterAs(t *testing.T, a *Admission, caller string) *Ticket {
	t.Helper()
	return enterFor(t, a, tenant1, caller)
}

func enterFor(t *testing.T, a *Admission, tenant, caller string) *Ticket {
	t.Helper()
	k, err := a.Enter(tenant, caller)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// wantEmpty fails the test if an Admission has a ticket, uses a resource, or remembers a caller.
func wantEmpty(t *testing.T, a *Admission) {
	t.Helper()
	if running, queued, _ := a.Counts(); running != 0 || queued != 0 || a.used != (Resources{}) || len(a.ready) != 0 {
		t.Errorf("left %d running, %d queued, %+v in use, %d tenants ready", running, queued, a.used, len(a.ready))
	}
	for name, x := range a.tenants {
		if a.Usage(name) != (Usage{}) || len(x.lines) != 0 || x.turns.Len() != 0 || x.share != 0 {
			t.Errorf("%s: left %+v, %d lines, %d turns, a share of %g", name, a.Usage(name), len(x.lines), x.turns.Len(), x.share)
		}
	}
}

func TestAdmissionServesFirstComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newOne(1, 3, 0)
		running := enter(t, a)
		if err := running.Wait(t.Context(), 0); err != nil {
			t.Fatalf("the first ticket has no slot: %v", err)
		}
		var order []int
		for i := range 3 {
			waiting := enter(t, a)
			go func() {
				if err := waiting.Wait(t.Context(), time.Minute); err == nil {
					order = append(order, i)
				}
				waiting.Release()
			}()
			synctest.Wait()
		}
		running.Release()
		synctest.Wait()
		if len(order) != 3 || order[0] != 0 || order[1] != 1 || order[2] != 2 {
			t.Errorf("got %v, want [0 1 2]", order)
		}
		wantEmpty(t, a)
	})
}

func TestAdmissionRefusesWhenFull(t *testing.T) {
	a := newOne(1, 1, 0)
	running, queued := enter(t, a), enter(t, a)
	var full *QuotaError
	if _, err := a.Enter(tenant1, alice); !errors.As(err, &full) || *full != (QuotaError{Queued, 1, 1, time.Second}) {
		t.Errorf("got %v, want 1 of 1 queued", err)
	}
	queued.Release()
	if _, err := a.Enter(tenant1, alice); err != nil {
		t.Errorf("after one left the queue: %v", err)
	}
	running.Release()
}

func TestAdmissionQueueTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newOne(1, 1, 0)
		enter(t, a)
		waiting := enter(t, a)
		began := time.Now()
		if err := waiting.Wait(t.Context(), 30*time.Second); !errors.Is(err, ErrQueueTime) {
			t.Errorf("got %v, want ErrQueueTime", err)
		}
		if waited := time.Since(began); waited != 30*time.Second {
			t.Errorf("waited %s, want 30s", waited)
		}
	})
}

func TestAdmissionCancelledWhileWaiting(t *testing.T) {
	a := newOne(1, 1, 0)
	enter(t, a)
	waiting := enter(t, a)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("someone cancelled")
	cancel(cause)
	if err := waiting.Wait(ctx, time.Hour); !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause", err)
	}
	waiting.Release()
	if r, q, _ := a.Counts(); r != 1 || q != 0 {
		t.Errorf("got %d running, %d queued; want 1, 0", r, q)
	}
}

// A slot must not be lost if it goes to a ticket whose owner gives up at that moment.
func TestAdmissionSlotHandedToReleasedTicket(t *testing.T) {
	a := newOne(1, 2, 0)
	first, second := enter(t, a), enter(t, a)
	first.Release()  // its slot goes to second
	second.Release() // which has never waited for it
	second.Release() // twice: nothing happens
	wantEmpty(t, a)
}

// In a takeover every refusal says so, also of a request that would wait for a session, and also in the drain that
// follows.
func TestAdmissionHandedOver(t *testing.T) {
	a := newOne(1, 1, 0)
	a.HandOver()
	for _, then := range []func(){func() {}, a.Close} {
		then()
		if _, err := a.Enter(tenant1, alice); err != ErrHandedOver {
			t.Errorf("Enter: got %v", err)
		}
		if _, err := a.Wait(tenant1, alice); err != ErrHandedOver {
			t.Errorf("Wait: got %v", err)
		}
	}
	a.Open()
	enter(t, a).Release()
	wantEmpty(t, a)
}

func TestAdmissionDraining(t *testing.T) {
	a := newOne(1, 1, 0)
	enter(t, a)
	queued := enter(t, a)
	a.Close()
	if _, err := a.Enter(tenant1, alice); !errors.Is(err, ErrDraining) {
		t.Errorf("got %v, want ErrDraining", err)
	}
	if err := queued.Wait(t.Context(), 0); !errors.Is(err, ErrQueueTime) {
		t.Errorf("a ticket that waited before the drain lost its turn: %v", err)
	}
}

// hasSlot reports whether a ticket holds a slot, without waiting.
func hasSlot(p *Ticket) bool {
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
	a := newOne(2, 2, 1)
	hog := []*Ticket{enter(t, a), enter(t, a), enter(t, a)}
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
	first.Release()
	if !hasSlot(second) || hasSlot(hog[2]) {
		t.Error("the reserved slot went to a caller with something running")
	}
}

// No slot stays free while a caller waits and may have the slot.
func TestAdmissionLeavesNoSlotFree(t *testing.T) {
	a := newOne(1, 4, 1)
	mine, yours := enter(t, a), enterAs(t, a, bob)
	next := []*Ticket{enter(t, a), enter(t, a)}
	mine.Release() // alice has nothing running now and may have the reserved slot
	if !hasSlot(next[0]) || hasSlot(next[1]) {
		t.Error("want one of alice's two to run together with bob's")
	}
	yours.Release()
	next[0].Release()
	if !hasSlot(next[1]) {
		t.Error("a slot stays free while a ticket waits")
	}
	next[1].Release()
	wantEmpty(t, a)
}

func TestAdmissionGoesRoundTheCallers(t *testing.T) {
	a := newOne(1, 9, 0)
	running := enter(t, a)
	names := map[*Ticket]string{}
	for range 3 {
		names[enter(t, a)] = "a"
	}
	for range 2 {
		names[enterAs(t, a, bob)] = "b"
	}
	names[enterAs(t, a, carol)] = "c"
	order := ""
	for len(names) > 0 {
		running.Release()
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
	a := newOne(1, queued, 0)
	for range 1 + queued {
		enter(t, a)
	}
	refused := func(who string) bool {
		_, err := a.Enter(tenant1, who)
		var full *QuotaError
		if err != nil && !errors.As(err, &full) {
			t.Fatal(err)
		}
		return err != nil
	}
	if !refused(alice) {
		t.Error("the caller that filled the queue gets one more ticket")
	}
	for i := range queueLatecomer {
		who := fmt.Sprint(i)
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
	if a := newOne(1, 0, 0); enter(t, a) == nil {
		t.Error("no slot")
	} else if _, err := a.Enter(tenant1, bob); err == nil {
		t.Error("a ticket waits in a queue of length 0")
	}
}

// A request that waits for something else has a place in the queue, like one that waits for a slot, and takes no slot.
func TestPlaces(t *testing.T) {
	a := newOne(1, 2, 0)
	var places []*Place
	for range 2 {
		p, err := a.Wait(tenant1, alice)
		if err != nil {
			t.Fatal(err)
		}
		places = append(places, p)
	}
	running := enter(t, a)
	if running, queued, _ := a.Counts(); running != 1 || queued != 2 {
		t.Errorf("%d run, %d wait", running, queued)
	}
	full := func() error { _, err := a.Enter(tenant1, alice); return err }
	if got := (*QuotaError)(nil); !errors.As(full(), &got) || got.Quota != Queued || got.Used != 2 {
		t.Errorf("got %+v", got)
	}
	if _, err := a.Wait(tenant1, alice); !errors.As(err, new(*QuotaError)) {
		t.Errorf("got %v", err)
	}
	places[0].Leave()
	waiting := enter(t, a)
	running.Release()
	if err := waiting.Wait(t.Context(), 0); err != nil {
		t.Error(err)
	}
	waiting.Release()
	a.Close()
	if _, err := a.Wait(tenant1, alice); err != ErrDraining {
		t.Errorf("got %v", err)
	}
	places[1].Leave()
	wantEmpty(t, a)
	if _, err := newOne(1, 1, 0).Wait("other", alice); err != ErrNoTenant {
		t.Errorf("got %v", err)
	}
}
