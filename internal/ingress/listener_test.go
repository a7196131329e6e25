package ingress

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skillrun/skillrun/internal/ingress/identity"
)

// callersListener is a listener whose connections come from the addresses that a test
// sends.
type callersListener chan net.Addr

func (l callersListener) Accept() (net.Conn, error) {
	addr, ok := <-l
	if !ok {
		return nil, net.ErrClosed
	}
	ours, _ := net.Pipe()
	return addressed{ours, addr}, nil
}

func (callersListener) Close() error   { return nil }
func (callersListener) Addr() net.Addr { return &net.UnixAddr{} }

// offer makes n connections from addr and returns the accepted ones.
func offer(t *testing.T, in callersListener, l *Listener, addr net.Addr, n int) (open []net.Conn) {
	t.Helper()
	// The connection after the last one only shows that the others have been handled.
	marker := &net.TCPAddr{IP: net.IPv4(198, 51, 100, 7)}
	go func() {
		for range n {
			in <- addr
		}
		in <- marker
	}()
	for {
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if conn.RemoteAddr() == net.Addr(marker) {
			conn.Close()
			return open
		}
		open = append(open, conn)
	}
}

func user(uid uint32) net.Addr { return identity.User{Addr: &net.UnixAddr{}, UID: uid} }

func host(ip string, port int) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: port} }

// begin starts a request on each connection.
func begin(conns []net.Conn) (ends []func()) {
	for _, c := range conns {
		ends = append(ends, c.(*Conn).Begin())
	}
	return ends
}

// A caller can have MaxPeerUnidentified connections with requests and no more. Other callers
// are not affected.
func TestConnectionsOfOnePeerAreBounded(t *testing.T) {
	for _, c := range []struct {
		name      string
		one, same net.Addr
		other     net.Addr
	}{
		{name: "users", one: user(1), same: user(1), other: user(2)},
		{name: "addresses", one: host("192.0.2.1", 1), same: host("192.0.2.1", 2), other: host("192.0.2.2", 1)},
		{name: "an unknown user", one: identity.User{Addr: &net.UnixAddr{}, Err: errors.New("gone")}, same: identity.User{Addr: &net.UnixAddr{}, Err: errors.New("gone too")}, other: user(0)},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := make(callersListener)
			l := Listen(in, Limits{}, slog.New(slog.DiscardHandler))
			open := offer(t, in, l, c.one, MaxPeerUnidentified)
			if len(open) != MaxPeerUnidentified {
				t.Fatalf("of one: got %d, want %d", len(open), MaxPeerUnidentified)
			}
			begin(open)
			if got := len(offer(t, in, l, c.same, 3)); got != 0 {
				t.Errorf("more: got %d, want none", got)
			}
			if got := len(offer(t, in, l, c.other, 1)); got != 1 {
				t.Errorf("of another: got %d, want 1", got)
			}
			for range 2 { // a second Close has no effect
				open[0].Close()
			}
			last := offer(t, in, l, c.same, 1)
			if len(last) != 1 {
				t.Fatalf("after one left: got %d, want 1", len(last))
			}
			begin(last)
			if got := len(offer(t, in, l, c.same, 1)); got != 0 {
				t.Errorf("after one came: got %d, want none", got)
			}
		})
	}
}

