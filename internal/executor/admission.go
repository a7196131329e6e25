package executor

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/skillrun/skillrun/internal/permission"
)

// errQueueTime: no slot became free in time.
var errQueueTime = errors.New("no slot became free in time")

// retryAfter is what a refused caller is told to wait.
const retryAfter = time.Second

// Whoever has less than its share of a full queue finds a place beyond its end: a
// share is one of so many parts of maxQueued, for so many callers.
const (
	queueShares    = 16
	queueLatecomer = 4
)

// admission hands out slots to at most maxRunning executions; at most maxQueued wait.
// Slots that become free go round the callers that wait, and each caller's go first
// come, first served. So that one caller can't keep the others out, there is more for
// those who have little: reserved slots for callers of whom nothing runs, and places
// in the queue for callers of whom few wait.
type admission struct {
	maxRunning, maxQueued, reserved int

	mu       sync.Mutex
	running  int
	queued   int
	callers  map[permission.Principal]*line // of whom something runs or waits
	turns    *list.List                     // of *line: those that wait, the next one first
	draining bool
}

// A line is what runs and waits of one caller.
type line struct {
	who     permission.Principal
	running int
	waiting *list.List    // of *place, in the order they came
	turn    *list.Element // nil: nothing waits
}

func newAdmission(maxRunning, maxQueued, reserved int) *admission {
	return &admission{
		maxRunning: maxRunning, maxQueued: maxQueued, reserved: reserved,
		callers: map[permission.Principal]*line{}, turns: list.New(),
	}
}

// A place is a right to wait for a slot, or a slot. It must be left exactly
// once.
type place struct {
	a     *admission
	line  *line
	ready chan struct{} // closed when the place has become a slot
	elem  *list.Element // nil once it is a slot
}

// enter takes a place without waiting: a slot if one is free, else a place in
// the queue, else an error.
func (a *admission) enter(who permission.Principal) (*place, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.draining {
		return nil, ErrDraining
	}
	l := a.callers[who]
	if l == nil {
		l = &line{who: who, waiting: list.New()}
	}
	p := &place{a: a, line: l, ready: make(chan struct{})}
	switch {
	case a.mayRun(l): // so nobody waits who came before and may, too
		a.start(p)
	case a.mayWait(l):
		a.queued++
		p.elem = l.waiting.PushBack(p)
		if l.turn == nil {
			l.turn = a.turns.PushBack(l)
		}
	default:
		return nil, &SaturatedError{Running: a.running, Queued: a.queued, RetryAfter: retryAfter}
	}
	a.callers[who] = l
	return p, nil
}

// mayRun says whether a caller may have a slot now. Of those who wait nobody may.
func (a *admission) mayRun(l *line) bool {
	return a.running < a.maxRunning || l.running == 0 && a.running < a.maxRunning+a.reserved
}

func (a *admission) mayWait(l *line) bool {
	share := (a.maxQueued + queueShares - 1) / queueShares
	return a.queued < a.maxQueued || l.waiting.Len() < share && a.queued < a.maxQueued+queueLatecomer*share
}

// start makes a slot of a place.
func (a *admission) start(p *place) {
	a.running++
	p.line.running++
	close(p.ready)
}

// wait returns when the place is a slot, or with errQueueTime, or with the
// cause of ctx.
func (p *place) wait(ctx context.Context, timeout time.Duration) error {
	select {
	case <-p.ready:
		return nil
	default:
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.ready:
		return nil
	case <-timer.C:
		return errQueueTime
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave gives the slot to the next in the queue, or the place up.
func (p *place) leave() {
	a := p.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.elem != nil {
		a.unqueue(p)
	} else {
		a.running--
		p.line.running--
		a.startWaiting()
	}
	if p.line.running == 0 && p.line.turn == nil {
		delete(a.callers, p.line.who)
	}
}

// startWaiting gives slots to those who wait, one for each caller in turn, until nobody
// may have one.
func (a *admission) startWaiting() {
	for turn := a.turns.Front(); turn != nil; {
		l := turn.Value.(*line)
		if !a.mayRun(l) {
			turn = turn.Next()
			continue
		}
		p := l.waiting.Front().Value.(*place)
		a.turns.MoveToBack(turn)
		a.unqueue(p)
		a.start(p)
		turn = a.turns.Front()
	}
}

// unqueue takes a place out of its caller's line.
func (a *admission) unqueue(p *place) {
	a.queued--
	p.line.waiting.Remove(p.elem)
	p.elem = nil
	if p.line.waiting.Len() == 0 {
		a.turns.Remove(p.line.turn)
		p.line.turn = nil
	}
}

// close refuses everyone who comes from now on.
func (a *admission) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.draining = true
}

func (a *admission) counts() (running, queued int, draining bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running, a.queued, a.draining
}
