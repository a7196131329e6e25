package executor

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/skillrun/skillrun/internal/permission"
)

// errQueueTime means that no slot became free before the queue timeout.
var errQueueTime = errors.New("no slot became free in time")

// retryAfter is the wait that a refused caller is told. A guess: nothing predicts when a slot
// becomes free. The server sends it as google.rpc.RetryInfo.
const retryAfter = time.Second

// A caller's share of the queue is maxQueued/queueShares, rounded up. A caller with fewer
// waiting executions than its share may still queue when the queue is full, until the queue
// holds maxQueued plus queueLatecomer shares. So at most 5/4 of maxQueued wait, but for the
// rounding.
const (
	queueShares    = 16
	queueLatecomer = 4
)

// admission limits how many executions run and wait: at most maxRunning hold a slot, and
// at most maxQueued wait for one. Free slots go to the waiting callers in turn; one
// caller's executions start in the order in which they came.
//
// Two extras keep one caller from locking the others out: reserved slots, for callers
// with nothing running, and the late shares of the queue (see queueShares).
type admission struct {
	// Never changed after newAdmission, so they need no lock.
	maxRunning, maxQueued, reserved int

	// mu protects the fields below, every line, and the elem of every ticket.
	mu sync.Mutex
	// Tickets that hold a slot, and tickets that wait for one.
	running  int
	queued   int
	callers  map[permission.Principal]*line // every caller with something running or waiting
	turns    *list.List                     // of *line: the callers that wait, the next one first
	draining bool
}

// A line counts one caller's running executions and lists its waiting ones.
type line struct {
	who     permission.Principal
	running int
	waiting *list.List    // of *ticket, the oldest first
	turn    *list.Element // in admission.turns; nil: nothing waits
}

func newAdmission(maxRunning, maxQueued, reserved int) *admission {
	return &admission{
		maxRunning: maxRunning, maxQueued: maxQueued, reserved: reserved,
		callers: map[permission.Principal]*line{}, turns: list.New(),
	}
}

// A ticket admits one execution: it waits for a slot or holds one. Its owner must call
// release exactly once.
type ticket struct {
	a     *admission
	line  *line
	ready chan struct{} // closed when the ticket gets its slot
	elem  *list.Element // in line.waiting; nil once the ticket holds a slot
}

// enter returns a ticket without waiting. The ticket holds a slot if one is free, else it
// is queued. The error is a *SaturatedError if the queue is full, or ErrDraining.
func (a *admission) enter(who permission.Principal) (*ticket, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.draining {
		return nil, ErrDraining
	}
	l := a.callers[who]
	if l == nil {
		l = &line{who: who, waiting: list.New()}
	}
	t := &ticket{a: a, line: l, ready: make(chan struct{})}
	switch {
	case a.mayRun(l): // no earlier ticket is passed over: a waiting caller may not run
		a.start(t)
	case a.mayWait(l):
		a.queued++
		t.elem = l.waiting.PushBack(t)
		if l.turn == nil {
			l.turn = a.turns.PushBack(l)
		}
	default:
		return nil, &SaturatedError{Running: a.running, Queued: a.queued, RetryAfter: retryAfter}
	}
	// Only now: a refused caller leaves no line that release would have to remove.
	a.callers[who] = l
	return t, nil
}

// mayRun reports whether a caller may have a slot now. It is false for every waiting
// caller: startWaiting has served the others.
func (a *admission) mayRun(l *line) bool {
	return a.running < a.maxRunning || l.running == 0 && a.running < a.maxRunning+a.reserved
}

// mayWait reports whether the queue takes one more execution of a caller.
func (a *admission) mayWait(l *line) bool {
	share := (a.maxQueued + queueShares - 1) / queueShares
	return a.queued < a.maxQueued || l.waiting.Len() < share && a.queued < a.maxQueued+queueLatecomer*share
}

// start gives a ticket its slot. a.mu is held, and the ticket is in no queue. Closing ready wakes
// a wait.
func (a *admission) start(t *ticket) {
	a.running++
	t.line.running++
	close(t.ready)
}

// wait returns nil once the ticket holds a slot. The error is errQueueTime or the cause of ctx;
// the ticket must be released then, too. A ticket may get its slot in the same moment as an
// error; release then frees the slot.
//
// A ticket that holds a slot already returns nil even if ctx is done: the start sees the same
// context.
func (t *ticket) wait(ctx context.Context, timeout time.Duration) error {
	select {
	case <-t.ready:
		return nil
	default:
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-t.ready:
		return nil
	case <-timer.C:
		return errQueueTime
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// release takes the ticket out of the queue, or frees its slot for the next one. The slot goes to
// a waiting ticket under the same lock, so no request that comes later can take it first.
func (t *ticket) release() {
	a := t.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.elem != nil {
		a.unqueue(t)
	} else {
		a.running--
		t.line.running--
		a.startWaiting()
	}
	if t.line.running == 0 && t.line.turn == nil {
		delete(a.callers, t.line.who)
	}
}

// startWaiting gives free slots to waiting tickets, one for each caller in turn, until no
// waiting caller may have one. It goes back to the first caller after each slot, and passes
// over callers that may not run: a reserved slot is only for a caller with nothing running. The
// caller of startWaiting holds a.mu.
func (a *admission) startWaiting() {
	for turn := a.turns.Front(); turn != nil; {
		l := turn.Value.(*line)
		if !a.mayRun(l) {
			turn = turn.Next()
			continue
		}
		t := l.waiting.Front().Value.(*ticket)
		a.turns.MoveToBack(turn)
		a.unqueue(t)
		a.start(t)
		turn = a.turns.Front()
	}
}

// unqueue takes a ticket out of its caller's line. It closes the caller's turn with its last
// waiting ticket. a.mu is held.
func (a *admission) unqueue(t *ticket) {
	a.queued--
	t.line.waiting.Remove(t.elem)
	t.elem = nil
	if t.line.waiting.Len() == 0 {
		a.turns.Remove(t.line.turn)
		t.line.turn = nil
	}
}

// close makes enter refuse every later request. Tickets that wait stay in the queue: they were
// accepted, and a drain waits for them.
func (a *admission) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.draining = true
}

// counts returns how many tickets hold a slot and how many wait. Both are of one moment.
func (a *admission) counts() (running, queued int, draining bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running, a.queued, a.draining
}
