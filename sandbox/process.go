package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// A Process is a program that runs in a sandbox of its own. Its methods may be
// called from many goroutines, and after its end.
type Process struct {
	sandbox *sandbox
	io      IO
	started time.Time
	setup   time.Duration
	stop    chan time.Duration // graces of Stop
	done    chan struct{}      // closed when exit and err are set
	exit    Exit
	err     error
}

func newProcess(c *sandbox, io IO, begin time.Time) *Process {
	now := time.Now()
	return &Process{
		sandbox: c, io: io, started: now, setup: now.Sub(begin),
		stop: make(chan time.Duration, maxStops), done: make(chan struct{}),
	}
}

// Signal sends sig to the main process: the last command of the pipeline that
// runs. It reaches no other process, and none between two steps.
func (p *Process) Signal(sig syscall.Signal) error {
	if sig <= 0 || sig > 64 {
		return fmt.Errorf("sandbox: signal %d: unknown", int(sig))
	}
	select {
	case <-p.done:
		return ErrEnded
	default:
	}
	if err := p.sandbox.control.write(frameSignal, binary.LittleEndian.AppendUint32(nil, uint32(sig))); err != nil {
		return ErrEnded
	}
	return nil
}

// maxStops bounds the calls of Stop that wait to be heard; more are dropped.
const maxStops = 16

// Stop sends SIGTERM to every process, and SIGKILL after grace to those that
// are left; at once if grace is zero. It doesn't wait. Of several calls the one
// whose grace ends first counts.
func (p *Process) Stop(grace time.Duration) {
	select {
	case p.stop <- grace:
	default:
	}
}

// ErrLost: init ended without a word, so somebody outside killed it, and the
// kernel everybody with it.
var ErrLost = errors.New("sandbox: lost")

// Wait returns when every process is gone, the output was read (for at most a
// second more) and IO.Collect has returned. Its error is ours, never the
// program's; the Exit holds all the same. A sandbox that can't be removed is
// logged, and no error: its program ended as the Exit says.
func (p *Process) Wait() (Exit, error) {
	<-p.done
	return p.exit, p.err
}

// supervise sees the program to its end.
func (p *Process) supervise() {
	w := newWatch(p)
	err := w.run()
	p.exit = w.exit
	p.exit.Usage.Wall = time.Since(p.started)
	p.exit.Usage.Setup = p.setup
	p.err = err
	p.finish()
	p.sandbox.host.forget(p.sandbox.spec.ID) // first: who has waited may use the id again
	close(p.done)
}

// finish takes the sandbox apart, after its last process is dead.
func (p *Process) finish() {
	p.sandbox.pipes.finish()
	if p.io.Collect != nil {
		p.exit.CollectErr = p.io.Collect(p.sandbox.staging.upper)
	}
	if p.sandbox.refill != nil {
		p.sandbox.host.pool.programEnded(p.sandbox.refill)
	}
	p.sandbox.teardown(p.exit.Usage.MemoryPeakBytes)
}
