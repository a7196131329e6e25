package server

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// callersListener is a listener whose connections come from the addresses that a test
// sends it.
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

// offer has n connections come in from addr and returns those that were let in.
func offer(t *testing.T, in callersListener, l *boundedListener, addr net.Addr, n int) (open []net.Conn) {
	t.Helper()
	// The last one is from elsewhere, and only shows that those before it are done.
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

func TestConnectionsOfOnePeerAreBounded(t *testing.T) {
	user := func(uid uint32) net.Addr { return peerAddr{Addr: &net.UnixAddr{}, uid: uid} }
	host := func(ip string, port int) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: port} }
	for _, c := range []struct {
		name      string
		one, same net.Addr
		other     net.Addr
	}{
		{name: "users", one: user(1), same: user(1), other: user(2)},
		{name: "addresses", one: host("192.0.2.1", 1), same: host("192.0.2.1", 2), other: host("192.0.2.2", 1)},
		{name: "an unknown user", one: peerAddr{Addr: &net.UnixAddr{}, err: errors.New("gone")}, same: peerAddr{Addr: &net.UnixAddr{}, err: errors.New("gone too")}, other: user(0)},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := make(callersListener)
			l := newBoundedListener(in, (&logs{}).logger())
			open := offer(t, in, l, c.one, maxPeerConnections+3)
			if len(open) != maxPeerConnections {
				t.Fatalf("of one: got %d, want %d", len(open), maxPeerConnections)
			}
			if got := len(offer(t, in, l, c.same, 1)); got != 0 {
				t.Errorf("one more: got %d, want none", got)
			}
			if got := len(offer(t, in, l, c.other, 1)); got != 1 {
				t.Errorf("of another: got %d, want 1", got)
			}
			for range 2 { // a second Close counts for nothing
				open[0].Close()
			}
			if got := len(offer(t, in, l, c.same, 3)); got != 1 {
				t.Errorf("after one left: got %d, want 1", got)
			}
		})
	}
}

func TestConnectionsOfAllPeersAreBounded(t *testing.T) {
	l := newBoundedListener(nil, (&logs{}).logger())
	for i := range maxConnections {
		if !l.enter(fmt.Sprint("uid:", i%5)) {
			t.Fatalf("connection %d: refused", i+1)
		}
	}
	if l.enter("uid:9") {
		t.Error("one too many was let in")
	}
	l.leave("uid:0")
	if !l.enter("uid:9") {
		t.Error("after one left: refused")
	}
}

// TestRefusedConnectionsAreLogged: a line at once, and then one in ten seconds,
// however many there are.
func TestRefusedConnectionsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := &logs{}
		l := newBoundedListener(nil, logs.logger())
		for range maxPeerConnections {
			l.enter("uid:1")
		}
		for i, want := range []int{1, 1, 1, 2} {
			if i == 3 {
				time.Sleep(refusedInterval)
			}
			if l.enter("uid:1") {
				t.Fatal("one too many was let in")
			}
			if got := len(logs.with("WARN", "too many connections", "peer=uid:1")); got != want {
				t.Errorf("after %d: got %d lines, want %d", i+1, got, want)
			}
		}
		if len(logs.with("refused=1")) != 1 || len(logs.with("refused=3")) != 1 {
			t.Errorf("got %q, want 1 and then 3 refused", logs.with("WARN"))
		}
	})
}
