package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"github.com/skillrun/skillrun/internal/network/dial"
	"github.com/skillrun/skillrun/internal/network/networktest"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// Each bound on connections refuses the next one, and says so. Room comes back with an end.
func TestConnectionLimits(t *testing.T) {
	const address = networktest.Public + ":80"
	networktest.Serve(t, address, echo)
	for want, change := range map[string]func(*Config){
		"more than 1 connections": func(c *Config) { c.Limits.Connections = 1 },
		"more than 1 connections of the tenant": func(c *Config) {
			c.Shared = NewShared(policy.TenantLimits{Connections: 1, NewPerSecond: 1000}, dial.Ports{})
		},
		"more than 1 new connections in a": func(c *Config) { c.Limits.NewPerSecond = 1 },
		"more than 2 bytes":                func(c *Config) { c.Limits.Bytes = 2 },
		"more than 0 new connections of the tenant": func(c *Config) {
			c.Shared.rate = rate.NewLimiter(0, 1) // no room comes back
			c.Shared.limits.NewPerSecond = 0
		},
	} {
		t.Run(want, func(t *testing.T) {
			b := newBox(t, nil, nil, change)
			if b.gateway.entries.limits.NewPerSecond == 1 {
				b.gateway.entries.rate.SetLimit(1e-9) // no room comes back while the test runs
			}
			c, err := b.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(c, "ab")
			_, _ = io.ReadFull(c, make([]byte, 2))
			if _, err := b.Dial("tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("the second: %v", err)
			}
			b.awaitDenial(t, func(d policy.Denial) bool {
				return strings.HasPrefix(d.Reason, want) && strings.Contains(d.Reason, "(network_limits.")
			})
			c.Close()
			b.awaitClosed(t)
			// The connection counts for a moment after its event.
			for late := time.Now().Add(30 * time.Second); b.gateway.entries.tenant.used.Load() != 0; time.Sleep(time.Millisecond) {
				if time.Now().After(late) {
					t.Fatal("an ended connection still counts")
				}
			}
			c, err = b.Dial("tcp", address)
			if err == nil {
				c.Close()
			}
			if room := strings.Contains(want, "1 connections"); room != (err == nil) {
				t.Errorf("after the first one's end: %v", err)
			}
		})
	}
}

// The sandboxes of a tenant together carry no more bytes in a second than the limit; connections wait. A piece that is
// larger than the limit still passes, and the end of a network ends the wait.
func TestBytesOfTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewShared(policy.TenantLimits{Connections: 1, NewPerSecond: 1, BytesPerSecond: 1 << 20}, dial.Ports{})
		start := time.Now()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 20 {
					if err := s.carry(t.Context(), 128<<10); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if took := time.Since(start); took < 9*time.Second || took > 10*time.Second {
			t.Errorf("10 MiB took %v", took)
		}
		life, end := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, end)
		if err := s.carry(life, 100<<20); !errors.Is(err, context.Canceled) {
			t.Errorf("after the end: %v", err)
		}
	})
	if err := NewShared(policy.TenantLimits{Connections: 1, NewPerSecond: 1}, dial.Ports{}).carry(t.Context(), 1<<40); err != nil {
		t.Errorf("without a limit: %v", err)
	}
}

// TCP, UDP and requests with a credential count for the limit of bytes of the tenant.
func TestBytesOfTenantAreCounted(t *testing.T) {
	o := newOrigin(t, nil, "api.test")
	networktest.Serve(t, networktest.Public+":7000", echo)
	serveUDP(t, networktest.Public+":7000")
	set := bind(t, o.authority.PEM(), false, "api.test")
	b := newBox(t, []string{"*.test", "20.1.0.1:7000", "20.1.0.1:7000/udp"}, nil, func(c *Config) { c.Credentials = set })
	bytes := b.gateway.entries.tenant.bytes
	bytes.SetLimit(0) // nothing comes back
	left := bytes.Tokens()
	counted := func(what string, least float64) {
		t.Helper()
		now := bytes.Tokens()
		// The Gateway counts bytes after it has moved them, so the client may have them first.
		for late := time.Now().Add(30 * time.Second); left-now < least && time.Now().Before(late); now = bytes.Tokens() {
			time.Sleep(time.Millisecond)
		}
		if left-now < least {
			t.Errorf("%s: %v bytes counted, want at least %v", what, left-now, least)
		}
		left = now
	}
	for _, network := range []string{"tcp", "udp"} {
		c, err := b.Dial(network, networktest.Public+":7000")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, strings.Repeat("x", 1000))
		if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		c.Close()
		counted(network, 2000)
	}
	if s, got := get(t, b.client(t, set, true, ""), "https://api.test/"); s != 200 {
		t.Errorf("got %d %q", s, got)
	}
	counted("a credential", 100)
}

