package sandbox

import (
	"context"
	"slices"
	"sync"
)

// turns bounds how many sandboxes are made at once, and divides the turns among groups. A free turn goes
// to the waiting group whose last turn is longest ago. So a group with many starts that wait delays a
// start of another group by one turn, not by all of them.
type turns struct {
	mu      sync.Mutex
	free    int    // turns that can be given
	count   uint64 // turns that were given
	waiting []*waiter
	// users is of the groups that have a turn or wait for one. Others are forgotten, and come first when
	// they come again.
	users map[string]*turnUser
}

type waiter struct {
	group string
	ready chan struct{} // closed when it has its turn
}

// A turnUser is one group's entry.
type turnUser struct {
	under, waiting int    // turns that it has, and waits for
	last           uint64 // turns.count of its last turn; 0: none
}

func newTurns(n int) *turns { return &turns{free: n, users: map[string]*turnUser{}} }

// enter waits for a turn. leave must be called once if err is nil. An error is the cause of ctx.
func (t *turns) enter(ctx context.Context, group string) (leave func(), err error) {
	w := t.join(group)
	select {
	case <-w.ready:
	case <-ctx.Done():
		if t.giveUp(w) {
			return nil, context.Cause(ctx)
		}
	}
	return func() { t.leave(group) }, nil
}

func (t *turns) join(group string) *waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.users[group] == nil {
		t.users[group] = &turnUser{}
	}
	t.users[group].waiting++
	w := &waiter{group, make(chan struct{})}
	t.waiting = append(t.waiting, w)
	t.give()
	return w
}

// giveUp removes a waiter whose context is done. It returns false if the waiter has its turn.
func (t *turns) giveUp(w *waiter) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := slices.Index(t.waiting, w)
	if at < 0 {
		return false
	}
	t.waiting = slices.Delete(t.waiting, at, at+1)
	t.users[w.group].waiting--
	t.forget(w.group)
	return true
}

func (t *turns) leave(group string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	t.users[group].under--
	t.give()
	t.forget(group)
}

// waits reports whether a start of the group waits for its turn.
func (t *turns) waits(group string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.users[group]
	return u != nil && u.waiting > 0
}

// give gives the free turns away. t.mu is held.
func (t *turns) give() {
	for t.free > 0 && len(t.waiting) > 0 {
		next := 0
		for i, w := range t.waiting {
			if t.users[w.group].last < t.users[t.waiting[next].group].last {
				next = i
			}
		}
		w := t.waiting[next]
		t.waiting = slices.Delete(t.waiting, next, next+1)
		t.free--
		t.count++
		u := t.users[w.group]
		u.waiting, u.under, u.last = u.waiting-1, u.under+1, t.count
		close(w.ready)
	}
}

// forget removes a group that uses no turn. t.mu is held.
func (t *turns) forget(group string) {
	if u := t.users[group]; u.under+u.waiting == 0 {
		delete(t.users, group)
	}
}
