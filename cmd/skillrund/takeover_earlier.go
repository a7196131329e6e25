package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/failpoint"
)

const (
	// nextPatience bounds the start of the next daemon. It unpacks images and probes the machine.
	nextPatience = 2 * time.Minute
	// servingPatience bounds the time from the hand-over until the next daemon serves. Callers wait meanwhile.
	servingPatience = 30 * time.Second
	// quietPatience bounds the wait for calls that are neither accepted nor refused yet. quietTime is the time
	// without a new call after which none is on its way: clients need one round trip to learn that they should
	// leave.
	quietPatience = 2 * time.Second
	quietTime     = 50 * time.Millisecond
)

// A nextDaemon is the daemon that takes over from this one.
type nextDaemon struct {
	d     *daemon
	cmd   *exec.Cmd
	calls *rpc.Client // to it

	ready   chan struct{} // closed when it calls Await
	serving chan struct{} // closed when it calls Serving
	gone    chan struct{} // closed when its process has ended
	once    struct{ ready, serving sync.Once }
	// handed has the answer to Await, or is closed if there is none.
	handed chan HandedOver
}

// startNext starts the next daemon. It returns when that daemon is ready to take over.
func (d *daemon) startNext(ctx context.Context) (_ *nextDaemon, err error) {
	n := &nextDaemon{d: d, ready: make(chan struct{}), serving: make(chan struct{}), gone: make(chan struct{}), handed: make(chan HandedOver, 1)}
	defer func() {
		if err != nil {
			n.end()
		}
	}()
	if err := n.start(); err != nil {
		return n, err
	}
	patience, cancel := context.WithTimeout(ctx, nextPatience)
	defer cancel()
	select {
	case <-n.ready:
		return n, nil
	case <-n.gone:
		return n, fmt.Errorf("it ended with %v; its messages are above", n.cmd.ProcessState)
	case <-patience.Done():
		return n, fmt.Errorf("it was not ready within %v", nextPatience)
	}
}

// start starts the process, with the sockets of this daemon.
func (n *nextDaemon) start() error {
	calls, theirs, err := socketPair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	answers, theirAnswers, err := socketPair()
	if err != nil {
		return errors.Join(err, calls.Close())
	}
	defer theirAnswers.Close()
	sockets, err := n.d.listeners.files()
	defer closeFiles(sockets)
	if err != nil {
		return errors.Join(err, calls.Close(), answers.Close())
	}
	n.cmd = exec.Command(n.d.program, os.Args[1:]...)
	n.cmd.Stdout, n.cmd.Stderr = os.Stderr, os.Stderr
	n.cmd.Env = append(os.Environ(), takeoverVar+"="+takeoverValue(len(sockets), n.d.listeners.stay))
	// In the order of toEarlier, fromEarlier and firstSocket.
	n.cmd.ExtraFiles = append([]*os.File{theirs, theirAnswers}, sockets...)
	if err := n.cmd.Start(); err != nil {
		n.cmd = nil
		return errors.Join(err, calls.Close(), answers.Close())
	}
	go func() { n.cmd.Wait(); close(n.gone) }()
	n.calls = rpc.NewClient(answers)
	s := rpc.NewServer()
	if err := s.RegisterName(earlierService, &earlierCalls{n}); err != nil {
		panic(err) // the methods have the wrong shape
	}
	go s.ServeConn(calls)
	return nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// end ends the next daemon after a failure. It is killed, because it has run nothing.
func (n *nextDaemon) end() {
	close(n.handed)
	if n.cmd == nil {
		return
	}
	n.calls.Close()
	n.cmd.Process.Kill()
	<-n.gone
}

// earlierCalls are the calls of the next daemon.
type earlierCalls struct{ n *nextDaemon }

// Await returns when this daemon has handed over.
func (e *earlierCalls) Await(_ Nothing, handed *HandedOver) error {
	e.n.once.ready.Do(func() { close(e.n.ready) })
	h, ok := <-e.n.handed
	if !ok {
		return errors.New("the earlier daemon goes on")
	}
	*handed = h
	return nil
}

// Serving notes that the next daemon accepts connections.
func (e *earlierCalls) Serving(Nothing, *Nothing) error {
	e.n.once.serving.Do(func() { close(e.n.serving) })
	return nil
}

// Cancel cancels an execution.
func (e *earlierCalls) Cancel(c CancelCall, _ *Nothing) error {
	e.n.d.executor.CancelHere(c.ID, c.By, c.Reason, c.Grace)
	return nil
}

// Signal sends a signal to a program.
func (e *earlierCalls) Signal(c SignalCall, running *bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), peerPatience)
	defer cancel()
	*running = e.n.d.executor.SignalHere(ctx, c.ID, c.Signal)
	return nil
}

