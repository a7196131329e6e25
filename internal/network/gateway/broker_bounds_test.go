package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/certtest"
	"github.com/skillrun/skillrun/internal/network/dial"
	"github.com/skillrun/skillrun/internal/network/networktest"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// A request with a credential is held until its answer has been read, and a program may have many.

// The head of a request with a credential is bounded, in bytes and in headers.
func TestCredentialHeads(t *testing.T) {
	o := newOrigin(t, nil, "api.test")
	set := bind(t, o.authority.PEM(), true, "api.test")
	for name, tt := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"usual":        {withHeader("X", strings.Repeat("x", 4<<10)), http.StatusOK},
		"long":         {withHeader("X", strings.Repeat("x", 16<<10)), http.StatusRequestHeaderFieldsTooLarge},
		"many headers": {func(r *http.Request) { manyHeaders(r, maxFields+10) }, http.StatusRequestHeaderFieldsTooLarge},
	} {
		for _, http2 := range []bool{false, true} {
			b := newBox(t, []string{"api.test"}, nil, func(c *Config) { c.Credentials = set })
			// HTTP/2 tells the client the bound, so a client may send nothing.
			if code, text := get(t, b.client(t, set, http2, ""), "https://api.test/", tt.change); code != tt.want && !(code == 0 && tt.want != http.StatusOK && http2) {
				t.Errorf("%s, HTTP/2 %t: %d %s", name, http2, code, text)
			}
		}
		b := newBox(t, []string{"api.test"}, nil, func(c *Config) { c.Credentials = set })
		if code, text := get(t, b.client(t, set, false, ""), "http://api.test/", tt.change); code != tt.want {
			t.Errorf("%s, without TLS: %d %s", name, code, text)
		}
	}
}

// The head of an answer is bounded, too: an attacker may have a server in a bound domain.
func TestCredentialAnswerHeads(t *testing.T) {
	newZone(t)
	networktest.Serve(t, networktest.Public+":80", func(c net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		size, _ := strconv.Atoi(r.URL.Query().Get("size"))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: "+strings.Repeat("x", size)+"\r\n\r\n")
	})
	set := bind(t, nil, true, "api.test")
	b := newBox(t, []string{"api.test"}, nil, func(c *Config) { c.Credentials = set })
	for size, want := range map[int]int{15 << 10: http.StatusOK, 20 << 10: http.StatusBadGateway} {
		if code, text := get(t, b.client(t, set, false, ""), fmt.Sprintf("http://api.test/?size=%d", size)); code != want {
			t.Errorf("%d bytes: %d %s", size, code, text)
		}
	}
}

// A server without HTTP/2 gets a connection for each of the requests at a time, and each is reported.
func TestFurtherConnections(t *testing.T) {
	newZone(t)
	authority := certtest.NewAuthority(t, "origin")
	pair := authority.Client("origin", func(c *x509.Certificate) {
		c.DNSNames, c.ExtKeyUsage = []string{"api.test"}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})
	l, err := tls.Listen("tcp", networktest.Public+":443", &tls.Config{Certificates: []tls.Certificate{pair.TLS()}})
	if err != nil {
		t.Fatal(err)
	}
	both := make(chan struct{}, 2)
	s := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		both <- struct{}{}
		for len(both) < 2 {
			time.Sleep(time.Millisecond)
		}
	})}
	go s.Serve(l)
	defer s.Close()
	set := bind(t, authority.PEM(), false, "api.test")
	b := newBox(t, []string{"api.test"}, nil, func(c *Config) { c.Credentials = set })
	client := b.client(t, set, true, "")
	// The connection is there before the two requests, which share it.
	if code, text := get(t, client, "https://api.test/", toHost("www.test")); code != http.StatusMisdirectedRequest {
		t.Fatalf("%d %s", code, text)
	}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if code, text := get(t, client, "https://api.test/"); code != http.StatusOK {
				t.Errorf("%d %s", code, text)
			}
		})
	}
	all.Wait()
	client.CloseIdleConnections()
	await(t, b.log, func() (bool, bool) { return true, len(b.closed) == 2 })
	for _, c := range b.closed {
		if c.Name != "api.test" || c.To.Port() != 443 || c.Error != "" || (c.Sent > 0) != (len(c.Credentials) > 0) {
			t.Errorf("%+v", c)
		}
	}
}

