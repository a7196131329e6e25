package server

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A follow sends the events of one execution to one caller.
type follow struct {
	*Server
	who       *permission.Principal // nil: the caller
	id        string
	after     uint64 // the last sequence that the caller has
	duplicate bool   // an earlier request started it
	// send sends an outgoing. It blocks while the caller reads slowly,
	// and nothing else does: the events are on disk.
	send func(any) error
	// admitted: the execution does not wait for a slot. position is the last position in the queue that
	// was sent; 0: none.
	admitted bool
	position int
	// started is called at each event from which the program runs, or has run.
	// Nil: nobody asks.
	started func()
}

// run sends every event after f.after. It returns nil after the outcome, and only then. An
// error of send comes back bare: the caller is gone, and no log line is due.
func (f follow) run(ctx context.Context) error {
	if f.who == nil {
		own := caller(ctx)
		f.who = &own
	}
	events, err := f.x.Follow(ctx, *f.who, f.id, f.after)
	if err != nil {
		return f.failed(err)
	}
	defer events.Close()
	for {
		e, err := f.next(ctx, events)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return f.failed(err)
		}
		if f.started != nil && (e.Started != nil || e.Outcome != nil) {
			f.started()
		}
		if err := f.send(outgoing{fromEvent(e, f.duplicate), e.Release}); err != nil {
			return err
		}
		f.after = e.Seq
	}
}

// next waits for the next event. Until it comes, next sends the position in the queue whenever it has
// changed, and keepalives.
func (f *follow) next(ctx context.Context, events *executor.Follower) (executor.Event, error) {
	silent := time.Duration(0)
	for {
		if err := f.sendPosition(events); err != nil {
			return executor.Event{}, err
		}
		wait := f.keepalive - silent
		if f.position > 0 && !f.admitted {
			wait = min(wait, f.positionWait())
		}
		silence, cancel := context.WithTimeout(ctx, wait)
		e, err := events.Next(silence)
		// Only the silence is over. If ctx is done too, its error goes to the caller of next.
		idle := err != nil && silence.Err() != nil && ctx.Err() == nil
		cancel()
		if !idle {
			return e, err
		}
		if silent += wait; silent < f.keepalive {
			continue
		}
		silent = 0
		if f.after == 0 {
			continue // the header goes first
		}
		if err := f.sendKeepalive(ctx); err != nil {
			return executor.Event{}, err
		}
	}
}

// positionInterval is the minimum time between two events about the position in the queue.
const positionInterval = time.Second

// positionWait is the time until the next look at the position. A look takes a step for each execution
// before it in the queue. The time grows with the position, so that looks at a long queue don't take more and
// more of the processor.
func (f *follow) positionWait() time.Duration {
	return f.positions * time.Duration(1+f.position/100)
}

// sendPosition sends the position of an execution that waits for a slot, if it is another than the last
// one sent. The header goes first. A position is not in the record, because a queue of n executions
// would write n rows for each start; so the event repeats the sequence of the last one.
func (f *follow) sendPosition(events *executor.Follower) error {
	if f.admitted || f.after == 0 {
		return nil
	}
	position := events.Position()
	if position == 0 {
		f.admitted = true
		return nil
	}
	if position == f.position {
		return nil
	}
	f.position = position
	return f.send(outgoing{event: &pb.ExecutionEvent{
		ExecutionId: f.id, Sequence: f.after, Time: timestamppb.New(time.Now()),
		Event: &pb.ExecutionEvent_Queued{Queued: &pb.ExecutionQueued{Position: uint32(position)}},
	}})
}

// sendKeepalive sends the state as of now. It repeats the sequence of the last event, because a
// keepalive is not in the record.
func (f *follow) sendKeepalive(ctx context.Context) error {
	e, err := f.x.Get(ctx, *f.who, f.id)
	if err != nil {
		return err
	}
	return f.send(outgoing{event: &pb.ExecutionEvent{
		ExecutionId: f.id, Sequence: f.after, Time: timestamppb.New(time.Now()),
		Event: &pb.ExecutionEvent_Keepalive{Keepalive: &pb.ExecutionKeepalive{State: stateNumbers[e.State]}},
	}})
}

// failed names the execution in an error, so that an internal error's line in the log has it.
func (f *follow) failed(err error) error { return &executionError{f.id, err} }
