package gateway

import (
	"context"
	"sync/atomic"
	"time"
)

// activity notes when a connection last carried data. A note costs the copying loops one store; a
// deadline for each read would cost a change of a timer.
type activity struct {
	last atomic.Int64 // in nanoseconds since began
}

// began is the start of this process. Times since began come from the monotonic clock, so a change of the machine's clock
// does not move them.
var began = time.Now()

// note notes that data has come or gone.
func (a *activity) note() { a.last.Store(int64(time.Since(began))) }

// rest returns how much of the time idle is left.
func (a *activity) rest(idle time.Duration) time.Duration {
	return time.Duration(a.last.Load()) + idle - time.Since(began)
}

// watch calls end when nothing was noted for the time idle, and when life ends. After stop, end may
// still be called once.
func (a *activity) watch(life context.Context, idle time.Duration, end func()) (stop func()) {
	a.note()
	ctx, cancel := context.WithCancel(life)
	stopEnd := context.AfterFunc(life, end)
	// The channel is a lock that is held until the timer exists: the function may run before AfterFunc returns.
	timer := make(chan *time.Timer, 1)
	timer <- time.AfterFunc(idle, func() {
		t := <-timer
		defer func() { timer <- t }()
		// Data that has come since the timer was set moves the end: the timer is set again for the rest of the time.
		rest := a.rest(idle)
		switch {
		case ctx.Err() != nil:
		case rest <= 0:
			end()
		default:
			t.Reset(rest)
		}
	})
	// stop waits for a timer function that runs now. That function may call end before stop returns.
	return func() {
		cancel()
		stopEnd()
		t := <-timer
		t.Stop()
		timer <- t
	}
}
