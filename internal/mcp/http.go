package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/ingress/identity"
)

// Path is the path of the endpoint's URL.
const Path = "/mcp"

// perCallVersion is the first protocol version without sessions. Versions are dates, so
// they compare as strings.
const perCallVersion = "2026-07-28"

const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"
)

// methodListen is a request that lasts until its client goes away.
const methodListen = "subscriptions/listen"

// errGone cancels the calls of a disconnected caller.
var errGone = errors.New("the caller went away")

// errStopping answers requests while the daemon stops.
var errStopping = &jsonrpc.Error{Code: codeBusy, Message: "the daemon is stopping; connect again in a moment"}

// codeBusy is the JSON-RPC error code of a failure that may be retried.
const codeBusy = -32000

// A refusal answers a request that is refused before it is processed. status is the HTTP status;
// over a connection without HTTP it has no meaning.
type refusal struct {
	status int
	code   int64 // JSON-RPC error code
	reason string
	id     json.RawMessage // of the refused request; nil: not known
	allow  []string        // the methods of the URL, if status is 405
}

// refuse has the code of an invalid request, which fits most refusals.
func refuse(status int, format string, args ...any) *refusal {
	return &refusal{status: status, code: jsonrpc.CodeInvalidRequest, reason: fmt.Sprintf(format, args...)}
}

// refuseStopping has the same answer as errStopping, before the SDK sees the request.
func refuseStopping() *refusal {
	return &refusal{status: http.StatusServiceUnavailable, code: codeBusy, reason: errStopping.Message}
}

// refuseBusy refuses a message because the memory for requests is in use.
func refuseBusy() *refusal {
	return refuse(http.StatusServiceUnavailable, "request memory is full; retry shortly")
}

func (s *Server) refuseLarge() *refusal {
	return refuse(http.StatusRequestEntityTooLarge, "the message is larger than %d bytes", s.maxMessage)
}

// ServeHTTP answers one request. The request must come through Serve, which adds its
// connection to the context.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	patient := newPatientWriter(w, s.patience, s.keepalive)
	defer patient.wait() // net/http flushes after the handler returns
	w = patient
	who, err := s.admit(r)
	if err != nil {
		err.write(w)
		return
	}
	if r.URL.Path == Path && strings.EqualFold(r.Header.Get("Upgrade"), LinesProtocol) { // other upgrades, such as h2c, are ignored, see RFC 9110, section 7.8
		s.serveLines(w, r, who)
		return
	}
	if s.held.Load() != nil {
		s.redirectUnread(w, r)
		return
	}
	if r.URL.Path != Path {
		s.servePublished(w, r, who)
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(errGone)
	c := &caller{Identity: who, address: ingress.ConnOf(r).From(), here: ctx, keepAlive: patient.keepAlive}
	c.moveOn = func() bool { return s.held.Load() != nil && patient.drop() }
	defer func() {
		if patient.dropped {
			redirect(patient.ResponseWriter, r)
		}
	}()
	var e envelope
	if r.Method == http.MethodPost {
		if r.ContentLength > s.maxMessage { // before any of it comes
			s.count(ctx, who)
			s.refuseLarge().write(w)
			return
		}
		release, ok := s.holdMessage(r)
		if !ok {
			refuseBusy().write(w)
			return
		}
		defer func() { release() }()
		chunked := r.ContentLength < 0
		var bad *refusal
		e, bad = s.readMessage(w, r)
		if bad == nil && chunked { // now the length is known
			release()
			if release, ok = s.holdMessage(r); !ok {
				release, bad = func() {}, refuseBusy()
				bad.id = e.id
			}
		}
		var releaseAnswer func()
		if bad == nil {
			releaseAnswer, bad = s.holdAnswer(who.Tenant, e, func(n int64) (func(), bool) { return s.hold(ingress.ConnOf(r), n) })
		}
		if bad != nil {
			s.count(ctx, who)
			bad.write(w)
			return
		}
		defer releaseAnswer()
	}
	if _, known := accessTable[e.method]; !known || !e.isCall() {
		s.count(ctx, who)
	} else {
		defer func() { // the SDK refuses some calls before mayCall
			if !c.counted.Load() {
				s.count(r.Context(), who)
			}
		}()
	}
	// Only now, after the whole message has come: a half-sent request keeps no other connection
	// out.
	defer ingress.ConnOf(r).Begin()()
	if r.Method == http.MethodGet || e.method == methodListen {
		leave, bad := s.enterStream(who)
		if bad != nil {
			bad.id = e.id
			bad.write(w)
			return
		}
		defer leave()
		// Such a stream ends only with its client and would delay a graceful stop.
		defer context.AfterFunc(s.stopping, func() { cancel(errStopping) })()
	}
	// A client names its version in each request; without the header, the version has sessions.
	if r.Header.Get(versionHeader) >= perCallVersion {
		bear(c, s.perCall, w, r)
		return
	}
	if id := r.Header.Get(sessionHeader); id != "" {
		id = s.ownID(c, id)
		r.Header.Set(sessionHeader, id)
		session, ok := s.sessions.enter(id, who.Principal)
		if !ok {
			s.count(ctx, who)
			refuse(http.StatusNotFound, "no such session: initialize a new one").write(w)
			return
		}
		defer s.sessions.leave(session)
		c.conversation = session.conversation
		if r.Method == http.MethodDelete {
			session.cancel(errGone) // cancels the session's calls, so that its end does not wait for them
		} else {
			defer context.AfterFunc(session.here, func() { cancel(context.Cause(session.here)) })()
		}
	}
	bear(c, s.stateful, w, r)
}

