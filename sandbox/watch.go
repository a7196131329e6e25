package sandbox

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// killPatience is how long init may take to report the end after it was told
// to kill everybody, before it is killed itself.
const killPatience = 2 * time.Second

// The period in which a CPU limit is checked is what is left, divided by the
// processors that can use it up, between these two.
const (
	minCPUPeriod = 5 * time.Millisecond
	maxCPUPeriod = 500 * time.Millisecond
)

// oomPeriod is how often the kernel's count is read after it announced that
// memory ran out, which it does before it kills anybody.
const oomPeriod = 10 * time.Millisecond

// lastSignal is Linux's SIGRTMAX.
const lastSignal = 64

// A watch waits for a program's end and for the reasons to bring it about. The
// first reason is the one that the Exit carries.
type watch struct {
	p       *Process
	exit    Exit
	caused  bool
	frames  chan endFrame
	oomTick <-chan time.Time
	wall    *time.Timer
	cpu     *time.Timer
	kill    *time.Timer  // grace is over
	killAt  time.Time    // when; zero: no grace runs
	force   *time.Timer  // init doesn't answer
	sockets *time.Timer  // when to look at what the sockets hold
	meter   *socketMeter // nil: the network is the machine's
	fault   error        // of ours, for which the program was killed
}

// endFrame is what init said last.
type endFrame struct {
	status     syscall.WaitStatus
	byDeadline bool
	err        error // it said nothing
}

func newWatch(p *Process) *watch {
	limits := p.sandbox.spec.Limits
	w := &watch{p: p, frames: make(chan endFrame, 1), wall: time.NewTimer(time.Until(p.started.Add(limits.Wall)))}
	w.cpu, w.kill, w.force = stoppedTimer(), stoppedTimer(), stoppedTimer()
	if limits.CPU > 0 {
		w.cpu.Reset(minCPUPeriod)
	}
	w.sockets = stoppedTimer()
	if p.sandbox.spec.Network == NetworkNone && !p.sandbox.faults.unmeters() {
		w.meter = newSocketMeter(p.sandbox.init.pid)
		w.sockets.Reset(socketPeriod)
	}
	return w
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(0)
	t.Stop()
	return t
}

// run returns when no process of the sandbox is left.
func (w *watch) run() error {
	defer w.wall.Stop()
	defer w.meter.close()
	go func() { w.frames <- w.p.readEnd() }()
	end := w.wait()
	w.meter.close() // the last who holds a namespace pays for its destruction
	if end.err == nil {
		w.measure() // while init ends, whose end is no part of the program
	}
	err := w.p.reap()
	if end.err != nil {
		w.measure()
	}
	if end.err != nil && !w.caused && w.exit.OOMKills == 0 {
		err = errors.Join(fmt.Errorf("%w: %s: %v", ErrLost, w.p.sandbox.spec.ID, end.err), err)
	}
	w.conclude(end)
	return errors.Join(w.fault, err)
}

// wait handles what happens until init reports the end or is gone.
func (w *watch) wait() endFrame {
	limits := w.p.sandbox.spec.Limits
	for {
		select {
		case end := <-w.frames:
			return end
		case <-w.wall.C:
			w.end(TimedOut, Wall, limits.Grace)
		case <-w.cpu.C:
			w.checkCPU(limits)
		case <-w.sockets.C:
			w.checkSockets(limits)
		case <-w.p.sandbox.oom.fired:
			w.oomTick = time.After(oomPeriod)
		case <-w.oomTick:
			w.checkOOM()
		case grace := <-w.p.stop:
			w.end(Stopped, NoDeadline, grace)
		case <-w.kill.C:
			w.killAll()
		case <-w.force.C:
			_ = w.p.sandbox.group.kill()
			w.force.Reset(killPatience)
		}
	}
}

// end brings the program's end about, for the given reason.
func (w *watch) end(reason End, d Deadline, grace time.Duration) {
	if !w.caused {
		w.caused, w.exit.End, w.exit.Deadline = true, reason, d
	}
	if grace <= 0 {
		w.killAll()
		return
	}
	if w.killAt.IsZero() { // the program is told once, however often it is to end
		_ = w.p.sandbox.control.write(frameTerm, nil) // if init is gone its frame says so
	}
	if at := time.Now().Add(grace); w.killAt.IsZero() || at.Before(w.killAt) {
		w.killAt = at
		w.kill.Reset(grace)
	}
}

