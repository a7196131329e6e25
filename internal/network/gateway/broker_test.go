package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/certtest"
	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/network/networktest"
	"github.com/skillrun/skillrun/internal/network/policy"
)

const secret = "s3cr3t-of-the-test"

// An origin is a server on ports 80 and 443 that answers with its request. It has a certificate for names.
type origin struct {
	authority *certtest.Authority
	roots     *x509.CertPool
}

func newOrigin(t *testing.T, edit func(*x509.Certificate), names ...string) *origin {
	t.Helper()
	newZone(t)
	o := &origin{authority: certtest.NewAuthority(t, "origin")}
	o.roots = o.authority.Roots()
	pair := o.authority.Client("origin", func(c *x509.Certificate) {
		c.DNSNames, c.ExtKeyUsage = names, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if edit != nil {
			edit(c)
		}
	})
	for _, port := range []string{"80", "443"} {
		l, err := net.Listen("tcp", networktest.Public+":"+port)
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: http.HandlerFunc(answer), ErrorLog: stdlog.New(io.Discard, "", 0)}
		if port == "443" {
			s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair.TLS()}}
			go s.ServeTLS(l, "", "")
		} else {
			go s.Serve(l)
		}
		t.Cleanup(func() { s.Close() })
	}
	return o
}

// sentLarge gets a value when the server has sent all of /large.
var sentLarge = make(chan struct{}, 1)

// answer shows a request. /redirect leads to another host, /large sends 256 KiB and no end, /echo sends the body back, and an upgrade
// becomes an echo of lines.
func answer(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Upgrade") != "":
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
		w.WriteHeader(http.StatusSwitchingProtocols)
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		line, _ := rw.ReadString('\n')
		fmt.Fprintf(c, "%s:%s", r.Header.Get("Authorization"), line)
	case r.URL.Path == "/redirect":
		http.Redirect(w, r, "https://www.test/", http.StatusFound)
	case r.URL.Path == "/large":
		_, _ = w.Write(make([]byte, 256<<10))
		_ = http.NewResponseController(w).Flush()
		select {
		case sentLarge <- struct{}{}:
		default:
		}
		<-r.Context().Done()
	case r.URL.Path == "/echo":
		_, _ = io.Copy(w, r.Body)
	default:
		w.Header()["Content-Type"] = nil
		fmt.Fprintf(w, "%s %s %s [%s] [%s]", r.Proto, r.Host, r.RequestURI, strings.Join(r.Header["Authorization"], "|"), r.Header.Get("X-Forwarded-For"))
	}
}

// bind makes the Set of a sandbox. A header Authorization goes to each domain.
func bind(t *testing.T, ca []byte, plain bool, domains ...string) *credential.Set {
	t.Helper()
	var list []credential.Binding
	for _, d := range domains {
		t.Setenv("SECRET_OF_TEST", secret)
		t.Setenv("CA_OF_TEST", string(ca))
		b := credential.Binding{Name: "of-" + d, Domain: d, Header: "authorization", Value: "Bearer {secret}", PlainHTTP: plain, Secret: credential.Source{Env: "SECRET_OF_TEST"}}
		if ca != nil {
			b.CA.Env = "CA_OF_TEST"
		}
		list = append(list, b)
	}
	s, err := credential.Open(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// client is an HTTP client in the sandbox, which trusts the sandbox's authority and others.
func (b *box) client(t *testing.T, set *credential.Set, http2 bool, serverName string, others ...*x509.CertPool) *http.Client {
	roots := x509.NewCertPool()
	if len(others) > 0 {
		roots = others[0].Clone()
	}
	roots.AppendCertsFromPEM(set.Authority().PEM())
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: serverName}, Protocols: new(http.Protocols),
		DialContext: func(_ context.Context, _, to string) (net.Conn, error) {
			name, port, _ := net.SplitHostPort(to)
			for _, n := range []string{name, serverName} {
				b.ask(t, "udp", n, dns.TypeA)
			}
			return b.Dial("tcp", net.JoinHostPort(networktest.Public, port))
		},
	}
	tr.Protocols.SetHTTP1(!http2)
	tr.Protocols.SetHTTP2(http2)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

func get(t *testing.T, c *http.Client, url string, change ...func(*http.Request)) (int, string) {
	t.Helper()
	r, _ := http.NewRequest("GET", url, nil)
	for _, f := range change {
		f(r)
	}
	w, err := c.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Error(err)
	}
	return w.StatusCode, string(body)
}

