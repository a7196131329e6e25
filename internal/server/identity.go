package server

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/ingress/budget"
	"github.com/skillrun/skillrun/internal/ingress/identity"
)

// callerOf identifies the caller of a call by its connection and its header Authorization.
func (s *Server) callerOf(ctx context.Context) (identity.Identity, error) {
	conn := connectionOf(ctx)
	if conn == nil {
		return identity.Identity{}, errors.New("the connection has no peer")
	}
	return s.identify(conn.Credentials(metadata.ValueFromIncomingContext(ctx, "authorization")))
}

// A peerInfo is the AuthInfo of a connection's calls. It makes the connection known to them: gRPC
// passes AuthInfo to the tap handle and to handlers, and passes the net.Conn to neither.
type peerInfo struct {
	credentials.CommonAuthInfo
	kind string
	conn *budget.Conn // its Conn is an *ingress.Conn
}

// AuthType is the kind of the connection: unix, tls or insecure.
func (p peerInfo) AuthType() string { return p.kind }

// peerCredentials knows the peer of each connection, and it counts the incoming messages. The
// listener encrypts connections, if they are encrypted (ingress.Secure).
type peerCredentials struct{ budget *budget.Budget }

// ServerHandshake completes the beginning of a new connection. gRPC has set a deadline, of
// grpc.ConnectionTimeout, and closes the connection after an error.
func (c peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	counted, ok := conn.(*ingress.Conn)
	if !ok {
		return nil, nil, fmt.Errorf("a %T is not a connection of package ingress", conn)
	}
	if err := counted.Handshake(); err != nil {
		return nil, nil, err
	}
	kind, level := "insecure", credentials.NoSecurity
	if user, ok := conn.RemoteAddr().(identity.User); ok {
		if user.Err != nil {
			return nil, nil, user.Err // no call comes in without an identity
		}
		// As gRPC's credentials/local: bytes on a Unix socket do not leave the machine.
		kind, level = "unix", credentials.PrivacyAndIntegrity
	}
	if counted.TLS() != nil {
		kind, level = "tls", credentials.PrivacyAndIntegrity
	}
	m := c.budget.Meter(conn)
	return m, peerInfo{credentials.CommonAuthInfo{SecurityLevel: level}, kind, m}, nil
}

// The methods below only complete the interface credentials.TransportCredentials.
func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("peer credentials are for servers")
}

func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "insecure"}
}

func (c peerCredentials) Clone() credentials.TransportCredentials { return c }

func (peerCredentials) OverrideServerName(string) error { return nil }
