package server

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skillrun/skillrun/internal/executor"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A follow sends the events of one execution to one caller.
type follow struct {
	*Server
	id        string
	after     uint64 // the last sequence that the caller has
	duplicate bool   // an earlier request started it
	// send sends an outgoing. It blocks while the caller reads slowly,
	// and nothing else does: the events are on disk.
	send func(any) error
	// started is called at each event from which the program runs, or has run.
	// Nil: nobody asks.
	started func()
}

// run sends every event after f.after. It returns nil after the outcome, and only then. An
// error of send comes back bare: the caller is gone, and no log line is due.
func (f follow) run(ctx context.Context) error {
	events, err := f.x.Follow(ctx, caller(ctx), f.id, f.after)
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

// next waits for the next event, and sends a keepalive as often as that takes
// long.
func (f *follow) next(ctx context.Context, events *executor.Follower) (executor.Event, error) {
	for {
		silence, cancel := context.WithTimeout(ctx, f.keepalive)
		e, err := events.Next(silence)
		// Only the silence is over. If ctx is done too, its error goes to the caller of next.
		idle := err != nil && silence.Err() != nil && ctx.Err() == nil
		cancel()
		if !idle {
			return e, err
		}
		if err := f.sendKeepalive(ctx); err != nil {
			return executor.Event{}, err
		}
	}
}

// sendKeepalive sends the state as of now. It repeats the sequence of the last event, because a
// keepalive is not in the record.
func (f *follow) sendKeepalive(ctx context.Context) error {
	e, err := f.x.Get(ctx, caller(ctx), f.id)
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
