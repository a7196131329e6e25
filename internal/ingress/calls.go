package ingress

import (
	"context"
	"sync"
)

// Calls counts calls of a server for which a takeover waits. The zero Calls is ready to use.
type Calls struct {
	mu   sync.Mutex
	open int
	none chan struct{} // closed when open becomes 0; nil: no call of Wait is under way
}

// Begin counts a call until end is called. A second call of end does nothing.
func (c *Calls) Begin() (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.open--; c.open == 0 && c.none != nil {
			close(c.none)
			c.none = nil
		}
	})
}

// Wait returns when no call is open, or with the error of ctx when ctx is done.
func (c *Calls) Wait(ctx context.Context) error {
	c.mu.Lock()
	if c.open > 0 && c.none == nil {
		c.none = make(chan struct{})
	}
	open, none := c.open, c.none
	c.mu.Unlock()
	if open == 0 {
		return nil
	}
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
