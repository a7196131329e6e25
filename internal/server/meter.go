package server

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/skillrun/skillrun/internal/ingress"
)

// connectionOf returns the connection of a call, or nil if the connection is not counted.
func connectionOf(ctx context.Context) *ingress.Conn {
	if p, ok := peer.FromContext(ctx); ok {
		if auth, ok := p.AuthInfo.(peerInfo); ok {
			return auth.conn.Conn.(*ingress.Conn) // see ServerHandshake
		}
	}
	return nil
}

// tapped notes a new call. gRPC calls it from the goroutine that reads the connection (package
// tap), while it handles the frame with the call's headers. So Begin knows the stream of the call.
func tapped(ctx context.Context, _ *tap.Info) (context.Context, error) {
	if p, ok := peer.FromContext(ctx); ok {
		if auth, ok := p.AuthInfo.(peerInfo); ok {
			return auth.conn.Begin(ctx), nil
		}
	}
	return nil, status.Error(codes.Internal, "the connection is not counted")
}
