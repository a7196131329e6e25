// Package ingress accepts connections for all protocols of the daemon. Its [Listener] encrypts
// connections (see [Secure]), and limits the connections of each caller and of all callers. Package
// identity identifies the caller of a connection.
//
// Theory of operation. A caller that is not identified yet can only cost connections, handshakes and
// time, so these are bounded here, before a server sees a byte. Accept never waits: it takes a
// connection, replaces an idle one, or closes the new one. For this the Listener must know which
// connections are in use. A server calls [Conn.Begin] for each request, and the function that Begin
// returns at its end. The TLS handshake runs later, in the goroutine that serves the
// connection, so a slow handshake holds up no other connection. Which peer a connection counts for
// follows from its address alone: the uid on a Unix socket, the IP address on TCP. Names, tenants and
// roles come from package identity, for each request. When a server knows the tenant of a connection's
// first caller, it calls [Conn.Identified]. From then on the connection counts for this tenant and no longer for its
// address alone, because tenants can share an address, and one tenant can have many addresses.
package ingress

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/ingress/ratelimit"
)

// Limits on connections.
const (
	MaxUnidentified     = 256 // connections of one listener without an identified caller
	MaxPeerUnidentified = 128 // of these, the connections of one user or address
	// Defaults of Limits.
	DefaultConnections     = 1024
	DefaultPeerConnections = 512
	// HelloTimeout is how long a new connection may take for the first part of its
	// protocol: the TLS handshake, and HTTP/2's preface and settings, or the header of an
	// HTTP/1 request. Servers must set it as one deadline, so that a trickle of bytes does not
	// extend it.
	HelloTimeout = 5 * time.Second
	// logInterval is the minimum time between two log lines about too many connections, and
	// between two about failed handshakes.
	logInterval = time.Second
	// A TLS handshake takes about half a millisecond of processor time, before the caller has sent any
	// credential. So a caller may begin only some of them each second. A client needs one for each
	// connection, and keeps its connection for many calls.
	handshakesPerSecond = 50
	handshakeBurst      = 2 * MaxPeerUnidentified
)

// Limits bound the connections of one listener whose callers are identified.
type Limits struct {
	Connections     int // 0: DefaultConnections
	PeerConnections int // of one user or address in one tenant; 0: DefaultPeerConnections
}

// orDefault returns the limits, with defaults instead of zeros.
func (l Limits) orDefault() Limits {
	return Limits{Connections: cmp.Or(l.Connections, DefaultConnections), PeerConnections: cmp.Or(l.PeerConnections, DefaultPeerConnections)}
}

// A FullError says that an identified caller can't have another connection now.
type FullError struct {
	Limits
	OfPeer bool // the limit is PeerConnections, which only the caller's own connections use up
}

func (e *FullError) Error() string {
	if e.OfPeer {
		return fmt.Sprintf("your %d connections are all in use, and listen.peer_connections allows no more; end one or try again later", e.PeerConnections)
	}
	return fmt.Sprintf("all %d connections are in use (listen.connections); try again later", e.Connections)
}

// A Listener limits the connections of another listener, and the TLS handshakes of each caller. A connection beyond
// the limit of its caller, or of all callers, replaces an idle connection. If all are in use, it
// is closed at once. So a caller that only holds connections open does not lock others out.
//
// Connections with an identified caller have separate Limits. A connection beyond these replaces an idle connection of a
// tenant that has more connections, or else a connection in use of the tenant with the most. If there is no such
// connection, Identified refuses the new one.
type Listener struct {
	net.Listener
	limits Limits
	config *tls.Config // nil: connections are not encrypted
	log    *slog.Logger

	// mu guards the fields below, and some fields of each Conn; their comments say so.
	mu   sync.Mutex
	open map[*Conn]struct{}
	// Numbers of open connections; no zeros. peers counts connections without an identified caller. members and tenants
	// count identified ones, and identified is the sum of these.
	peers      map[string]int
	members    map[member]int
	tenants    map[string]int
	identified int
	refused    int // refused connections since the last log line
	ended      int // replaced connections since the last log line
	loggedAt   time.Time
	handshakes *ratelimit.Peers
	// Handshakes that failed since the last log line about them.
	failed         int
	failedLoggedAt time.Time
	// For Hold (hold.go). changed tells of changes of the other two.
	changed *sync.Cond
	unread  int  // open connections of which no server has read anything
	held    bool // Accept has seen Hold, and accepts nothing any longer
	closed  chan struct{}
	close   func() error
}

