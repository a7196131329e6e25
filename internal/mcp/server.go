// Package mcp offers tools, skills and the output of executions over the Model Context
// Protocol. Agents reach it over HTTP, or over a pipe through the command `skillrun mcp`. Start
// with [Config] and [Server].
//
// The package identifies callers, limits requests and answers, and cancels the calls of callers
// that disconnect. Package toolview implements the tools.
//
// A message passes three stages. http.go identifies the sender and decides whether to accept
// the message (lines.go does so for connections without HTTP). The SDK speaks the protocol. A
// handler in call.go or resource.go asks the view, the registry or the executor.
//
// Three kinds of conversation end in different ways. In versions of the protocol with sessions
// (session.go), an HTTP session has many requests, and an idle one is ended. From 2026-07-28 on
// each HTTP request stands alone, and its end cancels its call. A connection without HTTP
// (lines.go) is a session, and its end cancels its calls. In each of them [caller].here is done
// when the calls must end.
package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.opentelemetry.io/otel/trace"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/toolview"
)

// Tools are the function tools that models call. *toolview.View implements it.
type Tools interface {
	Tools() []toolview.Tool
	Call(ctx context.Context, c toolview.ToolCall) (toolview.Result, error)
	// EndConversation is called when a conversation of a caller with the role Invoke has no more calls.
	EndConversation(who permission.Principal, f *toolview.Conversation)
}

// Config holds the parts of a Server. All fields except OpenWorld, Publish, MaxMessageBytes,
// Hold, Tracer and Log must be set.
type Config struct {
	Tools Tools
	// Executor and Skills must be the ones that Tools uses.
	Executor *executor.Executor
	Skills   *skill.Registry
	// Connections bounds the connections of each listener.
	Connections ingress.Limits
	// Identify returns who sends a request.
	Identify func(identity.Credentials) (identity.Identity, error)
	// Explain returns the text for a caller about an error that its request did not cause.
	// It logs the errors of the daemon.
	Explain func(error) string
	// Version is the daemon's version.
	Version string
	// OpenWorld says that programs may reach a network.
	OpenWorld bool
	// Publish says that callers also get an index of their tenant's skills, see published.go.
	Publish bool
	// MaxMessageBytes limits the size of a message. Zero: DefaultMaxMessageBytes.
	MaxMessageBytes int64
	// Hold reserves memory for a message. The connection's caller is identified,
	// bytes is the size. ok is false if the memory is full; otherwise release must be called
	// when the message is answered. Nil: no limit.
	Hold func(conn *ingress.Conn, bytes int64) (release func(), ok bool)
	// Tracer makes a span for each request. Nil: no spans.
	Tracer trace.Tracer
	// Audit gets an entry for each refused call. Nil: no audit log.
	Audit *audit.Log
	// Log gets every error of the daemon. Nil: slog.Default().
	Log *slog.Logger
}

// A Server answers agents. Create it with New.
type Server struct {
	tools      Tools
	x          *executor.Executor
	skills     *skill.Registry
	identify   func(identity.Credentials) (identity.Identity, error)
	explain    func(error) string
	openWorld  bool
	publish    bool
	publishing tenantLimit
	maxMessage int64
	hold       func(*ingress.Conn, int64) (func(), bool)
	patience   time.Duration // how long a client may not read
	keepalive  time.Duration
	bodyTime   time.Duration // how long a message may take to arrive
	tracer     trace.Tracer
	audit      *audit.Log
	log        *slog.Logger

	options   *sdk.ServerOptions // of the SDK's servers
	version   string
	stateful  http.Handler // protocol versions with sessions, up to 2025-11-25
	perCall   http.Handler // protocol versions without sessions, from 2026-07-28 on
	http      *http.Server
	listeners ingress.Group
	sessions  *sessions
	inherited inherited
	held      atomic.Pointer[time.Time] // when Hold was called; nil: it was not
	conns     atomic.Int64              // connections of HTTP
	// HandOver was called: the conversations of sessions go on at the next server.
	handedOver atomic.Bool

	agents     sync.Mutex
	audiences  map[string]*audience // by tenant; guarded by agents
	strangers  *audience            // of tenants that are not configured
	mu         sync.Mutex           // guards stop, and the start of work that Stop waits for
	stopping   context.Context      // done when the server begins to stop
	stop       context.CancelFunc
	leaving    context.Context // done when connections without HTTP take no new calls, see Leave
	leave      context.CancelFunc
	leaveTime  time.Duration   // for the clients of these connections to leave, from Stop on
	lines      sync.WaitGroup  // connections without HTTP
	broken     context.Context // done when Stop no longer waits for calls
	breakAll   context.CancelCauseFunc
	background sync.WaitGroup
}