func (w *watch) killAll() {
	_ = w.p.sandbox.control.write(frameKill, nil)
	w.force.Reset(killPatience)
}

func (w *watch) checkCPU(limits Limits) {
	u := w.p.sandbox.group.cpuUsage()
	before := w.p.sandbox.before
	left := limits.CPU + before.UserCPU + before.SystemCPU - u.UserCPU - u.SystemCPU
	if left <= 0 {
		w.end(TimedOut, CPU, limits.Grace)
		return
	}
	w.cpu.Reset(min(max(left/time.Duration(runtime.NumCPU()), minCPUPeriod), maxCPUPeriod))
}

// checkSockets ends the program when its sockets hold more than its memory limit.
func (w *watch) checkSockets(limits Limits) {
	begin := time.Now()
	over, err := w.meter.exceeds(limits.MemoryBytes)
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH): // init is gone, which its frame says
	case err != nil:
		w.fault = err
		w.killAll()
	case over:
		w.end(OOMKilled, NoDeadline, 0)
	default:
		w.sockets.Reset(max(socketPeriod, socketRest*time.Since(begin)))
	}
}

// checkOOM ends the whole program when one of its processes was killed for
// memory. On v2 the kernel does it, on v1 nobody else would.
func (w *watch) checkOOM() {
	kills, err := w.p.sandbox.group.oomKills()
	if err == nil && kills > 0 {
		w.end(OOMKilled, NoDeadline, 0)
		w.oomTick = nil
		return
	}
	w.oomTick = time.After(oomPeriod)
}

// measure reads what the kernel counted. Everybody but init is dead by now.
func (w *watch) measure() {
	g := w.p.sandbox.group
	w.exit.Usage = g.usage().cpuSince(w.p.sandbox.before)
	w.exit.OOMKills, _ = g.oomKills()
	w.exit.PidsMax = g.refusedForks()
}

// conclude fills in what the wait status and the counters say.
func (w *watch) conclude(end endFrame) {
	if end.err == nil {
		if end.status.Signaled() {
			w.exit.Signal = end.status.Signal()
		} else {
			w.exit.Code = end.status.ExitStatus()
		}
	} else {
		w.exit.Signal = syscall.SIGKILL // init died of it, and everybody with it
	}
	switch {
	case w.caused:
	case w.exit.OOMKills > 0:
		w.exit.End = OOMKilled
	case end.byDeadline:
		w.exit.End, w.exit.Deadline = TimedOut, Wall
	case w.exit.Signal != 0:
		w.exit.End = Signaled
	}
}

// readEnd waits for init's last frame.
func (p *Process) readEnd() endFrame {
	if p.sandbox.forked != nil {
		return p.readForkedEnd()
	}
	words, err := p.sandbox.control.expect(frameEnd, 2)
	if err != nil {
		return endFrame{err: err}
	}
	return endOf(int(words[0]), words[1] != 0)
}

// endOf is the end that a wait status stands for. A status of a process that lives, or
// with a signal that there is not, comes from a liar: nothing is known then.
func endOf(status int, byDeadline bool) endFrame {
	s := syscall.WaitStatus(status)
	if !s.Exited() && (!s.Signaled() || s.Signal() > lastSignal) {
		return endFrame{err: fmt.Errorf("wait status %#x is no end", uint32(s))}
	}
	return endFrame{status: s, byDeadline: byDeadline}
}

// readForkedEnd waits for the end of a process that a Python zygote forked, which
// knows its status, and then for init's last frame.
func (p *Process) readForkedEnd() endFrame {
	c := p.sandbox
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = c.init.wait()
	}()
	var status int
	var known bool
	select {
	case status, known = <-c.forked.ended:
	case <-gone:
		return endFrame{err: errors.New("init is gone")}
	}
	_ = c.control.write(frameFinish, nil) // if init is gone its frame says so
	words, err := c.control.expect(frameEnd, 2)
	switch {
	case err != nil:
		return endFrame{err: err}
	case !known:
		return endFrame{err: errors.New("its Python zygote is gone")}
	}
	return endOf(status, words[1] != 0)
}

// reap waits for init itself, with whom the last process of the sandbox ends.
func (p *Process) reap() error {
	force := time.AfterFunc(killPatience, func() { _ = p.sandbox.group.kill() })
	defer force.Stop()
	return p.sandbox.init.wait()
}
