// Package admission decides which execution may start, and when. It is logic only: it starts
// nothing, and its one input from outside is a clock.
//
// Theory of operation. A caller of a tenant enters and gets a ticket, or a refusal that says which
// quota is used up. A ticket holds a slot or waits for one. Its owner says what the execution needs
// (Ticket.Need), waits, and releases the ticket. Each of these steps ends with dispatch, which gives
// out slots until nobody may start. So between two steps no slot is free that a waiting ticket could
// have.
//
// Dispatch gives the next slot to the tenant with the smallest weighted share of the machine. A
// tenant's share is that of the resource of which it has most: slots, memory or processors (the
// dominant share). The shares of the last seconds count, not only those of this moment: with few
// slots, weights could not be kept otherwise. Within a tenant, callers take turns, and one caller's
// executions start in the order in which they came. share.go and tenant.go have the two rules.
//
// The next ticket blocks those behind it if it does not fit: in its tenant if the tenant's quota is
// too full, and for all tenants if the machine is. If smaller ones could pass, it might never start.
//
// What others do, and what is taken from them:
//
//   - Dominant Resource Fairness (Ghodsi and others, NSDI 2011): the dominant share, divided by a
//     weight; the lowest share is next; a task that does not fit ends the round.
//   - Kubernetes' API priority and fairness: queues are bounded for each flow; past use counts; the
//     first request blocks the others while it does not fit. Its virtual time needs an estimate of
//     each request's duration and a bound on old credit. A decaying average needs neither.
//   - HTCondor's and Slurm's fair share: use decays with a half-life, so an hour alone on an idle
//     machine is soon forgiven.
//   - Buildbarn's scheduler: of two equals, the one that started something longer ago comes first.
//     The older ticket would be unfair: a long queue has the oldest tickets.
package admission

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Resources are amounts that the executions of a tenant, or of all tenants, have together: the sums
// of their limits. In a bound, zero means no bound.
type Resources struct {
	MemoryBytes int64
	MilliCPUs   int64 // thousandths of a processor
}

// Config configures an Admission.
type Config struct {
	// Slots is the number of executions that run at once, of all tenants together.
	Slots int
	// Reserved is the number of slots beyond Slots for tenants with nothing running.
	Reserved int
	// Resources bound the executions that run at once. An unbounded resource does not count
	// in a tenant's share.
	Resources
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
	// Jitter returns a number in [0, 1), by which waits of refused callers differ. Nil: random.
	Jitter func() float64
}

// An Admission gives slots to the executions of tenants. Its methods may be called at the same time.
type Admission struct {
	Config // never changed after New

	// mu protects the fields below, every tenant and line, and of every ticket what ticket.go says.
	mu       sync.Mutex
	running  int // tickets that hold a slot
	queued   int // tickets that wait
	used     Resources
	tenants  map[string]*tenant
	ready    []*tenant // those with a next ticket, in no order; see tenant.index
	starts   uint64    // counts slots that were given; see tenant.lastStart
	epoch    time.Time // see growth
	draining bool
}

// New makes an Admission without tenants: SetTenant adds them.
func New(c Config) *Admission {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Jitter == nil {
		c.Jitter = rand.Float64
	}
	return &Admission{Config: c, tenants: map[string]*tenant{}, epoch: c.Now()}
}

// SetTenant adds a tenant, or changes the quota of one. Tickets that wait and executions that run
// stay, even if there are more of them than the new quota allows.
func (a *Admission) SetTenant(name string, q Quota) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.Now()
	t := a.tenants[name]
	if t == nil {
		t = newTenant(name)
		a.tenants[name] = t
	}
	t.setQuota(q, now)
	a.share(t, now)
	a.settle(t)
	a.dispatch(now)
}

// RemoveTenant makes Enter refuse the tenant. Its tickets stay until they are released.
func (a *Admission) RemoveTenant(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.tenants[name]; t != nil {
		t.removed = true
		a.forget(t)
	}
}

// forget deletes a removed tenant that has nothing left. a.mu is held.
func (a *Admission) forget(t *tenant) {
	if t.removed && len(t.lines) == 0 {
		delete(a.tenants, t.name)
	}
}

// Enter returns a ticket without waiting. It holds a slot if the caller's next execution may start
// now, else it is queued. The ticket needs nothing until Ticket.Need. The error is a *QuotaError, a
// *SaturatedError, ErrDraining or ErrNoTenant.
func (a *Admission) Enter(tenant, caller string) (*Ticket, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tenants[tenant]
	switch {
	case a.draining:
		return nil, ErrDraining
	case t == nil || t.removed:
		return nil, ErrNoTenant
	}
	now := a.Now()
	token, err := a.takeToken(t, now)
	if err != nil {
		return nil, err
	}
	l := t.line(caller)
	room := t.hasRoom(l)
	k := &Ticket{a: a, tenant: t, line: l, ready: make(chan struct{})}
	a.push(k, false)
	a.dispatch(now)
	switch {
	case k.elem == nil: // it holds a slot
	case room:
		a.queue(k, now)
	default:
		a.remove(k)
		a.settle(t)
		// Before the line goes: it says whether the tenant's quota is the reason.
		err := a.refusal(t, l, now)
		t.drop(l)
		token.CancelAt(now)
		return nil, err
	}
	return k, nil
}

