package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/skillrun/skillrun/sandbox/internal/pid1"
)

// A Process is a program in its sandbox. Its methods may be called from many
// goroutines, also after the program has ended.
type Process struct {
	sandbox *sandbox
	io      IO
	started time.Time
	setup   time.Duration
	stop    chan struct{} // has an element after a Stop that watch has not seen
	done    chan struct{} // closed when exit and err are set
	exit    Exit
	err     error

	stopping sync.Mutex
	stopBy   time.Time // guarded by stopping: when the grace of a Stop ends first; zero: none was called
}

func newProcess(c *sandbox, io IO, begin time.Time) *Process {
	now := time.Now()
	return &Process{
		sandbox: c, io: io, started: now, setup: now.Sub(begin),
		stop: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// Signal sends sig to the main process: the last command of the running
// pipeline. No other process gets it. Between two steps no process gets it.
func (p *Process) Signal(sig syscall.Signal) error {
	if sig <= 0 || sig > 64 {
		return fmt.Errorf("sandbox: signal %d: unknown", int(sig))
	}
	select {
	case <-p.done:
		return ErrEnded
	default:
	}
	if err := p.sandbox.control.Write(pid1.FrameSignal, binary.LittleEndian.AppendUint32(nil, uint32(sig))); err != nil {
		return ErrEnded
	}
	return nil
}

// Stop sends SIGTERM to every process, and SIGKILL after grace to the remaining
// ones. With a grace of zero it sends SIGKILL at once. Stop doesn't wait for
// the end. After several calls, the grace that ends first counts.
func (p *Process) Stop(grace time.Duration) {
	by := time.Now().Add(grace)
	p.stopping.Lock()
	if p.stopBy.IsZero() || by.Before(p.stopBy) {
		p.stopBy = by
	}
	p.stopping.Unlock()
	select {
	case p.stop <- struct{}{}:
	default: // watch will see this grace together with an earlier one
	}
}

// graceLeft returns the time until the first grace ends.
func (p *Process) graceLeft() time.Duration {
	p.stopping.Lock()
	defer p.stopping.Unlock()
	return time.Until(p.stopBy)
}

// ErrLost means that init ended without a report: it was killed from outside the
// sandbox. The kernel then kills every process of its PID namespace
// (pid_namespaces(7)).
var ErrLost = errors.New("sandbox: lost")

// ErrUnwatched means that this package could not read how much memory the sandbox's sockets hold, and therefore
// ended the program. A program that exited at the same moment has its own exit code.
var ErrUnwatched = errors.New("sandbox: its sockets can't be watched")

// Wait returns when every process has ended, the output was read (for at most one
// more second) and IO.Collect has returned. Its error is a failure of this package,
// never of the program; the Exit is valid even if there is an error. A sandbox that
// can't be removed is only logged: its program ended as the Exit says.
func (p *Process) Wait() (Exit, error) {
	<-p.done
	return p.exit, p.err
}

// supervise waits for the program's end, fills in the Exit and wakes Wait. It runs in one
// goroutine for each Process. Only that goroutine sets exit and err, before it closes done.
func (p *Process) supervise() {
	w := newWatch(p)
	err := w.run()
	p.exit = w.exit
	p.exit.Usage.Wall = time.Since(p.started)
	p.exit.Usage.Setup = p.setup
	p.err = err
	p.finish()
	p.sandbox.host.groups.leave(p.sandbox.in)
	p.sandbox.host.forget(p.sandbox.spec.ID) // before Wait returns: its caller may use the ID again
	close(p.done)
}

// finish reads the rest of the output, calls Collect and tears the sandbox down. The
// last process must be dead. Collect comes before teardown, which removes the workspace.
func (p *Process) finish() {
	p.sandbox.pipes.finish()
	if p.io.Collect != nil {
		p.exit.CollectErr = p.io.Collect(p.sandbox.staging.Upper)
	}
	p.sandbox.network.detach() // waits: the network's last events come before Wait returns
	if p.sandbox.refill != nil {
		p.sandbox.host.pool.programEnded(p.sandbox.refill)
	}
	p.sandbox.teardown(p.exit.Usage.MemoryPeakBytes)
}