// A connection ends with a reset when the bytes are used up, when it is idle, and with the Gateway.
func TestConnectionsEnd(t *testing.T) {
	const address = networktest.Public + ":80"
	ended := make(chan error, 1)
	networktest.Serve(t, address, func(c net.Conn) {
		_, err := io.Copy(io.Discard, c)
		ended <- err
	})
	for name, c := range map[string]struct {
		change func(*Config)
		act    func(*box, net.Conn)
	}{
		"bytes": {func(c *Config) { c.Limits.Bytes = 3 }, func(_ *box, c net.Conn) { _, _ = io.WriteString(c, "four") }},
		"idle":  {func(c *Config) { c.Limits.Idle = time.Second }, func(*box, net.Conn) {}},
		"close": {func(*Config) {}, func(b *box, _ net.Conn) { b.gateway.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, nil, nil, c.change)
			conn, err := b.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			c.act(b, conn)
			if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("outside: %v", err)
			}
			if name == "close" {
				return // the Gateway that would carry the reset is closed
			}
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("inside: %v", err)
			}
		})
	}
}

// A reset of one side is a reset of the other one, not an end of the data.
func TestResets(t *testing.T) {
	const address = networktest.Public + ":80"
	networktest.Serve(t, address, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 1))
		_ = c.(*net.TCPConn).SetLinger(0)
	})
	b := newBox(t, nil, nil)
	c, err := b.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "x")
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v", err)
	}
}

// A destination that does not answer is given up.
func TestDialTimeout(t *testing.T) {
	defer silence(t)()
	b := newBox(t, nil, nil, func(c *Config) { c.Limits.Dial = 20 * time.Millisecond })
	if _, err := b.Dial("tcp", networktest.Public+":80"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
	if e := b.awaitClosed(t); e.Error != "no answer in time" || e.Protocol != "tcp" {
		t.Errorf("event: %+v", e)
	}
}

// A connection attempt beyond the bound is refused with a reset, and an event says why.
func TestAttemptsAreBounded(t *testing.T) {
	defer silence(t)()
	w := newWire(t, nil)
	w.gateway.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, w.gateway.attempts(1))
	for port := range uint16(2) { // the dial of the first one goes on
		w.send(t, segment(3000+port, firstSequence, 0, header.TCPFlagSyn, ""))
	}
	if s := w.receive(t, 0); s.DestinationPort() != 3001 || !s.Flags().Contains(header.TCPFlagRst) {
		t.Errorf("got %s to port %d", s.Flags(), s.DestinationPort())
	}
	w.awaitDenial(t, func(d policy.Denial) bool { return d.Reason == "more than 1 connection attempts at once" })
}

// silence makes port 80 of the test's public host answer no packet, until the returned function is called.
func silence(t *testing.T) (end func()) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	address := &unix.SockaddrInet4{Addr: [4]byte{20, 1, 0, 1}, Port: 80}
	// Connections of other tests may be in TIME_WAIT. With this backlog and one connection that is not accepted, the kernel
	// ignores others.
	if err := errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, address), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	first, err := net.Dial("tcp", networktest.Public+":80")
	if err != nil {
		t.Fatal(err)
	}
	return func() { first.Close(); unix.Close(fd) }
}

// Equal refusals and those beyond the rate only count, and so do connections, with their bytes.
func TestReporter(t *testing.T) {
	l := newLog()
	r := newReporter(l)
	for range 10 {
		r.denied(policy.Denial{Protocol: "dns", Name: "a.test"})
	}
	for i := range 300 {
		r.denied(policy.Denial{Protocol: "dns", Name: "b.test", Reason: string(rune('0' + i))})
	}
	for range 2000 {
		r.closed(policy.Connection{Sent: 2, Received: 3})
	}
	r.end()
	if told := int64(len(l.denials)); told < 100 || told+l.dropped.Denials != 310 {
		t.Errorf("%d refusals told, %+v", told, l.dropped)
	}
	if told := int64(len(l.closed)); told < 1000 || told+l.dropped.Connections != 2000 || l.dropped.Sent != 2*l.dropped.Connections || l.dropped.Received != 3*l.dropped.Connections {
		t.Errorf("%d connections told, %+v", told, l.dropped)
	}
}

