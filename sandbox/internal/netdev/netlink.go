package netdev

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// The few messages of rtnetlink(7) that Make needs. A library's handle would send each one alone
// and wait for its answer, on the path of every execution with a network.

var native = binary.NativeEndian

// A message is one request, without its header.
type message struct {
	what  string // for errors
	kind  uint16 // RTM_...
	flags uint16 // NLM_F_..., besides NLM_F_REQUEST and NLM_F_ACK, which send and do add
	body  []byte // a structure that belongs to kind, then attributes
}

// attribute appends one attribute to a body, with zeros up to a multiple of four bytes (RTA_ALIGN, rtnetlink(3)).
func attribute(body []byte, kind uint16, value []byte) []byte {
	body = native.AppendUint16(body, uint16(unix.SizeofRtAttr+len(value)))
	body = native.AppendUint16(body, kind)
	body = append(body, value...)
	return append(body, make([]byte, -len(value)&3)...)
}

// addressesNone is IN6_ADDR_GEN_MODE_NONE of linux/if_link.h.
const addressesNone = 1

func number(n uint32) []byte { return native.AppendUint32(nil, n) }

// link returns the body of a message about an interface (struct ifinfomsg).
func link(index int, flags uint32) []byte {
	body := make([]byte, 4, 64)
	body = native.AppendUint32(body, uint32(index))
	body = native.AppendUint32(body, flags)
	return native.AppendUint32(body, flags) // which flags to change
}

// settings must take effect before the interface is up.
func settings(index int, ipv6 bool) message {
	body := attribute(link(index, 0), unix.IFLA_MTU, number(MTU))
	body = attribute(body, unix.IFLA_TXQLEN, number(queue))
	if ipv6 {
		// Without a link-local address the kernel itself sends no packets.
		mode := attribute(nil, unix.IFLA_INET6_ADDR_GEN_MODE, []byte{addressesNone})
		body = attribute(body, unix.IFLA_AF_SPEC, attribute(nil, unix.AF_INET6, mode))
	}
	return message{what: "settings", kind: unix.RTM_NEWLINK, body: body}
}

func up(index int) message {
	return message{what: "bring up", kind: unix.RTM_NEWLINK, body: link(index, unix.IFF_UP)}
}

// address gives the interface an address whose prefix has no other address. It is usable at once:
// without another host on the link, the kernel need not look for duplicates.
func address(index int, a netip.Addr) message {
	body := []byte{family(a), byte(a.BitLen()), unix.IFA_F_PERMANENT | unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE} // struct ifaddrmsg
	body = append(body, number(uint32(index))...)
	body = attribute(body, unix.IFA_LOCAL, a.AsSlice())
	body = attribute(body, unix.IFA_ADDRESS, a.AsSlice())
	return message{what: "address " + a.String(), kind: unix.RTM_NEWADDR, flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, body: body}
}

// congestion is the congestion control of a program's connections. Every kernel has it. They end in the carrier on this
// machine, and lose no packets. The machine's default may be BBR, which sends no faster than its estimate of the path,
// and loses a third of the throughput.
const congestion = "reno"

// gatewayIPv6 is the gateway of the IPv6 route. A TUN device has no other host on its link, so no packet has this address.
// Without a gateway the kernel would keep a neighbour for each destination. The table of IPv6 neighbours is one for the
// whole machine and has 1,024 entries (net.ipv6.neigh.default.gc_thresh3), so a program could drive out the entries
// of others. All IPv4 destinations of a point-to-point device are one neighbour anyway (__ipv4_neigh_lookup in
// include/net/arp.h).
var gatewayIPv6 = netip.MustParseAddr("fe80::1")

// defaultRoute sends everything of a's family to the interface.
func defaultRoute(index int, a netip.Addr) message {
	scope := byte(unix.RT_SCOPE_LINK)
	if a.Is6() {
		scope = unix.RT_SCOPE_UNIVERSE
	}
	// struct rtmsg: no prefix, so every destination.
	body := []byte{family(a), 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_BOOT, scope, unix.RTN_UNICAST, 0, 0, 0, 0}
	body = attribute(body, unix.RTA_OIF, number(uint32(index)))
	body = attribute(body, unix.RTA_METRICS, attribute(nil, unix.RTAX_CC_ALGO, []byte(congestion+"\x00")))
	if a.Is6() {
		body = attribute(body, unix.RTA_GATEWAY, gatewayIPv6.AsSlice())
	}
	return message{what: "route of " + a.String(), kind: unix.RTM_NEWROUTE, flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, body: body}
}

// localRoute makes the kernel take packets to the address. The kernel adds this route itself, but
// for IPv6 in a worker, maybe after the program has started.
func localRoute(index int, a netip.Addr) message {
	body := []byte{family(a), byte(a.BitLen()), 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_BOOT, unix.RT_SCOPE_UNIVERSE, unix.RTN_LOCAL, 0, 0, 0, 0}
	body = attribute(body, unix.RTA_DST, a.AsSlice())
	body = attribute(body, unix.RTA_OIF, number(uint32(index)))
	// Without NLM_F_EXCL: the worker may have been faster.
	return message{what: "local route of " + a.String(), kind: unix.RTM_NEWROUTE, flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE, body: body}
}

