package server

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/ingress/budget"
	"github.com/skillrun/skillrun/internal/permission"
)

// Peer names the caller by its connection, as ingress.Identify does.
func Peer(ctx context.Context) (permission.Principal, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return permission.Principal{}, errors.New("the connection has no peer")
	}
	if unix, ok := p.AuthInfo.(unixPeer); ok {
		return ingress.Identify(unix.user)
	}
	return ingress.Identify(p.Addr)
}

// Anonymous lets everyone in under one name. It is for a listener that something
// else protects.
func Anonymous(context.Context) (permission.Principal, error) { return ingress.Anonymous(), nil }

// unixPeer is the user at the other end of a Unix socket. gRPC keeps it as the AuthInfo of the
// connection's calls.
type unixPeer struct {
	credentials.CommonAuthInfo
	metered
	user ingress.User
}

func (unixPeer) AuthType() string { return "unix" }

// peerCredentials knows the user at the other end of a Unix socket, and it counts the incoming
// messages. The listener encrypts connections, if they are encrypted (ingress.Secure).
type peerCredentials struct{ budget *budget.Budget }

// ServerHandshake identifies the peer of a new connection. The listener has already asked the
// kernel for the user (ingress.User). A TCP peer has no user. gRPC has set a deadline, of
// grpc.ConnectionTimeout, and closes the connection after an error.
func (c peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	user, ok := conn.RemoteAddr().(ingress.User)
	m := c.budget.Meter(conn)
	if !ok {
		level := credentials.NoSecurity
		if conn, ok := conn.(*ingress.Conn); ok {
			if err := conn.Handshake(); err != nil {
				return nil, nil, err
			}
			if conn.TLS() != nil {
				level = credentials.PrivacyAndIntegrity
			}
		}
		return m, plainPeer{credentials.CommonAuthInfo{SecurityLevel: level}, metered{m}}, nil
	}
	// gRPC closes the connection: no call comes in without an identity.
	if user.Err != nil {
		return nil, nil, user.Err
	}
	// As gRPC's credentials/local: bytes on a Unix socket do not leave the machine.
	level := credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}
	return m, unixPeer{level, metered{m}, user}, nil
}

// plainPeer is a peer without a known user.
type plainPeer struct {
	credentials.CommonAuthInfo
	metered
}

func (plainPeer) AuthType() string { return "insecure" }

// The methods below only complete the interface credentials.TransportCredentials.
func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("peer credentials are for servers")
}

func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "insecure"}
}

func (c peerCredentials) Clone() credentials.TransportCredentials { return c }

func (peerCredentials) OverrideServerName(string) error { return nil }
