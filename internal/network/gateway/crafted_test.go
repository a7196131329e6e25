package gateway

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/skillrun/skillrun/internal/network/dial"
	"github.com/skillrun/skillrun/internal/network/networktest"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// A wire is a sandbox whose packets the test writes. A script can't: it has no raw sockets and no TUN device, and
// the kernel makes its packets.
type wire struct {
	*box
	end *os.File // the device's other end
}

func newWire(t *testing.T, allow []string, change ...func(*Config)) *wire {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	// The gateway drops packets for which there is no room, and the answers to a flood come at once.
	if err := unix.SetsockoptInt(fds[1], unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 16<<20); err != nil {
		t.Fatal(err)
	}
	w := &wire{end: os.NewFile(uintptr(fds[0]), "wire")}
	w.box = newBox(t, allow, nil, append(change, func(c *Config) {
		c.TUN.Close()
		c.TUN = os.NewFile(uintptr(fds[1]), "wire")
	})...)
	t.Cleanup(func() { w.end.Close() })
	return w
}

// send writes a packet after an empty virtio_net_hdr.
func (w *wire) send(t *testing.T, packet []byte) {
	t.Helper()
	if _, err := w.end.Write(append(make([]byte, vnetHeader), packet...)); err != nil {
		t.Fatal(err)
	}
}

// receive returns the next TCP segment to a port of the sandbox; 0: to any.
func (w *wire) receive(t *testing.T, port uint16) header.TCP {
	t.Helper()
	_ = w.end.SetReadDeadline(time.Now().Add(30 * time.Second))
	for b := make([]byte, vnetHeader+largestRead); ; {
		n, err := w.end.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if ip := header.IPv4(b[vnetHeader:n]); ip.IsValid(n-vnetHeader) && ip.Protocol() == unix.IPPROTO_TCP {
			if s := header.TCP(ip.Payload()); port == 0 || s.DestinationPort() == port {
				return s
			}
		}
	}
}

const firstSequence = 1000

// segment is a TCP packet to port 80 of the public host.
func segment(from uint16, sequence, ack uint32, flags header.TCPFlags, payload string) []byte {
	p := ipv4Packet("192.0.0.2", unix.IPPROTO_TCP, nil)
	p = append(p, payload...)
	h := header.IPv4(p)
	h.SetTotalLength(uint16(len(p)))
	h.SetChecksum(^h.CalculateChecksum())
	header.TCP(p[20:]).Encode(&header.TCPFields{SrcPort: from, DstPort: 80, SeqNum: sequence, AckNum: ack, DataOffset: 20, Flags: flags, WindowSize: 60000})
	return p
}

// open completes a handshake, and returns the number that acknowledges it.
func (w *wire) open(t *testing.T, port uint16) (ack uint32) {
	t.Helper()
	w.send(t, segment(port, firstSequence, 0, header.TCPFlagSyn, ""))
	s := w.receive(t, port)
	if s.Flags() != header.TCPFlagSyn|header.TCPFlagAck {
		t.Fatalf("the answer to SYN is %s", s.Flags())
	}
	ack = s.SequenceNumber() + 1
	w.send(t, segment(port, firstSequence+1, ack, header.TCPFlagAck, ""))
	return ack
}

// Segments that overlap and differ are put together once, before the name is checked: the server gets the
// request that was checked, or nothing.
func TestOverlappingSegments(t *testing.T) {
	const good, evil = "GET / HTTP/1.1\r\nHost: www.test\r\n\r\n", "GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n"
	type part struct {
		at, end int
		text    string
	}
	const host = len("GET / HTTP/1.1\r\nHost: ")
	for name, c := range map[string]struct {
		parts  []part
		want   string // the bytes that the server receives
		denied string // the host of the refusal
	}{
		"the whole again":           {[]part{{0, len(good), good}, {0, len(evil), evil}}, good, ""},
		"the host again":            {[]part{{0, host + 4, good}, {host, len(evil), evil}}, "", "www..com"},
		"evil first, behind a hole": {[]part{{host, len(evil), evil}, {0, len(good), good}}, good, ""},
		"good first, behind a hole": {[]part{{host, len(good), good}, {0, len(evil), evil}}, "", "evil.com"},
		"two ends behind a hole":    {[]part{{host, len(evil), evil}, {host, len(good), good}, {0, host, good}}, "", "evil.com"},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan string, 1)
			networktest.Serve(t, networktest.Public+":80", func(c net.Conn) {
				b, err := io.ReadAll(c)
				if err != nil && !errors.Is(err, unix.ECONNRESET) {
					b = append(b, err.Error()...)
				}
				got <- string(b)
			})
			w := newWire(t, []string{"www.test"})
			w.gateway.pins.add("www.test", []netip.Addr{netip.MustParseAddr(networktest.Public)}, time.Hour, false)
			const port = 2000
			ack := w.open(t, port)
			for _, p := range c.parts {
				w.send(t, segment(port, firstSequence+1+uint32(p.at), ack, header.TCPFlagAck|header.TCPFlagPsh, p.text[p.at:p.end]))
			}
			w.send(t, segment(port, firstSequence+1+uint32(len(good)), ack, header.TCPFlagAck|header.TCPFlagFin, ""))
			if got := <-got; got != c.want {
				t.Errorf("the server got %q", got)
			}
			if c.denied != "" {
				w.awaitDenial(t, func(d policy.Denial) bool { return d.Name == c.denied })
			}
		})
	}
}

