package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/session"
)

// An earlierDaemon is the daemon from which this one takes over.
type earlierDaemon struct {
	calls   *rpc.Client
	conn    net.Conn // for its calls
	sockets inherited
	stay    bool
	handed  HandedOver
}

// joinEarlier returns the daemon from which this one takes over. It returns nil in a plain start.
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
	for fd := toEarlier; fd < firstSocket+count; fd++ {
		unix.CloseOnExec(fd)
	}
	for n := range count {
		l, err := inheritOne(os.NewFile(uintptr(firstSocket+n), "socket"))
		if err != nil {
			return nil, fmt.Errorf("takeover: socket %d: %w", n, err)
		}
		e.sockets = append(e.sockets, l)
	}
	c, err := fileConn(toEarlier)
	if err != nil {
		return nil, fmt.Errorf("takeover: %w", err)
	}
	e.calls = rpc.NewClient(c)
	if e.conn, err = fileConn(fromEarlier); err != nil {
		return nil, fmt.Errorf("takeover: %w", err)
	}
	return e, nil
}

// await says that this daemon is ready, and waits until the earlier one has handed over. With nil it does
// nothing.
func (e *earlierDaemon) await() error {
	if e == nil {
		return nil
	}
	if err := e.calls.Call(earlierService+".Await", Nothing{}, &e.handed); err != nil {
		return fmt.Errorf("takeover: %w", err)
	}
	return nil
}

// sessions are the sessions in which executions of the earlier daemon work. With nil there are none.
func (e *earlierDaemon) sessions() []session.Held {
	if e == nil {
		return nil
	}
	return e.handed.Sessions
}

// executions are the executions of the earlier daemon, and their ids. With nil there are none.
func (e *earlierDaemon) executions() (all []executor.Inherited, ids []string) {
	if e == nil {
		return nil, nil
	}
	for _, x := range e.handed.Executions {
		ids = append(ids, x.ID)
	}
	return e.handed.Executions, ids
}

// call calls a method of the earlier daemon, for at most peerPatience.
func (e *earlierDaemon) call(method string, args, reply any) error {
	c := e.calls.Go(earlierService+"."+method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-c.Done:
		return c.Error
	case <-time.After(peerPatience):
		return fmt.Errorf("the earlier daemon does not answer %s", method)
	}
}

// Cancel implements executor.Earlier.
func (e *earlierDaemon) Cancel(id, by, reason string, grace time.Duration) error {
	return e.call("Cancel", CancelCall{id, by, reason, grace}, &Nothing{})
}

// Signal implements executor.Earlier.
func (e *earlierDaemon) Signal(id string, sig syscall.Signal) (running bool, err error) {
	return running, e.call("Signal", SignalCall{id, sig}, &running)
}

// nextCalls are the calls of the earlier daemon.
type nextCalls struct{ d *daemon }

// Started notes that an execution of the earlier daemon has got a slot.
func (n *nextCalls) Started(e executor.Inherited, _ *Nothing) error {
	n.d.executor.InheritedStarted(e)
	return nil
}

// Ended notes that an execution of the earlier daemon has ended.
func (n *nextCalls) Ended(id string, _ *Nothing) error {
	n.d.executor.InheritedEnded(id)
	return nil
}

// Released notes that a session has no writer in the earlier daemon any longer.
func (n *nextCalls) Released(s SessionName, _ *Nothing) error {
	n.d.sessions.Freed(s.Tenant, s.ID)
	return nil
}

// serving tells the earlier daemon that this one accepts connections, and returns when that is known.
func (e *earlierDaemon) serving() error {
	if err := e.call("Serving", Nothing{}, &Nothing{}); err != nil {
		return fmt.Errorf("takeover: %w", err)
	}
	return nil
}

// outlive answers the calls of the earlier daemon until that daemon has ended, and then adopts what it has
// left.
func (d *daemon) outlive(ctx context.Context, e *earlierDaemon) {
	s := rpc.NewServer()
	if err := s.RegisterName(nextService, &nextCalls{d}); err != nil {
		panic(err) // the methods have the wrong shape
	}
	s.ServeConn(e.conn) // until the end of the connection
	e.calls.Close()
	if err := d.adopt(context.WithoutCancel(ctx)); err != nil {
		d.log.Error("takeover: not everything of the earlier daemon could be adopted; restart the daemon when it is idle", "err", err)
	} else {
		d.log.Info("takeover: the earlier daemon has ended")
	}
	close(d.adopted)
}

// adopt makes this daemon the only one, after the earlier one has ended. First the sandboxes that it has left
// are removed, because no lost execution may run any longer when its record says that it has ended. A part whose
// adoption fails does not keep the others from theirs.
func (d *daemon) adopt(ctx context.Context) error {
	return errors.Join(
		d.host.Sweep(ctx),
		d.audit.Own(),
		d.record.Adopt(ctx),
		d.sessions.Adopt(ctx),
		d.executor.Adopt(ctx),
		d.skills.Adopt(ctx),
		d.environments.Adopt(ctx),
		d.server.Adopt(),
	)
}
