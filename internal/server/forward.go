package server

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"sync"

	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/ingress/budget"
)

// In a takeover the server of the earlier daemon forwards two kinds of calls, so that it need not refuse them: calls that
// come after HandOver, and calls whose handler has failed because the daemon has handed over (executor.IsHandedOver),
// for example while they waited for a session. Such a call has had no effect here. It waits for the end of the
// hand-over: then the next daemon answers it, or this daemon does if the next one has failed. So each call has one
// daemon that does it.
//
// The next daemon gets the messages of the call on a connection that has the caller's credentials (ingress.Forward). It
// identifies the caller, and limits and audits the call, as it does for its own connections. The earlier daemon does
// neither for a call that comes after HandOver.
//
// A call of which the handler has received more than one message can't be forwarded, because the server no longer has
// these messages: uploads. HandOver's caller waits for them (AwaitUnforwardable).

// A takeover of this server's daemon, from HandOver on.
type takeover struct {
	ended chan struct{}
	next  *net.UnixConn // set before ended is closed; nil: this daemon goes on

	mu     sync.Mutex
	conns  map[*ingress.Conn]*grpc.ClientConn // by the caller's connection
	open   []net.Conn                         // beneath conns
	closed bool
}

// HandOver begins a takeover: calls that come from now on wait until end is called. next leads to ServeForwarded in the
// next daemon, which then answers these calls; nil says that this daemon goes on.
func (s *Server) HandOver() (end func(next *net.UnixConn)) {
	t := &takeover{ended: make(chan struct{}), conns: map[*ingress.Conn]*grpc.ClientConn{}}
	s.takeover.Store(t)
	return func(next *net.UnixConn) {
		t.next = next
		close(t.ended)
	}
}

// AwaitUnforwardable waits, after HandOver, for the calls that can't be forwarded. Calls that are still under way
// when ctx is done may be refused.
func (s *Server) AwaitUnforwardable(ctx context.Context) error { return s.unforwardable.Wait(ctx) }

// AwaitForwarded waits for the answers of the calls that the next daemon answers. After ctx is done, Stop breaks the calls
// that have no answer yet.
func (s *Server) AwaitForwarded(ctx context.Context) error { return s.forwarded.Wait(ctx) }