// A member is a user or address together with the tenant that it calls for.
type member struct{ tenant, peer string }

// Listen returns a Listener for l, which may be a listener of [Secure]. Its connections have the
// type *Conn.
func Listen(l net.Listener, limits Limits, log *slog.Logger) *Listener {
	n := &Listener{
		Listener: l, limits: limits.orDefault(), log: log, open: map[*Conn]struct{}{},
		peers: map[string]int{}, members: map[member]int{}, tenants: map[string]int{}, closed: make(chan struct{}),
		handshakes: ratelimit.New(handshakesPerSecond, handshakeBurst),
	}
	n.changed = sync.NewCond(&n.mu)
	n.close = sync.OnceValue(func() error { close(n.closed); return l.Close() })
	if secure, ok := l.(*secureListener); ok {
		n.config = secure.config
	}
	return n
}

// Accept returns the next connection that is within the limits. It closes refused connections, and it
// does not wait for a connection to end. The connection counts until the caller closes it.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if errors.Is(err, os.ErrDeadlineExceeded) { // only Hold sets a deadline
			return nil, l.untilClosed()
		}
		if err != nil {
			return nil, err
		}
		addr := addressOf(conn)
		c := &Conn{Conn: conn, listener: l, raw: conn, addr: addr, peer: peerName(addr), since: time.Now()}
		if l.config != nil {
			c.secure = tls.Server(conn, l.config)
			c.Conn = c.secure
		}
		if f, ok := conn.(*forwardedConn); ok {
			c.forwarded, c.forwardedTLS = true, f.tls
		}
		out, ok := l.enter(c)
		if out != nil {
			// Not out.Conn: TLS would try for 5 s to send its last message to a client that does not read.
			out.raw.Close()
		}
		if ok {
			return c, nil
		}
		conn.Close()
	}
}

// enter registers a connection and returns the connection that it replaces, or nil. ok is
// false if all connections are in use, or if the caller has begun too many TLS handshakes.
func (l *Listener) enter(c *Conn) (out *Conn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.secure != nil && !l.handshakes.Take(c.peer, c.since) {
		l.refused++
		l.logReplaced(c)
		return nil, false
	}
	full := l.peers[c.peer] >= MaxPeerUnidentified
	if !c.forwarded && (full || len(l.open)-l.identified >= MaxUnidentified) {
		if out = l.unidentifiedVictim(c, full); out == nil {
			l.refused++
			l.logReplaced(c)
			return nil, false
		}
		l.replace(out)
	}
	l.open[c] = struct{}{}
	c.unread = true
	l.unread++
	l.peers[c.peer]++
	return out, true
}

// identify counts a connection for a tenant and returns the connection that makes room for it, or nil.
func (l *Listener) identify(c *Conn, tenant string) (out *Conn, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.open[c]; !ok || c.tenant != "" || tenant == "" {
		return nil, nil
	}
	m := member{tenant, c.peer}
	own := l.members[m] >= l.limits.PeerConnections
	if !c.forwarded && (own || l.identified >= l.limits.Connections) {
		if out = l.identifiedVictim(m, own); out == nil {
			l.refused++
			l.logReplaced(c)
			return nil, &FullError{l.limits, own}
		}
		l.replace(out)
	}
	l.count(c, -1)
	c.tenant = tenant
	l.count(c, 1)
	return out, nil
}

// replace unregisters a connection that makes room for another.
func (l *Listener) replace(out *Conn) {
	l.remove(out)
	l.ended++
	l.logReplaced(out)
}

