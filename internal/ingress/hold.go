package ingress

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"
)

// A Group has the listeners of one server. The zero Group is ready to use.
type Group struct {
	Limits Limits // of each listener

	mu  sync.Mutex
	all []*Listener
}

// Listen is the function Listen for a listener of the group.
func (g *Group) Listen(l net.Listener, log *slog.Logger) *Listener {
	n := Listen(l, g.Limits, log)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = append(g.all, n)
	return n
}

// Hold calls Hold of each listener in the group.
func (g *Group) Hold(ctx context.Context) error {
	g.mu.Lock()
	all := g.all
	g.mu.Unlock()
	var errs []error
	for _, l := range all {
		errs = append(errs, l.Hold(ctx))
	}
	return errors.Join(errs...)
}

// Hold stops accepting. New connections wait in the kernel (listen(2)) until a process accepts them that has
// the same socket. The open connections stay. Hold returns when a server has begun to read each of them, or
// with an error when ctx is done. Until then the server must not stop: gRPC closes an accepted connection
// that it has not begun to read when it stops. A server must be calling Accept.
func (l *Listener) Hold(ctx context.Context) error {
	inner := l.Listener
	if secure, ok := inner.(*secureListener); ok {
		inner = secure.Listener
	}
	timed, ok := inner.(interface{ SetDeadline(time.Time) error })
	if !ok {
		return errors.New("a listener that can't be held")
	}
	if err := timed.SetDeadline(time.Unix(1, 0)); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.changed.Broadcast()
	})()
	l.mu.Lock()
	defer l.mu.Unlock()
	for (!l.held || l.unread > 0) && ctx.Err() == nil {
		l.changed.Wait()
	}
	return ctx.Err()
}

// untilClosed keeps Accept from returning while the listener is held: servers take an error for the end.
func (l *Listener) untilClosed() error {
	l.mu.Lock()
	l.held = true
	l.changed.Broadcast()
	l.mu.Unlock()
	<-l.closed
	return net.ErrClosed
}

// read notes that a server reads a connection, or has closed it. l.mu is held.
func (l *Listener) read(c *Conn) {
	if c.unread {
		c.unread = false
		l.unread--
		l.changed.Broadcast()
	}
}

// Close closes the listener. The connections stay open.
func (l *Listener) Close() error { return l.close() }
