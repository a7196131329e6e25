package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/session"
)

// An earlierDaemon is the daemon from which this one takes over.
type earlierDaemon struct {
	calls   *rpc.Client   // calls to the earlier daemon
	lock    *os.File      // has the lock of state_dir
	conn    net.Conn      // on which the earlier daemon calls this one
	clients *net.UnixConn // on which the earlier daemon forwards calls
	sockets inherited     // the listening sockets
	stay    bool          // the starter of the first daemon keeps the sockets open
	handed  handedOver    // set by await
}

// joinEarlier takes the inherited descriptors, and returns the daemon from which this one takes over. It returns nil
// in a plain start.
func joinEarlier() (_ *earlierDaemon, err error) {
	count, stay, ok, err := inheritedTakeover()
	if !ok || err != nil {
		return nil, err
	}
	e := &earlierDaemon{stay: stay}
	defer func() {
		if err != nil {
			e.sockets.close()
		}
	}()
	e.lock = os.NewFile(stateLock, "lock of state_dir")
	for n := range count {
		l, err := inheritOne(os.NewFile(uintptr(firstSocket+n), "socket"))
		if err != nil {
			return nil, fmt.Errorf("takeover: socket %d: %w", n, err)
		}
		e.sockets = append(e.sockets, listener{Listener: l})
	}
	c, err := fileConn(toEarlier)
	if err != nil {
		return nil, fmt.Errorf("takeover: %w", err)
	}
	e.calls = newCalls(c)
	if e.conn, err = fileConn(fromEarlier); err != nil {
		return nil, fmt.Errorf("takeover: %w", err)
	}
	if e.clients, err = fileConn(fromClients); err != nil {
		return nil, fmt.Errorf("takeover: %w", err)
	}
	return e, nil
}

// await tells the earlier daemon that this one is ready, and waits until the earlier daemon has handed over. await
// has no time limit: the earlier daemon ends this process if it does not hand over. On nil, await does nothing.
func (e *earlierDaemon) await() error {
	if e == nil {
		return nil
	}
	if err := e.calls.Call(callAwait, nothing{}, &e.handed); err != nil {
		return fmt.Errorf("takeover: %w", err)
	}
	for n, own := range e.handed.OwnSockets {
		e.sockets[n].own = own
	}
	return nil
}

// takeLock returns the file that holds the lock of state_dir. It returns an error if c has another value of a key that
// a takeover can't change, such as state_dir.
func (e *earlierDaemon) takeLock(c *config) (*os.File, error) {
	have, err := e.lock.Stat()
	if err != nil {
		return nil, fmt.Errorf("takeover: %w", err)
	}
	// The earlier daemon would end its executions in one directory, and this one would look for them in the other one.
	if here, err := os.Stat(filepath.Join(c.StateDir, lockName)); err != nil || !os.SameFile(have, here) {
		return nil, fmt.Errorf("takeover: state_dir has changed to %s; the change needs %s", c.StateDir, byRestart)
	}
	before, err := c.readInForce()
	if err != nil {
		return nil, fmt.Errorf("takeover: the configuration of the earlier daemon: %w", err)
	}
	if keys := before.changed(c)[byRestart]; len(keys) > 0 {
		return nil, fmt.Errorf("takeover: %s: the change needs %s", strings.Join(keys, ", "), byRestart)
	}
	return e.lock, nil
}

// sessions returns the sessions that executions of the earlier daemon may change. On nil the list is empty.
func (e *earlierDaemon) sessions() []session.Held {
	if e == nil {
		return nil
	}
	return e.handed.Sessions
}

// executions returns the executions of the earlier daemon that have not ended, and their ids. On nil both lists are
// empty.
func (e *earlierDaemon) executions() (all []executor.Inherited, ids []string) {
	if e == nil {
		return nil, nil
	}
	for _, x := range e.handed.Executions {
		ids = append(ids, x.ID)
	}
	return e.handed.Executions, ids
}

// Cancel implements executor.Earlier.
func (e *earlierDaemon) Cancel(id, by, reason string, grace time.Duration) error {
	return callPeer(e.calls, callCancel, cancelCall{id, by, reason, grace}, &nothing{})
}