// unidentifiedVictim returns the connection to replace by c, or nil. Connections with a request under
// way and connections of identified callers do not qualify. Of the others, it takes one of the caller with the most
// connections; among these one that never had a request; among these the one that has been idle for
// longest. If own is set, it takes only connections of c's caller. Otherwise it takes
// connections of other callers only if these callers have more connections than c's caller.
func (l *Listener) unidentifiedVictim(c *Conn, own bool) (best *Conn) {
	for o := range l.open {
		switch {
		case o.requests > 0 || o.tenant != "":
		case o.peer != c.peer && (own || l.peers[o.peer] <= l.peers[c.peer]):
		case best == nil || l.goesBefore(o, best):
			best = o
		}
	}
	return best
}

// identifiedVictim returns the connection of an identified caller that a new connection of m replaces, or nil. If own
// is set, only idle connections of m qualify. Otherwise another member of the tenant, or another tenant, can lose an idle
// connection if it has more connections. Only the tenant with the most connections can lose one in use, and only if it
// keeps at least as many as m's tenant has then. Otherwise two tenants would close each other's connections in turns.
func (l *Listener) identifiedVictim(m member, own bool) (best *Conn) {
	mine := l.tenants[m.tenant]
	for o := range l.open {
		idle, same := o.requests == 0, o.member() == m
		switch {
		case o.tenant == "" || own && !same:
		case o.tenant == m.tenant && (!idle || !same && l.members[o.member()] <= l.members[m]):
		case o.tenant != m.tenant && (idle && l.tenants[o.tenant] <= mine || !idle && l.tenants[o.tenant] <= mine+1):
		case best == nil || idle && best.requests > 0 || idle == (best.requests == 0) && l.goesBefore(o, best):
			best = o
		}
	}
	return best
}

// goesBefore reports whether a should be replaced rather than b. Either both are idle or both are in use, and either both
// have an identified caller or neither has.
func (l *Listener) goesBefore(a, b *Conn) bool {
	if n, m := l.tenants[a.tenant], l.tenants[b.tenant]; n != m {
		return n > m
	}
	if n, m := l.ofPeer(a), l.ofPeer(b); n != m {
		return n > m
	}
	if a.asked != b.asked {
		return !a.asked
	}
	return a.since.Before(b.since)
}

// ofPeer returns the number of connections that count towards the same limit of a user or address as c. l.mu is held.
func (l *Listener) ofPeer(c *Conn) int {
	if c.tenant != "" {
		return l.members[c.member()]
	}
	return l.peers[c.peer]
}

// remove unregisters a connection. Calling it again is harmless.
func (l *Listener) remove(c *Conn) {
	if _, ok := l.open[c]; !ok {
		return
	}
	delete(l.open, c)
	l.read(c)
	l.count(c, -1)
}

// count adds n to each number of connections in which c counts.
func (l *Listener) count(c *Conn, n int) {
	if c.tenant == "" {
		add(l.peers, c.peer, n)
		return
	}
	l.identified += n
	add(l.members, c.member(), n)
	add(l.tenants, c.tenant, n)
}

// add adds n to an entry, and keeps no zeros.
func add[K comparable](to map[K]int, key K, n int) {
	if to[key] += n; to[key] == 0 {
		delete(to, key)
	}
}

// logReplaced logs that there was no room for c or that c made room, at most once in logInterval. l.mu is held. The
// counts include all events since the last line.
func (l *Listener) logReplaced(c *Conn) {
	now := time.Now()
	if now.Sub(l.loggedAt) < logInterval {
		return
	}
	args := []any{"peer", c.peer, "of_peer", l.ofPeer(c), "open", len(l.open), "refused", l.refused, "ended", l.ended}
	if c.tenant != "" {
		args = append(args, "tenant", c.tenant, "of_tenant", l.tenants[c.tenant])
	}
	l.log.Warn("too many connections", args...)
	l.refused, l.ended, l.loggedAt = 0, 0, now
}

// failedHandshake counts a handshake that failed, and logs it at most once in logInterval.
func (l *Listener) failedHandshake(peer string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed++
	now := time.Now()
	if now.Sub(l.failedLoggedAt) < logInterval {
		return
	}
	l.log.Warn("TLS handshakes failed", "count", l.failed, "last_peer", peer, "last_error", err)
	l.failed, l.failedLoggedAt = 0, now
}

