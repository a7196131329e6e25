// Package dial opens connections to destinations that the rules of a network have allowed: directly (dial.go), or through
// an HTTP proxy (proxy.go). Helpers use it for sandboxes, and the daemon for its downloads.
package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
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

// Dial opens a connection from one of the ports. A helper makes no other sockets; it gets its socket to the daemon from
// the daemon.
func (p Ports) Dial(ctx context.Context, network, to string) (net.Conn, error) {
	c, err := dialFrom(ctx, network, to, p.Common)
	if HasNoPort(err) && p.Reserve != (PortRange{}) {
		return dialFrom(ctx, network, to, p.Reserve)
	}
	return c, err
}

func dialFrom(ctx context.Context, network, to string, ports PortRange) (net.Conn, error) {
	// KeepAlive -1 sends no probes: policy.Limits.Idle ends a connection without data, and a probe for each of thousands of
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

const (
	// Buffers of the socket to the destination, in bytes. The kernel doubles these sizes for its own data (socket(7)).
	// A new socket can receive as much with the usual net.ipv4.tcp_rmem. For a connection with large buffers the kernel
	// chooses the sizes, because transfers over long distances need them: by default up to 6 MiB to receive and 4 MiB to
	// send. So the maxLarge such connections of package gateway hold at most 320 MiB.
	ReceiveBuffer = 64 << 10
	sendBuffer    = 32 << 10
)

// limitBuffers fixes the sizes of a socket's buffers. The kernel would let them grow while a peer or a program does
// not read. Call it after connect: the kernel negotiates a large TCP window only for a socket whose sizes are not fixed
// yet, and UnlimitBuffers may need that window later.
func limitBuffers(c *net.TCPConn) {
	_ = c.SetReadBuffer(ReceiveBuffer)
	_ = c.SetWriteBuffer(sendBuffer)
}

// UnlimitBuffers lets the kernel choose the sizes again (SO_BUF_LOCK, Linux 5.15).
func UnlimitBuffers(c *net.TCPConn) {
	if socket, err := c.SyscallConn(); err == nil {
		_ = socket.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BUF_LOCK, 0) })
	}
}

// HasNoPort reports whether no local port was free: EADDRNOTAVAIL for TCP, EAGAIN for UDP (connect(2)).
func HasNoPort(err error) bool {
	return errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAGAIN)
}

// Fault returns the reason if the helper or the machine could not open a socket, and "" for all other errors, such as
// a destination that refuses.
func Fault(err error) string {
	switch {
	case HasNoPort(err):
		return "the machine has no free port for this destination; a port is free a minute after its connection's end"
	// The bound is processLimits in package helper, RLIMIT_NOFILE (getrlimit(2)).
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

// Unreached returns the error of a dial in words for an event, such as "connection refused".
func Unreached(err error) string {
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		return "no answer in time"
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return Clipped(err.Error())
}

// maxClipped bounds the text of an error of someone else, in bytes.
const maxClipped = 253

// Clipped returns an error's text for a person. It can have bytes of the server.
func Clipped(text string) string {
	text = strconv.QuoteToASCII(text[:min(len(text), maxClipped)])
	return text[1 : len(text)-1]
}
