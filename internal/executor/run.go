package executor

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A run is what changes of an execution between its acceptance and its outcome.
type run struct {
	*execution
	queued    time.Duration // waited for a slot
	collected collected

	ctx     context.Context
	end     context.CancelCauseFunc
	once    sync.Once     // of recordStarted
	started chan struct{} // closed when the program runs
	settled chan struct{} // closed when the sandbox's start has succeeded or failed
	done    chan struct{} // closed when the execution has ended
	proc    process       // set before settled is closed; nil: none
}

func newRun(e *execution) *run {
	r := &run{execution: e, started: make(chan struct{}), settled: make(chan struct{}), done: make(chan struct{})}
	r.ctx, r.end = context.WithCancelCause(context.Background())
	return r
}

// A cancellation is the cause of a cancelled execution's context.
type cancellation struct {
	by, reason string
	grace      time.Duration
}

func (c *cancellation) Error() string { return "cancelled by " + c.by }

// cancel asks the execution to end. Of several the first cause stays, and the
// soonest end of a grace holds.
func (r *run) cancel(c *cancellation) {
	r.end(c)
	select {
	case <-r.settled:
		if r.proc != nil {
			r.proc.Stop(c.grace)
		}
	default: // Executor.run stops it, with the first cause's grace
	}
}

// cancelled returns why the context has ended, or nil.
func (r *run) cancelled() *cancellation {
	var c *cancellation
	errors.As(context.Cause(r.ctx), &c)
	return c
}

// settle notes that the sandbox's start has returned. A nil p means that no program runs.
func (r *run) settle(p process) {
	r.proc = p
	close(r.settled)
}

// running returns the running program, or nil. It is not nil between the started event and
// the program's end.
func (r *run) running(ctx context.Context) process {
	select {
	case <-r.started:
	default:
		return nil
	}
	select {
	case <-r.settled:
		return r.proc
	case <-ctx.Done():
		return nil
	}
}
