package executor

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// errQueueTime: no slot became free in time.
var errQueueTime = errors.New("no slot became free in time")

// retryAfter is what a refused caller is told to wait.
const retryAfter = time.Second

// admission hands out slots, first come first served, to at most maxRunning
// executions; at most maxQueued wait.
type admission struct {
	maxRunning, maxQueued int

	mu       sync.Mutex
	running  int
	waiting  *list.List // of *place, in the order they came
	draining bool
}

func newAdmission(maxRunning, maxQueued int) *admission {
	return &admission{maxRunning: maxRunning, maxQueued: maxQueued, waiting: list.New()}
}

// A place is a right to wait for a slot, or a slot. It must be left exactly
// once.
type place struct {
	a     *admission
	ready chan struct{} // closed when the place has become a slot
	elem  *list.Element // nil once it is a slot
}

// enter takes a place without waiting: a slot if one is free, else a place in
// the queue, else an error.
func (a *admission) enter() (*place, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.draining {
		return nil, ErrDraining
	}
	p := &place{a: a, ready: make(chan struct{})}
	if a.running < a.maxRunning {
		a.running++
		close(p.ready)
		return p, nil
	}
	if a.waiting.Len() >= a.maxQueued {
		return nil, &SaturatedError{Running: a.running, Queued: a.waiting.Len(), RetryAfter: retryAfter}
	}
	p.elem = a.waiting.PushBack(p)
	return p, nil
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
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	if p.elem != nil {
		p.a.waiting.Remove(p.elem)
		return
	}
	if first := p.a.waiting.Front(); first != nil {
		next := p.a.waiting.Remove(first).(*place)
		next.elem = nil
		close(next.ready)
		return
	}
	p.a.running--
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
	return a.running, a.waiting.Len(), a.draining
}
