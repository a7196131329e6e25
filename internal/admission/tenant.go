package admission

import (
	"container/list"
	"math"
	"time"

	"golang.org/x/time/rate"
)

// A caller's share of its tenant's queue is Queued/queueShares, rounded up. A caller with fewer
// waiting executions than its share may still queue when the queue is full, until the queue holds
// Queued plus queueLatecomer shares. So at most 5/4 of Queued wait, but for the rounding.
const (
	queueShares    = 16
	queueLatecomer = 4
)

// A Quota bounds the executions of one tenant.
type Quota struct {
	// Weight is the tenant's part of a saturated machine, relative to the other tenants. Zero: 1.
	Weight int
	// Running is the number of executions that run at once.
	Running int
	// Reserved is the number of executions beyond Running that may run for callers with nothing
	// running. They keep one caller's long executions from delaying the tenant's other callers.
	Reserved int
	// Queued is the number of executions that wait. If one caller fills the queue, other callers may
	// exceed Queued by a quarter.
	Queued int
	// Resources bound the sums over the tenant's running executions.
	Resources
	// StartsPerSecond bounds how often a caller may enter, on average. Zero: no bound.
	StartsPerSecond float64
	// Burst is the number of executions that may enter at once. Zero: as many as in a second, at least
	// one.
	Burst int
	// CallsPerSecond bounds the calls of the tenant's callers, of every kind (Admission.Call). As many as in a
	// second may come at once, at least one; further calls wait for their turn. Calls that start executions don't
	// count (Admission.Uncall). Zero: no bound.
	CallsPerSecond float64
}

// A tenant is the state of one tenant. Admission.mu protects it.
type tenant struct {
	name    string
	quota   Quota
	bucket  *rate.Limiter // of starts
	calls   *rate.Limiter
	removed bool // refused; forgotten when it has no line left

	running, queued int              // executions
	used            Resources        // the sums of the running executions' limits
	lines           map[string]*line // of every caller with something running or waiting
	turns           *list.List       // of *line: the callers that wait, the next one first
	pace            pace

	next        *Ticket // starts next; nil: nothing waits, or the quota holds it back
	index       int     // in Admission.ready; -1: next is nil
	base, share float64 // see share.go
	lastStart   uint64  // Admission.starts of the last slot; 0: none yet
}

// A line counts one caller's running executions and lists its waiting ones.
type line struct {
	caller  string
	running int
	waiting *list.List    // of *Ticket, the oldest first
	turn    *list.Element // in tenant.turns; nil: nothing waits
	places  int           // see Place
}

func newTenant(name string) *tenant {
	return &tenant{
		name: name, index: -1, bucket: rate.NewLimiter(rate.Inf, 1), calls: rate.NewLimiter(rate.Inf, 1),
		lines: map[string]*line{}, turns: list.New(),
	}
}

// setQuota changes the quota. The buckets keep their tokens.
func (t *tenant) setQuota(q Quota, now time.Time) {
	q.Weight = max(q.Weight, 1)
	t.bucket = withRate(t.bucket, q.StartsPerSecond, q.Burst, now)
	t.calls = withRate(t.calls, q.CallsPerSecond, 0, now)
	t.quota, t.removed = q, false
}

// withRate changes the rate of a bucket. One that had no bound is replaced by a full one.
func withRate(bucket *rate.Limiter, perSecond float64, burst int, now time.Time) *rate.Limiter {
	limit := rate.Limit(perSecond)
	if limit <= 0 {
		limit = rate.Inf
	} else if burst <= 0 {
		burst = int(math.Ceil(perSecond))
	}
	if bucket.Limit() == rate.Inf {
		return rate.NewLimiter(limit, burst)
	}
	bucket.SetLimitAt(now, limit)
	bucket.SetBurstAt(now, burst)
	return bucket
}

// line returns the line of a caller. The caller of line must call drop if no ticket joins the line.
func (t *tenant) line(caller string) *line {
	l := t.lines[caller]
	if l == nil {
		l = &line{caller: caller, waiting: list.New()}
		t.lines[caller] = l
	}
	return l
}

// drop forgets a line with nothing running, nothing waiting and no place.
func (t *tenant) drop(l *line) {
	if l.running == 0 && l.turn == nil && l.places == 0 {
		delete(t.lines, l.caller)
	}
}

// choose returns the ticket that starts next, or nil: the first ticket of the first caller that may
// have a slot. It passes over callers that may not have one, because a reserved slot is only for a
// caller with nothing running. A ticket that needs more than the quota has left blocks all callers: if
// smaller tickets could pass, it might never start.
func (t *tenant) choose() *Ticket {
	if t.running >= t.quota.Running+t.quota.Reserved {
		return nil
	}
	for turn := t.turns.Front(); turn != nil; turn = turn.Next() {
		l := turn.Value.(*line)
		if !t.mayRun(l) {
			continue
		}
		k := l.waiting.Front().Value.(*Ticket)
		if !t.fits(k.need) {
			return nil
		}
		return k
	}
	return nil
}

// mayRun reports whether the quota lets a caller have one more slot.
func (t *tenant) mayRun(l *line) bool {
	return t.running < t.quota.Running || l.running == 0 && t.running < t.quota.Running+t.quota.Reserved
}

// hasRoom reports whether the queue takes one more execution of a caller.
func (t *tenant) hasRoom(l *line) bool {
	share := (t.quota.Queued + queueShares - 1) / queueShares
	return t.queued < t.quota.Queued || l.waiting.Len()+l.places < share && t.queued < t.quota.Queued+queueLatecomer*share
}

// fits reports whether the quota has room for one more execution, slots apart.
func (t *tenant) fits(r Resources) bool { return t.used.fitsWithin(t.quota.Resources, r) }

// push puts a ticket into its caller's line: in front of all tickets of the tenant, or at the end of
// the line.
func (t *tenant) push(k *Ticket, front bool) {
	t.queued++
	l := k.line
	if front {
		k.elem = l.waiting.PushFront(k)
	} else {
		k.elem = l.waiting.PushBack(k)
	}
	switch {
	case l.turn == nil && front:
		l.turn = t.turns.PushFront(l)
	case l.turn == nil:
		l.turn = t.turns.PushBack(l)
	case front:
		t.turns.MoveToFront(l.turn)
	}
}

// remove takes a ticket out of its caller's line. If it was the last one, the caller loses its turn.
func (t *tenant) remove(k *Ticket) {
	t.queued--
	l := k.line
	l.waiting.Remove(k.elem)
	k.elem = nil
	if l.waiting.Len() == 0 {
		t.turns.Remove(l.turn)
		l.turn = nil
	}
}

// rotate makes a caller that has got a slot the last one in turn.
func (t *tenant) rotate(l *line) {
	if l.turn != nil {
		t.turns.MoveToBack(l.turn)
	}
}

// position returns how many tickets of the tenant start up to and including k, if every caller may
// start and no ticket comes or goes. It is zero if k does not wait.
func (t *tenant) position(k *Ticket) int {
	if k.elem == nil {
		return 0
	}
	// k is number rounds+1 in its own line, and each line gives one ticket in each round.
	rounds := 0
	for e := k.elem.Prev(); e != nil; e = e.Prev() {
		rounds++
	}
	position := rounds + 1
	theirs := rounds + 1
	for turn := t.turns.Front(); turn != nil; turn = turn.Next() {
		l := turn.Value.(*line)
		if l == k.line {
			theirs = rounds // each line after k's line has given one ticket less
			continue
		}
		position += min(theirs, l.waiting.Len())
	}
	return position
}
