package skillrun

import (
	"context"
	"math/rand/v2"
	"time"
)

// patience limits how often the client retries after a broken stream, and sets the pauses.
type patience struct {
	tries int           // consecutive tries without an event
	first time.Duration // pause before the second try; doubled each time
	most  time.Duration // longest pause
}

// defaultPatience lasts about 10 s. A daemon's restart, or a load balancer that moves a
// connection, takes less.
var defaultPatience = patience{tries: 9, first: 50 * time.Millisecond, most: 3 * time.Second}

// wait waits before a try; the first try is 1. It returns false if there were enough tries
// or ctx has ended.
func (p patience) wait(ctx context.Context, try int) bool {
	if try > p.tries {
		return false
	}
	if try == 1 {
		return ctx.Err() == nil
	}
	pause := p.most
	if doubled := p.first << (try - 2); doubled < p.most {
		pause = doubled
	}
	// Up to 20 % jitter, so that clients that were cut off together do not return together.
	pause -= time.Duration(rand.Int64N(int64(pause)/5 + 1))
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
