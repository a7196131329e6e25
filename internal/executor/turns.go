package executor

import (
	"cmp"
	"context"
	goruntime "runtime"
	"sync"
)

// startsPerProcessor is how many starts of sandboxes one tenant may have under way for each processor. A slot lasts as
// long as its execution, and most executions leave the processors idle, so there are 8 slots for each processor. A start keeps a
// processor busy. With a start in every slot of a tenant, the start of another tenant would get one part in 17 of
// the processors. Two are enough to keep a processor busy, because a start also waits for the kernel.
const startsPerProcessor = 2

// listsOfTenant is how many lists of executions are read at once for one tenant. A page of 1,000 takes about 15 ms of a
// processor. A tenant with many clients that list without a pause would have one on each processor, and work for other
// tenants would wait for each.
const listsOfTenant = 1

// turns bounds how much work of a kind each tenant has under way: starts of sandboxes, or lists. Tenants do not wait for
// each other, so a tenant whose work is slow delays only itself. The zero value is for starts.
type turns struct {
	places  int // of each tenant; 0: startsPerProcessor for each processor
	mu      sync.Mutex
	tenants map[string]*workLine
}

// A workLine has the places for one tenant's work. It is forgotten with its last user.
type workLine struct {
	places chan struct{} // one element for each piece of work under way
	users  int           // that work or wait; turns.mu protects it
}

// enter waits until a piece of work of the tenant may begin; the one that came first is next. It also returns if ctx is
// done: the work then fails. leave must be called once, after the work.
func (s *turns) enter(ctx context.Context, tenant string) (leave func()) {
	l := s.join(tenant)
	select {
	case l.places <- struct{}{}:
		return func() { <-l.places; s.quit(tenant, l) }
	case <-ctx.Done():
		return func() { s.quit(tenant, l) }
	}
}

func (s *turns) join(tenant string) *workLine {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.tenants[tenant]
	if l == nil {
		l = &workLine{places: make(chan struct{}, cmp.Or(s.places, startsPerProcessor*goruntime.GOMAXPROCS(0)))}
		if s.tenants == nil {
			s.tenants = map[string]*workLine{}
		}
		s.tenants[tenant] = l
	}
	l.users++
	return l
}

func (s *turns) quit(tenant string, l *workLine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(s.tenants, tenant)
	}
}
