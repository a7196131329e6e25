// Package admission decides which execution may start, and when. It is logic only: it starts
// nothing, and its only input from outside is a clock.
//
// Theory of operation. A caller of a tenant enters. It gets a ticket, or a refusal that names the
// quota that is used up. A ticket holds a slot or waits for a slot. Its owner says how much memory
// and how many processors the execution needs (Ticket.Need), waits, and releases the ticket. Each of
// these steps ends with dispatch, which gives out slots until no waiting ticket may have one.
//
// Dispatch gives the next slot to the tenant with the smallest weighted share of the machine. A
// tenant has a share of the slots, of the memory and of the processors; the largest of the three
// counts (the dominant share). Dispatch compares averages over the last seconds: with few slots, the
// shares of one moment can't follow the weights. Within a tenant, callers take turns, and one
// caller's executions start in the order in which they came. The first rule is in share.go, the
// second in tenant.go.
//
// If the next ticket needs more than is free, all later tickets wait too. A ticket that needs
// more than its tenant's quota has left blocks its tenant; a ticket that needs more than the machine
// has left blocks all tenants, but for half of the time at most (Config.MaxBlock). If small tickets could always
// pass, a large ticket might never start.
//
// Sources:
//
//   - Dominant Resource Fairness (Ghodsi and others, NSDI 2011): the dominant share, divided by a
//     weight; the smallest share is next; a task that does not fit ends the round.
//   - Kubernetes' API priority and fairness: a bounded queue for each flow; past use counts; a
//     request that does not fit blocks the others. Kubernetes keeps a virtual time, which needs an
//     estimate of each request's duration and a bound on old credit. A fading average needs neither.
//   - HTCondor's and Slurm's fair share: past use fades with a half-life, so they soon forgive an
//     hour alone on an idle machine.
//   - Buildbarn's scheduler: if two shares are equal, the tenant whose last start is longest ago is
//     next. The older ticket would be the wrong choice: a long queue has the oldest tickets.
package admission

import (
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Config configures an Admission.
type Config struct {
	// Slots is the number of executions that run at once, of all tenants together.
	Slots int
	// Reserved is the number of slots beyond Slots for tenants with nothing running.
	Reserved int
	// Resources bound the executions that run at once.
	Resources
	// Capacity is the machine's amount of each resource. A tenant's share of a resource without a bound is a fraction of
	// its capacity. The executions together may use more than the capacity. Zero: the resource does not count in shares.
	Capacity Resources
	// MaxBlock is for a ticket that needs more than the machine has left: smaller tickets of other tenants wait for this
	// time, then they may pass for the same time, and so on in turns. Zero: they always wait.
	MaxBlock time.Duration
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
	// Jitter returns a number in [0, 1). It makes the waits of refused callers differ. Nil: random.
	Jitter func() float64
}

// An Admission gives slots to the executions of tenants. Its methods may be called at the same time.
type Admission struct {
	Config // never changed after New

	// mu protects the fields below, every tenant and line, and the fields of tickets that ticket.go
	// lists.
	mu      sync.Mutex
	running int // tickets that hold a slot
	queued  int // tickets that wait for a slot, and Places
	used    Resources
	tenants map[string]*tenant
	ready   []*tenant // tenants with a next ticket, in no order; see tenant.index
	starts  uint64    // counts slots that were given; see tenant.lastStart
	epoch   time.Time // see growth
	began   time.Time // see blocks
	closed  error     // of new requests; nil: they are taken
}

// New makes an Admission without tenants: SetTenant adds them.
func New(c Config) *Admission {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Jitter == nil {
		c.Jitter = rand.Float64
	}
	return &Admission{Config: c, tenants: map[string]*tenant{}, epoch: c.Now(), began: c.Now()}
}

// SetTenant adds a tenant, or changes the quota of a tenant. Waiting tickets and running executions
// stay, even if the new quota allows fewer.
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
	a.setNext(t)
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

// takes returns a tenant whose requests are taken. The error is ErrDraining, ErrHandedOver or ErrNoTenant. a.mu
// is held.
func (a *Admission) takes(name string) (*tenant, error) {
	t := a.tenants[name]
	switch {
	case a.closed != nil:
		return nil, a.closed
	case t == nil || t.removed:
		return nil, ErrNoTenant
	}
	return t, nil
}

// Enter returns a ticket without waiting. It holds a slot if the caller's next execution may start
// now, else it is queued. The ticket needs nothing until Ticket.Need. The error is a *QuotaError, a
// *SaturatedError, ErrDraining, ErrHandedOver or ErrNoTenant.
func (a *Admission) Enter(tenant, caller string) (*Ticket, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t, err := a.takes(tenant)
	if err != nil {
		return nil, err
	}
	now := a.Now()
	token, err := a.takeToken(t.bucket, Starts, 0, now)
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
		a.setNext(t)
		// Before drop: refusal reads the line to find out whether the tenant's quota is the reason.
		err := a.refusal(t, l, now)
		t.drop(l)
		token.CancelAt(now)
		return nil, err
	}
	return k, nil
}

