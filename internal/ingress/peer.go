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
// common. It is the key of limits and budgets, so it must not depend on anything that a caller
// can choose, such as a port.
func peerName(addr net.Addr) string {
	switch addr := addr.(type) {
	case identity.User:
		if addr.Err == nil {
			return "uid:" + strconv.FormatUint(uint64(addr.UID), 10)
		}
	case *net.TCPAddr:
		return addr.IP.String()
	}
	return addr.Network()
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
