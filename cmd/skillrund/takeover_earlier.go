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

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/failpoint"
	"github.com/skillrun/skillrun/internal/metrics"
)

const (
	// nextPatience bounds the start of the next daemon, which unpacks images and probes the machine. The earlier
	// daemon serves during that time.
	nextPatience = 2 * time.Minute
	// servingPatience bounds the time from the start of the hand-over until the next daemon serves. New connections wait
	// in the kernel during that time.
	servingPatience = 30 * time.Second
	// unreadPatience bounds the wait for a call that the next daemon has made in time. If this process was stopped for
	// longer than servingPatience, it has not read the call when it goes on.
	unreadPatience = time.Second
	// scrapePatience bounds the wait for readers of metrics and health.
	scrapePatience = 3 * time.Second
	// resumeAttempts and resumeInterval bound the attempts to take a part of the state back.
	resumeAttempts = 10
	resumeInterval = 100 * time.Millisecond
	// uploadPatience bounds the wait for uploads, which the next daemon can't go on with. New callers wait, too, and a
	// gRPC client gives up a connection after 20 s.
	uploadPatience = 5 * time.Second
	// forwardPatience bounds the wait for calls that this daemon forwards, from the beginning of the drain on. Many of
	// them wait for a session, so a short drain does not bound their time.
	forwardPatience = time.Minute
)

// A nextDaemon is the daemon that takes over from this one.
type nextDaemon struct {
	d     *daemon
	cmd   *exec.Cmd
	calls *rpc.Client // calls to the next daemon
	// clients leads to the next daemon for calls of clients, see server.HandOver.
	clients *net.UnixConn

	ready   chan struct{} // closed when the next daemon calls Await
	serving chan struct{} // closed when the next daemon calls Serving, or this one has given up
	serves  bool          // the next daemon has called Serving in time; to be read when serving is closed
	gone    chan struct{} // closed when its process has ended
	once    struct{ ready, serving sync.Once }
	unread  time.Duration // see unreadPatience
	// handed gets the answer to Await. It is closed without a value if this daemon does not hand over.
	handed chan handedOver
}

// startNext starts the next daemon, and returns when that daemon is ready to take over. This daemon serves during
// the start. With an error the process of the next daemon has ended.
func (d *daemon) startNext(ctx context.Context) (_ *nextDaemon, err error) {
	n := &nextDaemon{d: d, ready: make(chan struct{}), serving: make(chan struct{}), gone: make(chan struct{}), handed: make(chan handedOver, 1),
		unread: unreadPatience}
	defer func() {
		if err != nil {
			n.end()
		}
	}()
	// The next daemon compares its configuration with inForceFile, which may be missing or damaged by now.
	d.tenants.mu.Lock()
	d.writeInForce()
	d.tenants.mu.Unlock()
	if err := n.start(); err != nil {
		return n, err
	}
	patience, cancel := context.WithTimeout(ctx, nextPatience)
	defer cancel()
	select {
	case <-n.ready:
		return n, nil
	case <-n.gone:
		return n, fmt.Errorf("the next daemon ended with %v; its messages are above", n.cmd.ProcessState)
	case <-patience.Done():
		return n, fmt.Errorf("the next daemon was not ready within %v", nextPatience)
	}
}