// Packets that the sandbox's kernel does not make open no connection, and are events. A plain one still does.
func TestCraftedPackets(t *testing.T) {
	accepted := make(chan struct{}, 100)
	accept := func(c net.Conn) {
		accepted <- struct{}{}
		_, _ = io.Copy(io.Discard, c)
	}
	networktest.Serve(t, networktest.Public+":80", accept)
	networktest.Serve(t, "["+networktest.Public6+"]:80", accept)
	syn := func(edit func(p []byte) []byte) []byte {
		p := edit(segment(3000, firstSequence, 0, header.TCPFlagSyn, ""))
		h := header.IPv4(p)
		h.SetTotalLength(uint16(len(p)))
		h.SetChecksum(0)
		h.SetChecksum(^h.CalculateChecksum())
		return p
	}
	// syn6 has an extension header before TCP's.
	syn6 := func(kind byte, extension ...byte) []byte {
		p := ipv6Packet("fd73:6b72::2", networktest.Public6, kind)[:40]
		p = append(append(p, extension...), segment(3000, firstSequence, 0, header.TCPFlagSyn, "")[20:]...)
		header.IPv6(p).SetPayloadLength(uint16(len(p) - 40))
		return p
	}
	for name, c := range map[string]struct {
		reason string
		packet []byte
	}{
		"forged":    {"source", syn(func(p []byte) []byte { copy(p[12:], []byte{20, 9, 9, 9}); return p })},
		"both ends": {"source", syn(func(p []byte) []byte { copy(p[12:], p[16:20]); return p })},
		"options": {"options", syn(func(p []byte) []byte {
			p[0] = 4<<4 | 6
			return append(p[:20:20], append([]byte{1, 1, 1, 0}, p[20:]...)...)
		})},
		"first part":  {"fragments", syn(func(p []byte) []byte { p[6] = 0x20; return p[:28] })},
		"last part":   {"fragments", syn(func(p []byte) []byte { p[7] = 1; return append(p[:20:20], p[28:]...) })},
		"hop by hop":  {"extension", syn6(unix.IPPROTO_HOPOPTS, unix.IPPROTO_TCP, 0, 1, 4, 0, 0, 0, 0)},
		"destination": {"extension", syn6(unix.IPPROTO_DSTOPTS, unix.IPPROTO_TCP, 0, 1, 4, 0, 0, 0, 0)},
		"routing":     {"extension", syn6(unix.IPPROTO_ROUTING, unix.IPPROTO_TCP, 0, 0, 0, 0, 0, 0, 0)},
		"atomic part": {"extension", syn6(unix.IPPROTO_FRAGMENT, unix.IPPROTO_TCP, 0, 0, 0, 0, 0, 0, 7)},
		"4 in 4":      {"only TCP", append(ipv4Packet("192.0.0.2", unix.IPPROTO_IPIP, nil)[:20], synPacket(3000)...)},
		"6 in 4":      {"only TCP", append(ipv4Packet("192.0.0.2", unix.IPPROTO_IPV6, nil)[:20], syn6(unix.IPPROTO_TCP)...)},
		"4 in 6":      {"only TCP", append(ipv6Packet("fd73:6b72::2", networktest.Public6, unix.IPPROTO_IPIP)[:40], synPacket(3000)...)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, nil)
			w.send(t, c.packet)
			w.awaitDenial(t, func(d policy.Denial) bool { return strings.Contains(d.Reason, c.reason) })
			w.open(t, 3001)
			<-accepted
			if len(accepted) > 0 {
				t.Error("the crafted packet opened a connection")
			}
		})
	}
	t.Run("nothing else", func(t *testing.T) { // the function that makes packets with extensions makes good ones
		w := newWire(t, nil)
		w.send(t, syn6(unix.IPPROTO_TCP))
		<-accepted
	})
}

// A flood of connections that are never completed reaches the bound, and no further: the rest is reset.
// Another sandbox of the tenant can still connect, and the end of the flood gives everything back.
func TestHalfOpenFlood(t *testing.T) {
	networktest.Serve(t, networktest.Public+":80", echo)
	shared := NewShared(policy.DefaultTenantLimits(), dial.Ports{})
	w := newWire(t, nil, func(c *Config) { c.Shared = shared })
	const attempts, most = 600, 256
	for i := range uint16(attempts) {
		w.send(t, segment(4000+i, firstSequence, 0, header.TCPFlagSyn, ""))
	}
	answers := map[uint16]bool{} // by port: is it a reset?
	for len(answers) < attempts {
		s := w.receive(t, 0)
		answers[s.DestinationPort()] = s.Flags().Contains(header.TCPFlagRst)
	}
	resets := 0
	for _, reset := range answers {
		if reset {
			resets++
		}
	}
	if resets != attempts-most {
		t.Errorf("%d resets", resets)
	}
	w.awaitDenial(t, func(d policy.Denial) bool { return strings.Contains(d.Reason, "network_limits.connections") })
	neighbour := newBox(t, nil, nil, func(c *Config) { c.Shared = shared })
	c, err := neighbour.Dial("tcp", networktest.Public+":80")
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	neighbour.awaitClosed(t)
	w.gateway.Close()
	if n := w.gateway.entries.own.used.Load(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}
