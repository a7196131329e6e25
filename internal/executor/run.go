package executor

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skillrun/skillrun/internal/admission"
)

// A run is what changes of an execution between its acceptance and its outcome. Only the
// goroutine of Executor.run writes its fields, with two exceptions: the sandbox calls collect
// before Wait returns, and a write of output may be the first to record the start. Other
// goroutines use the context and the channels, proc after startDone is closed, and grace under its lock.
type run struct {
	*execution
	ticket    *admission.Ticket // others ask it for the position only
	admitted  atomic.Bool       // it has got its slot
	queued    time.Duration     // waited for a slot
	startup   time.Duration     // from the acceptance to the program's start, without queued; zero: it did not start
	collected collected
	network   *networkSink // nil: the execution has no network

	// Ended by cancel, with a *cancellation as the cause, or by unregister, without one.
	ctx       context.Context
	end       context.CancelCauseFunc
	once      sync.Once     // of recordStarted
	started   chan struct{} // closed when the program runs
	startDone chan struct{} // closed when the sandbox's start has succeeded or failed
	done      chan struct{} // closed when the execution has ended
	proc      process       // set before startDone is closed; nil: none

	stopping sync.Mutex
	grace    time.Duration // guarded by stopping: the shortest of all cancellations
}

// newRun gives the run a context that no request's end cancels: an execution outlives the call
// that started it. Executor.unregister must end it.
func newRun(e *execution, ticket *admission.Ticket) *run {
	r := &run{execution: e, ticket: ticket, started: make(chan struct{}), startDone: make(chan struct{}), done: make(chan struct{})}
	r.ctx, r.end = context.WithCancelCause(context.Background())
	return r
}

// A cancellation is the cause of a cancelled execution's context. by and reason become evidence
// of the outcome.
type cancellation struct {
	by, reason string
	grace      time.Duration
}

func (c *cancellation) Error() string { return "cancelled by " + c.by }

// cancel asks the execution to end, in every stage: a wait in the queue or a start ends with
// the context, a running program with Stop. It may be called by many goroutines. The first
// cause stays as evidence; of several graces the one that ends first holds (Process.Stop).
func (r *run) cancel(c *cancellation) {
	r.stopping.Lock()
	if r.cancelled() == nil || c.grace < r.grace {
		r.grace = c.grace
	}
	r.end(c) // under the lock, so that the next cancel sees this one
	r.stopping.Unlock()
	select {
	case <-r.startDone:
		if r.proc != nil {
			r.proc.Stop(c.grace)
		}
	default: // Executor.run stops it, with shortestGrace
	}
}

// shortestGrace returns the shortest grace of the cancellations so far.
func (r *run) shortestGrace() time.Duration {
	r.stopping.Lock()
	defer r.stopping.Unlock()
	return r.grace
}

// cancelled returns why the context has ended, or nil.
func (r *run) cancelled() *cancellation {
	var c *cancellation
	errors.As(context.Cause(r.ctx), &c)
	return c
}

// setProcess notes that the sandbox's start has returned. A nil p means that no program runs.
// Executor.run calls it exactly once, if the run gets as far as a start.
func (r *run) setProcess(p process) {
	r.proc = p
	close(r.startDone)
}

// hasStarted reports whether the program has started. It may have ended since.
func (r *run) hasStarted() bool {
	select {
	case <-r.started:
		return true
	default:
		return false
	}
}

// running returns the running program, or nil. It is not nil between the started event and the
// program's end. The program's first output can record the started event before start returns,
// so running may have to wait a moment for proc.
func (r *run) running(ctx context.Context) process {
	if !r.hasStarted() {
		return nil
	}
	select {
	case <-r.startDone:
		return r.proc
	case <-ctx.Done():
		return nil
	}
}

// position returns the present position of an execution in its tenant's queue, or 0 if it does not wait
// for a slot. The caller must have checked the tenant.
func (x *Executor) position(id string) int {
	if r := x.find(id); r != nil {
		return r.ticket.Position()
	}
	return 0
}
