package sandbox

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"github.com/skillrun/skillrun/sandbox/internal/pid1"
	"golang.org/x/sys/unix"
)

// killPatience is how long init may take to report the end after pid1.FrameKill. Then the
// daemon kills the whole cgroup, init included.
const killPatience = 2 * time.Second

// The daemon checks a CPU limit again after the remaining CPU time, divided by the number
// of processors that can use it up. These two bound that period.
const (
	minCPUPeriod = 5 * time.Millisecond
	maxCPUPeriod = 500 * time.Millisecond
)

// oomPeriod is how often the daemon reads the kernel's count of OOM kills after an OOM
// notification. The kernel notifies before it kills a process.
const oomPeriod = 10 * time.Millisecond

// A watch waits for a program's end, and for reasons to end the program. The Exit carries
// the first reason. Only the goroutine of Process.supervise uses a watch, so it needs no lock;
// another goroutine only reads init's last frame and sends it to frames.
type watch struct {
	p       *Process
	exit    Exit
	caused  bool             // exit has its reason: the daemon ends the program
	frames  chan endFrame    // gets one frame
	oomTick <-chan time.Time // nil: no OOM notification is being looked into
	wall    *time.Timer      // fires at the deadline
	cpu     *time.Timer      // fires when the CPU time is due for a check
	kill    *time.Timer      // fires when the grace period is over
	killAt  time.Time        // when kill fires; zero: no grace period runs
	force   *time.Timer      // fires when init has not answered for killPatience
	sockets *time.Timer      // fires when the sockets are due for a check
	meter   *socketMeter     // nil: the network is the machine's
	fault   error            // the daemon's failure for which it killed the program
}

// endFrame is init's last frame.
type endFrame struct {
	status     syscall.WaitStatus
	byDeadline bool
	err        error // why no frame came
}

func newWatch(p *Process) *watch {
	limits := p.sandbox.spec.Limits
	w := &watch{p: p, frames: make(chan endFrame, 1), wall: time.NewTimer(time.Until(p.started.Add(limits.Wall)))}
	w.cpu, w.kill, w.force = stoppedTimer(), stoppedTimer(), stoppedTimer()
	if limits.CPU > 0 {
		w.cpu.Reset(minCPUPeriod)
	}
	w.sockets = stoppedTimer()
	if !unmetered(p.sandbox) {
		w.meter = newSocketMeter(p.sandbox.init.pid, p.sandbox.group.CPUTime, p.sandbox.host.programs)
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
	go func() { w.frames <- w.p.readEnd() }() // frames has room for it, so the goroutine ends in any case
	end := w.wait()
	w.meter.close() // the last holder of a namespace pays for its destruction
	if end.err == nil {
		w.p.sandbox.network.beginDetach() // init has no socket, and reports the end when no other process is left
		w.measure()                       // before init's end, which is not part of the program
	}
	err := w.p.reap()
	if end.err != nil {
		w.p.sandbox.network.beginDetach()
		w.measure()
	}
	if end.err != nil && !w.caused && w.exit.OOMKills == 0 {
		err = errors.Join(fmt.Errorf("%w: %s: %v", ErrLost, w.p.sandbox.spec.ID, end.err), err)
	}
	w.conclude(end)
	return errors.Join(w.fault, err)
}

// wait handles events until init reports the end or is gone.
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
		case <-w.p.sandbox.oom.Fired:
			w.oomTick = time.After(oomPeriod)
		case <-w.oomTick:
			w.checkOOM()
		case <-w.p.stop:
			w.end(Stopped, NoDeadline, w.p.graceLeft())
		case <-w.kill.C:
			w.killAll()
		case <-w.force.C:
			_ = w.p.sandbox.group.Kill() // the timer repeats a failed attempt
			w.force.Reset(killPatience)
		}
	}
}

// end ends the program for the given reason, after the grace period.
func (w *watch) end(reason End, d Deadline, grace time.Duration) {
	if !w.caused {
		w.caused, w.exit.End, w.exit.Deadline = true, reason, d
	}
	if grace <= 0 {
		w.killAll()
		return
	}
	if w.killAt.IsZero() { // only the first reason sends SIGTERM
		_ = w.p.sandbox.control.Write(pid1.FrameTerm, nil) // if init is gone, wait learns it from the frames
	}
	if at := time.Now().Add(grace); w.killAt.IsZero() || at.Before(w.killAt) {
		w.killAt = at
		w.kill.Reset(grace)
	}
}

