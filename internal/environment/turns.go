package environment

import (
	"context"
	"slices"
	"sync"
)

// turns is a semaphore that is fair to tenants. A free place goes to the tenant with the fewest builds under way, and
// among equals to the tenant whose last build began first. So a tenant with many waiting builds delays another tenant
// by one build at most. Within a tenant the oldest build is next. A compilation of a skill's modules is a build here.
type turns struct {
	mu      sync.Mutex
	free    int               // places that no build has
	running map[string]int    // builds under way, by tenant; no zeros
	began   map[string]uint64 // by tenant: the number of its last build; only tenants with builds that run or wait
	builds  uint64            // builds that have begun
	waiting []*turn           // in the order of their arrival
}

type turn struct {
	tenant string
	ready  chan struct{} // closed when the build has a place
}

func newTurns(places int) *turns {
	return &turns{free: places, running: map[string]int{}, began: map[string]uint64{}}
}

// enter waits for a place, and the caller must then call leave. If ctx ends before, enter returns its error.
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
	} else { // a place came at the same moment as the end of ctx
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

// forget drops the number of a tenant that has no build, so that t.began does not grow for ever. t.mu is held.
func (t *turns) forget(tenant string) {
	if t.running[tenant] == 0 && !slices.ContainsFunc(t.waiting, func(w *turn) bool { return w.tenant == tenant }) {
		delete(t.began, tenant)
	}
}

// next gives free places to waiting builds. t.mu is held.
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