// Pins end, and there is a bound on them. One that is kept opens nothing after its end either.
func TestPins(t *testing.T) {
	p := newPins()
	a := addressesFrom(t, maxPins)
	if !p.add("www.test", a[1:], 0, false) || !p.add("www.test", a[:0], 0, false) || !p.add("kept.test", a[:1], 0, true) {
		t.Error("no room")
	}
	if p.add("other.test", a[:1], 0, false) {
		t.Error("beyond the bound")
	}
	if n, old := p.names(a[1]); len(n) != 1 || len(old) != 0 {
		t.Errorf("names: %v, %v", n, old)
	}
	few := newPins()
	for _, name := range []string{"one.test", "two.test", "one.test"} {
		few.add(name, a[:1], 0, false)
	}
	if n, _ := few.names(a[0]); !slices.Equal(n, []string{"two.test", "one.test"}) || few.count != 2 {
		t.Errorf("the newest name is not the last: %v, %d", n, few.count)
	}
	p.named[a[0]][0].ends, p.named[a[1]][0].ends = time.Now(), time.Now()
	if n, old := p.names(a[1]); len(n) != 0 || len(old) != 1 {
		t.Errorf("names after its end: %v, %v", n, old)
	}
	if !p.add("other.test", a[1:2], 0, false) || p.count != maxPins {
		t.Error("no room after an end")
	}
	if n, old := p.names(a[0]); len(n) != 0 || len(old) != 1 {
		t.Errorf("names of a pin that is kept: %v, %v", n, old)
	}
	if p.add("more.test", a[2:3], 0, false) {
		t.Error("a pin that is kept made room")
	}
}

// A busy connection gets large buffers, as many as the tenant may have, and gives them back.
func TestBuffers(t *testing.T) {
	address := networktest.Public + ":80"
	accepted := make(chan net.Addr, 10)
	networktest.Serve(t, address, func(c net.Conn) {
		accepted <- c.RemoteAddr()
		echo(c)
	})
	b := newBox(t, nil, nil, func(c *Config) { c.Shared.large.most = 1 })
	peers := map[net.Conn]net.Addr{} // the address of each connection's socket
	exchange := func(n int) net.Conn {
		t.Helper()
		c, err := b.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		peers[c] = <-accepted
		go func() { _, _ = c.Write(make([]byte, n)) }()
		if _, err := io.ReadFull(c, make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	// size is the size of the buffers of the connection from a port of the sandbox.
	size := func(c net.Conn) (send, window int64) {
		for _, e := range b.gateway.stack.RegisteredEndpoints() {
			e, ok := e.(*tcp.Endpoint)
			if !ok {
				continue
			}
			if remote, err := e.GetRemoteAddress(); err == nil && int(remote.Port) == c.LocalAddr().(*net.TCPAddr).Port {
				return e.SocketOptions().GetSendBufferSize(), e.SocketOptions().GetReceiveBufferSize()
			}
		}
		t.Fatal("no such connection")
		return 0, 0
	}
	want := func(what string, c net.Conn, send, window int64) {
		t.Helper()
		receive, fixed := outside(t, peers[c])
		if wantFixed := send == smallSend; fixed != wantFixed || fixed && receive != 2*dial.ReceiveBuffer {
			t.Errorf("%s: the socket can receive %d bytes, fixed %v", what, receive, fixed)
		}
		if gotSend, gotWindow := size(c); gotSend != send || gotWindow != window {
			t.Errorf("%s: %d and %d bytes, want %d and %d", what, gotSend, gotWindow, send, window)
		}
	}
	want("a new connection", exchange(1), smallSend, smallWindow)
	busy := exchange(2 * growAfter)
	want("a busy one", busy, largeSend, largeWindow)
	want("beyond the bound", exchange(2*growAfter), smallSend, smallWindow)
	busy.Close()
	b.awaitClosed(t)
	want("after its end", exchange(2*growAfter), largeSend, largeWindow)
}

// outside returns how many bytes the Gateway's socket with a local address can receive, with the kernel's own
// data, and whether the size is fixed.
func outside(t *testing.T, local net.Addr) (receive int, fixed bool) {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		fd, _ := strconv.Atoi(f.Name())
		a, err := unix.Getsockname(fd)
		if in, ok := a.(*unix.SockaddrInet4); err != nil || !ok || in.Port != local.(*net.TCPAddr).Port {
			continue
		}
		receive, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
		lock, lockErr := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUF_LOCK)
		if err := errors.Join(err, lockErr); err != nil {
			t.Fatal(err)
		}
		return receive, lock == unix.SOCK_SNDBUF_LOCK|unix.SOCK_RCVBUF_LOCK
	}
	t.Fatal("no such socket")
	return 0, false
}

