// Package ingress is what comes before every request, whatever protocol it speaks:
// listeners that know who is at the other end of a connection, and how many
// connections there may be of one caller and of all.
package ingress

import (
	"log/slog"
	"net"
	"sync"
	"time"
)

// Bounds on connections.
const (
	MaxConnections     = 256 // of one listener
	MaxPeerConnections = 128 // of one caller: a user, or an address
	// HelloTimeout is how long a new connection may take for what its protocol begins
	// with: HTTP/2's preface and settings, or the header of an HTTP/1 request. Servers set
	// it as a deadline, which no trickle of bytes puts off.
	HelloTimeout = 5 * time.Second
	// logInterval is between two lines of the log about connections that had no room.
	logInterval = time.Second
)

// A Listener bounds the connections of another one. A connection that comes in beyond
// the bound of its caller, or of all, takes the room of one that no request is under way
// on; if there is none such it is closed at once. So those who only hold connections keep
// nobody out, and a caller who is refused knows it.
type Listener struct {
	net.Listener
	log *slog.Logger

	mu      sync.Mutex
	open    map[*Conn]struct{}
	peers   map[string]int // open ones; no zeros
	refused int            // since the log was told
	ended   int            // to make room, since the log was told
	told    time.Time
}

// Listen makes a Listener of l. Its connections are Conns.
func Listen(l net.Listener, log *slog.Logger) *Listener {
	return &Listener{Listener: l, log: log, open: map[*Conn]struct{}{}, peers: map[string]int{}}
}

// Accept returns the next connection for which there is room.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		addr := addressOf(conn)
		c := &Conn{Conn: conn, listener: l, addr: addr, peer: peerName(addr), since: time.Now()}
		out, ok := l.enter(c)
		if out != nil {
			out.Conn.Close()
		}
		if ok {
			return c, nil
		}
		conn.Close()
	}
}

// enter counts a connection and returns the one that has to go for it, or nil. Not ok:
// there is no room for it.
func (l *Listener) enter(c *Conn) (out *Conn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	full := l.peers[c.peer] >= MaxPeerConnections
	if full || len(l.open) >= MaxConnections {
		if out = l.spare(c, full); out == nil {
			l.refused++
			l.tell(c.peer)
			return nil, false
		}
		l.remove(out)
		l.ended++
		l.tell(out.peer)
	}
	l.open[c] = struct{}{}
	l.peers[c.peer]++
	return out, true
}

// spare returns the connection that is missed least for c to have its room: of who has
// the most connections, one that never had a request before one that had, and the one
// that has waited for longest. With own it is one of c's caller. Nil: all are in use, or
// are of callers who have no more than c's has.
func (l *Listener) spare(c *Conn, own bool) (best *Conn) {
	for o := range l.open {
		switch {
		case o.requests > 0:
		case o.peer != c.peer && (own || l.peers[o.peer] <= l.peers[c.peer]):
		case best == nil || l.goesBefore(o, best):
			best = o
		}
	}
	return best
}

func (l *Listener) goesBefore(a, b *Conn) bool {
	if n, m := l.peers[a.peer], l.peers[b.peer]; n != m {
		return n > m
	}
	if a.asked != b.asked {
		return !a.asked
	}
	return a.since.Before(b.since)
}

// remove gives a connection's room back, once.
func (l *Listener) remove(c *Conn) {
	if _, ok := l.open[c]; !ok {
		return
	}
	delete(l.open, c)
	if l.peers[c.peer]--; l.peers[c.peer] == 0 {
		delete(l.peers, c.peer)
	}
}

// tell tells the log that there was no room, now and then.
func (l *Listener) tell(peer string) {
	now := time.Now()
	if now.Sub(l.told) < logInterval {
		return
	}
	l.log.Warn("too many connections", "peer", peer, "of_peer", l.peers[peer], "open", len(l.open), "refused", l.refused, "ended", l.ended)
	l.refused, l.ended, l.told = 0, 0, now
}

// A Conn is a connection that a Listener counts, from when it was accepted until it is
// closed.
type Conn struct {
	net.Conn
	listener *Listener
	addr     net.Addr
	peer     string

	// By listener.mu.
	requests int       // under way
	asked    bool      // had a request
	since    time.Time // accepted, or since the last request ended
}

// RemoteAddr is what Identify makes a principal of.
func (c *Conn) RemoteAddr() net.Addr { return c.addr }

// Peer is one name for all connections of a caller.
func (c *Conn) Peer() string { return c.peer }

// Begin says that a whole request has come, until end is called: such a connection is
// not closed to make room for another. A nil Conn begins nothing.
func (c *Conn) Begin() (end func()) {
	if c == nil {
		return func() {}
	}
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.requests++
	c.asked = true
	return sync.OnceFunc(func() {
		c.listener.mu.Lock()
		defer c.listener.mu.Unlock()
		c.requests--
		c.since = time.Now()
	})
}

// Close may be called more than once.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.listener.remove(c)
	return err
}