func withHeader(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func toHost(host string) func(*http.Request) { return func(r *http.Request) { r.Host = host } }

// Requests to the bound domain get the credential, whatever the program sends. No other host gets it, also
// not on the same address, on the same connection or after a redirect.
func TestCredentials(t *testing.T) {
	o := newOrigin(t, nil, "api.test", "www.test", "x.deep.test")
	set := bind(t, o.authority.PEM(), false, "api.test", "*.deep.test")
	b := newBox(t, []string{"*.test"}, nil, func(c *Config) { c.Credentials = set })
	for _, http2 := range []bool{false, true} {
		proto := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[http2]
		client := func() *http.Client { return b.client(t, set, http2, "", o.roots) }
		want := func(what string, status int, body string, c *http.Client, url string, change ...func(*http.Request)) {
			t.Helper()
			if s, got := get(t, c, url, change...); s != status || !strings.HasPrefix(got, body) {
				t.Errorf("%s, %s: got %d %q", proto, what, s, got)
			}
		}
		with := "[Bearer " + secret + "]"
		want("the domain", 200, "HTTP/2.0 api.test /a?b=%zz;c "+with+" []", client(), "https://api.test/a?b=%zz;c")
		want("a name below a *", 200, "HTTP/2.0 x.deep.test / "+with, client(), "https://x.deep.test/")
		want("a header of the program", 200, "HTTP/2.0 api.test / "+with+" [1.2.3.4]", client(), "https://api.test/", withHeader("Authorization", "mine"), withHeader("X-Forwarded-For", "1.2.3.4"))
		if !http2 {
			want("a target that is no path", 400, "skillrun: the target", client(), "https://api.test/", func(r *http.Request) { r.URL.Opaque = "x:@www.test/" })
			want("Connection names the header", 200, "HTTP/2.0 api.test / "+with, client(), "https://api.test/", withHeader("Connection", "Authorization, close"))
		}
		want("another name", 200, proto+" www.test / []", client(), "https://www.test/")
		want("another name of the address as server name", 200, proto+" api.test / []", b.client(t, set, http2, "www.test", o.roots), "https://api.test/")
		want("a redirect", 200, proto+" www.test / []", client(), "https://api.test/redirect")
		one := client()
		want("first request", 200, "HTTP/2.0 api.test / "+with, one, "https://api.test/")
		for _, host := range []string{"www.test", "api.test.evil.test", "api.test:80", "[api.test]:443"} {
			want("another Host: "+host, 421, "skillrun: the request is for another host", one, "https://api.test/", toHost(host))
			b.awaitDenial(t, func(d policy.Denial) bool { return d.Name == host })
		}
		want("the port in the Host", 200, "HTTP/2.0 api.test:443 /", one, "https://api.test/", toHost("api.test:443"))
		for _, method := range []string{"TRACE", "trace"} {
			want(method, 405, "skillrun: a TRACE request", one, "https://api.test/", func(r *http.Request) { r.Method = method })
		}
		want("plain HTTP", 200, "HTTP/1.1 api.test / []", b.client(t, set, false, ""), "http://api.test/")
	}
	e := await(t, b.log, func() (policy.Connection, bool) {
		for _, c := range b.closed {
			if len(c.Credentials) > 0 {
				return c, true
			}
		}
		return policy.Connection{}, false
	})
	if e.Credentials[0] != "of-"+e.Name || e.Sent == 0 || e.Received == 0 {
		t.Errorf("event: %+v", e)
	}
}

// Without an address that this sandbox resolved for the name, TLS is end to end, and has no credential.
func TestCredentialNeedsTheResolvedName(t *testing.T) {
	o := newOrigin(t, nil, "api.test", "www.test")
	set := bind(t, o.authority.PEM(), false, "api.test")
	b := newBox(t, []string{"public"}, nil, func(c *Config) { c.Credentials = set })
	unresolved := tls.Client(b.dialNamed(t, "443", "www.test"), &tls.Config{ServerName: "api.test", RootCAs: o.roots})
	fmt.Fprintf(unresolved, "GET / HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n")
	if got, err := io.ReadAll(unresolved); err != nil || !strings.Contains(string(got), "api.test / [] []") {
		t.Errorf("a name that was not resolved: %q, %v", got, err)
	}
	only := x509.NewCertPool()
	conn := b.dialNamed(t, "443", "www.test")
	err := tls.Client(conn, &tls.Config{ServerName: "www.test", RootCAs: only}).Handshake()
	if err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("an unbound name: %v", err)
	}
}