// At a caller's limit, a new connection replaces an idle connection of the caller: first one that never
// had a request, then the one that has been idle for longest. It never replaces a connection with a
// running request.
func TestConnectionsWithoutRequestsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := make(callersListener)
		l := Listen(in, Limits{}, slog.New(slog.DiscardHandler))
		var open []net.Conn
		for range MaxPeerUnidentified {
			open = append(open, offer(t, in, l, user(1), 1)...)
			time.Sleep(time.Second)
		}
		gone := func(c net.Conn) bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			_, ok := l.open[c.(*Conn)]
			return !ok
		}
		others := offer(t, in, l, user(2), 1) // older than the new connection, and idle
		ends := begin(open[:MaxPeerUnidentified-2])
		ends[5]()
		time.Sleep(time.Second)
		ends[3]()
		never1, never2 := open[MaxPeerUnidentified-2], open[MaxPeerUnidentified-1]
		for i, want := range []net.Conn{never1, never2, open[5], open[3]} {
			next := offer(t, in, l, user(1), 1)
			if len(next) != 1 || !gone(want) {
				t.Fatalf("%d: let in %d; the connection to replace is still open: %v", i, len(next), !gone(want))
			}
			if _, err := want.Read(make([]byte, 1)); err == nil {
				t.Errorf("%d: the replaced connection is still open", i)
			}
			begin(next)
		}
		if got := offer(t, in, l, user(1), 1); len(got) != 0 {
			t.Error("a connection in use was replaced, or the limit was exceeded")
		}
		if gone(others[0]) || gone(open[0]) {
			t.Error("a connection of another caller, or one in use, was closed")
		}
		if len(l.open) != MaxPeerUnidentified+1 || l.peers["uid:1"] != MaxPeerUnidentified {
			t.Errorf("%d are open, %d of the caller", len(l.open), l.peers["uid:1"])
		}
	})
}

// At the limit of all callers, a caller with few connections replaces one of the caller
// with the most.
func TestConnectionsOfAllPeersAreBounded(t *testing.T) {
	in := make(callersListener)
	l := Listen(in, Limits{}, slog.New(slog.DiscardHandler))
	most := offer(t, in, l, user(1), MaxUnidentified/2)
	begin(most[:len(most)-1])
	var rest []net.Conn
	for i := range MaxUnidentified/2 - 1 { // leaves room for the marker of offer
		rest = append(rest, offer(t, in, l, host(fmt.Sprintf("127.0.1.%d", i), 1), 1)...)
	}
	enter := func(addr net.Addr) (*Conn, bool) {
		return l.enter(&Conn{Conn: most[0], raw: most[0], listener: l, addr: addr, peer: peerName(addr), since: time.Now()})
	}
	if out, ok := enter(user(2)); out != nil || !ok {
		t.Fatalf("the last connection with room: %v, %v", out, ok)
	}
	if out, ok := enter(user(3)); !ok || out != most[len(most)-1] {
		t.Errorf("one more: %v, %v; want it to replace one of the caller with the most", out, ok)
	}
	if out, ok := enter(user(3)); !ok || out == nil || out.peer != "uid:3" {
		t.Errorf("a second one: %v, %v; want it to replace one of its own caller", out, ok)
	}
	if out, ok := enter(user(4)); !ok || out != rest[0] {
		t.Errorf("of another: %v, %v; want the oldest of the callers with one connection", out, ok)
	}
	begin(rest)
	for c := range l.open {
		c.Begin()
	}
	if out, ok := enter(user(5)); ok || out != nil {
		t.Errorf("with all in use: %v, %v; want it refused", out, ok)
	}
	if len(l.open) != MaxUnidentified {
		t.Errorf("%d are open, want %d", len(l.open), MaxUnidentified)
	}
}

// The log has a line at once, and later one line for all connections of an interval.
func TestRefusedConnectionsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs bytes.Buffer
		in := make(callersListener)
		l := Listen(in, Limits{}, slog.New(slog.NewTextHandler(&logs, nil)))
		begin(offer(t, in, l, user(1), MaxPeerUnidentified-1))
		offer(t, in, l, user(1), 3) // two of them replace the one before
		if got := strings.Count(logs.String(), "too many connections"); got != 1 || !strings.Contains(logs.String(), "peer=uid:1") {
			t.Errorf("got %d lines, want one about uid:1:\n%s", got, logs.String())
		}
		for c := range l.open {
			c.Begin()
		}
		logs.Reset()
		time.Sleep(logInterval - time.Nanosecond)
		offer(t, in, l, user(1), 4)
		if logs.Len() > 0 {
			t.Errorf("too soon: %s", logs.String())
		}
		time.Sleep(time.Nanosecond)
		offer(t, in, l, user(1), 4)
		if got := strings.Count(logs.String(), "\n"); got != 1 || !strings.Contains(logs.String(), "refused=5 ended=1") {
			t.Errorf("got %q, want one line of 5 that were refused and 1 that made room", logs.String())
		}
	})
}

type addressed struct {
	net.Conn
	addr net.Addr
}

func (c addressed) RemoteAddr() net.Addr { return c.addr }
