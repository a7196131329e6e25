package environment

import (
	"context"
	"slices"
	"sync"
)

// turns is a semaphore whose free places go to tenants in turn: to the one with the fewest builds under way, of
// equal ones to the one whose last build began first. So a tenant with many builds delays others by one build and
// not by all of them. Within a tenant the oldest is next.
type turns struct {
	mu      sync.Mutex
	free    int
	running map[string]int    // no zeros
	began   map[string]uint64 // number of the last build; only of tenants that run or wait
	builds  uint64
	waiting []*turn
}

type turn struct {
	tenant string
	ready  chan struct{} // closed when it has a place
}

func newTurns(places int) *turns {
	return &turns{free: places, running: map[string]int{}, began: map[string]uint64{}}
}

// enter waits for a place. leave must be called after a nil error. The error is the one of ctx.
func (t *turns) enter(ctx context.Context, tenant string) error {
	w := &turn{tenant, make(chan struct{})}
	t.mu.Lock()
	t.waiting = append(t.waiting, w)
	t.next()
	t.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, w); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
		t.forget(tenant)
	} else { // it got its place in the meantime
		t.end(tenant)
	}
	return ctx.Err()
}

// leave gives a place back.
func (t *turns) leave(tenant string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end(tenant)
}

// end frees a tenant's place. t.mu is held.
func (t *turns) end(tenant string) {
	t.free++
	if t.running[tenant]--; t.running[tenant] == 0 {
		delete(t.running, tenant)
	}
	t.forget(tenant)
	t.next()
}

// forget drops what is known of a tenant without builds. t.mu is held.
func (t *turns) forget(tenant string) {
	if t.running[tenant] == 0 && !slices.ContainsFunc(t.waiting, func(w *turn) bool { return w.tenant == tenant }) {
		delete(t.began, tenant)
	}
}

// next gives free places to those that wait. t.mu is held.
func (t *turns) next() {
	for t.free > 0 && len(t.waiting) > 0 {
		best := 0
		for i, w := range t.waiting {
			b := t.waiting[best]
			if n, m := t.running[w.tenant], t.running[b.tenant]; n < m || n == m && t.began[w.tenant] < t.began[b.tenant] {
				best = i
			}
		}
		w := t.waiting[best]
		t.waiting = slices.Delete(t.waiting, best, best+1)
		t.free--
		t.running[w.tenant]++
		t.builds++
		t.began[w.tenant] = t.builds
		close(w.ready)
	}
}