// Close does not wait for a client that never completes its handshake.
func TestHalfOpen(t *testing.T) {
	accepted := make(chan struct{}, 50)
	networktest.Serve(t, networktest.Public+":80", func(c net.Conn) {
		accepted <- struct{}{}
		echo(c)
	})
	b := newBox(t, nil, nil)
	b.Do(func() { networktest.SetDown(t) })
	for port := range uint16(50) {
		b.gateway.link.deliver(synPacket(1000 + port))
	}
	for range cap(accepted) {
		<-accepted
	}
	b.gateway.Close()
	if n := b.gateway.entries.own.used.Load(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

// A Gateway that closes, or has closed, admits no connection, because Close would not wait for that connection.
func TestEnterAfterClose(t *testing.T) {
	b := newBox(t, nil, nil)
	if reached := b.gateway.enter(); reached != "" {
		t.Fatal(reached)
	}
	b.gateway.leave()
	b.gateway.Close()
	if reached := b.gateway.enter(); reached != closing {
		t.Errorf("got %q", reached)
	}
}

// synPacket returns the first packet of a connection to port 80.
func synPacket(from uint16) []byte {
	p := ipv4Packet("192.0.0.2", unix.IPPROTO_TCP, nil)
	h := header.IPv4(p)
	h.SetTotalLength(40)
	h.SetChecksum(^h.CalculateChecksum())
	segment := header.TCP(p[20:40])
	segment.Encode(&header.TCPFields{SrcPort: from, DstPort: 80, SeqNum: 1, DataOffset: 20, Flags: header.TCPFlagSyn, WindowSize: 1000})
	return p
}

// The sandboxes of a tenant together have a bound on questions under way, because each has a socket. A question beyond
// it waits, and ends with its network.
func TestAskingIsBounded(t *testing.T) {
	newZone(t)
	b := newBox(t, nil, nil, func(c *Config) { c.Shared.asking = make(chan struct{}, 1) })
	asking := b.gateway.entries.tenant.asking
	asking <- struct{}{}
	go b.gateway.end()
	if got := b.gateway.names.ask("www.test", dns.TypeA); got.code != dns.RcodeServerFailure {
		t.Errorf("without room: %+v", got)
	}
	b = newBox(t, nil, nil, func(c *Config) { c.Shared.asking = asking })
	<-asking
	for range 2 { // the first one gives the room back
		if got := b.gateway.names.ask("www.test", dns.TypeA); len(got.addresses) != 1 {
			t.Errorf("with room: %+v", got)
		}
	}
}

// Without a descriptor the connection is refused at once, and an event says why.
func TestNoDescriptors(t *testing.T) {
	b := newBox(t, nil, nil)
	var client int
	var err error
	b.Do(func() { client, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0) })
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(client)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 3 // below the descriptors that are open, which stay
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	err = unix.Connect(client, &unix.SockaddrInet4{Addr: [4]byte{20, 1, 0, 1}, Port: 80})
	if back := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); back != nil {
		t.Fatal(back)
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
	b.awaitDenial(t, func(d policy.Denial) bool { return strings.Contains(d.Reason, "too many open sockets") })
}

// A name may be asked for again, but not without end: the order of questions carries data.
func TestQuestionsAreBounded(t *testing.T) {
	c := newCache(policy.Limits{Names: 1, Questions: 100})
	for i := range 100 {
		if reached := c.admit("www.test"); reached != "" {
			t.Fatalf("question %d: %s", i, reached)
		}
	}
	if reached := c.admit("www.test"); !strings.Contains(reached, "100 questions (network_limits.questions)") {
		t.Errorf("got %q", reached)
	}
}