// Started implements executor.Heir.
func (n *nextDaemon) Started(e executor.Inherited) { n.tell("Started", e) }

// Ended implements executor.Heir.
func (n *nextDaemon) Ended(id string) { n.tell("Ended", id) }

// tell does not wait for the answer: an execution must not wait for the other daemon.
func (n *nextDaemon) tell(method string, args any) {
	n.calls.Go(nextService+"."+method, args, &Nothing{}, make(chan *rpc.Call, 1))
}

// released tells that a session is free, and waits for the answer: the outcome of the execution comes next, and
// its reader must find the version in the next daemon.
func (n *nextDaemon) released(tenant, id string) {
	c := n.calls.Go(nextService+".Released", SessionName{tenant, id}, &Nothing{}, make(chan *rpc.Call, 1))
	select {
	case <-c.Done:
	case <-time.After(peerPatience):
	}
}

// handOver makes the next daemon serve. On an error this daemon serves again.
func (d *daemon) handOver(ctx context.Context, n *nextDaemon) error {
	sockets, err := d.listeners.files()
	defer closeFiles(sockets)
	if err != nil {
		n.end()
		return err
	}
	began := time.Now()
	d.listeners.leaveNames() // the servers close the listeners
	d.leaveForNext(ctx)
	handed, resumeStores, err := d.handOverStores(ctx, n)
	if err == nil {
		failpoint.Reach(failpoint.DuringHandOver)
		n.handed <- handed
		patience, cancel := context.WithTimeout(ctx, servingPatience)
		defer cancel()
		select {
		case <-n.serving:
			failpoint.Reach(failpoint.AfterServing)
			d.stopScrapes(ctx)
			d.log.Info("takeover: the next daemon serves", "pid", n.cmd.Process.Pid, "executions_left", len(handed.Executions),
				"callers_waited_ms", time.Since(began).Milliseconds())
			return nil
		case <-n.gone:
			err = fmt.Errorf("it ended with %v; its messages are above", n.cmd.ProcessState)
		case <-patience.Done():
			err = fmt.Errorf("it did not serve within %v", servingPatience)
		}
	}
	n.end()
	return errors.Join(err, d.resume(ctx, resumeStores, sockets))
}

// stopScrapes leaves the listener of metrics and health to the next daemon: readers must not learn that this one drains.
func (d *daemon) stopScrapes(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, quietPatience)
	defer cancel()
	d.scrapes.Stop(ctx)
}