// Further HTTP/2 connections end with the sandbox's connection, also while they carry requests.
func TestFurtherConnectionsEnd(t *testing.T) {
	newZone(t)
	authority := certtest.NewAuthority(t, "origin")
	pair := authority.Client("origin", func(c *x509.Certificate) {
		c.DNSNames, c.ExtKeyUsage = []string{"api.test"}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})
	l, err := net.Listen("tcp", networktest.Public+":443")
	if err != nil {
		t.Fatal(err)
	}
	const requests = 3
	arrived := make(chan struct{}, requests)
	var open atomic.Int64
	s := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair.TLS()}}, ErrorLog: silent,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1}, // so each request needs a connection
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				open.Add(1)
			case http.StateClosed:
				open.Add(-1)
			}
		},
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			arrived <- struct{}{}
			<-r.Context().Done()
		}),
	}
	go s.ServeTLS(l, "", "")
	defer s.Close()
	set := bind(t, authority.PEM(), false, "api.test")
	b := newBox(t, []string{"api.test"}, nil, func(c *Config) { c.Credentials = set })
	client := b.client(t, set, true, "")
	var conn net.Conn
	transport := client.Transport.(*http.Transport)
	dialBox := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, to string) (net.Conn, error) {
		c, err := dialBox(ctx, network, to)
		conn = c
		return c, err
	}
	// The connection is there before the requests, which share it.
	if code, text := get(t, client, "https://api.test/", toHost("www.test")); code != http.StatusMisdirectedRequest {
		t.Fatalf("%d %s", code, text)
	}
	var all sync.WaitGroup
	for range requests {
		all.Go(func() { get(t, client, "https://api.test/") })
	}
	for range requests {
		<-arrived
	}
	if n := open.Load(); n < requests {
		t.Errorf("%d connections carry %d requests", n, requests)
	}
	conn.Close()
	all.Wait()
	own := b.gateway.entries.own
	for late := time.Now().Add(30 * time.Second); open.Load() != 0 || own.used.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("the destination has %d connections, and %d count", open.Load(), own.used.Load())
		}
	}
}

// The program learns why its request failed, but no address of the machine.
func TestFailedRequestShowsNoAddress(t *testing.T) {
	newZone(t)
	networktest.Serve(t, networktest.Public+":80", func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_ = c.(*net.TCPConn).SetLinger(0) // a reset
		}
	})
	set := bind(t, nil, true, "api.test")
	b := newBox(t, []string{"api.test"}, nil, func(c *Config) { c.Credentials = set })
	code, text := get(t, b.client(t, set, false, ""), "http://api.test/")
	if code != http.StatusBadGateway || !strings.Contains(text, "connection reset by peer") || strings.Contains(text, "->") {
		t.Errorf("%d %s", code, text)
	}
}

func manyHeaders(r *http.Request, n int) {
	for i := range n {
		r.Header.Set(fmt.Sprint("A", i), "")
	}
}

// A tenant has a bound on connections and on requests with credentials, whatever its number of sandboxes.
func TestCredentialsOfATenantAreBounded(t *testing.T) {
	o := newOrigin(t, nil, "api.test")
	set := bind(t, o.authority.PEM(), false, "api.test")
	shared := NewShared(policy.DefaultTenantLimits(), dial.Ports{})
	shared.requests.most, shared.exchanges.most = 1, 2
	limited := func(c *Config) { c.Credentials, c.Shared = set, shared }
	first, second, third := newBox(t, []string{"api.test"}, nil, limited), newBox(t, []string{"api.test"}, nil, limited), newBox(t, []string{"api.test"}, nil, limited)

	waitFor := func(requests int64) {
		t.Helper()
		for late := time.Now().Add(30 * time.Second); shared.requests.used.Load() != requests; time.Sleep(time.Millisecond) {
			if time.Now().After(late) {
				t.Fatalf("%d requests, want %d", shared.requests.used.Load(), requests)
			}
		}
	}
	// The request of the first sandbox does not end before its body.
	body, end := io.Pipe()
	r, _ := http.NewRequest("POST", "https://api.test/echo", body)
	ended := make(chan error, 1)
	go func() {
		w, err := first.client(t, set, true, "").Do(r)
		if err == nil {
			w.Body.Close()
		}
		ended <- err
	}()
	waitFor(1)

	client := second.client(t, set, true, "")
	if code, text := get(t, client, "https://api.test/"); code != http.StatusServiceUnavailable {
		t.Errorf("another request: %d %s", code, text)
	}
	second.awaitDenial(t, func(d policy.Denial) bool { return strings.Contains(d.Reason, "requests of the tenant") })
	if code, text := get(t, third.client(t, set, true, ""), "https://api.test/"); code != 0 {
		t.Errorf("another connection: %d %s", code, text)
	}
	third.awaitDenial(t, func(d policy.Denial) bool { return strings.Contains(d.Reason, "connections of the tenant") })

	end.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	waitFor(0)
	if code, text := get(t, client, "https://api.test/"); code != http.StatusOK {
		t.Errorf("after the end: %d %s", code, text)
	}
}
