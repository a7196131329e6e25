package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/network/dial"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// An exchange is a connection whose requests get credentials: a server of net/http towards the sandbox,
// and a client towards the destination. Both parse each request, so the destination sees the request
// that was checked.
type exchange struct {
	*connection
	name        string // that the client named
	secure      bool   // TLS
	credentials []credential.Credential
	proxy       *httputil.ReverseProxy
	life        context.Context // ends with serve; further connections end with it
	dialed      atomic.Bool     // the first connection is in use
	passed      atomic.Int64    // bytes to the sandbox; those of cancelled requests are only in received
	mu          sync.Mutex
	used        []string // names of credentials
}

var silent = stdlog.New(io.Discard, "", 0)

func newExchange(c *connection, name string, secure bool, list []credential.Credential) *exchange {
	s := &exchange{connection: c, name: name, secure: secure, credentials: list}
	s.proxy = &httputil.ReverseProxy{
		Rewrite: s.rewrite, ErrorHandler: s.fail, ErrorLog: silent,
		FlushInterval: -1, // each part of an answer at once
		BufferPool:    copyBuffers{},
	}
	return s
}

// serve returns after the connection has ended.
func (s *exchange) serve() {
	shared := s.gateway.entries.tenant
	if !shared.exchanges.take() {
		s.finish(refusedError(s.decision.refuse(policy.Verdict{Reason: fmt.Sprintf("more than %d connections of the tenant with credentials", maxExchanges)})), nil)
		return
	}
	defer shared.exchanges.give()
	life, end := context.WithCancel(s.gateway.life)
	defer end()
	s.life = life
	transport := s.transport()
	defer transport.CloseIdleConnections()
	s.proxy.Transport = transport
	limits := s.gateway.entries.limits
	server := &http.Server{
		Handler: s, ErrorLog: silent, DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout: limits.Hello, IdleTimeout: limits.Idle, MaxHeaderBytes: maxRequestHead,
		HTTP2: http2Config(),
	}
	// net/http sees the sandbox's bytes through countedConn, so TLS's own bytes count for the limits, too.
	conn := net.Conn(&countedConn{client: s.in, exchange: s})
	l := &oneConn{conn: conn, ended: make(chan struct{})}
	conn.(*countedConn).closed = sync.OnceFunc(func() { close(l.ended) })
	if s.secure {
		l.conn = tls.Server(conn, &tls.Config{
			// A session ticket would be of no use: its key ends with this tls.Config, and each connection has a new one.
			NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				return s.gateway.broker.set.Authority().Leaf(s.name)
			},
		})
	}
	_ = server.Serve(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connection.credentials = slices.Clone(s.used)
}

// Bounds on the memory of one connection with a credential. An execution can have as many of these as of other
// connections, so each must be small. All bodies of requests and answers that wait for a reader take at most streamBuffer
// bytes together, in each direction. A field of a head takes about 120 bytes besides its text, and HTTP/2 counts 32 of
// them (RFC 9113, 10.5.1). HTTP/1 counts none, so a head of it may have 4,000 fields, 0.5 MiB, until ServeHTTP refuses it.
const (
	maxStreams      = 16      // requests at the same time
	maxRequestHead  = 8 << 10 // bytes of each request
	maxFields       = dial.MaxLines
	streamBuffer    = 512 << 10
	frameSize       = 16 << 10 // the smallest that HTTP/2 allows (RFC 9113, 4.2)
	maxResponseHead = 16 << 10 // of each answer, as much as Node.js takes
)

// continueTime is how long a request that has "Expect: 100-continue" waits for the server's word before its body follows.
// Many servers say nothing. curl waits as long.
const continueTime = time.Second

func http2Config() *http.HTTP2Config {
	return &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReadFrameSize: frameSize,
		MaxReceiveBufferPerConnection: streamBuffer, MaxReceiveBufferPerStream: streamBuffer}
}

// copyBuffers lends small buffers to ReverseProxy, which would otherwise allocate 32 KiB for each answer.
type copyBuffers struct{}

func (copyBuffers) Get() []byte  { return *smallBuffers.Get().(*[]byte) }
func (copyBuffers) Put(b []byte) { smallBuffers.Put(&b) }