// A deny rule for a port of the domain holds, also if the sandbox resolves the domain only while the Gateway dials.
func TestCredentialOfADeniedName(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	public := netip.MustParseAddr(networktest.Public)
	address := &unix.SockaddrInet4{Addr: public.As4(), Port: 80}
	if err := errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, address), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	// The backlog is full until the server accepts, so the Gateway's dial waits.
	first, err := net.Dial("tcp", networktest.Public+":80")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	set := bind(t, nil, true, "api.test")
	b := newBox(t, []string{"public"}, []string{"api.test:80"}, func(c *Config) { c.Credentials = set })
	ended := make(chan string, 1)
	go func() {
		c, err := b.Dial("tcp", networktest.Public+":80")
		if err != nil {
			ended <- err.Error()
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n")
		got, _ := io.ReadAll(c)
		ended <- string(got)
	}()
	for late := time.Now().Add(30 * time.Second); b.gateway.entries.own.used.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("no connection was judged")
		}
	}
	// As a lookup does. The sandbox's only thread waits for its connection.
	b.gateway.pins.add("api.test", []netip.Addr{public}, time.Minute, true)
	l, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(answer), ErrorLog: stdlog.New(io.Discard, "", 0)}
	go s.Serve(l)
	defer s.Close()
	if got := <-ended; got != "" {
		t.Errorf("got %q", got)
	}
	b.awaitDenial(t, func(d policy.Denial) bool { return d.Rule == "api.test:80" })
}

// With plain_http, requests without TLS get the credential, too, and only for the bound Host.
func TestCredentialInPlainHTTP(t *testing.T) {
	newOrigin(t, nil, "api.test")
	set := bind(t, nil, true, "api.test")
	b := newBox(t, []string{"*.test"}, nil, func(c *Config) { c.Credentials = set })
	c := b.client(t, set, false, "")
	if s, got := get(t, c, "http://api.test/"); s != 200 || !strings.Contains(got, "[Bearer "+secret+"]") {
		t.Errorf("got %d %q", s, got)
	}
	if s, got := get(t, c, "http://api.test/", toHost("www.test")); s != 421 {
		t.Errorf("another Host: got %d %q", s, got)
	}
	if s, got := get(t, b.client(t, set, false, ""), "http://www.test/"); s != 200 || !strings.Contains(got, "[] []") {
		t.Errorf("another host: got %d %q", s, got)
	}
	// An unknown protocol is not switched to: its requests would pass unchecked.
	if s, got := get(t, b.client(t, set, false, ""), "http://api.test/", withHeader("Connection", "Upgrade"), withHeader("Upgrade", "h2c")); s != 200 || !strings.HasPrefix(got, "HTTP/1.1 api.test") {
		t.Errorf("h2c: got %d %q", s, got)
	}
}

