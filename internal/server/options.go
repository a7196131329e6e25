package server

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/ingress/budget"
)

// Defaults of Config.
const (
	// The published contract of ExecuteScript allows 10,000,000 bytes of JSON arguments in one
	// message (docs/decisions/0013).
	DefaultMaxMessageBytes = 16 << 20
	// skillrund makes Config.Budget from the machine's memory instead.
	DefaultRequestBytes      = 256 << 20
	DefaultKeepaliveInterval = 15 * time.Second
)

// Bounds on the memory of a connection. gRPC's own defaults are unlimited, or far larger.
// Package ingress bounds the number of connections and the time of their beginning. Memory of
// requests has a second bound across all connections, the budget: streamWindow alone would
// allow 64 KiB for each of 100 streams of each connection. The budget also bounds answers that
// clients do not read.
const (
	maxStreams     = 100 // of one connection
	maxHeaderBytes = 16 << 10
	// Bytes that gRPC takes in before the handler asks for them: of a call, and of all calls
	// of a connection before it reads the connection again. They don't grow.
	streamWindow     = budget.SmallMessage
	connectionWindow = 1 << 20
	// gRPC collects answers into writes of this size: its default. Connections share idle
	// buffers.
	writeBuffer = 128 << 10
	// A connection without calls is closed after maxIdle, and each connection after maxAge,
	// plus or minus 10 % (keepalive.ServerParameters).
	maxIdle = time.Minute
	maxAge  = 30 * time.Minute
	// When a connection reaches maxAge, its calls may go on for this long. It is longer than
	// an execution can take with its time in the queue (600 s each), so that age alone never
	// breaks the stream that started one.
	ageGrace = 30 * time.Minute
	// A peer that is silent for so long is asked whether it is there; without an
	// answer its streams break, as they would if it had hung up.
	pingAfter   = 60 * time.Second
	pingTimeout = 20 * time.Second
	// A client whose pings come faster gets GOAWAY with "too_many_pings" after the third of
	// them (maxPingStrikes in gRPC's transport).
	minPingInterval = 30 * time.Second
)

// Bounds on what one answer holds.
const (
	// defaultPage and maxPage are the contract's bounds of page_size.
	defaultPage, maxPage = 100, 1000
	// A client takes messages of 4 MiB unless told otherwise. Lists stay below it
	// with room for what frames them.
	maxAnswerBytes = 3 << 20
	// chunkBytes is how much of a file goes into one message.
	chunkBytes = 256 << 10
)

// No compressor is registered, so that a message can't grow by decompression:
// gzip comes only with an import of grpc's encoding/gzip. The order of the options has no
// meaning.
func (s *Server) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(peerCredentials{s.budget}),
		grpc.InTapHandle(tapped),
		grpc.ReadBufferSize(0), // a budget.Conn has one
		grpc.WriteBufferSize(writeBuffer),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		// For every content-subtype: a client can't choose another codec.
		grpc.ForceServerCodecV2(newCodec()),
		grpc.UnaryInterceptor(unary),
		grpc.StreamInterceptor(s.stream),
		grpc.UnknownServiceHandler(unknownMethod),
		// So Stop returns after the handlers, and the executor and the record may be closed
		// then.
		grpc.WaitForHandlers(true),
		grpc.MaxRecvMsgSize(s.maxMessage),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(ingress.HelloTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle:     maxIdle,
			MaxConnectionAge:      maxAge,
			MaxConnectionAgeGrace: ageGrace,
			Time:                  pingAfter,
			Timeout:               pingTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             minPingInterval,
			PermitWithoutStream: true,
		}),
	}
}