// New creates a Server. It starts a goroutine that Stop ends.
func New(c Config) *Server {
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = DefaultMaxMessageBytes
	}
	if c.Hold == nil {
		c.Hold = func(*ingress.Conn, int64) (func(), bool) { return func() {}, true }
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	s := &Server{
		tools: c.Tools, x: c.Executor, skills: c.Skills, identify: c.Identify, explain: c.Explain,
		version: c.Version, audiences: map[string]*audience{}, openWorld: c.OpenWorld, publish: c.Publish, publishing: tenantLimit{now: map[string]int{}}, maxMessage: c.MaxMessageBytes, hold: c.Hold, patience: writeTimeout, leaveTime: leaveTimeout, keepalive: keepaliveInterval, bodyTime: bodyTimeout, audit: c.Audit, tracer: c.Tracer, log: c.Log,
	}
	s.listeners.Limits = c.Connections
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.leaving, s.leave = context.WithCancel(context.Background())
	s.broken, s.breakAll = context.WithCancelCause(context.Background())
	s.sessions = newSessions(s.broken, &s.background)
	s.sessions.ended = func(n *session) {
		if !s.handedOver.Load() {
			s.tools.EndConversation(n.who, n.conversation)
		}
	}
	s.options = &sdk.ServerOptions{
		Instructions: instructions,
		Capabilities: &sdk.ServerCapabilities{
			Tools:      &sdk.ToolCapabilities{}, // the tools never change
			Resources:  &sdk.ResourceCapabilities{ListChanged: true},
			Extensions: map[string]any{skillsExtension: map[string]any{"directoryRead": true}},
		},
		// A proxy must not give one user's answer to another.
		SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { c.CacheScope = "private" },
	}

	s.strangers = s.newAudience(s.skills.For(""))
	server := func(r *http.Request) *sdk.Server {
		return s.audienceOf(callerOf(r.Context(), &sdk.RequestExtra{TokenInfo: auth.TokenInfoFromContext(r.Context())}).Tenant).sdk
	}
	// notABrowser has the protection of localhost that the SDK would add. The SDK's protection does not
	// work here, because it knows only net/http's own TLS.
	s.stateful = sdk.NewStreamableHTTPHandler(server, &sdk.StreamableHTTPOptions{MaxRequestBodyBytes: -1, DisableLocalhostProtection: true})
	s.perCall = sdk.NewStreamableHTTPHandler(server, &sdk.StreamableHTTPOptions{
		MaxRequestBodyBytes: -1, Stateless: true, PropagateRequestCancellation: true, DisableLocalhostProtection: true,
	})
	s.http = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: ingress.HelloTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelError),
		ConnState:         s.countConn,
		ConnContext:       ingress.ConnContext,
	}
	s.background.Go(s.watchSkills)
	return s
}

// Serve answers requests on l until the server stops, and then closes l. It may be called for
// several listeners at once. It returns nil after a stop, while calls may still be under way:
// Stop waits for them.
func (s *Server) Serve(l net.Listener) error {
	err := s.http.Serve(s.listeners.Listen(l, s.log))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Hold lets new connections wait in the kernel, for the process that has the listeners next. From then on requests
// over HTTP on open connections are redirected there. Hold calls Leave for the other connections. Stop must follow.
func (s *Server) Hold(ctx context.Context) error {
	err := s.listeners.Hold(ctx)
	now := time.Now()
	s.held.Store(&now)
	s.Leave()
	return err
}

// countConn implements http.Server.ConnState.
func (s *Server) countConn(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.conns.Add(-1)
	}
}