// start starts the process of the next daemon, with copies of this daemon's listening sockets. Both daemons then
// share each socket and its queue of connections, so no connection is refused while neither accepts.
func (n *nextDaemon) start() error {
	var ours [3]*net.UnixConn
	var files []*os.File // the next daemon's ends, in the order of toEarlier, fromEarlier and fromClients
	started := false
	defer func() {
		closeFiles(files)
		for _, c := range ours {
			if c != nil && !started {
				c.Close()
			}
		}
	}()
	for i, kind := range []int{unix.SOCK_STREAM, unix.SOCK_STREAM, unix.SOCK_SEQPACKET} {
		c, theirs, err := socketPair(kind)
		if err != nil {
			return err
		}
		ours[i], files = c, append(files, theirs)
	}
	sockets, err := n.d.listeners.files()
	defer closeFiles(sockets)
	if err != nil {
		return err
	}
	n.cmd = exec.Command(n.d.program, os.Args[1:]...)
	n.cmd.Stdout, n.cmd.Stderr = os.Stderr, os.Stderr
	n.cmd.Env = append(os.Environ(), takeoverVar+"="+takeoverValue(len(sockets), n.d.listeners.stay))
	n.cmd.ExtraFiles = slices.Concat(files, []*os.File{n.d.lock}, sockets)
	if err := n.cmd.Start(); err != nil {
		n.cmd = nil
		return err
	}
	started = true
	go func() { n.cmd.Wait(); close(n.gone) }()
	n.calls, n.clients = newCalls(ours[1]), ours[2]
	go serveCalls(ours[0], n.earlierCalls())
	return nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// end ends the next daemon after a failure. A kill is safe, because that daemon has started no execution.
func (n *nextDaemon) end() {
	close(n.handed)
	if n.cmd == nil {
		return
	}
	n.calls.Close()
	n.clients.Close()
	n.cmd.Process.Kill()
	<-n.gone
}

// earlierCalls returns the methods that the next daemon calls.
func (n *nextDaemon) earlierCalls() map[string]peerMethod {
	return map[string]peerMethod{
		callAwait:   methodOf(func(nothing) (handedOver, error) { return n.await() }),
		callServing: methodOf(func(nothing) (nothing, error) { return nothing{}, n.nowServes() }),
		// The next daemon has checked the callers.
		callCancel: withoutReply(func(c cancelCall) { n.d.executor.CancelHere(c.ID, c.By, c.Reason, c.Grace) }),
		callSignal: methodOf(func(c signalCall) (running bool, _ error) {
			ctx, cancel := context.WithTimeout(context.Background(), peerPatience)
			defer cancel()
			return n.d.executor.SignalHere(ctx, c.ID, c.Signal), nil
		}),
	}
}

// errGivenUp tells the next daemon to exit.
var errGivenUp = errors.New("the earlier daemon has given up the takeover and continues to serve")

// await notes that the next daemon is ready. It returns when this daemon has handed over. With an error this daemon
// goes on, and the next one must exit.
func (n *nextDaemon) await() (handedOver, error) {
	n.once.ready.Do(func() { close(n.ready) })
	h, ok := <-n.handed
	if !ok {
		return h, errGivenUp
	}
	return h, nil
}

// nowServes notes that the next daemon accepts connections. With an error the next daemon must exit: this daemon has
// given up before, in awaitServing, and serves again.
func (n *nextDaemon) nowServes() error {
	failpoint.Reach(failpoint.DuringServing)
	n.once.serving.Do(func() {
		n.serves = true
		close(n.serving)
	})
	if !n.serves {
		return errGivenUp
	}
	return nil
}

// Started implements executor.Successor.
func (n *nextDaemon) Started(e executor.Inherited) { n.notify(callStarted, e) }

// Ended implements executor.Successor.
func (n *nextDaemon) Ended(id string) { n.notify(callEnded, id) }

// notify calls a method of the next daemon without waiting for the answer, because an execution must not wait for
// another daemon. If the call is lost, the next daemon has died, or adopts the execution when this daemon ends.
func (n *nextDaemon) notify(method string, args any) {
	go n.calls.Call(method, args, &nothing{}) // the socket is full while the next daemon starts slowly
}

// released tells the next daemon that a session is free, and waits for the answer. The executor reports the
// outcome after that: a client that has the outcome must find the new version of the session in the next daemon.
func (n *nextDaemon) released(tenant, id string) {
	_ = callPeer(n.calls, callReleased, sessionName{tenant, id}, &nothing{}) // see notify
}

// handOver hands sockets and state to the next daemon, and returns nil when that daemon serves. After an error this
// daemon serves again, unless the error is a notTakenBack. The end of until ends the hand-over with an error.
func (d *daemon) handOver(ctx, until context.Context, n *nextDaemon) error {
	sockets, err := d.listeners.files()
	defer closeFiles(sockets)
	if err != nil {
		n.end()
		return err
	}
	began := time.Now()
	d.listeners.removeNames(false) // the socket files must stay when the servers close their listeners
	clients := d.leaveForNext(until)
	patience, cancel := context.WithTimeoutCause(until, servingPatience, fmt.Errorf("the next daemon did not serve within %v", servingPatience))
	defer cancel()
	handed, resumeStores, err := d.handOverStores(patience, n)
	if err == nil {
		failpoint.Reach(failpoint.DuringHandOver)
		n.handed <- handed
		if err = n.awaitServing(patience); err == nil {
			failpoint.Reach(failpoint.AfterServing)
			clients(n.clients)
			d.stopScrapes(ctx)
			d.log.Info("takeover: the next daemon serves", "pid", n.cmd.Process.Pid, "executions_left", len(handed.Executions),
				"callers_waited_ms", time.Since(began).Milliseconds())
			return nil
		}
	}
	n.end()
	err = errors.Join(err, d.resume(ctx, resumeStores, sockets))
	clients(nil)
	return err
}

// awaitServing waits until the next daemon serves. With an error, nowServes has failed or will fail, or the process of
// the next daemon has ended. A next daemon that has called Serving may have ended since, for example while this daemon
// was stopped.
func (n *nextDaemon) awaitServing(patience context.Context) error {
	select {
	case <-n.serving:
	case <-n.gone:
	case <-patience.Done():
		select {
		case <-n.serving:
		case <-n.gone:
		case <-time.After(n.unread):
		}
	}
	n.once.serving.Do(func() { close(n.serving) }) // gives up, unless the next daemon has called Serving
	select {
	case <-n.gone:
		return fmt.Errorf("the next daemon ended with %v; its messages are above", n.cmd.ProcessState)
	default:
	}
	if !n.serves {
		return context.Cause(patience)
	}
	return nil
}

// awaitForwarded waits for the answers of forwarded calls, for forwardPatience or for twice the drain, whichever is
// longer.
func (d *daemon) awaitForwarded(ctx context.Context, began time.Time) {
	ctx, cancel := context.WithDeadline(ctx, began.Add(max(forwardPatience, 2*time.Duration(d.config.Drain))))
	defer cancel()
	if d.server.AwaitForwarded(ctx) != nil {
		d.log.Warn("takeover: the next daemon has not answered some calls in time; their clients lose the connection and must ask again")
	}
}

// awaitBuilds waits for builds of packages, which may be under way or wait for others. Each may take
// environments.wall_time.
func (d *daemon) awaitBuilds(ctx context.Context) {
	n := d.environments.Builds()
	if n == 0 {
		return
	}
	d.log.Info("takeover: builds of packages go on here until they end", "builds", n)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(d.config.Environments.WallTime))
	defer cancel()
	if left := d.environments.AwaitBuilds(ctx); left > 0 {
		d.log.Warn("takeover: builds of packages have not ended in environments.wall_time; their clients must prepare again", "builds", left)
	}
}