// transport makes the client. Its connections all go to the address that was judged.
func (s *exchange) transport() *http.Transport {
	// DisableCompression, because a Transport would otherwise ask for gzip and unpack the answer: the
	// program must get the answer to its own request.
	t := &http.Transport{
		DialContext: s.dial, DisableCompression: true, Protocols: new(http.Protocols),
		TLSClientConfig: &tls.Config{ServerName: s.name, RootCAs: s.roots(), MinVersion: tls.VersionTLS12},
		IdleConnTimeout: s.gateway.entries.limits.Idle, TLSHandshakeTimeout: s.gateway.entries.limits.Dial,
		ExpectContinueTimeout: continueTime, MaxResponseHeaderBytes: maxResponseHead, HTTP2: http2Config(),
	}
	t.Protocols.SetHTTP1(true)
	t.Protocols.SetHTTP2(s.secure)
	return t
}

// roots are the authorities that sign the destination's certificate.
func (s *exchange) roots() *x509.CertPool {
	for _, c := range s.credentials {
		if c.CA != "" {
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM([]byte(c.CA))
			return pool
		}
	}
	if s.gateway.broker.roots == nil {
		return x509.NewCertPool() // nil would mean files that the helper can't read
	}
	return s.gateway.broker.roots
}

// dial returns the connection that open has made, and after that others to the same address, within the
// limits.
func (s *exchange) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	// The connection that forward has made counts already. Only further ones enter.
	if s.dialed.CompareAndSwap(false, true) {
		return &answers{s.out, s}, nil
	}
	if reached := s.gateway.enter(); reached != "" {
		s.gateway.deny(s.decision.refuse(policy.Verdict{Reason: reached}))
		return nil, errors.New(reached)
	}
	// The Transport cuts the dial off from the end of its request.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	start := time.Now()
	c, err := s.gateway.dial(ctx, s.decision)
	if err != nil {
		if s.life.Err() == nil { // else the destination may well be reached
			s.gateway.missed(start, s.decision, err)
		}
		s.gateway.leave()
		return nil, err
	}
	leave := sync.OnceFunc(func() {
		// The bytes and credentials of all requests are with the sandbox's own connection.
		s.gateway.report.closed(s.decision.connection(start, policy.Connection{}))
		s.gateway.leave()
	})
	// The Transport closes an HTTP/2 connection only when it is idle, which it may notice after CloseIdleConnections.
	stop := context.AfterFunc(s.life, func() {
		c.Reset()
		leave()
	})
	return &entered{&answers{c, s}, stop, leave}, nil
}

// entered is a further connection to the destination.
type entered struct {
	net.Conn
	stop  func() bool // of the reset at the exchange's end
	leave func()
}

func (e *entered) Close() error {
	e.stop()
	defer e.leave()
	return e.Conn.Close()
}

// ServeHTTP judges one request.
func (s *exchange) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, port := cutPort(r.Host)
	switch {
	case name != s.name || port != "" && port != strconv.Itoa(int(s.decision.to.Port())):
		d := s.decision
		d.name = shown(r.Host)
		s.refuse(w, d, http.StatusMisdirectedRequest, "the request is for another host than its connection, which carries a credential for "+s.name)
	case r.Method == http.MethodConnect:
		s.refuse(w, s.decision, http.StatusMethodNotAllowed, "a CONNECT request asks for a relay")
	case strings.EqualFold(r.Method, http.MethodTrace): // the answer would have the credential
		s.refuse(w, s.decision, http.StatusMethodNotAllowed, "a TRACE request asks for its own headers, and one has a credential")
	case r.URL.Opaque != "": // of "scheme:rest"; ReverseProxy would send rest as a target that is no path
		s.refuse(w, s.decision, http.StatusBadRequest, "the target of the request is not valid")
	case len(r.Header) > maxFields: // each has copies until the answer
		s.refuse(w, s.decision, http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("the request has more than %d headers", maxFields))
	default:
		s.forward(w, r)
	}
}