// noMulticastRoute removes the route that the kernel adds for IPv6 multicasts. It has no gateway, see gatewayIPv6.
func noMulticastRoute(index int) message {
	body := []byte{unix.AF_INET6, 8, 0, 0, unix.RT_TABLE_LOCAL, 0, unix.RT_SCOPE_NOWHERE, 0, 0, 0, 0, 0}
	body = attribute(body, unix.RTA_DST, netip.MustParseAddr("ff00::").AsSlice())
	body = attribute(body, unix.RTA_OIF, number(uint32(index)))
	return message{what: "route of multicasts", kind: unix.RTM_DELROUTE, body: body}
}

func family(a netip.Addr) byte {
	if a.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// A conn is a netlink socket in the namespace of the thread that dialled.
type conn struct {
	fd     int
	buffer []byte // for answers. The kernel answers each request of a batch alone, so a buffer for each would be garbage.
}

func dial() (*conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	// The kernel answers at once, or not at all.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("netlink: %w", err)
	}
	return &conn{fd, make([]byte, 32<<10)}, nil // the kernel's packets of a list are at most this long
}

func (c *conn) close() { unix.Close(c.fd) }

// index returns the number of an interface. SIOCGIFINDEX works on a socket of any kind (netdevice(7)).
func (c *conn) index(name string) (int, error) {
	r, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(c.fd, unix.SIOCGIFINDEX, r); err != nil {
		return 0, err
	}
	return int(r.Uint32()), nil
}

// send sends requests as one packet. Their sequence numbers are their indices. The kernel handles them in order, within
// the call; after one that fails it goes on with the next.
func (c *conn) send(batch []message) error {
	var packet []byte
	for i, m := range batch {
		packet = native.AppendUint32(packet, uint32(unix.SizeofNlMsghdr+len(m.body)))
		packet = native.AppendUint16(packet, m.kind)
		packet = native.AppendUint16(packet, m.flags|unix.NLM_F_REQUEST)
		packet = native.AppendUint32(packet, uint32(i))
		packet = native.AppendUint32(packet, 0) // port: the kernel fills it in
		packet = append(packet, m.body...)
	}
	return unix.Sendto(c.fd, packet, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

// do sends requests and waits for the answer to each. Its error names the first request that the
// kernel refused.
func (c *conn) do(batch []message) error {
	for i := range batch {
		batch[i].flags |= unix.NLM_F_ACK
	}
	if err := c.send(batch); err != nil {
		return err
	}
	var first error
	for answered := 0; answered < len(batch); {
		_, err := c.receive(func(h unix.NlMsghdr, body []byte) error {
			if h.Type != unix.NLMSG_ERROR || len(body) < 4 || int(h.Seq) >= len(batch) {
				return errAnswer
			}
			answered++
			if errno := -int32(native.Uint32(body)); errno != 0 && first == nil {
				first = fmt.Errorf("%s: %w", batch[h.Seq].what, unix.Errno(errno))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return first
}

// links lists the interfaces, and whether each one is up.
func (c *conn) links() (map[string]bool, error) {
	if err := c.send([]message{{kind: unix.RTM_GETLINK, flags: unix.NLM_F_DUMP, body: link(0, 0)}}); err != nil {
		return nil, err
	}
	links := map[string]bool{}
	for {
		done, err := c.receive(func(h unix.NlMsghdr, body []byte) error {
			if h.Type != unix.RTM_NEWLINK || len(body) < unix.SizeofIfInfomsg {
				return errAnswer
			}
			links[nameOf(body[unix.SizeofIfInfomsg:])] = native.Uint32(body[8:])&unix.IFF_UP != 0
			return nil
		})
		if done || err != nil {
			return links, err
		}
	}
}

// nameOf finds the name among the attributes of an interface.
func nameOf(attributes []byte) string {
	for len(attributes) >= unix.SizeofRtAttr {
		size := int(native.Uint16(attributes))
		if size < unix.SizeofRtAttr || size > len(attributes) {
			break
		}
		if native.Uint16(attributes[2:]) == unix.IFLA_IFNAME {
			name, _, _ := bytes.Cut(attributes[unix.SizeofRtAttr:size], []byte{0})
			return string(name)
		}
		attributes = attributes[min(align4(size), len(attributes)):]
	}
	return ""
}

var errAnswer = errors.New("malformed answer of the kernel")

// receive reads one packet and calls each for its messages, with the header and the rest, which are valid during the
// call. It reports whether the packet ends a list. An error of each ends the packet.
func (c *conn) receive(each func(unix.NlMsghdr, []byte) error) (done bool, err error) {
	n, _, err := unix.Recvfrom(c.fd, c.buffer, 0)
	for errors.Is(err, unix.EINTR) {
		n, _, err = unix.Recvfrom(c.fd, c.buffer, 0)
	}
	if err != nil {
		return false, err
	}
	return parse(c.buffer[:n], each)
}

// parse calls each for the messages of a packet.
func parse(packet []byte, each func(unix.NlMsghdr, []byte) error) (done bool, err error) {
	for len(packet) > 0 {
		if len(packet) < unix.SizeofNlMsghdr {
			return false, errAnswer
		}
		h := unix.NlMsghdr{Len: native.Uint32(packet), Type: native.Uint16(packet[4:]), Seq: native.Uint32(packet[8:])}
		size := int(h.Len)
		if size < unix.SizeofNlMsghdr || size > len(packet) {
			return false, errAnswer
		}
		if h.Type == unix.NLMSG_DONE {
			return true, nil
		}
		if err := each(h, packet[unix.SizeofNlMsghdr:size]); err != nil {
			return false, err
		}
		packet = packet[min(align4(size), len(packet)):]
	}
	return false, nil
}

// align4 rounds up as NLMSG_ALIGN does.
func align4(n int) int { return (n + 3) &^ 3 }