// stopScrapes leaves the listener of metrics and health to the next daemon: readers must not learn that this one
// drains.
func (d *daemon) stopScrapes(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, scrapePatience)
	defer cancel()
	d.scrapes.Stop(ctx)
}

// leaveForNext stops accepting, so that new connections wait in the kernel for the next daemon. It asks clients to
// leave their open connections. Calls that still come there wait until end is called, see server.HandOver.
func (d *daemon) leaveForNext(ctx context.Context) (end func(next *net.UnixConn)) {
	ctx, cancel := context.WithTimeout(ctx, uploadPatience)
	defer cancel()
	if err := d.mcp.Hold(ctx); err != nil {
		d.log.Warn("takeover: new connections of MCP can be refused", "err", err)
	}
	end = d.server.HandOver()
	d.server.Leave(ctx)
	if d.server.AwaitUnforwardable(ctx) != nil {
		d.log.Warn("takeover: uploads have not ended in time; they may be refused, and their clients must repeat them")
	}
	return end
}

// resume takes back the parts that were handed over, and serves again. sockets are copies of the listening sockets,
// because the servers have closed their own. resumeStores is the function that handOverStores has returned. The next
// daemon may have served for a moment: its sandboxes are removed, and its executions end as DAEMON_LOST.
func (d *daemon) resume(ctx context.Context, resumeStores func() error, sockets []*os.File) error {
	d.sweepNext(ctx)
	err := resumeStores()
	again, reopenErr := d.listeners.reopen(sockets)
	stop := d.stopper()
	if err := errors.Join(err, reopenErr, d.openServers()); err != nil {
		again.close()
		return &notTakenBack{err}
	}
	// Calls that the old servers have accepted go on.
	former, end := context.WithCancel(context.WithoutCancel(ctx))
	d.endFormer = append(d.endFormer, end)
	d.serving.Go(func() { stop(former) })
	d.accept(again)
	return nil
}

// A takeoverState says whether a takeover is wanted, or a next daemon starts. It has no lock: only untilStop uses it.
type takeoverState struct {
	wanted  bool             // a takeover begins when the state of the earlier daemon is adopted
	started chan startedNext // gets the result of the start; nil: no next daemon starts
	stop    context.CancelFunc
}

type startedNext struct {
	next *nextDaemon
	err  error
}

// ask begins a takeover. Two daemons at most can share the state. So until the state of an earlier daemon is
// adopted, ask only notes that a takeover is wanted.
func (t *takeoverState) ask(ctx context.Context, d *daemon) {
	switch {
	case t.started != nil:
		d.log.Info("takeover: the next daemon is starting already")
	case os.Getpid() == 1:
		// The kernel ends all processes of a PID namespace with its first one (pid_namespaces(7)).
		d.log.Error("takeover: this daemon is the first process of its container, which would end with it; restart the container instead")
	case d.inherits():
		t.wanted = true
		d.log.Info("takeover: will begin when the earlier daemon has ended", "at_most_ms", max(forwardPatience, 2*time.Duration(d.config.Drain)).Milliseconds())
	default:
		t.begin(ctx, d)
	}
}

