package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/skillrun/skillrun/internal/permission"
)

// defaultTenant is whom every caller belongs to while no tenants are configured.
const defaultTenant = "default"

// Peer names the caller by its connection: "uid:N" over a Unix socket, as the
// kernel says, and "anonymous" over TCP, which is accepted from this machine
// only.
func Peer(ctx context.Context) (permission.Principal, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return permission.Principal{}, errors.New("the connection has no peer")
	}
	if unix, ok := p.AuthInfo.(unixPeer); ok {
		return user(unix.uid), nil
	}
	return PeerOf(p.Addr)
}

// PeerOf names the caller by the remote address of a connection that a listener of
// PeerListener accepted, as Peer does: for what is no gRPC.
func PeerOf(addr net.Addr) (permission.Principal, error) {
	if unix, ok := addr.(peerAddr); ok {
		if unix.err != nil {
			return permission.Principal{}, unix.err
		}
		return user(unix.uid), nil
	}
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsLoopback() {
		return permission.Principal{}, fmt.Errorf("%v is not on this machine, and no credentials are configured", addr)
	}
	return Anonymous(context.Background())
}

// PeerListener makes of l what Serve makes of its listeners: its connections know
// who is at the other end, and there are not too many of them.
func PeerListener(l net.Listener, log *slog.Logger) net.Listener {
	return newBoundedListener(peerListener{l}, log)
}

func user(uid uint32) permission.Principal {
	return permission.Principal{Tenant: defaultTenant, Name: "uid:" + strconv.FormatUint(uint64(uid), 10)}
}

// Anonymous lets everyone in under one name. It is for a listener that something
// else protects.
func Anonymous(context.Context) (permission.Principal, error) {
	return permission.Principal{Tenant: defaultTenant, Name: "anonymous"}, nil
}

// unixPeer is the process that connected to a Unix socket. Its pid is not kept:
// by now it may be another process's.
type unixPeer struct {
	credentials.CommonAuthInfo
	metered
	uid uint32
}

func (unixPeer) AuthType() string { return "unix" }

// peerListener asks the kernel at once who connected. The answer travels as the
// connection's remote address, because wrappers, such as the one that limits
// connections, hide everything else of it.
type peerListener struct{ net.Listener }

func (l peerListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if c, ok := conn.(*net.UnixConn); ok {
		uid, err := peerUID(c)
		return peerConn{c, peerAddr{c.RemoteAddr(), uid, err}}, nil
	}
	return conn, nil
}

type peerConn struct {
	*net.UnixConn
	addr peerAddr
}

func (c peerConn) RemoteAddr() net.Addr { return c.addr }

type peerAddr struct {
	net.Addr
	uid uint32
	err error // why uid is not known
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

// peerCredentials is a transport without encryption that knows the user at the
// other end of a Unix socket, and counts what comes in.
type peerCredentials struct{ budget *budget }

func (c peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	addr, ok := conn.RemoteAddr().(peerAddr)
	m := newMeteredConn(conn, c.budget)
	if !ok {
		return m, plainPeer{credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}, metered{m}}, nil
	}
	if addr.err != nil {
		return nil, nil, addr.err
	}
	level := credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}
	return m, unixPeer{level, metered{m}, addr.uid}, nil
}

// plainPeer is nobody in particular.
type plainPeer struct {
	credentials.CommonAuthInfo
	metered
}

func (plainPeer) AuthType() string { return "insecure" }

func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("peer credentials are for servers")
}

func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "insecure"}
}

func (c peerCredentials) Clone() credentials.TransportCredentials { return c }

func (peerCredentials) OverrideServerName(string) error { return nil }
