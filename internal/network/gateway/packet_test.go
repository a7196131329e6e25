package gateway

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/skillrun/skillrun/internal/network/policy"
)

func addressesFrom(t *testing.T, n int) (all []netip.Addr) {
	t.Helper()
	a := netip.MustParseAddr("20.0.0.0")
	for range n {
		all = append(all, a)
		a = a.Next()
	}
	return all
}

// ipv4Packet returns a packet with room for a protocol's header.
func ipv4Packet(from string, protocol uint8, edit func(header.IPv4)) []byte {
	p := make([]byte, 40)
	h := header.IPv4(p)
	src, dst := netip.MustParseAddr(from).As4(), netip.MustParseAddr("20.1.0.1").As4()
	p[0] = 4<<4 | 5
	p[9] = protocol
	copy(p[12:], src[:])
	copy(p[16:], dst[:])
	if edit != nil {
		edit(h)
	}
	return p
}

func ipv6Packet(from, to string, next uint8) []byte {
	p := make([]byte, 60)
	src, dst := netip.MustParseAddr(from).As16(), netip.MustParseAddr(to).As16()
	p[0], p[6] = 6<<4, next
	copy(p[8:], src[:])
	copy(p[24:], dst[:])
	p[40] = uint8(header.ICMPv6EchoRequest)
	return p
}

// Only whole TCP and UDP packets from the sandbox's addresses reach the stack.
func TestInspect(t *testing.T) {
	const v4, v6, to6 = "192.0.0.2", "fd73:6b72::2", "2600::1"
	for name, c := range map[string]struct {
		packet []byte
		want   refusal
	}{
		"tcp":       {ipv4Packet(v4, unix.IPPROTO_TCP, nil), refusal{}},
		"udp":       {ipv4Packet(v4, unix.IPPROTO_UDP, nil), refusal{}},
		"tcp6":      {ipv6Packet(v6, to6, unix.IPPROTO_TCP), refusal{}},
		"udp6":      {ipv6Packet(v6, to6, unix.IPPROTO_UDP), refusal{}},
		"forged":    {ipv4Packet("192.0.0.3", unix.IPPROTO_TCP, nil), refusal{protocol: "ip", reason: "source"}},
		"forged6":   {ipv6Packet("fd73:6b72::3", to6, unix.IPPROTO_TCP), refusal{protocol: "ip", reason: "source"}},
		"options":   {ipv4Packet(v4, unix.IPPROTO_TCP, func(h header.IPv4) { h[0] = 4<<4 | 6 }), refusal{protocol: "ip", reason: "options"}},
		"fragment":  {ipv4Packet(v4, unix.IPPROTO_TCP, func(h header.IPv4) { h[6] = 0x20 }), refusal{protocol: "ip", reason: "fragments"}},
		"last":      {ipv4Packet(v4, unix.IPPROTO_TCP, func(h header.IPv4) { h[7] = 1 }), refusal{protocol: "ip", reason: "fragments"}},
		"ping":      {ipv4Packet(v4, unix.IPPROTO_ICMP, func(h header.IPv4) { h[20] = 8 }), refusal{protocol: "icmp", reason: "only TCP"}},
		"ping6":     {ipv6Packet(v6, to6, unix.IPPROTO_ICMPV6), refusal{protocol: "icmp", reason: "only TCP"}},
		"error":     {ipv4Packet(v4, unix.IPPROTO_ICMP, func(h header.IPv4) { h[20] = 3 }), quiet},
		"gre":       {ipv4Packet(v4, unix.IPPROTO_GRE, nil), refusal{protocol: "ip", reason: "only TCP"}},
		"hops":      {ipv6Packet(v6, to6, unix.IPPROTO_HOPOPTS), refusal{protocol: "ip", reason: "extension"}},
		"fragment6": {ipv6Packet(v6, to6, unix.IPPROTO_FRAGMENT), refusal{protocol: "ip", reason: "extension"}},
		"groups":    {ipv6Packet(v6, "ff02::16", unix.IPPROTO_HOPOPTS), quiet},
		"group":     {ipv4Packet(v4, unix.IPPROTO_UDP, func(h header.IPv4) { h[16] = 239 }), refusal{protocol: "udp", reason: "multicast"}},
		"group6":    {ipv6Packet(v6, "ff05::fb", unix.IPPROTO_UDP), refusal{protocol: "udp", reason: "multicast"}},
		"of link":   {ipv6Packet(v6, "ff02::fb", unix.IPPROTO_UDP), refusal{protocol: "udp", reason: "multicast"}},
		"neighbour": {ipv6Packet("fe80::1", "ff02::1:ff00:1", unix.IPPROTO_ICMPV6), quiet},
		"router":    {ipv6Packet("::", "ff02::2", unix.IPPROTO_ICMPV6), quiet},
		"short":     {[]byte{4 << 4}, quiet},
		"short6":    {[]byte{6 << 4}, quiet},
		"arp":       {[]byte{0}, quiet},
		"empty":     {nil, quiet},
	} {
		_, got := inspect(c.packet)
		if got.protocol != c.want.protocol || !strings.Contains(got.reason, c.want.reason) || (got.reason == "") != (c.want.reason == "") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A packet that the sandbox's root could send from a raw socket does not pass, and is an event.
func TestForgedSource(t *testing.T) {
	b := newBox(t, nil, nil)
	var err error
	b.Do(func() {
		var fd int
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW); err != nil {
			return
		}
		defer unix.Close(fd)
		err = unix.Sendto(fd, ipv4Packet("20.9.9.9", unix.IPPROTO_TCP, nil), 0, &unix.SockaddrInet4{Addr: [4]byte{20, 1, 0, 1}})
	})
	if err != nil {
		t.Fatal(err)
	}
	b.awaitDenial(t, func(d policy.Denial) bool { return d.Protocol == "ip" && d.To.Addr().String() == "20.1.0.1" })
}

// For any bytes, a packet that passes is TCP or UDP from the sandbox.
func FuzzInspect(f *testing.F) {
	f.Add(ipv4Packet("192.0.0.2", unix.IPPROTO_TCP, nil))
	f.Add(ipv6Packet("fd73:6b72::2", "2600::1", unix.IPPROTO_UDP))
	f.Add(ipv6Packet("fd73:6b72::2", "ff02::16", unix.IPPROTO_HOPOPTS))
	f.Fuzz(func(t *testing.T, packet []byte) {
		_, refused := inspect(packet)
		if refused != (refusal{}) {
			return
		}
		from, next := packet[12:16], packet[9]
		if packet[0]>>4 == 6 {
			from, next = packet[8:24], packet[6]
		}
		a, _ := netip.AddrFromSlice(from)
		if a != SandboxIPv4 && a != SandboxIPv6 || next != unix.IPPROTO_TCP && next != unix.IPPROTO_UDP {
			t.Errorf("passes: %x", packet)
		}
	})
}
