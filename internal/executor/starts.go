package executor

import (
	"context"
	goruntime "runtime"
	"sync"
)

// startsPerProcessor is how many starts of sandboxes one tenant may have under way for each processor. A slot lasts as
// long as its execution, and most executions leave the processors idle, so there are 8 slots for each processor. A start keeps a
// processor busy. With a start in every slot of a tenant, the start of another tenant would get one part in 17 of
// the processors. Two are enough to keep a processor busy, because a start also waits for the kernel.
const startsPerProcessor = 2

// starts bounds the starts of sandboxes that each tenant has under way. Tenants do not wait for each other, so
// a tenant whose starts are slow delays only itself. The zero value is ready to use.
type starts struct {
	mu      sync.Mutex
	tenants map[string]*startLine
}

// A startLine has the places for one tenant's starts. It is forgotten with its last user.
type startLine struct {
	places chan struct{} // one element for each start under way
	users  int           // that start or wait; starts.mu protects it
}

// enter waits until a start of the tenant may begin; the one that came first is next. It also returns if ctx is
// done: the start then fails. leave must be called once, after the start.
func (s *starts) enter(ctx context.Context, tenant string) (leave func()) {
	l := s.join(tenant)
	select {
	case l.places <- struct{}{}:
		return func() { <-l.places; s.quit(tenant, l) }
	case <-ctx.Done():
		return func() { s.quit(tenant, l) }
	}
}

func (s *starts) join(tenant string) *startLine {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.tenants[tenant]
	if l == nil {
		l = &startLine{places: make(chan struct{}, startsPerProcessor*goruntime.GOMAXPROCS(0))}
		if s.tenants == nil {
			s.tenants = map[string]*startLine{}
		}
		s.tenants[tenant] = l
	}
	l.users++
	return l
}

func (s *starts) quit(tenant string, l *startLine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(s.tenants, tenant)
	}
}
