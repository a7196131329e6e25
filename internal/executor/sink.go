package executor

import (
	"sync"
	"time"

	"github.com/skillrun/skillrun/internal/failpoint"
	"github.com/skillrun/skillrun/internal/record"
)

// A sink writes one stream of a program to the spool, up to a limit. It counts and drops the
// bytes above the limit. Writes always succeed: a program must not learn, through a broken
// pipe, that its client went away or that the daemon's disk is full.
//
// Package sandbox calls Write from one goroutine for each stream. ending and result are called
// from the goroutine of Executor.run; mu is for them.
type sink struct {
	log     *record.Log
	stream  Stream
	limit   int64  // bytes of this stream that are stored
	started func() // records the start first, if it is not recorded yet

	mu     sync.Mutex
	counts Truncation
	last   []byte // the end of the stream, for advice; never stored
	err    error  // the reason why delivery has ended; nil: it has not
}

// lastBytes is how much of a stream's end advice looks at.
const lastBytes = 512

// sinks are the two streams of one execution. Both count separately and have the same limit.
type sinks struct{ stdout, stderr *sink }

func newSinks(r *run) sinks {
	return sinks{
		stdout: &sink{log: r.log, stream: Stdout, limit: r.limits.OutputBytes, started: r.recordStarted},
		stderr: &sink{log: r.log, stream: Stderr, limit: r.limits.OutputBytes, started: r.recordStarted},
	}
}

// Write never fails, see sink. After an error of the record it only counts.
func (s *sink) Write(p []byte) (int, error) {
	s.started()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(p)
	s.counts.TotalBytes += int64(n)
	s.last = append(s.last, p[max(0, n-lastBytes):]...)
	s.last = s.last[max(0, len(s.last)-lastBytes):]
	if s.err != nil {
		return n, nil
	}
	p = p[:min(int64(n), s.limit-s.counts.DeliveredBytes)]
	if len(p) == 0 {
		return n, nil
	}
	// Append copies p before it returns; the sandbox reuses the buffer.
	_, s.err = s.log.Append(record.Event{
		Time:   time.Now(),
		Kind:   record.KindOutput,
		Stream: uint8(s.stream),
		Offset: uint64(s.counts.DeliveredBytes),
		Data:   p,
	})
	failpoint.Reach(failpoint.DuringOutput)
	if s.err == nil {
		s.counts.DeliveredBytes += int64(len(p))
	}
	return n, nil
}

// ending returns the last bytes of the stream.
func (s *sink) ending() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.last)
}

// result returns how much was delivered, and why not more if it is not the
// limit.
func (s *sink) result() (Truncation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts, s.err
}
