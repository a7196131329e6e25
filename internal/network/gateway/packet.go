package gateway

import (
	"net/netip"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// A refusal is a packet that does not reach the stack. Without a reason it is no event.
type refusal struct {
	protocol string         // "icmp", "ip", or "udp" for a multicast address
	to       netip.AddrPort // the port is 0 but for "udp"
	reason   string
}

// quiet refuses without an event.
var quiet = refusal{protocol: "ip"}

// inspect passes TCP and UDP packets from the sandbox's addresses. It refuses IP options, extension
// headers and fragments: no program needs them over an interface with this MTU, and the stack's code
// for them is then out of reach.
func inspect(packet []byte) (tcpip.NetworkProtocolNumber, refusal) {
	if len(packet) == 0 {
		return 0, quiet
	}
	switch packet[0] >> 4 {
	case 4:
		return header.IPv4ProtocolNumber, inspectIPv4(packet)
	case 6:
		return header.IPv6ProtocolNumber, inspectIPv6(packet)
	}
	return 0, quiet
}

// inspectIPv4 refuses options and fragments. They are known ways around filters, and with an MTU of 65,520 bytes
// ordinary clients send neither.
func inspectIPv4(packet []byte) refusal {
	if len(packet) < header.IPv4MinimumSize {
		return quiet
	}
	h := header.IPv4(packet)
	// The offsets of source and destination are in RFC 791, 3.1.
	from, _ := netip.AddrFromSlice(packet[12:16])
	to := addressOnly(packet[16:20])
	switch {
	case from != SandboxIPv4:
		return refusal{"ip", to, "the source address is not the sandbox's"}
	case h.HeaderLength() != header.IPv4MinimumSize:
		return refusal{"ip", to, "IP options"}
	case h.More() || h.FragmentOffset() != 0:
		return refusal{"ip", to, "fragments"}
	}
	return inspectProtocol(h.Protocol(), to, packet[header.IPv4MinimumSize:])
}

// inspectIPv6 does the same for IPv6, whose extension headers take the place of options and fragments.
func inspectIPv6(packet []byte) refusal {
	if len(packet) < header.IPv6MinimumSize {
		return quiet
	}
	// The offsets of source and destination are in RFC 8200, 3.
	from, _ := netip.AddrFromSlice(packet[8:24])
	to := addressOnly(packet[24:40])
	// The kernel itself sends to multicast addresses of the link: it announces its groups, and looks for neighbours and
	// routers. None of these packets is UDP.
	if to.Addr().IsLinkLocalMulticast() && packet[6] != unix.IPPROTO_UDP {
		return quiet
	}
	if from != SandboxIPv6 {
		return refusal{"ip", to, "the source address is not the sandbox's"}
	}
	// packet[6] is the number of the next header: an extension, or TCP or UDP.
	switch next := packet[6]; next {
	case unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_FRAGMENT, unix.IPPROTO_DSTOPTS:
		return refusal{"ip", to, "IPv6 extension headers"}
	default:
		return inspectProtocol(next, to, packet[header.IPv6MinimumSize:])
	}
}

// isUDP is for packets that inspect passes.
func isUDP(packet []byte) bool {
	if packet[0]>>4 == 4 {
		return packet[9] == unix.IPPROTO_UDP
	}
	return packet[6] == unix.IPPROTO_UDP
}

// addressOnly returns an address of a packet, with port 0.
func addressOnly(b []byte) netip.AddrPort {
	a, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a, 0)
}

// inspectProtocol refuses all but TCP and UDP. The stack drops UDP to most multicast addresses silently, so it is
// refused here. A refused echo request (ping) is an event, because a program waits for the answer.
func inspectProtocol(protocol uint8, to netip.AddrPort, payload []byte) refusal {
	const reason = "only TCP and UDP are carried"
	switch {
	case protocol == unix.IPPROTO_UDP && to.Addr().IsMulticast() && len(payload) >= header.UDPMinimumSize:
		return refusal{"udp", netip.AddrPortFrom(to.Addr(), header.UDP(payload).DestinationPort()), "a multicast address"}
	case protocol == unix.IPPROTO_TCP, protocol == unix.IPPROTO_UDP:
		return refusal{}
	case protocol != unix.IPPROTO_ICMP && protocol != unix.IPPROTO_ICMPV6:
		return refusal{"ip", to, reason}
	case len(payload) > 0 && (header.ICMPv4Type(payload[0]) == header.ICMPv4Echo || header.ICMPv6Type(payload[0]) == header.ICMPv6EchoRequest):
		return refusal{"icmp", to, reason}
	}
	return quiet // the kernel's own, such as an error for a UDP packet that comes too late
}
