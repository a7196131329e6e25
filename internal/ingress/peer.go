package ingress

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/permission"
)

// DefaultTenant is whom every caller belongs to while no tenants are configured.
const DefaultTenant = "default"

// Identify names the caller by the remote address of a connection that a Listener
// accepted: "uid:N" over a Unix socket, as the kernel says, and "anonymous" over TCP,
// which is accepted from this machine only.
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

// Anonymous is everyone under one name.
func Anonymous() permission.Principal { return principal("anonymous") }

func principal(name string) permission.Principal {
	return permission.Principal{Tenant: DefaultTenant, Name: name}
}

// A User is the remote address of a connection to a Unix socket: the process that
// connected. Its pid is not kept: by now it may be another process's.
type User struct {
	net.Addr
	UID uint32
	Err error // why UID is not known
}

// addressOf asks the kernel at once who connected. The answer travels as the
// connection's remote address, which no wrapper hides.
func addressOf(conn net.Conn) net.Addr {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return conn.RemoteAddr()
	}
	uid, err := peerUID(c)
	return User{c.RemoteAddr(), uid, err}
}

// peerName is one name for all connections of a user, or of an address.
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

// peerUID returns the user who called connect(2): SO_PEERCRED, unix(7).
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