// A destination without a valid certificate gets no request, and the program and the events say why.
func TestCredentialNeedsAValidCertificate(t *testing.T) {
	for name, tt := range map[string]struct {
		edit  func(*x509.Certificate)
		names []string
		want  string
	}{
		"expired":       {func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, []string{"api.test"}, "expired"},
		"another name":  {nil, []string{"www.test"}, "www.test, not api.test"},
		"not signed":    {nil, []string{"api.test"}, "unknown authority"},
		"machine roots": {nil, []string{"api.test"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOrigin(t, tt.edit, tt.names...)
			ca := o.authority.PEM()
			if name == "not signed" || name == "machine roots" {
				ca = nil
			}
			set := bind(t, ca, false, "api.test")
			b := newBox(t, []string{"*.test"}, nil, func(c *Config) {
				if c.Credentials = set; name == "machine roots" {
					c.Roots = o.roots
				}
			})
			s, got := get(t, b.client(t, set, true, ""), "https://api.test/")
			if tt.want == "" {
				if s != 200 {
					t.Errorf("got %d %q", s, got)
				}
				return
			}
			if s != 502 || !strings.Contains(got, "skillrun: the certificate of api.test is not valid") || !strings.Contains(got, tt.want) {
				t.Errorf("got %d %q", s, got)
			}
			b.awaitDenial(t, func(d policy.Denial) bool { return strings.Contains(d.Reason, tt.want) })
		})
	}
}

// Large bodies pass in both directions while both are open, and so does a connection that becomes a
// WebSocket.
func TestCredentialsOfStreams(t *testing.T) {
	o := newOrigin(t, nil, "api.test")
	set := bind(t, o.authority.PEM(), false, "api.test")
	b := newBox(t, []string{"*.test"}, nil, func(c *Config) { c.Credentials = set })
	const size = 32 << 20
	r, _ := http.NewRequest("POST", "https://api.test/echo", io.LimitReader(zeros{}, size))
	w, err := b.client(t, set, true, "").Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	if n, err := io.Copy(io.Discard, w.Body); n != size || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}

	c := tls.Client(b.dialNamed(t, "443", "api.test"), &tls.Config{ServerName: "api.test", RootCAs: rootsOf(set)})
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: api.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	in := bufio.NewReader(c)
	answer, err := http.ReadResponse(in, nil)
	if err != nil || answer.StatusCode != 101 {
		t.Fatalf("got %v, %v", answer, err)
	}
	fmt.Fprintln(c, "hello")
	if line, _ := in.ReadString('\n'); line != "Bearer "+secret+":hello\n" {
		t.Errorf("got %q", line)
	}
}

// An answer counts for the limit of bytes although the program cancels its request and reads nothing of it.
func TestCredentialsOfCancelledRequests(t *testing.T) {
	o := newOrigin(t, nil, "api.test")
	set := bind(t, o.authority.PEM(), false, "api.test")
	const limit = 60 << 20 // the sandbox receives 25 MiB at most
	b := newBox(t, []string{"*.test"}, nil, func(c *Config) { c.Credentials, c.Limits.Bytes = set, limit })
	client := b.client(t, set, true, "")
	client.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerConnection: 64 << 10, MaxReceiveBufferPerStream: 64 << 10}
	for range 400 { // 100 MiB, and each answer fits into the window of HTTP/2
		ctx, cancel := context.WithCancel(t.Context())
		r, _ := http.NewRequestWithContext(ctx, "GET", "https://api.test/large", nil)
		w, err := client.Do(r)
		if err != nil {
			cancel()
			break
		}
		_, _ = io.CopyN(io.Discard, w.Body, 8<<10)
		select {
		case <-sentLarge:
		case <-ctx.Done():
		}
		cancel()
		w.Body.Close()
	}
	b.awaitDenial(t, func(d policy.Denial) bool { return strings.Contains(d.Reason, "network_limits.bytes") })
}

