package admission

import (
	"container/list"
	"context"
	"time"
)

// A Ticket admits one execution: it holds a slot or waits for one. Only one goroutine at a time may use
// it, except for Position. Its owner must call Release.
type Ticket struct {
	a      *Admission
	tenant *tenant
	line   *line
	// Closed when the ticket gets its slot. Need may replace it, under a.mu.
	ready chan struct{}

	// a.mu protects these.
	need     Resources
	elem     *list.Element // in line.waiting; nil: holds a slot, or is released
	waited   bool          // was queued
	released bool
}

// Need sets the execution's memory and processors. It must be called before Wait, at most once. A
// ticket with a slot goes back to the queue, before all others of its tenant, if less than r is
// free. The error is a *TooLargeError, or a *QuotaError or *SaturatedError if the queue is full; the
// ticket must then be released.
func (k *Ticket) Need(r Resources) error {
	a, t := k.a, k.tenant
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := tooLarge(r, t.quota.Resources, "tenant"); err != nil {
		return err
	}
	if err := tooLarge(r, a.Resources, "daemon"); err != nil {
		return err
	}
	now := a.Now()
	if k.elem != nil {
		k.need = r
		a.setNext(t)
		a.dispatch(now)
		return nil
	}
	if t.fits(r) && a.fits(r) {
		k.need = r
		a.charge(k, r, now)
		a.setNext(t)
		a.dispatch(now) // the tenant's share has grown: another tenant may be next
		return nil
	}
	if !t.hasRoom(k.line) {
		return a.shortage(t, r, now)
	}
	a.free(k, now)
	k.need, k.ready = r, make(chan struct{})
	a.push(k, true)
	a.queue(k, now)
	a.dispatch(now)
	return nil
}

// Wait returns nil once the ticket holds a slot. The error is ErrQueueTime after timeout, or the
// cause of ctx. The ticket must be released after an error, too: it may get its slot at the same
// moment, and Release then frees the slot.
//
// A ticket that holds a slot already returns nil even if ctx is done: the start sees the same
// context.
func (k *Ticket) Wait(ctx context.Context, timeout time.Duration) error {
	select {
	case <-k.ready:
		return nil
	default:
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	var turn <-chan time.Time
	if k.a.MaxBlock > 0 { // the begin of a time of passing is no event that calls dispatch
		ticker := time.NewTicker(k.a.MaxBlock)
		defer ticker.Stop()
		turn = ticker.C
	}
	for {
		select {
		case <-k.ready:
			return nil
		case <-turn:
			k.a.retry()
		case <-timer.C:
			return ErrQueueTime
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Position returns the ticket's position in its tenant's queue, or 0 if it does not wait.
// Position 1 is next. The time that it takes grows with the position and with the number of callers
// that wait.
func (k *Ticket) Position() int {
	k.a.mu.Lock()
	defer k.a.mu.Unlock()
	return k.tenant.position(k)
}

// Release takes the ticket out of the queue, or frees its slot for the next one. The slot goes to a
// waiting ticket under the same lock, so no request that comes later can take it first. A second
// Release does nothing.
func (k *Ticket) Release() {
	a := k.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if k.released {
		return
	}
	k.released = true
	now := a.Now()
	if k.elem != nil {
		a.dequeue(k, now)
		a.setNext(k.tenant)
	} else {
		a.free(k, now)
	}
	k.tenant.drop(k.line)
	a.forget(k.tenant)
	a.dispatch(now)
}
