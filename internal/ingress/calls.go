package ingress

import (
	"sync"
	"time"
)

// Calls counts the calls of a server that are neither accepted nor refused yet. A daemon that another one takes
// over from must not refuse them. The zero Calls is ready to use.
type Calls struct {
	mu      sync.Mutex
	pending int
	last    time.Time // the begin of the last call
}

// Begin must be called at the begin of each call. decided must be called when the daemon has accepted the call,
// and at its end; a second call of decided does nothing.
func (c *Calls) Begin() (decided func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending++
	c.last = time.Now()
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.pending--
	})
}

// Quiet reports whether no call is pending, and none has begun for this time.
func (c *Calls) Quiet(since time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending == 0 && time.Since(c.last) >= since
}