// Signal implements executor.Earlier.
func (e *earlierDaemon) Signal(id string, sig syscall.Signal) (bool, error) {
	running := new(bool) // an answer that comes too late may still change it
	if err := callPeer(e.calls, callSignal, signalCall{id, sig}, running); err != nil {
		return false, err
	}
	return *running, nil
}

// nextCalls returns the methods that the earlier daemon calls. Each call reports an event, and has an empty reply.
func (d *daemon) nextCalls() map[string]peerMethod {
	return map[string]peerMethod{
		// An execution of the earlier daemon has got a slot. From now on it takes a slot of this daemon, so that both
		// daemons together run no more executions than one may.
		callStarted: withoutReply(d.executor.InheritedStarted),
		// An execution of the earlier daemon has ended. Its outcome is in the record.
		callEnded: withoutReply(d.executor.InheritedEnded),
		// The earlier daemon will change this session no more. The next execution may use it.
		callReleased: withoutReply(func(s sessionName) { d.sessions.Freed(s.Tenant, s.ID) }),
	}
}

// serving tells the earlier daemon that this one accepts connections, and waits for the answer. Before the answer,
// the earlier daemon may give up this takeover and kill this process; an answer that still comes then is an error. So
// serving has no time limit: if this daemon gave up, too, then both could end. If the earlier daemon dies, serving
// returns nil: it has handed over everything, and outlive notices the death, too. The earlier daemon closes the connection
// only by its death, so only an answer is a refusal. The kernel's error depends on what the earlier daemon had read: for a
// close with unread data it is ECONNRESET (unix(7)).
func (e *earlierDaemon) serving() error {
	err := e.calls.Call(callServing, nothing{}, &nothing{})
	if refused, ok := errors.AsType[rpc.ServerError](err); ok {
		return fmt.Errorf("takeover: %w", refused)
	}
	return nil
}

// outlive answers the calls of the earlier daemon until that daemon has ended, and then adopts the state that the
// earlier daemon leaves. It closes d.adopted when everything is adopted.
func (d *daemon) outlive(ctx context.Context, e *earlierDaemon) {
	serveCalls(e.conn, d.nextCalls())
	e.calls.Close()
	if adopt(ctx, d.log, d.adoptions()) {
		d.log.Info("takeover: the earlier daemon has ended")
		close(d.adopted)
	}
}

// adoptions returns the steps that make this daemon the only user of all state, after the earlier daemon has ended.
// The order matters: the sandboxes of the earlier daemon are removed first, because no program may still run when the
// record says that its execution has ended.
func (d *daemon) adoptions() []adoption {
	return []adoption{
		d.host.Sweep,
		func(context.Context) error { return d.audit.Own() },
		// The executor frees the slots of the executions also if the record is not adopted yet. It ends those in the record.
		func(ctx context.Context) error { return errors.Join(d.record.Adopt(ctx), d.executor.Adopt(ctx)) },
		d.sessions.Adopt,
		d.skills.Adopt,
		d.environments.Adopt,
		func(context.Context) error { return d.server.Adopt() },
		d.images.store.Adopt,
	}
}

// An adoption adopts a part of the state. It is called until it succeeds.
type adoption func(context.Context) error

// adoptInterval is the time after which adopt tries again. Most errors come from a full disk or a lack of descriptors.
const adoptInterval = 5 * time.Second

// adopt runs all steps. Each adoptInterval it repeats the steps that have failed, until all have succeeded or ctx is
// done. done reports whether all have succeeded.
func adopt(ctx context.Context, log *slog.Logger, steps []adoption) (done bool) {
	logged := ""
	for {
		var failed []adoption
		var errs error
		for _, step := range steps {
			if err := step(context.WithoutCancel(ctx)); err != nil {
				failed, errs = append(failed, step), errors.Join(errs, err)
			}
		}
		if errs == nil {
			return true
		}
		if logged != errs.Error() {
			logged = errs.Error()
			log.Error("takeover: some state of the earlier daemon is not adopted yet; the daemon tries again until it is", "err", errs)
		}
		steps = failed
		select {
		case <-time.After(adoptInterval):
		case <-ctx.Done():
			return false
		}
	}
}
