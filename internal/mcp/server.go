// Package mcp puts the tools of a view, the skills and what executions left on the
// Model Context Protocol: for agents that speak it, over HTTP or over a pipe that
// the skillrun command holds. What a tool does is decided elsewhere; this package
// knows who calls, how much may come and go, and when a caller has gone.
//
// A message goes straight down: http.go says who sends it and whether it may come
// in (lines.go does for connections without HTTP), the SDK speaks the protocol, and
// a handler (call.go, resource.go) asks the view, the registry or the executor.
package mcp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/toolview"
)

// Tools are the function tools that models call. *toolview.View is one.
type Tools interface {
	Tools() []toolview.Tool
	Call(ctx context.Context, who permission.Principal, name string, arguments json.RawMessage, sink toolview.Sink) (toolview.Result, error)
}

// Config is what a Server is made of. Every field but OpenWorld, MaxMessageBytes,
// Hold and Log must be set.
type Config struct {
	Tools Tools
	// Executor and Skills must be those of Tools.
	Executor *executor.Executor
	Skills   *skill.Registry
	// Identify says who is at the other end of a connection, by its remote address.
	Identify func(net.Addr) (permission.Principal, error)
	// Explain returns what a caller is told about an error that is not about its
	// request, and logs what is the daemon's.
	Explain func(error) string
	// Version is the daemon's.
	Version string
	// OpenWorld says that programs may reach a network.
	OpenWorld bool
	// MaxMessageBytes bounds one message of a caller. Zero: DefaultMaxMessageBytes.
	MaxMessageBytes int64
	// Hold counts a message of so many bytes, from who is at the other end of the
	// connection, among those that are in memory, until release is called, or says that
	// there is no room for it. Nil: there always is.
	Hold func(peer string, bytes int64) (release func(), ok bool)
	// Log gets every error that is ours. Nil: slog.Default().
	Log *slog.Logger
}

// A Server answers agents. Make it with New.
type Server struct {
	tools      Tools
	x          *executor.Executor
	skills     *skill.Registry
	identify   func(net.Addr) (permission.Principal, error)
	explain    func(error) string
	openWorld  bool
	maxMessage int64
	hold       func(string, int64) (func(), bool)
	patience   time.Duration // with a client that doesn't take what it is sent
	keepalive  time.Duration
	bodyTime   time.Duration // for a message to arrive
	log        *slog.Logger

	sdk      *sdk.Server
	stateful http.Handler // protocol versions with sessions, up to 2025-11-25
	perCall  http.Handler // those without, from 2026-07-28 on
	http     *http.Server
	sessions *sessions
	listed   listing

	mu         sync.Mutex      // held to stop, and to begin what Stop must wait for
	stopping   context.Context // done when the server begins to stop
	stop       context.CancelFunc
	lines      sync.WaitGroup  // one a connection without HTTP
	broken     context.Context // done when it waits for no call any more
	breakAll   context.CancelCauseFunc
	background sync.WaitGroup
}

// New makes a Server. Stop ends what it starts.
func New(c Config) *Server {
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = DefaultMaxMessageBytes
	}
	if c.Hold == nil {
		c.Hold = func(string, int64) (func(), bool) { return func() {}, true }
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	s := &Server{
		tools: c.Tools, x: c.Executor, skills: c.Skills, identify: c.Identify, explain: c.Explain,
		openWorld: c.OpenWorld, maxMessage: c.MaxMessageBytes, hold: c.Hold, patience: writeTimeout, keepalive: keepaliveInterval, bodyTime: bodyTimeout, log: c.Log,
	}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.broken, s.breakAll = context.WithCancelCause(context.Background())
	s.sessions = newSessions(s.broken, &s.background)
	s.sdk = sdk.NewServer(&sdk.Implementation{Name: "skillrun", Title: "skillrun", Version: c.Version}, &sdk.ServerOptions{
		Instructions: instructions,
		Capabilities: &sdk.ServerCapabilities{
			Tools:     &sdk.ToolCapabilities{}, // always the same ones
			Resources: &sdk.ResourceCapabilities{ListChanged: true},
		},
		// No proxy may give one user what another asked for.
		SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { c.CacheScope = "private" },
	})
	s.sdk.AddReceivingMiddleware(s.receive)
	s.addTools()
	s.addResources()

	server := func(*http.Request) *sdk.Server { return s.sdk }
	s.stateful = sdk.NewStreamableHTTPHandler(server, &sdk.StreamableHTTPOptions{MaxRequestBodyBytes: -1})
	s.perCall = sdk.NewStreamableHTTPHandler(server, &sdk.StreamableHTTPOptions{
		MaxRequestBodyBytes: -1, Stateless: true, PropagateRequestCancellation: true,
	})
	s.http = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: ingress.HelloTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelError),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	s.background.Go(s.watchSkills)
	return s
}

