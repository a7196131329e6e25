package ingress

import (
	"sync"
	"time"
)

// Calls counts the calls of a server that are neither accepted nor refused yet. In a takeover, the earlier daemon waits
// for them, so that it need not refuse them. The zero Calls is ready to use.
type Calls struct {
	mu      sync.Mutex
	pending int       // calls that have begun, without a decision
	last    time.Time // when the last call began
}

// Begin must be called when a call begins. The caller must call decided when the daemon has accepted the call, and again
// at the end of the call; a second call of decided does nothing.
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

// Quiet reports whether no call is pending and no call has begun for the given time.
func (c *Calls) Quiet(since time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending == 0 && time.Since(c.last) >= since
}
