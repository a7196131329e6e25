package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/network/policy"
)

// Ports are the local ports of a helper's sockets. They can run out. When a client closes a TCP connection before its
// server does, the kernel keeps the connection's port for a minute (TIME_WAIT), and no other connection to the same
// destination can use the port during that time. A UDP socket shares its port with no other socket.
//
// So each helper takes ports of Common first, which all helpers share, and then ports of its Reserve. One tenant then
// can't use up all ports for a destination. Linux before 6.3 has no IP_LOCAL_PORT_RANGE and ignores both ranges.
type Ports struct {
	Common  PortRange `json:"common"`
	Reserve PortRange `json:"reserve"`
}

// A PortRange is a part of the machine's range of local ports. The zero PortRange is all of it.
type PortRange struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

// choose makes the kernel choose a port of the range (IP_LOCAL_PORT_RANGE, ip(7)). It ignores the error of an older
// kernel, which then chooses any port.
func (p PortRange) choose(fd int) {
	if p != (PortRange{}) {
		// The option has both ends of the range in one number: the last port in the upper 16 bits, the first in the lower.
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_LOCAL_PORT_RANGE, int(p.Last)<<16|int(p.First))
	}
}

// connectEarly begins to connect a socket before its Dialer does. If the destination is on this machine, the kernel has
// the answer before connect(2) returns, but says so only in the next call, which is the Dialer's. Otherwise the
// Dialer's goroutine would sleep, and the helper would first do all else that waits.
func connectEarly(fd int, to string) error {
	destination, err := netip.ParseAddrPort(to)
	if err != nil {
		return err
	}
	var address unix.Sockaddr = &unix.SockaddrInet6{Addr: destination.Addr().As16(), Port: int(destination.Port())}
	if destination.Addr().Is4() {
		address = &unix.SockaddrInet4{Addr: destination.Addr().As4(), Port: int(destination.Port())}
	}
	if err = unix.Connect(fd, address); err == unix.EINPROGRESS || err == unix.EINTR {
		return nil
	}
	return err
}

// dial opens a connection of the helper, from a port of Ports. The helper makes no other sockets; it gets its socket to
// the daemon from the daemon.
func (s *Shared) dial(ctx context.Context, network, to string) (net.Conn, error) {
	ports := s.limits.Ports
	c, err := dialFrom(ctx, network, to, ports.Common)
	if hasNoPort(err) && ports.Reserve != (PortRange{}) {
		return dialFrom(ctx, network, to, ports.Reserve)
	}
	return c, err
}

func dialFrom(ctx context.Context, network, to string, ports PortRange) (net.Conn, error) {
	// KeepAlive -1 sends no probes: limits.Idle ends a connection without data, and a probe for each of thousands of
	// idle connections would cost the machine.
	c, err := (&net.Dialer{KeepAlive: -1, Control: func(network, to string, socket syscall.RawConn) (err error) {
		failed := socket.Control(func(fd uintptr) {
			ports.choose(int(fd))
			if strings.HasPrefix(network, "tcp") {
				err = connectEarly(int(fd), to)
			}
		})
		return errors.Join(failed, err)
	}}).DialContext(ctx, network, to)
	if tcp, ok := c.(*net.TCPConn); ok && err == nil {
		limitBuffers(tcp)
	}
	return c, err
}

// limitBuffers fixes the sizes of a socket's buffers. The kernel would let them grow while a peer or a program does
// not read. Call it after connect: the kernel negotiates a large TCP window only for a socket whose sizes are not fixed
// yet, and unlimitBuffers may need that window later.
func limitBuffers(c *net.TCPConn) {
	_ = c.SetReadBuffer(socketReceive)
	_ = c.SetWriteBuffer(socketSend)
}

// unlimitBuffers lets the kernel choose the sizes again (SO_BUF_LOCK, Linux 5.15).
func unlimitBuffers(c *net.TCPConn) {
	if socket, err := c.SyscallConn(); err == nil {
		_ = socket.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BUF_LOCK, 0) })
	}
}

// hasNoPort reports whether no local port was free: EADDRNOTAVAIL for TCP, EAGAIN for UDP (connect(2)).
func hasNoPort(err error) bool {
	return errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAGAIN)
}

// fault returns the reason if the helper or the machine could not open a socket, and "" for all other errors, such as
// a destination that refuses.
func fault(err error) string {
	switch {
	case hasNoPort(err):
		return "the machine has no free port for this destination; a port is free a minute after its connection's end"
	// The bound is processLimits in package network, RLIMIT_NOFILE (getrlimit(2)).
	case errors.Is(err, unix.EMFILE):
		return "the tenant's network helper has too many open sockets"
	}
	for _, e := range []error{unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EPERM, unix.EACCES} {
		if errors.Is(err, e) {
			return "the machine does not open the connection: " + e.Error()
		}
	}
	return ""
}

// unreached returns the error of a dial in words for an event, such as "connection refused".
func unreached(err error) string {
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		return "no answer in time"
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return clipped(err.Error())
}

// missed reports an allowed connection that its destination did not accept. It reports no faults of the proxy, the
// helper or the machine, because dial has reported these as refusals.
func (g *Gateway) missed(start time.Time, d decision, err error) {
	if _, proxy := errors.AsType[proxyError](err); proxy || fault(err) != "" || g.life.Err() != nil {
		return
	}
	g.report.closed(policy.Connection{Start: start, Took: time.Since(start), Protocol: string(d.protocol), To: d.to, Name: d.name, Error: unreached(err)})
}

// dial opens the connection of a decision, through the proxy if the decision has one. If the proxy or the
// helper opens no connection, dial reports the refusal with its reason.
func (g *Gateway) dial(ctx context.Context, d decision) (*upstream, error) {
	ctx, cancel := context.WithTimeout(ctx, g.entries.limits.Dial)
	defer cancel()
	u, err := g.dialTCP(ctx, d)
	reason := fault(err)
	if refused, ok := errors.AsType[proxyError](err); ok {
		reason = refused.reason
	}
	if hasNoPort(err) {
		g.throttle.charge(wasteOfPort)
	}
	if reason != "" && g.life.Err() == nil {
		g.deny(d.refuse(policy.Verdict{Reason: reason}))
	}
	return u, err
}

func (g *Gateway) dialTCP(ctx context.Context, d decision) (*upstream, error) {
	if d.proxied != "" {
		return g.relay.dial(ctx, d.proxied)
	}
	c, err := g.entries.tenant.dial(ctx, "tcp", d.to.String())
	if err != nil {
		return nil, err
	}
	return &upstream{Conn: c, socket: c.(*net.TCPConn)}, nil
}