// Serve answers the calls that come in on l until the server stops. It may be
// called for any number of listeners at once, and closes l. A stop is no error.
func (s *Server) Serve(l net.Listener) error {
	err := s.http.Serve(ingress.Listen(l, s.log))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Stop takes nothing new, ends what only listens, waits for the calls under way
// until ctx is done, then breaks them, and returns when none is left. Drain the
// executor first: a broken call cancels its execution.
func (s *Server) Stop(ctx context.Context) {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	defer context.AfterFunc(ctx, func() {
		s.breakAll(errStopping)
		s.http.Close()
	})()
	s.http.Shutdown(context.WithoutCancel(ctx))
	s.lines.Wait()
	// Not sooner: a session that closes loses the answers to its calls.
	for ss := range s.sdk.Sessions() {
		ss.Close()
	}
	s.background.Wait()
}

// A caller is who sent a message, and whether they still wait for the answer.
type caller struct {
	who  permission.Principal
	here context.Context // done when they have gone
	// keepAlive keeps a silent answer's connection busy until it is stopped. Nil:
	// there is no need.
	keepAlive func() (stop func())
}

type (
	connKey   struct{} // of a connection's context: the net.Conn
	callerKey struct{} // of a connection without HTTP: its *caller
)

// callerInfo is where the SDK carries a caller from an HTTP request to its handler.
const callerInfo = "caller"

// callerOf returns who called. A handler never runs without one.
func callerOf(ctx context.Context, extra *sdk.RequestExtra) *caller {
	if extra != nil && extra.TokenInfo != nil {
		return extra.TokenInfo.Extra[callerInfo].(*caller)
	}
	return ctx.Value(callerKey{}).(*caller)
}

// while returns ctx, cancelled when the caller goes.
func (c *caller) while(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.here, func() { cancel(context.Cause(c.here)) })
	return ctx, func() { stop(); cancel(nil) }
}

// bear gives a request's caller to the SDK in the form of a bearer token's owner,
// which is what it passes on to handlers and compares within a session. The token
// itself is made up here; what a client sent as one is not looked at.
func bear(c *caller, h http.Handler, w http.ResponseWriter, r *http.Request) {
	r = r.Clone(c.here)
	r.Header.Set("Authorization", "Bearer peer")
	verify := func(context.Context, string, *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: c.who.Tenant + "/" + c.who.Name, Extra: map[string]any{callerInfo: c}}, nil
	}
	auth.RequireBearerToken(verify, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(h).ServeHTTP(w, r)
}

// receive is around every message that comes in. A panic is an error of ours; the
// daemon lives on.
func (s *Server) receive(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (res sdk.Result, err error) {
		defer func() {
			if p := recover(); p != nil {
				reference := rand.Text()[:16]
				s.log.Error("panic", "reference", reference, "method", method, slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
				res, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error (reference " + reference + ")"}
			}
		}()
		switch method {
		case "initialize":
			if err := s.open(ctx, req); err != nil {
				return nil, err
			}
		case "resources/list":
			s.syncSkills()
		}
		res, err = next(ctx, method, req)
		if read, ok := res.(*sdk.ReadResourceResult); ok && err == nil && hasEmptyText(read) {
			res = emptyText{read}
		}
		return res, coded(err)
	}
}

// open gives a new HTTP session to its principal.
func (s *Server) open(ctx context.Context, req sdk.Request) error {
	ss := req.GetSession().(*sdk.ServerSession)
	if ss.ID() == "" {
		return nil // as long as its connection, and its principal's anyway
	}
	if s.stopping.Err() != nil {
		return errStopping
	}
	return s.sessions.add(ss, callerOf(ctx, req.GetExtra()).who)
}
