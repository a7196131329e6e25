package toolview

import (
	"bytes"

	"github.com/skillrun/skillrun/internal/executor"
)

// A quietSink forwards output without the runner's line, which may arrive in pieces. Only the
// goroutine of View.run uses it. It holds back at most the start of the line without its last byte.
type quietSink struct {
	to    Sink
	begin []byte // the start of the line
	held  []byte // a tail of stderr that may be the start of the line
	at    uint64 // offset of held
	line  bool   // the line has begun
}

// quiet returns a sink that forwards everything but r's line. The caller calls last
// after the last output. A nil sink stays nil.
func (r runner) quiet(to Sink) *quietSink {
	return &quietSink{to: to, begin: []byte("[" + r.token + " ")}
}

// sink returns the function that a run calls with output.
func (q *quietSink) sink() Sink {
	if q.to == nil {
		return nil
	}
	return func(o executor.Output) error {
		if o.Stream != executor.Stderr {
			return q.to(o)
		}
		if len(q.held) == 0 {
			q.at = o.Offset
		}
		q.held = append(q.held, o.Data...)
		return q.pass()
	}
}

// pass forwards the bytes that cannot belong to the line.
func (q *quietSink) pass() error {
	for {
		if q.line {
			end := bytes.IndexByte(q.held, '\n')
			if end < 0 {
				q.drop(len(q.held))
				return nil
			}
			q.drop(end + 1)
			q.line = false
		}
		if at := bytes.Index(q.held, q.begin); at >= 0 {
			if err := q.give(at); err != nil {
				return err
			}
			q.line = true
			continue
		}
		// The longest tail of held that is a beginning of begin. It stays until more bytes decide.
		keep := min(len(q.held), len(q.begin)-1)
		for !bytes.HasPrefix(q.begin, q.held[len(q.held)-keep:]) {
			keep--
		}
		return q.give(len(q.held) - keep)
	}
}

// last forwards the held bytes, because they are not the start of the line. If the line has begun, the
// program has ended, and all remaining bytes belong to the runner's report.
func (q *quietSink) last() error {
	if q.to == nil || q.line {
		return nil
	}
	return q.give(len(q.held))
}

// give forwards the first n held bytes. They are copied, because a Sink may keep them.
func (q *quietSink) give(n int) error {
	if n == 0 {
		return nil
	}
	o := executor.Output{Stream: executor.Stderr, Offset: q.at, Data: bytes.Clone(q.held[:n])}
	q.drop(n)
	return q.to(o)
}

// drop forgets the first n held bytes and adds n to at, so that at stays the offset of held.
func (q *quietSink) drop(n int) {
	q.held = q.held[n:]
	q.at += uint64(n)
}
