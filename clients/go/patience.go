package skillrun

import (
	"context"
	"math/rand/v2"
	"time"
)

// patience bounds how often a broken stream is tried again before this side
// gives up, and how long it waits in between.
type patience struct {
	tries int           // in a row without a single event
	first time.Duration // before the second try; doubled each time
	most  time.Duration
}

// defaultPatience is about ten seconds: a daemon that restarts, or a load
// balancer that moves a connection, takes less.
var defaultPatience = patience{tries: 9, first: 50 * time.Millisecond, most: 3 * time.Second}

// wait waits before the given try, the first of which is 1. False means that it
// is not to be made: there were enough, or ctx has ended.
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
	// A fifth of jitter, so that clients cut off together don't return together.
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
