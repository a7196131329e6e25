// Package server puts executions, skills and the daemon's own facts on gRPC. It turns messages
// into requests, credentials into a principal, and errors into codes. It decides nothing
// itself.
//
// Theory of operation. A call passes these places, in this order:
//
//  1. Package budget reads the connection's HTTP/2 frames before gRPC does. It counts the size
//     of each message, and empties a message that has no room.
//  2. receive.go registers every method as a stream. So gRPC starts the handler before the
//     message has come, and this package makes every error answer.
//  3. In a takeover, forward.go gives the call to the next daemon.
//  4. guard.go identifies the caller, checks the table of access.go and recovers panics.
//  5. The handler receives its message, converts it (request.go), calls the executor, and
//     converts the result back (event.go). It returns plain errors.
//  6. status.go turns the error into a status, with the one table of errors.go. An error
//     that is not in the table is internal: the caller gets only a reference to a line of
//     the log.
//
// A request counts against the budget until its last holder releases it: the stream, the
// handler, or the execution that it started. Output goes the other way: the executor keeps all
// events on disk, and follow.go sends them at the caller's pace. So a slow caller holds up
// neither the script nor another caller. gRPC keeps an answer in memory until the caller takes it,
// also after the handler has returned. So large answers count against the budget, too (SendMsg).
//
// The life of a Server: New, then Serve for each listener, SetHealth when sandboxes can
// be made, and Stop after the executor has drained.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/ingress/budget"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/toolview"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// Config configures a Server. Executor, Skills, Tools, Capabilities and StagingDir must be
// set.
type Config struct {
	Executor *executor.Executor
	Skills   *skill.Registry
	// Tools must be a view of the executor.
	Tools *toolview.View
	// Capabilities returns what GetCapabilities reports. It is called for each
	// call of it.
	// Calls may overlap.
	Capabilities func() Capabilities
	// StagingDir collects streamed input files. New makes it, and removes the files of an
	// earlier server.
	StagingDir string
	// Takeover says that an earlier process may still use files in StagingDir, which only Adopt removes.
	Takeover bool
	// MaxMessageBytes bounds one message of a caller. Zero: DefaultMaxMessageBytes.
	MaxMessageBytes int
	// Budget bounds the messages that are in memory at the same time. Nil: one of
	// DefaultRequestBytes, or of one message if that is more. It must have room for a message of MaxMessageBytes.
	Budget *budget.Budget
	// KeepaliveInterval is how long a stream of events may be silent. Zero:
	// DefaultKeepaliveInterval.
	KeepaliveInterval time.Duration
	// Connections bounds the connections of each listener.
	Connections ingress.Limits
	// Identify returns the identity of the caller. An error becomes UNAUTHENTICATED. Nil: the
	// identities of an empty identity.Config.
	Identify func(identity.Credentials) (identity.Identity, error)
	// Audit gets an entry for each refused call that needs more than the role read, and for each call
	// that needs another role. Nil: no audit log.
	Audit *audit.Log
	// Failed is called with the reason of each error that a caller gets; see Reason. Nil: no call.
	Failed func(reason string)
	// Tracer makes a span for each call. Nil: no spans.
	Tracer trace.Tracer
	// Log gets every error that is ours. Nil: slog.Default().
	Log *slog.Logger
}

// A Server answers gRPC calls. Make it with New.
type Server struct {
	x            *executor.Executor
	skills       *skill.Registry
	capabilities func() Capabilities
	uploads      *uploads
	maxMessage   int
	budget       *budget.Budget
	keepalive    time.Duration
	positions    time.Duration // between two looks at a position in the queue
	identify     func(identity.Credentials) (identity.Identity, error)
	audit        *audit.Log
	failed       func(reason string)
	tracer       trace.Tracer
	log          *slog.Logger

	grpc      *grpc.Server
	listeners ingress.Group
	health    *health.Server
	// bidirectional has every registered method, and whether its callers send any number of
	// messages.
	bidirectional map[string]bool
	stopping      chan struct{} // closed when the server begins to stop
	stop          func()        // closes it, once
	background    sync.WaitGroup

	takeover      atomic.Pointer[takeover] // nil: none has begun
	unforwardable ingress.Calls            // for AwaitUnforwardable
	forwarded     ingress.Calls            // for AwaitForwarded
}

// Adopt removes the files of the earlier process from StagingDir. That process must have ended.
func (s *Server) Adopt() error {
	if err := s.uploads.sweep(); err != nil {
		return fmt.Errorf("staging: %w", err)
	}
	return nil
}

