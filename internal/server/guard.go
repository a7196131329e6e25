package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/ingress/budget"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/permission"
)

// A call is one call of a method. It is in the context of the handler. guard sets who before the
// handler runs; nothing changes it afterwards.
type call struct {
	method    string
	reference string // names it in the log and to the caller
	who       permission.Principal
	span      trace.Span // nil: none
	role      identity.Role
	forwarded bool // the next daemon answers the call, and audits it
	// count counts the call in the quota of its tenant, or waits for its turn there. Nil: the caller has no such quota.
	count func(context.Context) error
}

type callKey struct{}

// caller returns who called. A handler never runs without one.
func caller(ctx context.Context) permission.Principal {
	return ctx.Value(callKey{}).(*call).who
}

// roleOf returns the role of the caller, or None for methods that need no identity.
func roleOf(ctx context.Context) identity.Role { return ctx.Value(callKey{}).(*call).role }

// newReference returns a name for one call: 16 characters of base32, 80 bits
// (crypto/rand.Text).
func newReference() string { return rand.Text()[:16] }

// stream is the only interceptor that works: registrar makes every method a stream.
func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	method := info.FullMethod
	g := &guardedStream{
		ServerStream: ss, ctx: ss.Context(), bidirectional: s.bidirectional[method],
		reads: accessTable[method] == identity.Read && !entriesBelow[method], // not CallTool, which can run a program
	}
	if accessTable[method] != anyone { // a probe keeps no other connection out
		g.conn = connectionOf(g.ctx)
	}
	defer func() {
		if g.end != nil {
			g.end()
		}
	}()
	if moved, err := s.moved(g, method, nil); moved {
		return s.answer(g.ctx, &call{method: method, reference: newReference()}, err)
	}
	return s.guard(ss.Context(), method, func(ctx context.Context) error {
		if method == healthpb.Health_Watch_FullMethodName {
			// It would end only with its caller, and hold up a graceful stop.
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			defer cancel()
			go func() {
				select {
				case <-s.stopping:
					cancel()
				case <-ctx.Done():
				}
			}()
		}
		g.ctx = ctx
		// Each message of reflection is a question of its own.
		if strings.HasPrefix(method, "/grpc.reflection.") {
			g.count = ctx.Value(callKey{}).(*call).count
		}
		err := handler(srv, g)
		if !g.forwardable(err) {
			return err
		}
		if moved, err := s.moved(g, method, ctx.Value(callKey{}).(*call)); moved {
			return err
		}
		g.again = g.received > 0
		return handler(srv, g)
	})
}

// guardedStream is a stream with the call in its context, and with this package's
// errors of what can't be received.
type guardedStream struct {
	grpc.ServerStream
	ctx           context.Context
	bidirectional bool          // the caller may send any number of messages
	reads         bool          // the method changes nothing
	broken        error         // of the last message
	conn          *ingress.Conn // nil: not counted as in use
	end           func()        // of the request on conn; nil: none has come
	// count is called for each message after the first. Nil: nothing is.
	count func(context.Context) error

	// For a takeover, see forward.go.
	received int  // messages that have come
	first    any  // the first of them; nil: none has come, or answered is set
	answered bool // the handler has begun to answer
	again    bool // the handler receives first once more
}

// Context has the call, for caller, and the intake, for budget.Of.
func (s *guardedStream) Context() context.Context { return s.ctx }

// guard runs one call. It identifies the caller, checks access, and turns the call's error
// into a status. A panic becomes an internal error, and the daemon lives on.
func (s *Server) guard(ctx context.Context, method string, run func(context.Context) error) (err error) {
	c := &call{method: method, reference: newReference()}
	began := time.Now()
	// gRPC may end the stream before the handler has returned. The request stays in memory
	// until then.
	defer budget.Of(ctx).Hold()()
	defer func() {
		c.endTrace(err)
		s.log.Debug("call", "method", method, "reference", c.reference, "principal", c.who.Name,
			"code", status.Code(err), "took_ms", float64(time.Since(began).Microseconds())/1000)
	}()
	defer func() {
		if p := recover(); p != nil {
			s.logPanic(c.reference, p)
			err = internalError(c.reference, "")
			return
		}
		s.noteRefusal(ctx, c, err)
		err = s.answer(ctx, c, err)
	}()
	// None, which no role covers, for a method without a row.
	need := accessTable[method]
	if _, registered := s.bidirectional[method]; !registered {
		return &unknownMethodError{method}
	}
	if need != anyone {
		who, err := s.callerOf(ctx)
		if err != nil {
			return &unidentifiedError{err}
		}
		c.who, c.role = who.Principal, who.Role
		if err := connectionOf(ctx).Identified(who.Tenant); err != nil {
			return err
		}
		budget.Of(ctx).Identified(who.Tenant)
		ctx = audit.WithCaller(ctx, &audit.Caller{Address: connectionOf(ctx).From(), Method: method})
		t, unknown := s.x.Tenant(who.Principal)
		// An operator may have no tenant, and must be able to act while callers of its tenant call too often.
		if t != nil && who.Role != identity.Operator {
			c.count = func(ctx context.Context) error { return s.x.EnterCall(ctx, t) }
			// Before the role is checked: a refusal costs time, too, and an entry in the audit log, which all tenants share.
			if err := c.count(ctx); err != nil {
				return err
			}
		}
		if !who.Role.Covers(need) {
			return &roleError{who, need}
		}
		if unknown != nil && !(who.Role == identity.Operator && aboutDaemon[method]) {
			return unknown
		}
		if streaming[method] && t != nil {
			leave, err := s.x.EnterStream(t)
			if err != nil {
				return err
			}
			defer leave()
		}
		ctx = s.trace(ctx, c)
	}
	if need >= identity.Invoke && !entriesBelow[method] {
		entry := audit.Entry{Event: audit.Call, Tenant: c.who.Tenant, Principal: c.who.Name, Address: connectionOf(ctx).From(), Method: method, Decision: audit.Allowed, Frees: freeing[method]}
		end, unwritten := s.audit.Allow(entry)
		if unwritten != nil {
			return unwritten
		}
		defer func() { end(err) }() // after a panic err is nil, and the entry is written in full
		// If the next daemon answered the call, too, it would write a second entry.
		defer s.unforwardable.Begin()()
	}
	return run(context.WithValue(ctx, callKey{}, c))
}

// noteRefusal writes a refused call into the audit log, unless the executor has written it. ctx has an
// audit.Caller if the caller was identified; the audit log counts the others by another way. A refused
// read is not written, unless the caller's role or tenant is the reason.
func (s *Server) noteRefusal(ctx context.Context, c *call, err error) {
	from := audit.CallerOf(ctx)
	if err == nil || c.forwarded || from == nil || from.Wrote() || ofCaller(ctx, err) {
		return
	}
	entry := audit.By(ctx, audit.Call, c.who.Tenant, c.who.Name)
	_, noTenant := errors.AsType[*executor.UnknownTenantError](err)
	if e, ok := errors.AsType[*roleError](err); ok {
		entry.Missing = "role " + e.need.String()
	} else if accessTable[c.method] < identity.Invoke && !entriesBelow[c.method] && !noTenant {
		return
	}
	s.audit.NoteRefusal(entry, err)
}

// unknownMethod answers calls of unknown methods.
func unknownMethod(_ any, ss grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(ss)
	return &unknownMethodError{method}
}

// logPanic logs what recover returned, with the stack. It must run in the deferred function that
// recovered, since the stack is of the panic only there.
func (s *Server) logPanic(reference string, p any) {
	s.log.Error("panic", "reference", reference, slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
}
