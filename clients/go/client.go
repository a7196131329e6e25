package skillrun

import (
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// DefaultAddress is where a daemon listens if its configuration does not say otherwise.
const DefaultAddress = "unix:///run/skillrun/skillrun.sock"

const (
	// maxReceive is the maximum size of a message from the daemon. The daemon has the same
	// limit.
	maxReceive = 16 << 20

	// The flow-control window and the read buffer. With gRPC's defaults of 64 and 32 KiB,
	// large outputs wait for this side.
	windowBytes = 1 << 20
	readBytes   = 128 << 10

	// The daemon refuses pings that come more often than every 30 s.
	pingAfter   = 60 * time.Second
	pingTimeout = 20 * time.Second

	// A daemon that restarts is back within a second. gRPC's default would wait from one
	// second to two minutes before it connects again.
	reconnectFirst = 100 * time.Millisecond
	reconnectMost  = 2 * time.Second
)

// A Client is a connection to one daemon. Its methods may be called concurrently.
type Client struct {
	conn       *grpc.ClientConn
	executions pb.ExecutionServiceClient
	sessions   pb.SessionServiceClient
	skills     pb.SkillServiceClient
	system     pb.SystemServiceClient
	tools      pb.ToolServiceClient
	patience   patience
	reached    *reached
}

// Dial returns a client of the daemon at address: "unix:///path", the bare absolute path of
// a socket, "tcp://host:port" or "host:port". Empty means [DefaultAddress]. Dial does not
// connect: without a daemon the first call returns an error. A user without access to the socket gets
// "permission denied" until the user joins the group in listen.unix_group of the daemon's configuration.
//
// The daemon gets the trace context of each call's ctx (OpenTelemetry). If the program has set a
// TracerProvider (otel.SetTracerProvider), each call also has a span.
//
// The connection is not encrypted unless opts have [WithTLS] or other transport credentials.
// [WithToken] identifies the caller. [WithPatience] says how long calls wait for a daemon that restarts.
func Dial(address string, opts ...grpc.DialOption) (*Client, error) {
	target, err := dialTarget(address)
	if err != nil {
		return nil, err
	}
	c := &Client{patience: newPatience(opts), reached: &reached{}}
	// Later options win, so the caller's options come last.
	all := append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive), grpc.ForceCodecV2(newCodec())),
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(windowBytes),
		grpc.WithReadBufferSize(readBytes),
		grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithPropagators(propagation.TraceContext{}))),
		grpc.WithStatsHandler(c.reached),
		// Only this package decides which calls are repeated. gRPC would also take a policy from DNS.
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithChainUnaryInterceptor(c.unary),
		grpc.WithChainStreamInterceptor(c.stream),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: reconnectFirst, Multiplier: 1.6, Jitter: 0.2, MaxDelay: reconnectMost},
			MinConnectTimeout: pingTimeout,
		}),
	}, withTokens(target, opts)...)
	conn, err := grpc.NewClient(target, all...)
	// gRPC has no type for this error.
	if err != nil && strings.Contains(err.Error(), "credentials require transport level security") {
		err = ErrTokenInClear
	}
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", address, err)
	}
	c.conn = conn
	c.executions = pb.NewExecutionServiceClient(conn)
	c.sessions = pb.NewSessionServiceClient(conn)
	c.skills = pb.NewSkillServiceClient(conn)
	c.system = pb.NewSystemServiceClient(conn)
	c.tools = pb.NewToolServiceClient(conn)
	return c, nil
}

// Close closes the connection and every stream on it. The OnDisconnect of a running
// execution decides whether it goes on.
func (c *Client) Close() error { return c.conn.Close() }

// Executions returns the generated client, for calls that this package does not wrap.
func (c *Client) Executions() pb.ExecutionServiceClient { return c.executions }

// Skills returns the generated client of the skill service.
func (c *Client) Skills() pb.SkillServiceClient { return c.skills }

// Tools returns the generated client of the tool service: the published tool contracts.
func (c *Client) Tools() pb.ToolServiceClient { return c.tools }

// Sessions returns the generated client of the session service.
func (c *Client) Sessions() pb.SessionServiceClient { return c.sessions }

// System returns the generated client of the system service.
func (c *Client) System() pb.SystemServiceClient { return c.system }