// A connection gets no large buffers by the bytes of an answer that its program does not read.
func TestCredentialsOfAnUnreadAnswer(t *testing.T) {
	o := newOrigin(t, nil, "api.test")
	set := bind(t, o.authority.PEM(), false, "api.test")
	b := newBox(t, []string{"*.test"}, nil, func(c *Config) { c.Credentials = set })
	client := b.client(t, set, true, "")
	client.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerConnection: 64 << 10, MaxReceiveBufferPerStream: 64 << 10}
	for range 2 { // as much as HTTP/2 reads without a reader
		r, _ := http.NewRequestWithContext(t.Context(), "GET", "https://api.test/large", nil)
		w, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Body.Close()
		<-sentLarge
	}
	for late := time.Now().Add(30 * time.Second); b.gateway.entries.bytes.Load() < growAfter; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("only %d bytes have arrived", b.gateway.entries.bytes.Load())
		}
	}
	if n := b.gateway.entries.tenant.large.used.Load(); n != 0 {
		t.Errorf("%d connections have large buffers", n)
	}
}

// offered has the bounds that one end of an HTTP/2 connection offers to the other.
type offered struct {
	streams, frame, perStream uint32
	perConnection             uint32 // zero: the default of HTTP/2, 65,535 bytes
}

// readOffer reads frames until the offer is complete: settings, and an update of the connection's window.
func readOffer(from io.Reader) (o offered, err error) {
	frames := http2.NewFramer(nil, from)
	for o.perConnection == 0 || o.perStream == 0 {
		f, err := frames.ReadFrame()
		if err != nil {
			return o, err
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if f.IsAck() {
				continue
			}
			o.streams, _ = f.Value(http2.SettingMaxConcurrentStreams)
			o.frame, _ = f.Value(http2.SettingMaxFrameSize)
			o.perStream, _ = f.Value(http2.SettingInitialWindowSize)
		case *http2.WindowUpdateFrame:
			o.perConnection = f.Increment + 65535
		}
	}
	return o, nil
}

// Requests and answers that nobody reads hold little memory: both ends of a connection with a credential offer small
// windows of HTTP/2.
func TestCredentialBuffers(t *testing.T) {
	newZone(t)
	authority := certtest.NewAuthority(t, "origin")
	pair := authority.Client("origin", func(c *x509.Certificate) {
		c.DNSNames, c.ExtKeyUsage = []string{"api.test"}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})
	type result struct {
		offered
		err error
	}
	toServer := make(chan result, 1)
	networktest.Serve(t, networktest.Public+":443", func(c net.Conn) {
		c = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair.TLS()}, NextProtos: []string{"h2"}})
		_, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
		var o offered
		if err == nil {
			o, err = readOffer(c)
		}
		select {
		case toServer <- result{o, err}:
		default: // a second try of the client
		}
	})
	set := bind(t, authority.PEM(), false, "api.test")
	b := newBox(t, []string{"*.test"}, nil, func(c *Config) { c.Credentials = set })

	c := tls.Client(b.dialNamed(t, "443", "api.test"), &tls.Config{ServerName: "api.test", RootCAs: rootsOf(set), NextProtos: []string{"h2"}})
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	_, _ = io.WriteString(c, http2.ClientPreface)
	_ = http2.NewFramer(c, nil).WriteSettings()
	if o, err := readOffer(c); err != nil || o != (offered{maxStreams, frameSize, streamBuffer, streamBuffer}) {
		t.Errorf("to the program: %+v, %v", o, err)
	}
	_, _ = get(t, b.client(t, set, true, ""), "https://api.test/")
	if r := <-toServer; r.err != nil || r.offered != (offered{0, frameSize, streamBuffer, streamBuffer + 65535}) {
		t.Errorf("to the server: %+v, %v", r.offered, r.err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

func rootsOf(set *credential.Set) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(set.Authority().PEM())
	return pool
}
