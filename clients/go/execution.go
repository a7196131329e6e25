package skillrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/connectivity"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// cancelWait bounds how long an execution whose context has ended is waited for:
// the longest grace that the daemon allows would be 60 s, its default is 2 s.
const cancelWait = 15 * time.Second

// An Execution is one that the daemon has accepted, and that this side follows.
type Execution struct {
	// ID names it, on every connection and for as long as the daemon keeps it.
	ID string
	// Header says what was accepted, and with which limits. Nil if the execution
	// was attached after its first event.
	Header *pb.Header

	client  *Client
	pump    *pump         // nil: nothing is sent while it runs
	started chan struct{} // closed when the program has started or the end is known
	done    chan struct{} // closed after outcome and err are set
	end     context.CancelCauseFunc
	owned   atomic.Bool // the end of the context cancels it
	chunked bool        // files were sent in chunks
	outcome *pb.Outcome
	err     error
}

// AttachOptions say what an attached reader gets.
type AttachOptions struct {
	// After is the sequence of the last event that was seen. 0: all events. One
	// that there has not been yet is an error.
	After uint64
	// Stdout and Stderr take the output. Nil: it is dropped.
	Stdout io.Writer
	Stderr io.Writer
	// OnEvent is as in Cmd.
	OnEvent func(*pb.ExecutionEvent)
}

// Attach follows an execution that was started elsewhere, or that has ended: its
// stored events first, then new ones. The end of ctx ends the following and
// leaves the execution alone. An unknown id is an error of Wait.
func (c *Client) Attach(ctx context.Context, id string, o AttachOptions) *Execution {
	life := newLifetime(ctx)
	e := &Execution{ID: id, client: c, started: make(chan struct{}), done: make(chan struct{}), end: life.end}
	f := e.follower(newSinks(o.Stdout, o.Stderr, o.After == 0), o.OnEvent)
	f.last = o.After
	go e.run(ctx, life, f, nil)
	return e
}

func (e *Execution) follower(sinks map[pb.Stream]*sink, on func(*pb.ExecutionEvent)) *follower {
	started := sync.OnceFunc(func() { close(e.started) })
	return &follower{
		patience: e.client.patience,
		sinks:    sinks,
		shared:   on != nil,
		attach: func(ctx context.Context, after uint64) (eventStream, error) {
			if e.client.conn.GetState() == connectivity.Shutdown {
				return nil, errClosed
			}
			return e.client.executions.Attach(ctx, &pb.AttachRequest{ExecutionId: e.ID, AfterSequence: after})
		},
		get: func(ctx context.Context) (*pb.Execution, error) {
			return e.client.executions.Get(ctx, &pb.GetRequest{ExecutionId: e.ID})
		},
		on: func(event *pb.ExecutionEvent) {
			if event.GetStarted() != nil {
				started()
			}
			if on != nil {
				on(event)
			}
		},
	}
}

// run follows the execution to its end, in a goroutine of its own. A nil stream
// means that there is none yet.
func (e *Execution) run(ctx, life context.Context, f *follower, s eventStream) {
	stop := context.AfterFunc(ctx, func() { e.leave(ctx) })
	var err error
	if s == nil {
		s, err = f.attach(life, f.last)
	}
	if err == nil {
		e.outcome, err = f.follow(life, s)
	}
	stop()
	e.err = e.result(ctx, life, f, err)
	e.end(nil)
	close(e.done)
}

// result is what Wait returns.
func (e *Execution) result(ctx, life context.Context, f *follower, err error) error {
	if err != nil {
		if cause := context.Cause(life); cause != nil {
			err = cause
		}
		return fmt.Errorf("execution %s: %w", e.ID, err)
	}
	if err := outcomeError(e.ID, e.outcome); err != nil {
		if e.owned.Load() && ctx.Err() != nil && e.outcome.GetEnd() == pb.End_END_CANCELLED {
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return err
	}
	if err := f.writeError(); err != nil {
		return err
	}
	return e.pump.lost(f.breaks)
}

// leave is called when the caller's context has ended.
func (e *Execution) leave(ctx context.Context) {
	defer e.end(ctx.Err())
	if !e.owned.Load() {
		return
	}
	wait, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelWait)
	defer stop()
	if e.Cancel(wait, 0, context.Cause(ctx).Error()) != nil {
		return
	}
	// It has ended: its last events are on their way.
	select {
	case <-e.done:
	case <-wait.Done():
	}
}

// Wait waits for the end and returns nil if the program exited with 0, an
// [*ExitError] if it did not succeed, a [*DaemonError] if its end is not known,
// and else what kept this side from knowing. By then the writers have all output
// that was delivered. It may be called any number of times.
func (e *Execution) Wait() error {
	<-e.done
	return e.err
}

// Outcome waits for the end and returns how the execution ended: nil if Wait
// returns an error that is neither an *ExitError nor a *DaemonError and nothing
// was learnt of the end.
func (e *Execution) Outcome() *pb.Outcome {
	<-e.done
	return e.outcome
}

// Detach ends the following and leaves the execution to itself; what becomes of
// it is OnDisconnect, which should be ON_DISCONNECT_CONTINUE. If files went in
// chunks it first waits for the start of the program, since nothing starts
// before the last of them has arrived.
func (e *Execution) Detach(ctx context.Context) error {
	if e.chunked {
		select {
		case <-e.started:
		case <-e.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	e.owned.Store(false)
	e.end(errDetached)
	<-e.done
	return nil
}

var (
	errDetached = errors.New("detached")
	errClosed   = errors.New("client closed")
)

// Signal sends a signal, such as "SIGUSR1", to the program's main process.
func (e *Execution) Signal(ctx context.Context, name string) error {
	_, err := e.client.executions.Signal(ctx, &pb.SignalRequest{ExecutionId: e.ID, Signal: name})
	return err
}

// Cancel asks the execution to end and returns when it has: SIGTERM to all of
// it, and after the grace SIGKILL. A zero grace means the daemon's default; the
// reason, which may be empty, is kept as evidence. Cancelling an ended execution
// changes nothing.
func (e *Execution) Cancel(ctx context.Context, grace time.Duration, reason string) error {
	r := &pb.CancelRequest{ExecutionId: e.ID, Reason: reason}
	if grace > 0 {
		r.Grace = durationpb.New(grace)
	}
	_, err := e.client.executions.Cancel(ctx, r)
	return err
}