// linger keeps connections without a request open for leaveTime after Hold. In this time a client uses each of them
// again, and is redirected, or closes it.
func (s *Server) linger(ctx context.Context) {
	held := s.held.Load()
	if held == nil {
		return
	}
	look := time.NewTicker(lingerInterval)
	defer look.Stop()
	for s.conns.Load() > 0 && time.Since(*held) < s.leaveTime {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// Leave asks the clients of connections without HTTP to connect again, to the next daemon. From then on these
// connections take no new calls, and new ones are refused; the calls under way go on. Stop must follow.
func (s *Server) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave()
}

// Stop refuses new requests, ends streams that only listen, and waits for the calls under
// way. When ctx is done, it breaks these calls. It returns when no call is left. Drain the
// executor before, since a broken call cancels its execution.
func (s *Server) Stop(ctx context.Context) {
	s.mu.Lock()
	s.leave()
	s.stop()
	s.mu.Unlock()
	defer context.AfterFunc(ctx, func() {
		s.breakAll(errStopping)
		s.http.Close()
	})()
	s.linger(ctx)
	// Shutdown does not wait for hijacked connections (net/http), so s.lines follows.
	s.http.Shutdown(context.WithoutCancel(ctx))
	s.lines.Wait()
	// Sessions are closed last, because closing one loses the answers to its calls.
	for _, a := range append(s.allAudiences(), s.strangers) {
		for ss := range a.sdk.Sessions() {
			ss.Close()
		}
	}
	s.background.Wait()
}

// A caller is the sender of a message.
type caller struct {
	identity.Identity
	address string // for the audit log
	// again identifies the caller once more, for each message of a connection without HTTP: a token
	// may have expired since, or may have been revoked. Nil: the caller sent one message.
	again func() (identity.Identity, error)
	// moveOn makes the client send the call, of which nothing was done, to the next daemon. It returns false if the
	// client can't be told. After true the call must be answered with errLeave. Nil: the daemon itself calls.
	moveOn func() bool
	here   context.Context // done when the caller has gone
	// counted is true once mayCall has counted a call of the caller.
	counted atomic.Bool
	// conversation has the session of files of an HTTP session or of a connection without HTTP. Nil: the
	// message stands alone.
	conversation *toolview.Conversation
	// name is the name of the conversation that an initialize over HTTP begins. Empty: a new one.
	name string
	// keepAlive sends comments into a silent answer until stop is called. Nil: the
	// transport needs none.
	keepAlive func() (stop func())
}

// callerKey is the key of the context of a connection without HTTP, and of a method of an
// extension. The value is a *caller.
type callerKey struct{}

// callerInfo is the key under which the SDK passes a caller from an HTTP request to a
// handler.
const callerInfo = "caller"

// callerOf returns the caller of a request. Every handler has one.
func callerOf(ctx context.Context, extra *sdk.RequestExtra) *caller {
	if extra != nil && extra.TokenInfo != nil {
		return extra.TokenInfo.Extra[callerInfo].(*caller)
	}
	return ctx.Value(callerKey{}).(*caller)
}

// while returns ctx, but cancelled when the caller goes away.
func (c *caller) while(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.here, func() { cancel(context.Cause(c.here)) })
	return ctx, func() { stop(); cancel(nil) }
}

// bear passes the caller of a request to the SDK as the owner of a bearer token, because
// the SDK gives that owner to handlers and compares it within a session. The token is a
// constant, so a token that the client sent goes no further.
func bear(c *caller, h http.Handler, w http.ResponseWriter, r *http.Request) {
	r = r.Clone(c.here)
	r.Header.Set("Authorization", "Bearer peer")
	verify := func(context.Context, string, *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: strconv.Quote(c.Tenant) + " " + strconv.Quote(c.Name), Extra: map[string]any{callerInfo: c}}, nil
	}
	auth.RequireBearerToken(verify, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(h).ServeHTTP(w, r)
}

// receive wraps the handling of every message. It logs a panic and answers it with an
// internal error, so that the daemon lives on.
func (s *Server) receive(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (res sdk.Result, err error) {
		defer func() {
			if p := recover(); p != nil {
				reference := rand.Text()[:16]
				s.log.Error("panic", "reference", reference, "method", method, slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
				res, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error (reference " + reference + ")"}
			}
		}()
		c := callerOf(ctx, req.GetExtra())
		ctx = audit.WithCaller(ctx, &audit.Caller{Address: c.address, Method: methodOf(method, req)})
		if reason, err := s.mayCall(c, method, needOf(method, req)); err != nil {
			entry := audit.By(ctx, audit.Call, c.Tenant, c.Name)
			entry.Reason = reason
			s.audit.NoteRefusal(entry, err)
			return nil, err
		}
		ctx, traced := s.trace(ctx, method, req)
		defer func() { traced(res, err) }()
		switch method {
		case "initialize":
			if err := s.open(ctx, req); err != nil {
				return nil, err
			}
		// A client that asks gets the skills of now; watchSkills may be a moment late.
		case "resources/list":
			s.audienceOf(callerOf(ctx, req.GetExtra()).Tenant).syncSkills()
		// The SDK does not give the caller of an HTTP request to a method of an extension.
		case methodList, methodGet, methodDirectory:
			ctx = context.WithValue(ctx, callerKey{}, callerOf(ctx, req.GetExtra()))
		}
		res, err = next(ctx, method, req)
		// The list of HandOver may lack the session.
		if method == "initialize" && err == nil && s.handedOver.Load() && c.moveOn != nil && c.moveOn() {
			return nil, errLeave
		}
		if read, ok := res.(*sdk.ReadResourceResult); ok && err == nil && hasEmptyText(read) {
			res = emptyText{read}
		}
		return res, coded(err)
	}
}

// methodOf is a method as the audit log has it: with the name of a tool.
func methodOf(method string, req sdk.Request) string {
	if call, ok := req.(*sdk.CallToolRequest); ok && call.Params != nil {
		return method + " " + call.Params.Name
	}
	return method
}

// open assigns a new HTTP session to its principal.
func (s *Server) open(ctx context.Context, req sdk.Request) error {
	ss := req.GetSession().(*sdk.ServerSession)
	if ss.ID() == "" {
		return nil // the session is its connection, which has one principal
	}
	if s.stopping.Err() != nil {
		return errStopping
	}
	c := callerOf(ctx, req.GetExtra())
	return s.sessions.add(ss, c.Principal, cmp.Or(c.name, rand.Text()))
}
