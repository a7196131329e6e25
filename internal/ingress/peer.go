package ingress

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/permission"
)

// DefaultTenant is the tenant of every caller as long as no tenants are configured.
const DefaultTenant = "default"

// Identify returns the principal of a connection by its remote address, as a Listener gives
// it. Over a Unix socket the name is "uid:N", from the kernel. Over TCP it is "anonymous",
// and the connection must come from this machine. Loopback is a check against a mistake in the
// configuration, not a credential: every user of the machine can connect to it.
func Identify(addr net.Addr) (permission.Principal, error) {
	if user, ok := addr.(User); ok {
		if user.Err != nil {
			return permission.Principal{}, user.Err
		}
		return principal(peerName(user)), nil
	}
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsLoopback() {
		return permission.Principal{}, fmt.Errorf("%v is not on this machine, and no credentials are configured", addr)
	}
	return Anonymous(), nil
}

// Anonymous returns the principal of all callers without credentials.
func Anonymous() permission.Principal { return principal("anonymous") }

// principal makes every caller one of DefaultTenant.
func principal(name string) permission.Principal {
	return permission.Principal{Tenant: DefaultTenant, Name: name}
}

// A User is the remote address of a connection over a Unix socket: the user who connected.
// The process id is not kept, because another process may have it by now.
type User struct {
	net.Addr
	UID uint32
	Err error // not nil if UID is not known
}

// addressOf asks the kernel who connected, right after accept. The answer becomes the
// connection's remote address, which passes through all wrappers.
func addressOf(conn net.Conn) net.Addr {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return conn.RemoteAddr()
	}
	uid, err := peerUID(c)
	return User{c.RemoteAddr(), uid, err}
}

// peerName returns a name that all connections of a user, or from an IP address, have in
// common. It is the key of limits and budgets, so it must not depend on anything that a caller
// can choose, such as a port.
func peerName(addr net.Addr) string {
	switch addr := addr.(type) {
	case User:
		if addr.Err == nil {
			return "uid:" + strconv.FormatUint(uint64(addr.UID), 10)
		}
	case *net.TCPAddr:
		return addr.IP.String()
	}
	return addr.Network()
}

// peerUID returns the user id of the process that called connect(2): SO_PEERCRED, see
// unix(7).
func peerUID(c *net.UnixConn) (uint32, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var optErr error
	err = raw.Control(func(fd uintptr) {
		cred, optErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, optErr); err != nil {
		return 0, fmt.Errorf("peer credentials: %w", err)
	}
	return cred.Uid, nil
}