// killAll has init kill all processes. If init can't, because it is gone or stopped, force
// fires and kills the cgroup.
func (w *watch) killAll() {
	_ = w.p.sandbox.control.Write(pid1.FrameKill, nil)
	w.force.Reset(killPatience)
}

// checkCPU ends a program that has used up its CPU time, or sets the timer for the earliest
// moment at which it could have: when it uses all processors from now on.
func (w *watch) checkCPU(limits Limits) {
	u := w.p.sandbox.group.CPUUsage()
	before := w.p.sandbox.before
	left := limits.CPU + before.CPU() - u.CPU()
	if left <= 0 {
		w.end(TimedOut, CPU, limits.Grace)
		return
	}
	w.cpu.Reset(min(max(left/time.Duration(runtime.NumCPU()), minCPUPeriod), maxCPUPeriod))
}

// checkSockets ends the program when its sockets hold too much, see socketMeter.exceeds.
func (w *watch) checkSockets(limits Limits) {
	begin := time.Now()
	over, err := w.meter.exceeds(limits.MemoryBytes)
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH): // init is gone; wait learns it from the frames
	case err != nil:
		w.fault = fmt.Errorf("%w: %w", ErrUnwatched, err)
		w.killAll()
	case over:
		w.end(OOMKilled, NoDeadline, 0)
	default:
		w.sockets.Reset(max(socketPeriod, socketRest*time.Since(begin)))
	}
}

// checkOOM ends the whole program after the kernel has killed one of its processes for
// memory. Only cgroup v1 needs it: on v2 the kernel itself kills the whole group
// (memory.oom.group).
func (w *watch) checkOOM() {
	kills, err := w.p.sandbox.group.OOMKills()
	if err == nil && kills > 0 {
		w.end(OOMKilled, NoDeadline, 0)
		w.oomTick = nil
		return
	}
	w.oomTick = time.After(oomPeriod)
}

// measure reads the kernel's counters. Only init can still be alive.
func (w *watch) measure() {
	g := w.p.sandbox.group
	u := g.Usage().Since(w.p.sandbox.before)
	w.exit.Usage = Usage{UserCPU: u.UserCPU, SystemCPU: u.SystemCPU, MemoryPeakBytes: u.MemoryPeakBytes}
	if w.exit.OOMKills, _ = g.OOMKills(); w.exit.OOMKills > 0 {
		w.exit.OOMScope = w.p.sandbox.oomScope()
	}
	w.exit.PidsMax = g.RefusedForks()
	w.exit.PidsOfGroup = w.exit.PidsMax > 0 && g.NeverFull()
}

// conclude fills in the Exit from the wait status and the counters.
func (w *watch) conclude(end endFrame) {
	if end.err == nil {
		if end.status.Signaled() {
			w.exit.Signal = end.status.Signal()
		} else {
			w.exit.Code = end.status.ExitStatus()
		}
	} else {
		w.exit.Signal = syscall.SIGKILL // init was killed, and every process with it
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
	words, err := p.sandbox.control.Expect(pid1.FrameEnd, 2)
	if err != nil {
		return endFrame{err: err}
	}
	return endOf(int(words[0]), words[1] != 0)
}

// endOf returns the endFrame of a wait status that init or a Python zygote reported.
func endOf(status int, byDeadline bool) endFrame {
	s, err := pid1.EndStatus(status)
	return endFrame{status: s, byDeadline: byDeadline, err: err}
}

// readForkedEnd waits for the end of a process that a Python zygote forked, and then for
// init's last frame. The Python zygote reports the process's wait status.
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
	case status, known = <-c.forked.Ended():
	case <-gone:
		return endFrame{err: errors.New("init is gone")}
	}
	_ = c.control.Write(pid1.FrameFinish, nil) // if init is gone, expect fails
	words, err := c.control.Expect(pid1.FrameEnd, 2)
	switch {
	case err != nil:
		return endFrame{err: err}
	case !known:
		return endFrame{err: errors.New("its Python zygote is gone")}
	}
	return endOf(status, words[1] != 0)
}

// reap waits for init's end, with which the kernel ends every process of the sandbox.
func (p *Process) reap() error {
	force := time.AfterFunc(killPatience, func() { _ = p.sandbox.group.Kill() })
	defer force.Stop()
	return p.sandbox.init.wait()
}
