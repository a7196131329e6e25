package server

import (
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"
)

// A boundedListener closes at once what comes in beyond maxConnections of all
// peers, or maxPeerConnections of one: a caller that is refused knows it, where
// one that is left waiting would not.
type boundedListener struct {
	net.Listener
	log *slog.Logger

	mu      sync.Mutex
	open    int
	peers   map[string]int // open ones; no zeros
	refused int            // since the log was told
	told    time.Time
}

func newBoundedListener(l net.Listener, log *slog.Logger) *boundedListener {
	return &boundedListener{Listener: l, log: log, peers: map[string]int{}}
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer := peerName(conn.RemoteAddr())
		if l.enter(peer) {
			return &boundedConn{Conn: conn, leave: sync.OnceFunc(func() { l.leave(peer) })}, nil
		}
		conn.Close()
	}
}

// enter counts a connection, or tells the log of one too many.
func (l *boundedListener) enter(peer string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open < maxConnections && l.peers[peer] < maxPeerConnections {
		l.open++
		l.peers[peer]++
		return true
	}
	l.refused++
	if now := time.Now(); now.Sub(l.told) >= refusedInterval {
		l.log.Warn("too many connections", "peer", peer, "of_peer", l.peers[peer], "open", l.open, "refused", l.refused)
		l.refused, l.told = 0, now
	}
	return false
}

func (l *boundedListener) leave(peer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.peers[peer]--; l.peers[peer] == 0 {
		delete(l.peers, peer)
	}
}

// peerName is one name for all connections of a user, or of an address.
func peerName(addr net.Addr) string {
	switch addr := addr.(type) {
	case peerAddr:
		if addr.err == nil {
			return "uid:" + strconv.FormatUint(uint64(addr.uid), 10)
		}
	case *net.TCPAddr:
		return addr.IP.String()
	}
	return addr.Network()
}

type boundedConn struct {
	net.Conn
	leave func()
}

func (c *boundedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