// A Conn is a connection that its Listener counts until it is closed.
type Conn struct {
	net.Conn // secure, or raw
	listener *Listener
	raw      net.Conn
	secure   *tls.Conn // nil: not encrypted
	failed   sync.Once // the handshake was counted as failed
	begun    sync.Once // a server has begun to read
	session  identity.Session
	addr     net.Addr
	peer     string
	// The connection is of a caller of the earlier daemon, whose listener has limited it; see Forward. forwardedTLS is
	// the state of the caller's own connection, or nil.
	forwarded    bool
	forwardedTLS *tls.ConnectionState
	closed       atomic.Bool
	named        atomic.Pointer[string] // a copy of tenant, for readers without listener.mu

	// Guarded by listener.mu.
	tenant   string    // of the first identified caller; empty: no caller is identified yet
	unread   bool      // counted in listener.unread
	requests int       // requests under way
	asked    bool      // has had a request
	since    time.Time // time of Accept, or of the end of the last request
}

// RemoteAddr returns an [identity.User] on a Unix socket.
func (c *Conn) RemoteAddr() net.Addr { return c.addr }

// Credentials returns the credentials of a call: the connection's credentials, and the values of the
// call's header Authorization.
func (c *Conn) Credentials(authorization []string) identity.Credentials {
	return identity.Credentials{Addr: c.addr, TLS: c.TLS(), Session: &c.session, Authorization: authorization}
}

// Identified counts the connection for the tenant of its caller, instead of for the address alone. Only the first call
// has an effect: the connection counts for this tenant until it ends. After an error, a [FullError], the server must
// answer no request of the connection. A server calls Identified for each request, before Begin. On a nil Conn,
// Identified does nothing.
func (c *Conn) Identified(tenant string) error {
	if c == nil || c.named.Load() != nil {
		return nil
	}
	out, err := c.listener.identify(c, tenant)
	if out != nil {
		out.raw.Close() // see Accept
	}
	if err == nil {
		c.named.CompareAndSwap(nil, &tenant)
	}
	return err
}

// Tenant returns the tenant of the connection's first identified caller, or "" before one is identified.
func (c *Conn) Tenant() string {
	if name := c.named.Load(); name != nil {
		return *name
	}
	return ""
}

// member returns the counter of an identified connection. listener.mu is held.
func (c *Conn) member() member { return member{c.tenant, c.peer} }

// Peer returns a name that all connections of a caller have in common.
func (c *Conn) Peer() string { return c.peer }

// From returns where the connection comes from: uid:N, or an IP address without the port.
func (c *Conn) From() string { return addressName(c.addr) }

// Handshake completes the TLS handshake of an encrypted connection. It may be called more than once.
// The caller must have set a deadline. Read completes the handshake, too, because net/http does so
// only for connections of the type *tls.Conn.
func (c *Conn) Handshake() error {
	c.begun.Do(func() {
		c.listener.mu.Lock()
		defer c.listener.mu.Unlock()
		c.listener.read(c)
	})
	if c.secure == nil {
		return nil
	}
	err := c.secure.Handshake()
	// io.EOF: the client closed the connection, as probes of load balancers do.
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		c.failed.Do(func() { c.listener.failedHandshake(c.peer, err) })
	}
	return err
}

// Read reads decrypted bytes.
func (c *Conn) Read(p []byte) (int, error) {
	if err := c.Handshake(); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// TLS returns the state of the encrypted connection after the handshake. It returns nil if the
// connection is not encrypted, or if the handshake is not complete.
func (c *Conn) TLS() *tls.ConnectionState {
	if c.secure == nil {
		return c.forwardedTLS
	}
	state := c.secure.ConnectionState()
	if !state.HandshakeComplete {
		return nil
	}
	return &state
}

// Begin must be called when a complete request has arrived. Until end is called, the Listener does
// not close the connection to make room for another. Begin of a nil Conn does nothing.
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

// Close closes the connection. It may be called more than once.
func (c *Conn) Close() error {
	c.closed.Store(true)
	err := c.Conn.Close()
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.listener.remove(c)
	return err
}
