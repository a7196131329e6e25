package gateway

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/skillrun/skillrun/internal/network/dial"
	"github.com/skillrun/skillrun/internal/network/networktest"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// serveUDP sends each packet back.
func serveUDP(t *testing.T, address string) {
	t.Helper()
	p, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { p.Close(); <-ended })
	go func() {
		defer close(ended)
		b := make([]byte, largestRead)
		for {
			n, from, err := p.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = p.WriteTo(b[:n], from)
		}
	}()
}

// Packets of each size pass both ways, and the session is one event at its end.
func TestUDP(t *testing.T) {
	for _, host := range []string{networktest.Public, networktest.Public6} {
		address := net.JoinHostPort(host, "5000")
		serveUDP(t, address)
		b := newBox(t, []string{"public:5000/udp"}, nil)
		c, err := b.Dial("udp", address)
		if err != nil {
			t.Fatal(err)
		}
		total := 0
		for _, size := range []int{1, 1400, 60000} {
			if _, err := c.Write(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			if n, err := c.Read(make([]byte, largestRead)); n != size || err != nil {
				t.Errorf("got %d bytes of %d, %v", n, size, err)
			}
			total += size
		}
		c.Close()
		b.gateway.Close()
		if e := b.awaitClosed(t); e.Protocol != "udp" || e.Sent != int64(total) || e.Received != e.Sent {
			t.Errorf("event: %+v", e)
		}
	}
}

// send sends a packet from inside and waits for an answer or an error.
func (b *box) send(t *testing.T, address string) error {
	t.Helper()
	c, err := b.Dial("udp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "x"); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1))
	return err
}

// A refused packet is an error at once. QUIC's port is open for addresses of names only.
func TestUDPRefused(t *testing.T) {
	newZone(t)
	serveUDP(t, networktest.Public+":443")
	b := newBox(t, []string{"public", "public:443/udp"}, nil)
	for _, to := range []string{networktest.Public + ":5000", networktest.Private + ":443", networktest.Public + ":443"} {
		if err := b.send(t, to); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %v", to, err)
		}
	}
	b.awaitDenial(t, func(d policy.Denial) bool { return strings.Contains(d.Reason, "QUIC") })
	b.ask(t, "udp", "www.test", dns.TypeA)
	if err := b.send(t, networktest.Public+":443"); err != nil {
		t.Errorf("after it was resolved: %v", err)
	}
}

// A packet to a multicast address is an event, also if rules seem to open the address.
func TestUDPToGroups(t *testing.T) {
	b := newBox(t, []string{"public:*/udp", "0.0.0.0/0:*/udp", "[::/0]:*/udp"}, nil)
	for _, to := range []string{"224.0.0.1:9000", "224.0.0.251:5353", "239.1.2.3:9000", "[ff02::fb%eth0]:5353", "[ff05::2]:9000"} {
		c, err := b.Dial("udp", to)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "x"); err != nil {
			t.Fatal(err)
		}
		c.Close()
		want := strings.ReplaceAll(to, "%eth0", "")
		b.awaitDenial(t, func(d policy.Denial) bool { return d.String() == "denied: udp "+want+", multicast" })
	}
}

// A rule with the address opens QUIC's port, too: no name is needed.
func TestQUICByAddress(t *testing.T) {
	serveUDP(t, networktest.Public+":443")
	b := newBox(t, []string{"public:443/udp", networktest.Public + ":443/udp"}, nil)
	if err := b.send(t, networktest.Public+":443"); err != nil {
		t.Error(err)
	}
	if err := b.send(t, networktest.Public2+":443"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("another address: %v", err)
	}
}

// A session without a packet ends.
func TestUDPIdle(t *testing.T) {
	serveUDP(t, networktest.Public+":5000")
	b := newBox(t, []string{"public:5000/udp"}, nil, func(c *Config) { c.Limits.IdleUDP = 20 * time.Millisecond })
	c, err := b.Dial("udp", networktest.Public+":5000")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "x"); err != nil { // the answer may come after the end
		t.Fatal(err)
	}
	b.awaitClosed(t)
}

// An idle session holds no packet buffer: many of them take little memory.
func TestIdleSessionsHoldNoBuffers(t *testing.T) {
	serveUDP(t, networktest.Public+":5000")
	b := newBox(t, []string{"public:5000/udp"}, nil)
	const sessions = 200
	before := heap()
	for range sessions {
		c, err := b.Dial("udp", networktest.Public+":5000")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, "x")
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if each := (heap() - before) / sessions; each > 48<<10 {
		t.Errorf("a session holds %d bytes", each)
	}
}

// heap returns the bytes of the objects that are in use.
func heap() int64 {
	for range 3 { // a pool gives its buffers up at the second collection
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Packets that wait for the byte rate are few, also if they have no payload, for which the stack has no bound.
func TestWaitingPacketsAreBounded(t *testing.T) {
	serveUDP(t, networktest.Public+":5000")
	b := newBox(t, []string{"public:5000/udp"}, nil, func(c *Config) {
		l := policy.DefaultTenantLimits()
		l.BytesPerSecond = 70_000
		c.Shared = NewShared(l, dial.Ports{})
	})
	c, err := b.Dial("udp", networktest.Public+":5000")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 4 { // more than a burst, so the session waits
		if _, err := c.Write(make([]byte, 60_000)); err != nil {
			t.Fatal(err)
		}
	}
	local := netip.MustParseAddrPort(c.LocalAddr().String())
	empty := ipv4Packet(SandboxIPv4.String(), unix.IPPROTO_UDP, func(h header.IPv4) {
		copy(h[16:20], netip.MustParseAddr(networktest.Public).AsSlice())
		h.SetTotalLength(header.IPv4MinimumSize + header.UDPMinimumSize)
		h[8] = 64
		h.SetChecksum(^h.CalculateChecksum())
		u := header.UDP(h[header.IPv4MinimumSize:])
		u.Encode(&header.UDPFields{SrcPort: local.Port(), DstPort: 5000, Length: header.UDPMinimumSize})
	})[:header.IPv4MinimumSize+header.UDPMinimumSize]
	before := heap()
	for range 100_000 {
		b.gateway.link.deliver(empty)
	}
	if grown := heap() - before; grown > 16<<20 {
		t.Errorf("the packets hold %d bytes", grown)
	}
	if n := b.gateway.stack.Stats().UDP.PacketsReceived.Value(); n < 1000 {
		t.Errorf("the stack has got only %d packets", n)
	}
}
