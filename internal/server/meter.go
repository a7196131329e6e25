package server

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/ingress/budget"
)

// metered makes the connection known to its calls, as a part of AuthInfo: gRPC passes AuthInfo
// to the tap handle and to handlers, and passes the net.Conn to neither.
type metered struct{ conn *budget.Conn }

func (m metered) meter() *budget.Conn { return m.conn }

// connectionOf returns the connection of a call, or nil if the connection is not counted.
func connectionOf(ctx context.Context) *ingress.Conn {
	if p, ok := peer.FromContext(ctx); ok {
		if auth, ok := p.AuthInfo.(interface{ meter() *budget.Conn }); ok {
			conn, _ := auth.meter().Conn.(*ingress.Conn)
			return conn
		}
	}
	return nil
}

// tapped notes a new call. gRPC calls it from the goroutine that reads the connection (package
// tap), while it handles the frame with the call's headers. So Begin knows the stream of the call.
func tapped(ctx context.Context, _ *tap.Info) (context.Context, error) {
	if p, ok := peer.FromContext(ctx); ok {
		if auth, ok := p.AuthInfo.(interface{ meter() *budget.Conn }); ok {
			return auth.meter().Begin(ctx), nil
		}
	}
	return nil, status.Error(codes.Internal, "the connection is not counted")
}