// redirectUnread redirects a request that comes after Hold. Closing the connection would lose a request that is on its
// way.
func (s *Server) redirectUnread(w http.ResponseWriter, r *http.Request) {
	// Some clients do not read an answer before they have sent the whole body.
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.bodyTime))
	if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, s.maxMessage)); err != nil {
		refuseStopping().write(w)
		return
	}
	redirect(w, r)
}

// redirect lets the client send a request again on a new connection, which the next process accepts: 307 keeps the method
// and the body (RFC 9110, section 15.4.8).
func redirect(w http.ResponseWriter, r *http.Request) {
	clear(w.Header())
	w.Header().Set("Connection", "close")
	w.Header().Set("Location", r.URL.RequestURI())
	w.WriteHeader(http.StatusTemporaryRedirect)
}

// enterStream counts a stream that lasts until its client goes away in the quota of the client's tenant.
// leave must be called at the stream's end. A caller without a tenant is refused later, see mayCall.
func (s *Server) enterStream(who identity.Identity) (leave func(), bad *refusal) {
	t, err := s.x.Tenant(who.Principal)
	if err != nil {
		return func() {}, nil
	}
	if leave, err = s.x.EnterStream(t); err != nil {
		return nil, &refusal{status: http.StatusTooManyRequests, code: codeBusy, reason: err.Error()}
	}
	return leave, nil
}

// admit identifies the sender of a request and decides whether to process it.
func (s *Server) admit(r *http.Request) (who identity.Identity, bad *refusal) {
	if s.stopping.Err() != nil && s.held.Load() == nil {
		return who, refuseStopping()
	}
	methods := []string{http.MethodPost, http.MethodGet, http.MethodDelete}
	switch {
	case r.URL.Path == Path:
	case s.publish && strings.HasPrefix(r.URL.Path, publishedDir):
		methods = []string{http.MethodGet, http.MethodHead}
	default:
		return who, refuse(http.StatusNotFound, "%.80q: the endpoint is %s", r.URL.Path, Path)
	}
	if err := notABrowser(r); err != nil {
		return who, err
	}
	who, err := s.identify(credentialsOf(r))
	if err != nil {
		return who, refuse(http.StatusUnauthorized, "not identified: %v", err)
	}
	if err := ingress.ConnOf(r).Identified(who.Tenant); err != nil {
		return who, &refusal{status: http.StatusServiceUnavailable, code: codeBusy, reason: err.Error()}
	}
	if slices.Contains(methods, r.Method) {
		return who, nil
	}
	bad = refuse(http.StatusMethodNotAllowed, "method %.20q: use %s", r.Method, strings.Join(methods, ", "))
	bad.allow = methods
	return who, bad
}

// credentialsOf returns the credentials of a request and its connection.
func credentialsOf(r *http.Request) identity.Credentials {
	return ingress.ConnOf(r).Credentials(r.Header.Values("Authorization"))
}

// notABrowser refuses requests that a web page could send. Browsers send Origin or
// Sec-Fetch-Site, and a page cannot omit them; agents send neither. A page whose DNS name points to
// this machine has a Host that does not. On other addresses than loopback a credential is
// required, which the page does not have.
func notABrowser(r *http.Request) *refusal {
	if len(r.Header.Values("Origin")) > 0 || len(r.Header.Values("Sec-Fetch-Site")) > 0 {
		return refuse(http.StatusForbidden, "requests from web pages are refused (Origin, Sec-Fetch-Site)")
	}
	if text := ingress.RefuseHost(r); text != "" {
		return refuse(http.StatusForbidden, "%s", text)
	}
	return nil
}

// notFound is the error of a method that does not exist, as the SDK has it.
func notFound(method string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("method not found: %.80q", method)}
}

// holdMessage reserves memory for a message before it is read, until it is answered. A message
// without a Content-Length counts as the largest: nothing else is known of it.
func (s *Server) holdMessage(r *http.Request) (release func(), ok bool) {
	size := r.ContentLength
	if size < 0 {
		size = s.maxMessage
	}
	return s.hold(ingress.ConnOf(r), size)
}