// leaveForNext lets new connections wait in the kernel, asks clients to leave, and returns when no call is
// under way that has not been accepted, or after quietPatience. A call that comes later is refused with
// DRAINING: its client had the time to leave.
func (d *daemon) leaveForNext(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, quietPatience)
	defer cancel()
	if err := d.mcp.Hold(ctx); err != nil {
		d.log.Warn("takeover: new connections of MCP can be refused", "err", err)
	}
	d.server.Leave(ctx)
	look := time.NewTicker(quietTime / 10)
	defer look.Stop()
	for !d.server.Quiet(quietTime) || !d.mcp.Quiet(quietTime) {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// resume takes back what was handed over, and serves again. sockets are the ones that the servers have closed.
// The next daemon may have served for a moment: its sandboxes are removed, and its executions are lost.
func (d *daemon) resume(ctx context.Context, resumeStores func() error, sockets []*os.File) error {
	d.sweepNext(ctx)
	err := resumeStores()
	var again inherited
	for _, f := range sockets {
		l, openErr := net.FileListener(f)
		if err = errors.Join(err, openErr); openErr == nil {
			again = append(again, l)
		}
	}
	stop, stay := d.stopper(), d.listeners.stay
	if err := errors.Join(err, d.openServers()); err != nil {
		again.close()
		return &notTakenBack{err}
	}
	// The calls of the old servers may go on as long as in a drain.
	d.serving.Go(func() {
		patience, cancel := context.WithTimeout(context.Background(), time.Duration(d.config.Drain))
		defer cancel()
		stop(patience)
	})
	listeners, err := listenFrom(d.config, &again, d.log)
	again.close()
	if err != nil {
		return &notTakenBack{err}
	}
	listeners.stay = stay
	d.accept(listeners)
	return nil
}

// A takeoverState says whether a next daemon is wanted, or starts. Only untilStop uses it.
type takeoverState struct {
	wanted  bool             // as soon as the earlier daemon has ended
	started chan startedNext // gets a value when the start has ended; nil: none starts
	stop    context.CancelFunc
}

type startedNext struct {
	next *nextDaemon
	err  error
}

// ask begins a takeover, or notes that one is wanted.
func (t *takeoverState) ask(ctx context.Context, d *daemon) {
	switch {
	case t.started != nil:
		d.log.Info("takeover: the next daemon starts already")
	case d.inherits():
		t.wanted = true
		d.log.Info("takeover: begins when the earlier daemon has ended", "at_most_ms", time.Duration(d.config.Drain).Milliseconds())
	default:
		t.begin(ctx, d)
	}
}

// inherits reports whether the daemon from which this one took over has not ended.
func (d *daemon) inherits() bool {
	if d.adopted == nil {
		return false
	}
	select {
	case <-d.adopted:
		return false
	default:
		return true
	}
}

// mayBegin returns a channel that is closed when a takeover that is wanted may begin. Nil: none is wanted.
func (t *takeoverState) mayBegin(d *daemon) <-chan struct{} {
	if !t.wanted {
		return nil
	}
	return d.adopted
}

// begin starts the next daemon. This one serves meanwhile.
func (t *takeoverState) begin(ctx context.Context, d *daemon) {
	t.wanted = false
	t.started = make(chan startedNext, 1)
	ctx, t.stop = context.WithCancel(ctx)
	d.log.Info("takeover: starting the next daemon", "program", d.program)
	started := t.started
	go func() {
		n, err := d.startNext(ctx)
		started <- startedNext{n, err}
	}()
}

// finish hands over to a daemon that has started. handed: it serves. If this daemon cannot go on, finish returns
// an error.
func (t *takeoverState) finish(ctx context.Context, d *daemon, s startedNext) (handed bool, fatal error) {
	t.stop()
	t.started = nil
	if s.err != nil {
		d.sweepNext(ctx)
		d.log.Error("takeover: the next daemon did not start; this one goes on", "err", s.err)
		return false, nil
	}
	err := d.handOver(ctx, s.next)
	if lost, ok := errors.AsType[*notTakenBack](err); ok {
		return false, lost
	}
	if err != nil {
		d.log.Error("takeover: the next daemon does not serve; this one goes on", "err", err)
		return false, nil
	}
	return true, nil
}

// sweepNext removes the sandboxes of a next daemon that has ended.
func (d *daemon) sweepNext(ctx context.Context) {
	if err := d.host.Sweep(ctx); err != nil {
		d.log.Warn("takeover: sandboxes of the next daemon remain until the next takeover or restart", "err", err)
	}
}

// abandon ends a start that is under way.
func (t *takeoverState) abandon() {
	if t.started == nil {
		return
	}
	t.stop()
	if s := <-t.started; s.err == nil {
		s.next.end()
	}
}

// A notTakenBack says that this daemon can't serve any longer, because it could not take back what it had handed
// over.
type notTakenBack struct{ err error }

func (e *notTakenBack) Error() string { return "takeover: not taken back: " + e.err.Error() }

// A handing is a part that one daemon alone may change.
type handing struct {
	handOver func(context.Context) error
	resume   func() error
}

// handings are all parts, in the order in which they are handed over: the users of a part come before it.
func (d *daemon) handings(n *nextDaemon, h *HandedOver) []handing {
	return []handing{
		{
			func(context.Context) error { h.Executions = d.executor.HandOver(n); return nil },
			func() error { d.executor.Resume(context.Background()); return nil },
		},
		{
			func(ctx context.Context) (err error) {
				d.sessions.OnRelease(n.released)
				h.Sessions, err = d.sessions.HandOver(ctx)
				return err
			},
			d.sessions.Resume,
		},
		{d.skills.HandOver, d.skills.Resume},
		{d.environments.HandOver, d.environments.Resume},
		{
			func(context.Context) error { d.host.HandOver(); return nil },
			func() error { d.host.Resume(); return nil },
		},
		{d.record.HandOver, d.record.Resume},
		{func(context.Context) error { return d.audit.Share() }, d.audit.Own},
		{
			func(context.Context) error { d.unlock(); d.unlock = nil; return nil },
			d.lock,
		},
	}
}

// handOverStores hands over all parts. resume takes back those that were handed over, in the other order.
func (d *daemon) handOverStores(ctx context.Context, n *nextDaemon) (h HandedOver, resume func() error, err error) {
	var done []handing
	resume = func() (err error) {
		for _, p := range slices.Backward(done) {
			err = errors.Join(err, p.resume())
		}
		return err
	}
	for _, p := range d.handings(n, &h) {
		if err := p.handOver(ctx); err != nil {
			return h, resume, err
		}
		done = append(done, p)
	}
	return h, resume, nil
}
