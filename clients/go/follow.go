package skillrun

import (
	"context"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// eventStream is the receiving side of Execute, ExecuteInteractive and AttachExecution.
type eventStream interface {
	Recv() (*pb.ExecutionEvent, error)
}

// responses is the eventStream of a call. R is the type of the call's responses.
type responses[R interface{ GetEvent() *pb.ExecutionEvent }] struct {
	stream interface{ Recv() (R, error) }
}

func (s responses[R]) Recv() (*pb.ExecutionEvent, error) {
	r, err := s.stream.Recv()
	if err != nil {
		return nil, err
	}
	return r.GetEvent(), nil
}

// A follower reads the events of one execution and passes its output on. Each event is
// handled once and in order, even if the stream breaks.
type follower struct {
	last   uint64 // sequence of the last handled event
	attach func(ctx context.Context, after uint64) (eventStream, error)
	get    func(ctx context.Context) (*pb.Execution, error) // asks for the execution's record
	on     func(*pb.ExecutionEvent)                         // called with each event before its output is written
	shared bool                                             // on may keep the events
	sinks  map[pb.OutputStream]*sink
	breaks int // how often the stream was lost
	patience
}

// follow reads events until the outcome. An error comes from the daemon or the connection.
func (f *follower) follow(ctx context.Context, s eventStream) (*pb.ExecutionOutcome, error) {
	for t := (tries{}); ; {
		event, err := s.Recv()
		if err == io.EOF {
			if outcome := f.known(ctx); outcome != nil {
				return outcome, nil
			}
			err = status.Error(codes.Unavailable, "the stream ended before the execution")
		}
		if err == nil {
			err = f.take(event)
		}
		if err == nil {
			t = tries{}
			if outcome := event.GetOutcome(); outcome != nil {
				return outcome, nil
			}
			continue
		}
		if s, err = f.again(ctx, err, &t); err != nil {
			return nil, err
		}
	}
}

// known returns the outcome of an execution whose last event was already handled, or nil. A
// stream that begins after the last event does not have the outcome.
func (f *follower) known(ctx context.Context) *pb.ExecutionOutcome {
	e, err := f.get(ctx)
	if err != nil || e.GetLastSequence() > f.last {
		return nil
	}
	return e.GetOutcome()
}

// again attaches after the last event, as often as patience allows. It returns the new stream, or
// the last error.
func (f *follower) again(ctx context.Context, cause error, t *tries) (eventStream, error) {
	f.breaks++
	for broken(cause) && f.wait(ctx, t, cause) {
		s, err := f.attach(ctx, f.last)
		if err == nil {
			return s, nil
		}
		cause = err
	}
	return nil, cause
}

// take checks an event's sequence number and handles the event. It drops an event that it
// has seen before. A gap is an error, which a new stream may repair.
func (f *follower) take(event *pb.ExecutionEvent) error {
	sequence := event.GetSequence()
	// Events that are not stored repeat the sequence of the last one.
	stored := event.GetKeepalive() == nil && event.GetQueued() == nil
	if stored {
		if sequence <= f.last {
			return nil
		}
		if sequence != f.last+1 {
			return status.Errorf(codes.Unavailable, "event %d follows %d: events are missing", sequence, f.last)
		}
	}
	output := event.GetOutput()
	if output != nil {
		if err := f.sinks[output.GetStream()].check(output); err != nil {
			return err
		}
	}
	if stored {
		f.last = sequence
	}
	if f.on != nil {
		f.on(event)
	}
	if output != nil {
		f.sinks[output.GetStream()].write(output)
		if !f.shared {
			doneWith(output)
		}
	}
	return nil
}

// writeError returns the first error of a writer.
func (f *follower) writeError() error {
	for _, stream := range []pb.OutputStream{pb.OutputStream_OUTPUT_STREAM_STDOUT, pb.OutputStream_OUTPUT_STREAM_STDERR} {
		if err := f.sinks[stream].err; err != nil {
			return err
		}
	}
	return nil
}

// A sink writes one output stream.
type sink struct {
	name string
	w    io.Writer // nil: dropped
	at   uint64    // position of the next byte
	any  bool      // at is known; after an Attach in the middle, the first chunk tells
	err  error     // the first of w; the rest of the stream is then dropped
}

// newSinks returns the sinks of an execution. fromStart says that it is followed from the
// start of its output.
func newSinks(stdout, stderr io.Writer, fromStart bool) map[pb.OutputStream]*sink {
	return map[pb.OutputStream]*sink{
		pb.OutputStream_OUTPUT_STREAM_STDOUT: {name: "stdout", w: stdout, any: fromStart},
		pb.OutputStream_OUTPUT_STREAM_STDERR: {name: "stderr", w: stderr, any: fromStart},
	}
}

// check compares a chunk's offset with the end of the last chunk. A difference means lost
// or repeated output, which must not reach the writer.
func (s *sink) check(o *pb.OutputChunk) error {
	if s != nil && s.any && o.GetOffsetBytes() != s.at {
		return status.Errorf(codes.DataLoss, "%s: a chunk at %d follows byte %d", s.name, o.GetOffsetBytes(), s.at)
	}
	return nil
}

// write writes a chunk. A nil sink, for a stream that this version does not know, drops it.
func (s *sink) write(o *pb.OutputChunk) {
	if s == nil {
		return
	}
	s.any = true
	s.at = o.GetOffsetBytes() + uint64(len(o.GetData()))
	if s.w == nil || s.err != nil {
		return
	}
	if _, err := s.w.Write(o.GetData()); err != nil {
		s.err = fmt.Errorf("%s: %w", s.name, err)
	}
}
