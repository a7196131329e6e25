package tracing

import (
	"fmt"
	"sync/atomic"
)

// Dropped counts the spans that the receiver does not have.
type Dropped struct {
	QueueFull uint64 // ended while the queue had no room for their tenant
	NotSent   uint64 // of batches that the receiver did not answer, or refused as a whole
	Rejected  uint64 // of batches that the receiver took without them
}

// drops are the counters of a Dropped.
type drops struct{ queueFull, notSent, rejected atomic.Uint64 }

// Dropped returns the counts since Open.
func (t *Tracing) Dropped() Dropped {
	if t == nil {
		return Dropped{}
	}
	d := t.dropped
	return Dropped{QueueFull: d.queueFull.Load(), NotSent: d.notSent.Load(), Rejected: d.rejected.Load()}
}

// A rejectedError means that the receiver has taken a batch without some of its spans.
type rejectedError struct {
	spans int64  // how many were not taken
	why   string // in the receiver's words
}

func (e *rejectedError) Error() string {
	return fmt.Sprintf("the receiver has rejected %d spans: %.200s", e.spans, e.why)
}