// New makes a Server. It is not serving yet, and says so: see SetHealth.
func New(c Config) (*Server, error) {
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = DefaultMaxMessageBytes
	}
	if c.Budget == nil {
		var err error
		if c.Budget, err = budget.New(max(DefaultRequestBytes, int64(c.MaxMessageBytes)), int64(c.MaxMessageBytes)); err != nil {
			return nil, err
		}
	}
	if c.KeepaliveInterval == 0 {
		c.KeepaliveInterval = DefaultKeepaliveInterval
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Identify == nil {
		table, err := identity.Open(identity.Config{Log: c.Log})
		if err != nil {
			return nil, err
		}
		c.Identify = table.Identify
	}
	up, err := newUploads(c.StagingDir)
	if err == nil && !c.Takeover {
		err = up.sweep()
	}
	if err != nil {
		return nil, fmt.Errorf("staging: %w", err)
	}
	s := &Server{
		x: c.Executor, skills: c.Skills, capabilities: c.Capabilities,
		uploads: up, maxMessage: c.MaxMessageBytes, keepalive: c.KeepaliveInterval, positions: positionInterval,
		identify: c.Identify, audit: c.Audit, failed: c.Failed, tracer: c.Tracer, log: c.Log,
		budget: c.Budget, bidirectional: map[string]bool{},
		health: health.NewServer(), stopping: make(chan struct{}),
	}
	s.listeners.Limits = c.Connections
	s.stop = sync.OnceFunc(func() { close(s.stopping) })
	// The registrar fills s.bidirectional here and not later. So calls read the map without a
	// lock.
	s.grpc = grpc.NewServer(s.options()...)
	pb.RegisterExecutionServiceServer(registrar{s}, executionCalls{Server: s})
	pb.RegisterSkillServiceServer(registrar{s}, skillCalls{Server: s})
	pb.RegisterSessionServiceServer(registrar{s}, sessionCalls{Server: s})
	pb.RegisterToolServiceServer(registrar{s}, toolCalls{Server: s, view: c.Tools})
	pb.RegisterSystemServiceServer(registrar{s}, systemCalls{Server: s})
	healthpb.RegisterHealthServer(registrar{s}, probes{s.health})
	described := reflection.ServerOptions{Services: registrar{s}, DescriptorResolver: pb.Files} // with comments
	reflectionv1.RegisterServerReflectionServer(registrar{s}, reflection.NewServerV1(described))
	reflectionv1alpha.RegisterServerReflectionServer(registrar{s}, reflection.NewServer(described)) // for old tools
	s.SetHealth(Health{})
	return s, nil
}

// Serve answers the calls that come in on l, until the server stops. It may be
// called for any number of listeners at once, and closes l. A stop is no error.
func (s *Server) Serve(l net.Listener) error {
	err := s.grpc.Serve(s.listeners.Listen(l, s.log))
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// Leave is for a daemon after which another process has the listeners. New connections wait in the kernel for
// that process. Callers with a connection are asked to make a new one (GOAWAY, RFC 9113, section 6.8); until
// they do, their calls are answered. The channel is closed when no connection is left. Stop must follow.
func (s *Server) Leave(ctx context.Context) (left <-chan struct{}) {
	if err := s.listeners.Hold(ctx); err != nil {
		s.log.Warn("new connections can be refused", "err", err)
	}
	s.stop()
	closed := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(closed)
	}()
	return closed
}

// Stop takes no new call, waits for those under way until ctx is done, then
// breaks them, and returns when none is left. Drain the executor first: a broken
// stream cancels its execution.
func (s *Server) Stop(ctx context.Context) {
	s.SetHealth(Health{Draining: true})
	s.stop()
	// When ctx is done, grpc.Stop closes the connections, and GracefulStop below returns. If
	// all calls end earlier, the deferred call takes the function back.
	defer context.AfterFunc(ctx, func() {
		s.takeover.Load().close() // before the connections of their callers
		s.grpc.Stop()
	})()
	s.grpc.GracefulStop()
	s.takeover.Load().close()
	// These goroutines end soon after their calls: without its stream, Recv returns an error.
	s.background.Wait()
	s.uploads.dropPuts("")
}

// spawn runs f in a goroutine that may outlive the call. A panic in f ends f and not the
// daemon. Stop waits for f.
func (s *Server) spawn(f func()) {
	s.background.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				s.logPanic(newReference(), p)
			}
		}()
		f()
	})
}
