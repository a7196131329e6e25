package ingress

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"
)

// identified makes n connections from an address and identifies them as a tenant's. If busy is set, each has a request.
// It stops at an error.
func identified(t *testing.T, in callersListener, l *Listener, tenant string, addr net.Addr, n int, busy bool) (open []*Conn, err error) {
	t.Helper()
	for range n {
		c := offer(t, in, l, addr, 1)[0].(*Conn)
		if err = c.Identified(tenant); err != nil {
			return open, err
		}
		if open = append(open, c); busy {
			c.Begin()
		}
	}
	return open, nil
}

// closed counts connections that the listener has closed.
func closed(l *Listener, conns []*Conn) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		if _, ok := l.open[c]; !ok {
			n++
		}
	}
	return n
}

// A tenant that has a request under way on every connection, from many addresses, locks no other tenant out, not
// even one with the same address. Each tenant keeps its fair share.
func TestTenantsShareConnections(t *testing.T) {
	in := make(callersListener)
	l := Listen(in, Limits{Connections: 12, PeerConnections: 12}, slog.New(slog.DiscardHandler))
	var hog []*Conn
	for i := range 12 {
		open, err := identified(t, in, l, "hog", host(fmt.Sprintf("192.0.2.%d", i), 1), 1, true)
		if err != nil {
			t.Fatal(err)
		}
		hog = append(hog, open...)
	}
	if _, err := identified(t, in, l, "hog", host("192.0.2.99", 1), 1, true); err == nil {
		t.Error("the tenant has more connections than the listener")
	}
	other, err := identified(t, in, l, "other", host("192.0.2.0", 2), 6, true)
	if err != nil || closed(l, hog) != 6 || closed(l, other) != 0 {
		t.Fatalf("another tenant: %v, %d of 12 and %d of 6 closed; want 6 and none", err, closed(l, hog), closed(l, other))
	}
	// With equal numbers neither tenant takes a connection of the other. Otherwise they would close each other's in turns.
	for _, tenant := range []string{"hog", "other"} {
		_, err := identified(t, in, l, tenant, host("192.0.2.50", 1), 1, true)
		full, ok := errors.AsType[*FullError](err)
		if !ok || full.OfPeer {
			t.Errorf("one more of %s: %v", tenant, err)
		}
	}
	if len(l.tenants) != 2 || l.tenants["hog"] != 6 || l.tenants["other"] != 6 || l.identified != 12 {
		t.Errorf("%v, %d in all; want 6 of each", l.tenants, l.identified)
	}
	for c := range l.open {
		c.Close()
	}
	if len(l.tenants)+len(l.members)+len(l.peers)+l.identified != 0 {
		t.Errorf("after all have left: %v, %v, %v, %d", l.tenants, l.members, l.peers, l.identified)
	}
}

// An idle connection goes before one in use, also if its tenant is not the one with the most.
func TestIdleConnectionsOfTenantsGoFirst(t *testing.T) {
	in := make(callersListener)
	l := Listen(in, Limits{Connections: 6, PeerConnections: 6}, slog.New(slog.DiscardHandler))
	busy, _ := identified(t, in, l, "busy", host("192.0.2.1", 1), 4, true)
	idle, _ := identified(t, in, l, "idle", host("192.0.2.2", 1), 2, false)
	if _, err := identified(t, in, l, "new", host("192.0.2.3", 1), 1, true); err != nil || closed(l, idle) != 1 || closed(l, busy) != 0 {
		t.Errorf("%v: %d idle and %d busy ones closed, want one idle", err, closed(l, idle), closed(l, busy))
	}
	if _, err := identified(t, in, l, "new", host("192.0.2.3", 1), 1, true); err != nil || closed(l, idle) != 1 || closed(l, busy) != 1 {
		t.Errorf("%v: %d idle and %d busy ones closed, want one of each", err, closed(l, idle), closed(l, busy))
	}
}

// Within a tenant an address has its own bound. Only idle connections make room there.
func TestAddressesOfATenantAreBounded(t *testing.T) {
	in := make(callersListener)
	l := Listen(in, Limits{Connections: 6, PeerConnections: 2}, slog.New(slog.DiscardHandler))
	one := host("192.0.2.1", 1)
	conns, err := identified(t, in, l, "a", one, 2, true)
	if err != nil {
		t.Fatal(err)
	}
	_, err = identified(t, in, l, "a", one, 1, true)
	if full, ok := errors.AsType[*FullError](err); !ok || !full.OfPeer {
		t.Errorf("one more of the address: %v", err)
	}
	if _, err := identified(t, in, l, "b", one, 2, true); err != nil {
		t.Errorf("of another tenant at the address: %v", err)
	}
	if _, err := identified(t, in, l, "a", host("192.0.2.2", 1), 2, true); err != nil {
		t.Errorf("of another address: %v", err)
	}
	conns[0].Close()
	if _, err := identified(t, in, l, "a", one, 2, false); err != nil {
		t.Errorf("an idle one makes no room: %v", err)
	}
	if conns[1].Identified("b") != nil || l.tenants["a"] != 4 {
		t.Errorf("the first tenant of a connection counts: %v", l.tenants)
	}
}

// Callers without an identity take no connections from identified callers, and have separate bounds.
func TestUnidentifiedConnectionsAreApart(t *testing.T) {
	in := make(callersListener)
	l := Listen(in, Limits{Connections: 2, PeerConnections: 2}, slog.New(slog.DiscardHandler))
	mine, err := identified(t, in, l, "a", host("192.0.2.1", 1), 2, true)
	if err != nil {
		t.Fatal(err)
	}
	for i := range MaxUnidentified + 10 {
		c := &Conn{Conn: mine[0], raw: mine[0], listener: l, peer: fmt.Sprint("peer ", i), since: time.Now()}
		if _, ok := l.enter(c); !ok {
			t.Fatalf("connection %d was refused", i)
		}
	}
	if closed(l, mine) != 0 || len(l.open) != MaxUnidentified+2 {
		t.Errorf("%d of 2 closed, %d are open", closed(l, mine), len(l.open))
	}
}
