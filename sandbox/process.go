package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// A Process is a program that runs in a sandbox of its own. Its methods may be
// called from many goroutines, and after its end.
type Process struct {
	cell    *cell
	io      IO
	started time.Time
	setup   time.Duration
	stop    chan time.Duration // the first Stop's grace
	once    sync.Once
	done    chan struct{} // closed when exit and err are set
	exit    Exit
	err     error
}

func newProcess(c *cell, io IO, begin time.Time) *Process {
	now := time.Now()
	return &Process{
		cell: c, io: io, started: now, setup: now.Sub(begin),
		stop: make(chan time.Duration, 1), done: make(chan struct{}),
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
	if err := p.cell.control.write(frameSignal, binary.LittleEndian.AppendUint32(nil, uint32(sig))); err != nil {
		return ErrEnded
	}
	return nil
}

// Stop sends SIGTERM to every process, and SIGKILL after grace to those that
// are left; at once if grace is zero. It doesn't wait. Only the first call counts.
func (p *Process) Stop(grace time.Duration) {
	p.once.Do(func() { p.stop <- grace })
}

// Wait returns when every process is gone, the output was read (for at most a
// second more) and IO.Collect has returned. Its error is ours, never the
// program's; the Exit then says what is known.
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
	p.err = errors.Join(err, p.finish())
	p.cell.host.forget(p.cell.spec.ID) // first: who has waited may use the id again
	close(p.done)
}

// finish takes the sandbox apart, after its last process is dead.
func (p *Process) finish() error {
	p.cell.pipes.finish()
	if p.io.Collect != nil {
		p.exit.CollectErr = p.io.Collect(p.cell.staging.upper)
	}
	err := p.cell.destroy()
	if err != nil {
		p.cell.host.log().Error("sandbox left behind", "id", p.cell.spec.ID, "error", err)
		err = fmt.Errorf("sandbox: remove %s: %w", p.cell.spec.ID, err)
	}
	return err
}
