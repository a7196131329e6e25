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

// cancelWait limits the wait for the outcome after the context has ended. The daemon's
// default grace is 2 s, its maximum 60 s. With a longer default grace the outcome may be missing.
const cancelWait = 15 * time.Second

// An Execution is an execution that the daemon has accepted. The client follows its events.
//
// Its goroutine (run) sets outcome, denied and err and then closes done. Every other method reads them
// only after that. The methods may be called concurrently.
type Execution struct {
	// ID identifies the execution on every connection, as long as the daemon keeps its
	// record.
	ID string
	// Header has the accepted request and the effective limits. It is nil if Attach began
	// after the first event.
	Header *pb.ExecutionHeader

	client  *Client
	pump    *pump         // nil: no input is sent while the program runs
	started chan struct{} // closed when the program has started, or the end is known
	done    chan struct{} // closed after outcome and err are set
	end     context.CancelCauseFunc
	owned   atomic.Bool // the end of the context cancels the execution
	chunked bool        // files were sent in chunks
	outcome *pb.ExecutionOutcome
	denied  []*pb.NetworkDenial
	err     error
}

// AttachOptions are the options of Attach.
type AttachOptions struct {
	// After is the sequence number of the last event that was already seen. 0: all events
	// are sent. A number above the last event's is an error.
	After uint64
	// Stdout and Stderr receive the output. Nil: the output is dropped.
	Stdout io.Writer
	Stderr io.Writer
	// OnEvent is as in Cmd.
	OnEvent func(*pb.ExecutionEvent)
}

// Attach follows an execution that was started elsewhere, or that has ended. It delivers
// the stored events and then new ones. The end of ctx stops the following, and the
// execution goes on. If the id is unknown, Wait returns an error.
func (c *Client) Attach(ctx context.Context, id string, o AttachOptions) *Execution {
	life := newLifetime(ctx)
	e := &Execution{ID: id, client: c, started: make(chan struct{}), done: make(chan struct{}), end: life.end}
	f := e.follower(newSinks(o.Stdout, o.Stderr, o.After == 0), o.OnEvent)
	f.last = o.After
	go e.run(ctx, life, f, nil)
	return e
}

// follower returns the follower of e's events. It may reconnect for as long as the client is
// open.
func (e *Execution) follower(sinks map[pb.OutputStream]*sink, on func(*pb.ExecutionEvent)) *follower {
	started := sync.OnceFunc(func() { close(e.started) })
	return &follower{
		patience: e.client.patience,
		sinks:    sinks,
		shared:   on != nil,
		attach: func(ctx context.Context, after uint64) (eventStream, error) {
			if e.client.conn.GetState() == connectivity.Shutdown {
				return nil, errClosed
			}
			s, err := e.client.executions.AttachExecution(ctx, &pb.AttachExecutionRequest{ExecutionId: e.ID, AfterSequence: after})
			return responses[*pb.AttachExecutionResponse]{s}, err
		},
		get: func(ctx context.Context) (*pb.Execution, error) {
			r, err := e.client.executions.GetExecution(ctx, &pb.GetExecutionRequest{ExecutionId: e.ID})
			return r.GetExecution(), err
		},
		on: func(event *pb.ExecutionEvent) {
			if event.GetStarted() != nil {
				started()
			}
			if denied := event.GetDenied(); denied != nil {
				e.denied = append(e.denied, denied)
			}
			if on != nil {
				on(event)
			}
		},
	}
}

// run follows the execution to its end. It runs in its own goroutine. If s is nil, it
// attaches first.
func (e *Execution) run(ctx, life context.Context, f *follower, s eventStream) {
	stop := context.AfterFunc(ctx, func() { e.leave(ctx) })
	var err error
	if s == nil {
		if s, err = f.attach(life, f.last); err != nil && e.client.mayReturn(err) {
			s, err = f.again(life, err, &tries{})
		}
	}
	if err == nil {
		e.outcome, err = f.follow(life, s)
	}
	stop()
	e.err = e.result(ctx, life, f, err)
	e.end(nil)
	close(e.done)
}

// result returns the error for Wait. An error that this side caused, such as errDetached,
// replaces the status error that it led to. The program's failure goes before a failure to write
// its output.
func (e *Execution) result(ctx, life context.Context, f *follower, err error) error {
	if err != nil {
		if cause := context.Cause(life); cause != nil {
			err = cause
		}
		return fmt.Errorf("execution %s: %w", e.ID, err)
	}
	if err := outcomeError(e.ID, e.outcome); err != nil {
		if e.owned.Load() && ctx.Err() != nil && e.outcome.GetEnd() == pb.ExecutionEnd_EXECUTION_END_CANCELLED {
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return err
	}
	if err := f.writeError(); err != nil {
		return err
	}
	return e.pump.lost(f.breaks)
}

// leave runs when the caller's context has ended. It cancels an owned execution and waits
// for the outcome.
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
	// The execution has ended. Wait for its last events.
	select {
	case <-e.done:
	case <-wait.Done():
	}
}

// Wait waits for the end of the execution. It returns nil if the program exited with 0, an
// [*ExitError] if the program did not succeed, a [*DaemonError] if the outcome says nothing
// about the program, and another error if the outcome did not arrive. The writers then have
// all output that was delivered. Wait may be called several times.
func (e *Execution) Wait() error {
	<-e.done
	return e.err
}

// Outcome waits for the end and returns the execution's outcome. It is nil if the outcome
// did not arrive; Wait then returns an error that is neither an *ExitError nor a
// *DaemonError.
func (e *Execution) Outcome() *pb.ExecutionOutcome {
	<-e.done
	return e.outcome
}

// Detach stops following the execution. OnDisconnect decides whether the execution goes on,
// so it should be ON_DISCONNECT_CONTINUE. If files are sent in chunks, Detach first waits
// for the start of the program, because the program cannot start before the last chunk has
// arrived. Wait then returns an error, unless the outcome had already arrived.
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

// Signal sends a signal, such as "SIGUSR1", to the program's main process. The error is
// FAILED_PRECONDITION if the program does not run yet, or any longer.
func (e *Execution) Signal(ctx context.Context, name string) error {
	_, err := e.client.executions.SignalExecution(ctx, &pb.SignalExecutionRequest{ExecutionId: e.ID, Signal: name})
	return err
}

// Cancel ends the execution and returns when it has ended. The daemon sends SIGTERM to all
// processes, and SIGKILL after the grace. A zero grace means the daemon's default. The
// reason, which may be empty, is kept as evidence. Cancelling an ended execution has no
// effect.
func (e *Execution) Cancel(ctx context.Context, grace time.Duration, reason string) error {
	r := &pb.CancelExecutionRequest{ExecutionId: e.ID, Reason: reason}
	if grace > 0 {
		r.Grace = durationpb.New(grace)
	}
	_, err := e.client.executions.CancelExecution(ctx, r)
	return err
}
