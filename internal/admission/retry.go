package admission

import "time"

// Bounds on RetryAfter, the wait that the error for a refused caller names. firstRetry is the estimate
// until a first ticket has left the queue.
const (
	minRetry   = 50 * time.Millisecond
	firstRetry = time.Second
	maxRetry   = time.Minute
)

// A pace estimates when a full queue has room again. It measures the time between two departures
// from a queue that is not empty. Each departure makes room for one refused caller. So a pace counts
// refused callers, and tells each new one to come back after that many departures. Then they don't all
// come back at once.
type pace struct {
	last       time.Time     // the last departure, or the arrival in an empty queue; zero: the queue is empty
	interval   time.Duration // moving average between departures; 0: not known
	turnedAway int           // refused callers for which no departure has made room yet
}

// arrived notes that a ticket waits.
func (p *pace) arrived(now time.Time) {
	if p.last.IsZero() {
		p.last = now
	}
}

// departed notes that a waiting ticket has left the queue, in which left still wait.
func (p *pace) departed(now time.Time, left int) {
	if took := now.Sub(p.last); p.interval == 0 {
		p.interval = took
	} else {
		p.interval += (took - p.interval) / 8
	}
	p.last = now
	if left == 0 {
		p.last = time.Time{}
	}
	p.turnedAway = max(p.turnedAway-1, 0)
}

// turnAway returns the time after which one more refused caller should come back. While no ticket
// leaves the queue, the estimate grows.
func (p *pace) turnAway(now time.Time) time.Duration {
	interval := p.interval
	if interval == 0 {
		interval = firstRetry
	}
	if !p.last.IsZero() {
		interval = max(interval, now.Sub(p.last))
	}
	delay := time.Duration(p.turnedAway+1) * max(interval, time.Millisecond)
	if delay > maxRetry {
		return maxRetry
	}
	p.turnedAway++
	return max(delay, minRetry)
}

// spread makes a wait longer by up to a half, by jitter in [0, 1).
func spread(delay time.Duration, jitter float64) time.Duration {
	return (delay + time.Duration(jitter*float64(delay)/2)).Round(time.Millisecond)
}
