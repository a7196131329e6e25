package gateway

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/skillrun/skillrun/internal/network/policy"
)

// A reporter passes events to the sink. Programs retry: one lookup of a refused name can make eight
// queries. So a refusal that repeats within repeatTime is only counted, and so is an event beyond the
// rate.
type reporter struct {
	// mu is held during calls of the sink, which may not block and hears of one event at a time.
	mu          sync.Mutex
	sink        policy.Sink
	denials     *rate.Limiter
	connections *rate.Limiter
	recent      map[refused]time.Time
	dropped     policy.Dropped // counted, not yet passed on
	ended       bool
}

// refused has the fields by which two refusals are equal.
type refused struct{ protocol, to, name, reason string }

const (
	repeatTime = 5 * time.Second // programs retry at once; the next equal refusal in this time is only counted
	maxRecent  = 256             // refusals that are remembered for this; when there are more, all are forgotten
)

func newReporter(sink policy.Sink) *reporter {
	return &reporter{sink: sink, recent: map[refused]time.Time{},
		// Events in a second, and how many at once. Further ones are only counted.
		denials: rate.NewLimiter(20, 100), connections: rate.NewLimiter(200, 1000)}
}

// denied passes a refusal on, or only counts it: a program must not fill the log with refusals.
func (r *reporter) denied(d policy.Denial) {
	d.Time = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	if r.repeats(d) || !r.denials.Allow() {
		r.dropped.Denials++
		return
	}
	r.reportDropped()
	r.sink.Denied(d)
}

// repeats reports whether an equal refusal was passed on within repeatTime.
func (r *reporter) repeats(d policy.Denial) bool {
	key := refused{d.Protocol, d.To.String(), d.Name, d.Reason}
	if last, ok := r.recent[key]; ok && d.Time.Sub(last) < repeatTime {
		return true
	}
	if len(r.recent) >= maxRecent {
		clear(r.recent)
	}
	r.recent[key] = d.Time
	return false
}

// closed passes an ended connection on, or only counts it.
func (r *reporter) closed(c policy.Connection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	if !r.connections.Allow() {
		r.dropped.Add(c.Dropped())
		return
	}
	r.reportDropped()
	r.sink.Closed(c)
}

// reportDropped passes on the sums of the events that were only counted since the last call.
func (r *reporter) reportDropped() {
	if d := r.dropped; d != (policy.Dropped{}) {
		r.dropped = policy.Dropped{}
		r.sink.Dropped(d)
	}
}

// end passes on the remaining counts. No event comes after it.
func (r *reporter) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reportDropped()
	r.ended = true
}