// ServeForwarded answers calls that an earlier daemon forwards. It returns nil when that daemon has ended.
func (s *Server) ServeForwarded(from *net.UnixConn) error {
	err := s.grpc.Serve(ingress.Listen(ingress.Forwarded(from), ingress.Limits{}, s.log))
	if errors.Is(err, io.EOF) || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// moved waits for the end of a takeover, and forwards the call of a stream if the next daemon serves then. It returns
// false if this daemon must answer the call. c may be nil.
func (s *Server) moved(g *guardedStream, method string, c *call) (moved bool, err error) {
	t := s.takeover.Load()
	if t == nil || method == healthpb.Health_Watch_FullMethodName { // Watch ends when the server stops
		return false, nil
	}
	defer s.forwarded.Begin()()
	defer budget.Of(g.ctx).Hold()() // see guard
	select {
	case <-t.ended:
	case <-g.ctx.Done():
		return true, g.ctx.Err()
	}
	if t.next == nil {
		return false, nil
	}
	return true, s.forward(t, g, method, c)
}

// forwardable reports whether a handler has failed because the daemon has handed over, and the whole call can still be
// done by another daemon, or again by this one.
func (g *guardedStream) forwardable(err error) bool {
	return executor.IsHandedOver(err) && !errors.As(err, new(*executionError)) && !g.answered && g.received <= 1
}

// forward lets the next daemon answer a call.
func (s *Server) forward(t *takeover, g *guardedStream, method string, c *call) error {
	if g.received == 0 {
		// io.EOF: the caller of a method with many messages has sent none.
		if err := g.RecvMsg(&rawMessage{}); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	conn, err := t.connection(connectionOf(g.ctx))
	if err != nil {
		return s.notForwarded(err)
	}
	ctx, cancel := context.WithCancelCause(outgoingContext(g.ctx, c))
	defer cancel(nil)
	out, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return s.notForwarded(err)
	}
	if c != nil {
		c.forwarded = true
	}
	if g.first != nil {
		_ = out.SendMsg(g.first) // an error says only that the stream has ended; its end has the reason
		g.first = nil
	}
	if g.bidirectional {
		s.spawn(func() {
			if err := forwardMessages(g, out); err != nil {
				cancel(err)
			}
		})
	} else {
		_ = out.CloseSend()
	}
	err = forwardAnswers(g, out)
	if err != nil && t.isClosed() {
		return errForwardEnded
	}
	if own := context.Cause(ctx); err != nil && own != nil && g.ctx.Err() == nil {
		return own // of forwardMessages
	}
	return err
}

// notForwarded returns the error of a call that the next daemon has not got.
func (s *Server) notForwarded(err error) error {
	s.log.Warn("takeover: the next daemon gets no calls", "err", err)
	return executor.ErrHandedOver
}

// forwardMessages forwards the caller's further messages. It returns nil after the last one, or if the next daemon
// takes no more.
func forwardMessages(g *guardedStream, out grpc.ClientStream) error {
	for {
		m := &rawMessage{}
		err := g.RecvMsg(m)
		if errors.Is(err, io.EOF) {
			return out.CloseSend()
		}
		if err != nil {
			return err
		}
		if out.SendMsg(m) != nil {
			return nil
		}
	}
}

// forwardAnswers forwards the header that names the execution, the messages, and the status with its details.
func forwardAnswers(g *guardedStream, out grpc.ClientStream) error {
	header, err := out.Header()
	if err != nil {
		return err
	}
	if id := header.Get(executionHeader); len(id) > 0 {
		if err := g.SetHeader(metadata.Pairs(executionHeader, id[0])); err != nil {
			return err
		}
	}
	for {
		m := &rawMessage{}
		if err := out.RecvMsg(m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := g.SendMsg(m); err != nil {
			return err
		}
	}
}

// outgoingContext returns the context of a forwarded call, with the metadata that the daemon reads. If the earlier
// daemon has a span for the call, the next daemon's span is its child. c may be nil.
func outgoingContext(ctx context.Context, c *call) context.Context {
	sent := sentContext(ctx)
	if c != nil && c.span != nil {
		propagation.TraceContext{}.Inject(ctx, sent)
	}
	m := metadata.New(sent)
	m.Append("authorization", metadata.ValueFromIncomingContext(ctx, "authorization")...)
	return metadata.NewOutgoingContext(ctx, m)
}

// connection returns the connection for forwarded calls of one connection of a caller.
func (t *takeover) connection(of *ingress.Conn) (*grpc.ClientConn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, net.ErrClosed
	}
	if conn := t.conns[of]; conn != nil {
		return conn, nil
	}
	conn, err := grpc.NewClient("passthrough:next",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return t.dial(of) }),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newCodec()), grpc.MaxCallRecvMsgSize(math.MaxInt32)),
		grpc.WithDisableServiceConfig(), grpc.WithNoProxy())
	if err != nil {
		return nil, err
	}
	t.conns[of] = conn
	return conn, nil
}

// dial makes a connection to the next daemon for a connection of a caller.
func (t *takeover) dial(of *ingress.Conn) (net.Conn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, net.ErrClosed
	}
	conn, err := of.Forward(t.next)
	if err == nil {
		t.open = append(t.open, conn)
	}
	return conn, err
}

// close ends all forwarded calls. gRPC would first cancel each call, which tells the next daemon that the caller has gone;
// a connection that is closed beneath gRPC tells it that this daemon ends. On nil close does nothing.
func (t *takeover) close() {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.closed = true
	conns, open := t.conns, t.open
	t.conns, t.open = nil, nil
	t.mu.Unlock()
	for _, conn := range open {
		conn.Close()
	}
	for _, conn := range conns {
		conn.Close()
	}
}

func (t *takeover) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// errForwardEnded answers a call that the next daemon has not answered when this daemon ends. It has no reason, because
// the call may have had an effect.
var errForwardEnded = status.Error(codes.Unavailable, "this daemon, which forwarded the call to the next one, has ended; an execution whose header has come goes on: attach to it")

// A rawMessage is a message that is forwarded as it is.
type rawMessage struct{ data []byte }