// holdAnswer reserves memory for a large answer until it is sent.
func (s *Server) holdAnswer(tenant string, e envelope, hold func(int64) (func(), bool)) (release func(), bad *refusal) {
	n := s.answerBytes(tenant, e)
	if n == 0 {
		return func() {}, nil
	}
	release, ok := hold(n)
	if !ok {
		bad := refuse(http.StatusServiceUnavailable, "request memory is full; retry shortly, or read the file in pieces: %.300s?offset=0", e.uri)
		bad.id = e.id
		return nil, bad
	}
	return release, nil
}

// readMessage reads a request's body before the SDK does. The body must be one JSON-RPC
// message, not larger than maxMessage, that arrives within bodyTime. Batches are refused,
// since one body could have any number of calls.
func (s *Server) readMessage(w http.ResponseWriter, r *http.Request) (e envelope, bad *refusal) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return e, refuse(http.StatusUnsupportedMediaType, "Content-Type must be application/json")
	}
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(s.bodyTime))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.maxMessage))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return e, s.refuseLarge()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return e, refuse(http.StatusBadRequest, "the message did not arrive within %s", s.bodyTime)
	}
	if err != nil {
		return e, refuse(http.StatusBadRequest, "the message broke off: %v", err)
	}
	control.SetReadDeadline(time.Time{}) // further reads only detect that the caller has gone
	if e, bad = readEnvelope(body); bad != nil {
		return e, bad
	}
	if r.Header.Get(versionHeader) < perCallVersion && e.isCall() {
		if r.Header.Get(sessionHeader) == "" && e.needsSession() {
			bad = refuse(http.StatusBadRequest, "%.40s before initialize: there is no session; initialize one and send its %s", e.method, sessionHeader)
		} else if _, known := accessTable[e.method]; !known {
			// With the other protocol versions the SDK answers so. 404 would mean that the session is gone.
			why := notFound(e.method)
			bad = &refusal{status: http.StatusOK, code: why.Code, reason: why.Message}
		}
		if bad != nil {
			bad.id = e.id
			return e, bad
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	return e, nil
}

// encoded returns the refusal as a JSON-RPC error.
func (e *refusal) encoded() []byte {
	data, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": e.id, "error": map[string]any{"code": e.code, "message": e.reason},
	})
	if err != nil {
		panic(err) // cannot happen: a string, numbers and valid JSON
	}
	return data
}

// write sends the refusal as the answer to a request. Nothing may have been written before.
func (e *refusal) write(w http.ResponseWriter) {
	if e.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer") // RFC 6750, section 3
	}
	if e.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", strings.Join(e.allow, ", "))
	}
	if e.status == http.StatusServiceUnavailable || e.status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.status)
	w.Write(e.encoded())
}

// A patientWriter gives up on a client that does not read: after patience a write fails,
// the connection breaks, and the call is cancelled.
type patientWriter struct {
	http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
	interval time.Duration

	// writing keeps keepAlive's comments out of the SDK's writes: http.ResponseWriter has no
	// lock. It guards the fields below, too.
	writing sync.Mutex
	written bool // the client may have got a part of the answer
	dropped bool // see drop
}

func newPatientWriter(w http.ResponseWriter, patience, interval time.Duration) *patientWriter {
	p := &patientWriter{ResponseWriter: w, control: http.NewResponseController(w), patience: patience, interval: interval}
	p.wait()
	return p
}

// wait starts the patience anew. A deadline of a connection, once passed, is for good
// (net/http), so it is set before each write.
func (w *patientWriter) wait() { w.control.SetWriteDeadline(time.Now().Add(w.patience)) }

// drop makes the writer drop the whole answer, so that another one can be written to the original writer. It returns false
// if a part of the answer is written.
func (w *patientWriter) drop() bool {
	w.writing.Lock()
	defer w.writing.Unlock()
	w.dropped = !w.written
	return w.dropped
}

func (w *patientWriter) WriteHeader(status int) {
	w.writing.Lock()
	defer w.writing.Unlock()
	if w.dropped {
		return
	}
	w.wait()
	w.written = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *patientWriter) Write(p []byte) (int, error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	if w.dropped {
		return len(p), nil
	}
	w.wait()
	w.written = true
	return w.ResponseWriter.Write(p)
}

// FlushError implements flushing for http.ResponseController.
func (w *patientWriter) FlushError() error {
	w.writing.Lock()
	defer w.writing.Unlock()
	if w.dropped {
		return nil
	}
	w.written = true
	return w.control.Flush()
}

// Unwrap lets http.ResponseController find the other methods of the original writer.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// keepAlive sends a comment every interval into a stream of server-sent events, until stop
// is called. Some clients wait only a few minutes for the next bytes, and a program may be
// silent for longer. It must start after the SDK has written the header of the stream, and
// stop before the SDK writes the answer.
func (w *patientWriter) keepAlive() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(w.interval)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				if _, err := io.WriteString(w, ": still there\n\n"); err != nil {
					return
				}
				w.FlushError()
			}
		}
	}()
	return func() { close(done); <-ended }
}
