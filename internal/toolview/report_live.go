package toolview

import (
	"bytes"

	"github.com/skillrun/skillrun/internal/executor"
)

// A quietSink passes output on without the runner's line, which comes in pieces.
type quietSink struct {
	to    Sink
	begin []byte // of the line
	held  []byte // of stderr: it may be the line's begin
	at    uint64 // offset of held
	line  bool   // within the line
}

// quiet returns a sink that passes everything on to another but r's line. Its last
// must be called after the last output. Nil stays nil.
func (r runner) quiet(to Sink) *quietSink {
	return &quietSink{to: to, begin: []byte("[" + r.token + " ")}
}

// sink is what a run calls.
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

// pass passes on what can't be of the line.
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
		keep := min(len(q.held), len(q.begin)-1)
		for !bytes.HasPrefix(q.begin, q.held[len(q.held)-keep:]) {
			keep--
		}
		return q.give(len(q.held) - keep)
	}
}

// last passes on what was held back and is no line after all.
func (q *quietSink) last() error {
	if q.to == nil || q.line {
		return nil
	}
	return q.give(len(q.held))
}

func (q *quietSink) give(n int) error {
	if n == 0 {
		return nil
	}
	o := executor.Output{Stream: executor.Stderr, Offset: q.at, Data: bytes.Clone(q.held[:n])}
	q.drop(n)
	return q.to(o)
}

func (q *quietSink) drop(n int) {
	q.held = q.held[n:]
	q.at += uint64(n)
}