// maxCallWait bounds how long a call waits for its turn. A client that makes many calls at once is slowed down to the
// quota of its tenant, and refused only if it makes more than the calls of this time.
const maxCallWait = 5 * time.Second

// Call counts one call of a tenant's caller, and returns how long the call must wait for its turn. If that is longer
// than maxCallWait, it counts nothing and returns a *QuotaError. It does not refuse an unknown tenant.
func (a *Admission) Call(tenant string) (wait time.Duration, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tenants[tenant]
	if t == nil {
		return 0, nil
	}
	now := a.Now()
	token, err := a.takeToken(t.calls, Calls, maxCallWait, now)
	if err != nil {
		return 0, err
	}
	return token.DelayFrom(now), nil
}

// Uncall takes a call back that has started an execution: the tenant's other quotas bound executions. So a client that
// runs one program after the other has no wait.
func (a *Admission) Uncall(tenant string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.tenants[tenant]; t != nil {
		t.calls.ReserveN(a.Now(), -1) // adds a token; a full bucket stays full
	}
}

// takeToken takes one token of a tenant's bucket. The token may be one that the bucket gets within patience. a.mu is held.
func (a *Admission) takeToken(bucket *rate.Limiter, quota Name, patience time.Duration, now time.Time) (*rate.Reservation, error) {
	token := bucket.ReserveN(now, 1)
	delay := token.DelayFrom(now)
	if delay <= patience {
		return token, nil
	}
	token.CancelAt(now)
	return nil, &QuotaError{
		Quota: quota, Limit: int64(bucket.Burst()), Used: int64(bucket.Burst()),
		RetryAfter: spread(delay-patience, a.Jitter()),
	}
}

// Close makes Enter refuse every later request. Tickets that wait stay in the queue: they were
// accepted, and a drain waits for them.
func (a *Admission) Close() { a.close(ErrDraining) }

// HandOver is Close for a takeover: the error is ErrHandedOver, also after a later Close.
func (a *Admission) HandOver() { a.close(ErrHandedOver) }

func (a *Admission) close(why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed == nil {
		a.closed = why
	}
}

// Counts returns the number of tickets that hold a slot, and the number of tickets and Places that wait, at one moment.
func (a *Admission) Counts() (running, queued int, draining bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running, a.queued, a.closed != nil
}

// Usage counts a tenant's executions. Resources are the sums of the running executions' limits.
type Usage struct {
	Running, Queued int
	Resources
}

// Usage returns a tenant's Usage. It is zero for an unknown tenant.
func (a *Admission) Usage(tenant string) Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tenants[tenant]
	if t == nil {
		return Usage{}
	}
	return Usage{t.running, t.queued, t.used}
}

// Open undoes Close, after a takeover that has failed.
func (a *Admission) Open() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = nil
}

// Hold returns a ticket that holds a slot at once. It ignores all bounds, because the execution runs already, in
// another daemon. The owner of the ticket must call Release. Hold returns nil for an unknown tenant.
func (a *Admission) Hold(tenant, caller string, need Resources) *Ticket {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tenants[tenant]
	if t == nil || t.removed {
		return nil
	}
	k := &Ticket{a: a, tenant: t, line: t.line(caller), ready: make(chan struct{}), need: need}
	a.push(k, false)
	a.start(k, a.Now())
	return k
}
