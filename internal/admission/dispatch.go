package admission

import (
	"slices"
	"time"
)

// push puts a ticket into its caller's line, at the end or in front, and counts it. a.mu is held.
func (a *Admission) push(k *Ticket, front bool) {
	a.queued++
	k.tenant.push(k, front)
	a.setNext(k.tenant)
}

// queue notes that a ticket stays in its line, into which push has put it. a.mu is held.
func (a *Admission) queue(k *Ticket, now time.Time) {
	k.waited = true
	k.tenant.pace.arrived(now)
}

// remove takes a ticket out of its caller's line. The caller of remove must call setNext. a.mu is
// held.
func (a *Admission) remove(k *Ticket) {
	a.queued--
	k.tenant.remove(k)
}

// dequeue removes a ticket from the queue. The caller of dequeue must call setNext. a.mu is held.
func (a *Admission) dequeue(k *Ticket, now time.Time) {
	a.remove(k)
	if k.waited {
		k.tenant.pace.departed(now, k.tenant.queued)
	}
}

// dispatch gives slots to waiting tickets. It stops at the next ticket that does not fit, or, while others may pass that
// ticket, when no ticket fits. a.mu is held.
func (a *Admission) dispatch(now time.Time) {
	for {
		t := a.first(now, false)
		if t != nil && !a.fits(t.next.need) && !a.blocks(now) {
			t = a.first(now, true)
		}
		if t == nil || !a.fits(t.next.need) {
			return
		}
		a.start(t.next, now)
	}
}

// blocks reports whether a ticket that does not fit blocks the others now. Times of blocking and of passing alternate by
// the clock, the same for all tickets. So no tenant can start a new time of blocking with a new ticket.
func (a *Admission) blocks(now time.Time) bool {
	return a.MaxBlock == 0 || now.Sub(a.began)/a.MaxBlock%2 == 0
}

// retry is called when a time of passing begins, and gives slots to the tickets that fit.
func (a *Admission) retry() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dispatch(a.Now())
}

// start gives a waiting ticket its slot. Closing ready wakes its Wait. a.mu is held.
func (a *Admission) start(k *Ticket, now time.Time) {
	a.dequeue(k, now)
	t := k.tenant
	a.starts++
	t.lastStart = a.starts
	a.running++
	t.running++
	k.line.running++
	a.charge(k, k.need, now)
	close(k.ready)
	t.rotate(k.line)
	a.setNext(t)
}

// free takes back a ticket's slot, memory and processors. a.mu is held.
func (a *Admission) free(k *Ticket, now time.Time) {
	a.running--
	k.tenant.running--
	k.line.running--
	a.charge(k, Resources{-k.need.MemoryBytes, -k.need.MilliCPUs}, now)
	a.setNext(k.tenant)
}

// charge adds r to the use of a ticket's tenant and of the machine. a.mu is held.
func (a *Admission) charge(k *Ticket, r Resources, now time.Time) {
	a.used.add(r)
	k.tenant.used.add(r)
	a.share(k.tenant, now)
}

// setNext finds the tenant's next ticket, after any change of its lines, its use or its quota.
// a.mu is held.
func (a *Admission) setNext(t *tenant) {
	t.next = t.choose()
	switch ready := t.index >= 0; {
	case t.next != nil && !ready:
		t.index = len(a.ready)
		a.ready = append(a.ready, t)
	case t.next == nil && ready:
		last := len(a.ready) - 1
		a.ready[t.index] = a.ready[last]
		a.ready[t.index].index = t.index
		a.ready = slices.Delete(a.ready, last, last+1)
		t.index = -1
	}
}

// fits reports whether the machine has memory and processors for one more execution. a.mu is held.
func (a *Admission) fits(r Resources) bool { return a.used.fitsWithin(a.Resources, r) }

// Resources are the limits of one execution, or their sums over the executions of a tenant or of all
// tenants. In a bound, zero means no bound.
type Resources struct {
	MemoryBytes int64
	MilliCPUs   int64 // thousandths of a processor
}

func (r *Resources) add(o Resources) {
	r.MemoryBytes += o.MemoryBytes
	r.MilliCPUs += o.MilliCPUs
}

// fitsWithin reports whether r and need together stay within bound.
func (r Resources) fitsWithin(bound, need Resources) bool {
	return (bound.MemoryBytes == 0 || r.MemoryBytes+need.MemoryBytes <= bound.MemoryBytes) &&
		(bound.MilliCPUs == 0 || r.MilliCPUs+need.MilliCPUs <= bound.MilliCPUs)
}