// takeToken takes one start from the tenant's token bucket. a.mu is held.
func (a *Admission) takeToken(t *tenant, now time.Time) (*rate.Reservation, error) {
	token := t.bucket.ReserveN(now, 1)
	delay := token.DelayFrom(now)
	if delay == 0 {
		return token, nil
	}
	token.CancelAt(now)
	return nil, &QuotaError{
		Quota: Starts, Limit: int64(t.bucket.Burst()), Used: int64(t.bucket.Burst()),
		RetryAfter: spread(delay, a.Jitter()),
	}
}

// push puts a ticket into its caller's line, at the end or in front, and counts it. a.mu is held.
func (a *Admission) push(k *Ticket, front bool) {
	a.queued++
	k.tenant.push(k, front)
	a.settle(k.tenant)
}

// queue notes that a ticket, which push has put into its line, stays there. a.mu is held.
func (a *Admission) queue(k *Ticket, now time.Time) {
	k.waited = true
	k.tenant.pace.arrived(now)
	k.tenant.notify()
}

// remove takes a ticket out of its caller's line. The caller of remove must call settle. a.mu is
// held.
func (a *Admission) remove(k *Ticket) {
	a.queued--
	k.tenant.remove(k)
}

// leave is remove for a ticket that waited: somebody moves up, and a refused caller may come.
// a.mu is held.
func (a *Admission) leave(k *Ticket, now time.Time) {
	a.remove(k)
	if k.waited {
		k.tenant.pace.departed(now, k.tenant.queued)
		k.tenant.notify()
	}
}

// dispatch gives slots to waiting tickets until the next one does not fit. a.mu is held.
func (a *Admission) dispatch(now time.Time) {
	for {
		t := a.first(now)
		if t == nil || !a.fits(t.next.need) {
			return
		}
		a.start(t.next, now)
	}
}

// start gives a waiting ticket its slot. Closing ready wakes its Wait. a.mu is held.
func (a *Admission) start(k *Ticket, now time.Time) {
	a.leave(k, now)
	t := k.tenant
	a.starts++
	t.lastStart = a.starts
	a.running++
	t.running++
	k.line.running++
	a.charge(k, k.need, now)
	close(k.ready)
	t.rotate(k.line)
	a.settle(t)
}

// free takes the slot of a ticket, and what the ticket needs, back. a.mu is held.
func (a *Admission) free(k *Ticket, now time.Time) {
	a.running--
	k.tenant.running--
	k.line.running--
	a.charge(k, Resources{-k.need.MemoryBytes, -k.need.MilliCPUs}, now)
	a.settle(k.tenant)
}

// charge adds to what a ticket's tenant uses. a.mu is held.
func (a *Admission) charge(k *Ticket, r Resources, now time.Time) {
	a.used.add(r)
	k.tenant.used.add(r)
	a.share(k.tenant, now)
}

// settle finds the tenant's next ticket, after any change of its lines, its use or its quota.
// a.mu is held.
func (a *Admission) settle(t *tenant) {
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

// fits reports whether the machine has room for one more execution, slots apart. a.mu is held.
func (a *Admission) fits(r Resources) bool { return a.used.leaves(a.Resources, r) }

// Close makes Enter refuse every later request. Tickets that wait stay in the queue: they were
// accepted, and a drain waits for them.
func (a *Admission) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.draining = true
}

// Counts returns how many tickets hold a slot and how many wait. Both are of one moment.
func (a *Admission) Counts() (running, queued int, draining bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running, a.queued, a.draining
}

// Usage is what a tenant uses of its quota.
type Usage struct {
	Running, Queued int
	Resources
}

// Usage returns what a tenant uses. It is zero for an unknown tenant.
func (a *Admission) Usage(tenant string) Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tenants[tenant]
	if t == nil {
		return Usage{}
	}
	return Usage{t.running, t.queued, t.used}
}

func (r *Resources) add(o Resources) {
	r.MemoryBytes += o.MemoryBytes
	r.MilliCPUs += o.MilliCPUs
}

// leaves reports whether r and need together stay within bound.
func (r Resources) leaves(bound, need Resources) bool {
	return (bound.MemoryBytes == 0 || r.MemoryBytes+need.MemoryBytes <= bound.MemoryBytes) &&
		(bound.MilliCPUs == 0 || r.MilliCPUs+need.MilliCPUs <= bound.MilliCPUs)
}