// forward carries a request and its answer.
func (s *exchange) forward(w http.ResponseWriter, r *http.Request) {
	requests := &s.gateway.entries.tenant.requests
	// The server would add these to an answer without them.
	w.Header()["Date"], w.Header()["Content-Type"] = nil, nil
	if !requests.take() {
		s.gateway.deny(s.decision.refuse(policy.Verdict{Reason: fmt.Sprintf("more than %d requests of the tenant with credentials", maxRequests)}))
		// Without a body: a client that reads nothing must not hold the request.
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	defer requests.give()
	s.proxy.ServeHTTP(w, r)
}

func (s *exchange) refuse(w http.ResponseWriter, d decision, status int, reason string) {
	s.gateway.deny(d.refuse(policy.Verdict{Reason: reason}))
	http.Error(w, "skillrun: "+reason, status)
}

// forwarding are headers that ReverseProxy removes, because most proxies write their own.
var forwarding = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// rewrite makes the request for the destination. ReverseProxy has already removed the headers that the
// client's Connection lists, so a client can't have the credential removed.
func (s *exchange) rewrite(r *httputil.ProxyRequest) {
	// The host of the URL decides only where the Transport keeps the connection; s.dial ignores it and uses the
	// address that was judged.
	r.Out.URL.Scheme, r.Out.URL.Host = "http", net.JoinHostPort(s.name, strconv.Itoa(int(s.decision.to.Port())))
	if s.secure {
		r.Out.URL.Scheme = "https"
	}
	r.Out.Host, r.Out.URL.RawQuery = r.In.Host, r.In.URL.RawQuery
	for _, h := range forwarding {
		if v, ok := r.In.Header[h]; ok {
			r.Out.Header[h] = v
		}
	}
	if up := r.Out.Header.Get("Upgrade"); up != "" && up != "websocket" { // in another protocol, requests would pass unchecked
		r.Out.Header.Del("Upgrade")
		r.Out.Header.Del("Connection")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.credentials {
		r.Out.Header.Set(c.Header, string(c.Value))
		if !slices.Contains(s.used, c.Name) {
			s.used = append(s.used, c.Name)
		}
	}
}

// fail tells the program that its request failed on the way to the destination.
func (s *exchange) fail(w http.ResponseWriter, r *http.Request, err error) {
	reason := fmt.Sprintf("the connection to %s failed: %s", s.name, dial.Cause(err))
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		reason = fmt.Sprintf("the certificate of %s is not valid: %s", s.name, dial.Clipped(err.Error()))
		s.gateway.deny(s.decision.refuse(policy.Verdict{Reason: reason}))
	}
	http.Error(w, "skillrun: "+reason, http.StatusBadGateway)
}

// oneConn is a net.Listener with one connection.
type oneConn struct {
	conn  net.Conn
	taken bool
	ended chan struct{} // closed after the connection's end
}

// Accept blocks after the connection until its end, because http.Server.Serve returns as soon as Accept fails.
func (l *oneConn) Accept() (net.Conn, error) {
	if !l.taken {
		l.taken = true
		return l.conn, nil
	}
	<-l.ended
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }

// answers counts the bytes of the destination as they arrive: those of a request that the program cancels never reach the
// sandbox.
type answers struct {
	net.Conn
	exchange *exchange
}

func (d *answers) Read(b []byte) (int, error) {
	n, err := d.Conn.Read(b)
	d.exchange.received.Add(int64(n))
	if over := d.exchange.count(n); over != nil {
		return 0, over
	}
	return n, err
}

// A countedConn counts the bytes that the sandbox sends. Large buffers depend on the bytes that pass here, because HTTP/2
// reads some of an answer for a program that reads nothing.
type countedConn struct {
	*client
	exchange *exchange
	closed   func()
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.client.Read(b)
	c.exchange.counted(&c.exchange.sent, n)
	if over := c.exchange.count(n); over != nil {
		return 0, over
	}
	return n, err // not wrapped: net/http compares errors
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.exchange.counted(&c.exchange.passed, len(b))
	c.exchange.activity.note()
	return c.client.Write(b)
}

func (c *countedConn) Close() error {
	defer c.closed()
	return c.client.Close()
}

// count ends the connection if the limit of bytes is reached.
func (s *exchange) count(n int) error {
	s.activity.note()
	if s.gateway.entries.count(n) {
		return s.gateway.entries.tenant.carry(s.gateway.life, n)
	}
	s.gateway.deny(s.decision.refuse(policy.Verdict{Reason: s.gateway.entries.bytesReason()}))
	s.abort()
	return net.ErrClosed
}
