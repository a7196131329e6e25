package ingress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/ingress/identity"
)

// addressOf asks the kernel for the user at the other end, right after accept. The answer becomes the
// connection's remote address, which all wrappers pass on.
func addressOf(conn net.Conn) net.Addr {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return conn.RemoteAddr()
	}
	uid, groups, err := peerUser(c)
	return identity.User{Addr: c.RemoteAddr(), UID: uid, Groups: groups, Err: err}
}

// peerName returns a name that all connections of a user, or from an IP address, have in
// common. A network of IPv6 is like an address, see peerOfIP. It is the key of limits and budgets, so it must not
// depend on anything that a caller can choose, such as a port.
func peerName(addr net.Addr) string {
	switch addr := addr.(type) {
	case identity.User:
		if addr.Err == nil {
			return "uid:" + strconv.FormatUint(uint64(addr.UID), 10)
		}
	case *net.TCPAddr:
		return peerOfIP(addr.IP)
	}
	return addr.Network()
}

// peerOfIP returns an IPv4 address, or the network of 64 bits of an IPv6 address: one machine can choose any
// address in its network (RFC 4291, section 2.5.1).
func peerOfIP(ip net.IP) string {
	if ip.To4() != nil || ip.IsLoopback() {
		return ip.String()
	}
	network := net.IPNet{IP: ip.Mask(net.CIDRMask(64, 128)), Mask: net.CIDRMask(64, 128)}
	return network.String()
}

// addressName is a peer's name with the whole IP address, for the audit log.
func addressName(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.IP.String()
	}
	return peerName(addr)
}

// peerUser returns the user id and the groups of the process that called connect(2): SO_PEERCRED
// and SO_PEERGROUPS, see unix(7) and socket(7).
func peerUser(c *net.UnixConn) (uid uint32, groups []uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, nil, err
	}
	var cred *unix.Ucred
	var optErr error
	err = raw.Control(func(fd uintptr) {
		if cred, optErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); optErr == nil {
			groups, optErr = peerGroups(int(fd))
		}
	})
	if err := errors.Join(err, optErr); err != nil {
		return 0, nil, fmt.Errorf("peer credentials: %w", err)
	}
	return cred.Uid, append(groups, cred.Gid), nil
}

// peerGroups returns the supplementary groups. golang.org/x/sys/unix has no function for this
// option. If the buffer is too small, the kernel answers ERANGE and the size that it needs.
func peerGroups(fd int) ([]uint32, error) {
	buf := make([]byte, 4*64)
	for {
		size := uint32(len(buf))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == unix.ERANGE && int(size) > len(buf):
			buf = make([]byte, size)
			continue
		case errno == unix.ENOPROTOOPT: // before Linux 4.13
			return nil, nil
		case errno != 0:
			return nil, errno
		}
		var groups []uint32
		for rest := buf[:size]; len(rest) >= 4; rest = rest[4:] {
			groups = append(groups, binary.NativeEndian.Uint32(rest))
		}
		return groups, nil
	}
}