// inherits reports whether this daemon has not adopted all state of the daemon from which it took over.
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

// mayBegin returns a channel that is closed when the wanted takeover may begin. Nil: no takeover is wanted.
func (t *takeoverState) mayBegin(d *daemon) <-chan struct{} {
	if !t.wanted {
		return nil
	}
	return d.adopted
}

// begin starts the next daemon in the background. This daemon serves during the start.
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

// finish hands over to a next daemon whose start has ended. handed reports whether the next daemon serves. If it
// does not, this daemon goes on; fatal is set only if this daemon cannot go on either. A signal in stop ends the
// hand-over, and stays in stop for the caller.
func (t *takeoverState) finish(ctx context.Context, d *daemon, s startedNext, stop chan os.Signal) (handed bool, fatal error) {
	t.stop()
	t.started = nil
	if s.err != nil {
		d.sweepNext(ctx)
		d.metrics.Takeover(metrics.NotStarted)
		d.log.Error("takeover: the next daemon did not start; this daemon continues to serve", "err", s.err)
		return false, nil
	}
	until, end := d.untilSignal(ctx, stop)
	err := d.handOver(ctx, until, s.next)
	end()
	if lost, ok := errors.AsType[*notTakenBack](err); ok {
		return false, lost
	}
	if err != nil {
		d.metrics.Takeover(metrics.NotServed)
		d.log.Error("takeover: the next daemon does not serve; this daemon continues to serve", "err", err)
		return false, nil
	}
	return true, nil
}

// untilSignal returns a context that ends with the first signal in stop. At the second signal the daemon exits. end
// ends the wait, and leaves a first signal in stop.
func (d *daemon) untilSignal(ctx context.Context, stop chan os.Signal) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	over := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case s := <-stop:
			cancel(fmt.Errorf("this daemon stops: %v", s))
			select {
			case s := <-stop:
				d.exit(s)
			case <-over:
			}
			select {
			case stop <- s:
			default: // stop is full of other signals
			}
		case <-over:
		}
	})
	return ctx, func() { close(over); waiting.Wait(); cancel(nil) }
}

// sweepNext removes the sandboxes of a next daemon that has ended.
func (d *daemon) sweepNext(ctx context.Context) {
	if err := d.host.Sweep(ctx); err != nil {
		d.log.Warn("takeover: sandboxes of the next daemon remain until the next takeover or restart", "err", err)
	}
}

// abandon ends a next daemon that is still starting, for example because this daemon stops.
func (t *takeoverState) abandon(ctx context.Context, d *daemon) {
	if t.started == nil {
		return
	}
	t.stop()
	if s := <-t.started; s.err == nil {
		s.next.end()
	}
	d.sweepNext(ctx)
}

// A notTakenBack says that a takeover failed and this daemon could not take its sockets or its state back. The
// daemon can't serve without them and must exit.
type notTakenBack struct{ err error }

func (e *notTakenBack) Error() string {
	return "takeover: sockets or state not taken back: " + e.err.Error()
}

// A handing hands over one part of the state that only one daemon at a time may change.
type handing struct {
	handOver func(context.Context) error
	resume   func() error
}

// resumePart calls resume until it succeeds, at most resumeAttempts times. Without a part of its state the daemon would have
// to exit, with all executions, and some errors pass: the process may have had no descriptor left.
func resumePart(resume func() error) error {
	for attempt := 1; ; attempt++ {
		err := resume()
		if err == nil || attempt == resumeAttempts || !durable.MayPass(err) {
			return err
		}
		time.Sleep(resumeInterval)
	}
}

// handings returns all parts in the order of the hand-over. A part comes after its users: for example, the executor
// uses the sessions and the record, and no execution may start when these no longer belong to this daemon.
func (d *daemon) handings(n *nextDaemon, h *handedOver) []handing {
	return []handing{
		{
			func(context.Context) error { h.Agents = d.mcp.HandOver(); return nil },
			func() error { d.agents = h.Agents; return nil }, // for openServers
		},
		{
			// The next daemon reloads tenants, perhaps with another configuration, and writes inForceFile.
			func(context.Context) error { d.tenants.handed.Store(true); return nil },
			func() error { d.resumeTenants(context.Background()); return nil },
		},
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
	}
}

// handOverStores hands over all parts, up to the first that fails. resume takes them back in the reverse order; it is
// valid with an error, too.
func (d *daemon) handOverStores(ctx context.Context, n *nextDaemon) (h handedOver, resume func() error, err error) {
	h.OwnSockets = d.listeners.own()
	var done []handing
	resume = func() (err error) {
		for _, p := range slices.Backward(done) {
			err = errors.Join(err, resumePart(p.resume))
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
