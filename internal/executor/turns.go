package executor

import (
	"context"
	"sync"
)

// startsPerProcessor is how many starts of sandboxes one tenant may have under way for each processor. A slot lasts as
// long as its execution, and most executions leave the processors idle, so there are 8 slots for each processor. A
// start keeps a processor busy. With a start in every slot of a tenant, the start of another tenant would get one
// part in 17 of the processors. Two are enough to keep a processor busy, because a start also waits for the kernel.
const startsPerProcessor = 2

// listsOfTenant is how many lists of executions are read at once for one tenant. A page of 1,000 takes about 15 ms of a
// processor. A tenant with many clients that list without a pause would have one on each processor, and work for other
// tenants would wait for each.
const listsOfTenant = 1

// outputsOfTenant is how many parts of stored output are read at once for one tenant. A read begins at the first byte of
// the execution's output, and passes 1 GiB, the most that an execution can have, in 1.2 s of a processor.
const outputsOfTenant = 1

// turns bounds how much work is under way for each key: starts of sandboxes, lists and reads of output of each tenant,
// requests with each idempotency key. Keys do not wait for each other, so a tenant whose work is slow delays only itself.
type turns[K comparable] struct {
	places int // of each key, at least 1
	mu     sync.Mutex
	lines  map[K]*line // of keys with users
}

// A line has the places of one key. It is forgotten with its last user.
type line struct {
	places chan struct{} // one element for each piece of work under way
	users  int           // that work or wait; turns.mu protects it
}

func newTurns[K comparable](places int) *turns[K] {
	return &turns[K]{places: places, lines: map[K]*line{}}
}

// enter waits until a piece of work for the key may begin; the one that came first is next. It also returns if ctx is
// done: the work then fails. leave must be called once, after the work.
func (t *turns[K]) enter(ctx context.Context, key K) (leave func()) {
	places, drop := t.use(key)
	select {
	case places <- struct{}{}:
		return func() { <-places; drop() }
	case <-ctx.Done():
		return drop
	}
}

// use returns the places of a key. A caller that has put an element into the channel has a place, and must take one out
// after the work. drop must be called once, after the last use of the channel.
func (t *turns[K]) use(key K) (places chan struct{}, drop func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[key]
	if l == nil {
		l = &line{places: make(chan struct{}, t.places)}
		t.lines[key] = l
	}
	l.users++
	return l.places, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(t.lines, key)
		}
	}
}
