package gateway

import (
	"bufio"
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/skillrun/skillrun/internal/network/networktest"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// serveHTTP starts a server that answers with the Host of each request.
func serveHTTP(t *testing.T, address string, secure bool) *httptest.Server {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Host+r.RequestURI+" "+string(b)+r.Header.Get("User-Agent"))
	}), ErrorLog: stdlog.New(io.Discard, "", 0)}}
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// resolved makes the sandbox resolve names, and connects to where they lead.
func (b *box) dialNamed(t *testing.T, port string, names ...string) net.Conn {
	t.Helper()
	for _, name := range names {
		if m := b.ask(t, "udp", name, dns.TypeA); addresses(m) != networktest.Public {
			t.Fatalf("%s: %v", name, m)
		}
	}
	c, err := b.Dial("tcp", net.JoinHostPort(networktest.Public, port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A rule with a name allows an address only after the sandbox resolved such a name to it.
func TestNameThenAddress(t *testing.T) {
	newZone(t)
	networktest.Serve(t, networktest.Public+":7000", echo)
	b := newBox(t, []string{"*.test:7000"}, nil)
	if c, err := b.Dial("tcp", networktest.Public+":7000"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("got %v, %v", c, err)
	}
	c := b.dialNamed(t, "7000", "www.test")
	if _, err := io.WriteString(c, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if e := b.awaitClosed(t); e.Name != "www.test" {
		t.Errorf("event: %+v", e)
	}
}

// If no rule checks the name, a connection to an address of several names reports the names.
func TestNamesOfAnAddress(t *testing.T) {
	newZone(t)
	networktest.Serve(t, networktest.Public+":7000", echo)
	b := newBox(t, []string{"public:7000"}, nil)
	c := b.dialNamed(t, "7000", "www.test", "api.test")
	c.Close()
	if e := b.awaitClosed(t); !slices.Equal(e.Names, []string{"www.test", "api.test"}) {
		t.Errorf("event: %+v", e)
	}
}

// TLS to an address that is allowed for a name must name it.
func TestServerName(t *testing.T) {
	newZone(t)
	for _, port := range []string{"443", "8443"} {
		s := serveHTTP(t, networktest.Public+":"+port, true)
		for _, c := range []struct{ name, want string }{
			{"www.test", ""},
			{"WWW.test", ""},
			{"evil.example", "no rule allows"},
			{"other.test", "not resolved to this address"},
			{"", "sent no TLS server name"},
		} {
			b := newBox(t, []string{"www.test:443,8443", "other.test:443,8443"}, nil)
			conn := b.dialNamed(t, port, "www.test")
			err := tls.Client(conn, &tls.Config{ServerName: c.name, InsecureSkipVerify: true}).Handshake()
			if (err == nil) != (c.want == "") {
				t.Errorf("port %s, %q: %v", port, c.name, err)
			}
			if c.want != "" {
				d := b.awaitDenial(t, func(d policy.Denial) bool { return d.To.Port() != 0 })
				if !strings.Contains(d.Reason, c.want) || d.Name != c.name {
					t.Errorf("event for %q: %+v", c.name, d)
				}
			}
			b.gateway.Close()
		}
		s.Close()
	}
}

// If public or a CIDR allows an address, a client that sends a denied name in plain text is refused there, too. All
// other names and protocols pass.
func TestDeniedNameAtAllowedAddress(t *testing.T) {
	newZone(t)
	for _, port := range []string{"443", "8443"} {
		serveHTTP(t, networktest.Public+":"+port, true)
	}
	serveHTTP(t, networktest.Public+":80", false)
	networktest.Serve(t, networktest.Public+":7000", func(c net.Conn) { // the server speaks first
		_, _ = io.WriteString(c, "220 hello\r\n")
		echo(c)
	})
	isDenied := func(d policy.Denial) bool { return strings.HasSuffix(d.Rule, "bad.test") }
	dial := func(t *testing.T, b *box, port string) net.Conn {
		c, err := b.Dial("tcp", net.JoinHostPort(networktest.Public, port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		return c
	}
	for _, allow := range []string{"public:*", "20.0.0.0/8:*", networktest.Public + ":*"} {
		for name, denied := range map[string]bool{"bad.test": true, "BAD.test": true, "a.bad.test": true, "good.test": false, "": false, "notbad.test": false} {
			for _, port := range []string{"443", "8443"} {
				b := newBox(t, []string{allow}, []string{"bad.test", "*.bad.test"})
				err := tls.Client(dial(t, b, port), &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
				if (err == nil) == denied {
					t.Errorf("%s, port %s, %q: %v", allow, port, name, err)
				}
				if denied {
					b.awaitDenial(t, func(d policy.Denial) bool { return isDenied(d) && strings.EqualFold(d.Name, name) })
				}
			}
			b := newBox(t, []string{allow}, []string{"bad.test", "*.bad.test"})
			c := dial(t, b, "80")
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+name+"\r\nConnection: close\r\n\r\n")
			if got, err := io.ReadAll(c); (err == nil) == denied || (len(got) == 0) != denied {
				t.Errorf("%s, Host %q: %q, %v", allow, name, got, err)
			}
		}
	}
	b := newBox(t, []string{"public:*"}, []string{"bad.test"})
	c := dial(t, b, "7000")
	if _, err := io.ReadFull(c, make([]byte, len("220 hello\r\n"))); err != nil {
		t.Error("a protocol whose server speaks first: ", err)
	}
	talk(t, c)
	c = dial(t, b, "80")
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x@bad.test\r\n\r\n")
	b.awaitDenial(t, func(d policy.Denial) bool { return strings.Contains(d.Reason, "Host of the request is not valid") })
	c = dial(t, b, "80")
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: ["+networktest.Public6+"]\r\nConnection: close\r\n\r\n")
	if got, err := io.ReadAll(c); err != nil || !strings.Contains(string(got), "200 OK") {
		t.Errorf("an address as Host: %q, %v", got, err)
	}
	// Without TLS nothing is checked on port 443, and a server that sees this says so.
	c = dial(t, b, "443")
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\n\r\n")
	if got, err := io.ReadAll(c); err != nil || len(got) == 0 {
		t.Errorf("no TLS on port 443: %q, %v", got, err)
	}
	// A rule for another port is not about this one.
	b = newBox(t, []string{"public:*"}, []string{"bad.test:25"})
	if err := tls.Client(dial(t, b, "443"), &tls.Config{ServerName: "bad.test", InsecureSkipVerify: true}).Handshake(); err != nil {
		t.Error("a deny rule for another port: ", err)
	}
}

// What isn't TLS has no name on port 443; other ports carry other protocols.
func TestNoServerName(t *testing.T) {
	newZone(t)
	got := make(chan byte, 10)
	keep := func(c net.Conn) {
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err == nil {
			got <- b[0]
		}
	}
	networktest.Serve(t, networktest.Public+":443", keep)
	networktest.Serve(t, networktest.Public+":80", keep)
	for _, c := range []struct{ port, send, want string }{
		{"443", "GET / HTTP/1.1\r\n\r\n", "not TLS"},
		{"443", "\x16\x03\x01\x00\x05junk!", "not valid TLS"},
		{"443", "\x16" + strings.Repeat("\x03", 20000), "not valid TLS"},
		{"80", "SSH-2.0-x\r\n\r\n", "not valid HTTP"},
		{"80", "GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 70000) + "\r\n\r\n", "not valid HTTP"},
		{"80", "GET / HTTP/1.0\r\n\r\n", "sent no Host"},
		{"80", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1"},
		{"80", "CONNECT evil.example:443 HTTP/1.1\r\nHost: www.test\r\n\r\n", "CONNECT"},
		{"80", "GET http://evil.example/ HTTP/1.1\r\nHost: www.test\r\n\r\n", "no rule allows"},
		{"80", "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "no rule allows"},
		{"80", "GET / HTTP/1.1\r\nHost: www.test:80@evil.example\r\n\r\n", "not valid"},
		{"80", "GET / HTTP/1.1\r\nHost: www.test\r\nHost: evil.example\r\n\r\n", "not valid HTTP"},
	} {
		b := newBox(t, []string{"www.test"}, nil)
		conn := b.dialNamed(t, c.port, "www.test")
		_, _ = io.WriteString(conn, c.send)
		d := b.awaitDenial(t, func(d policy.Denial) bool { return d.To.Port() != 0 })
		if !strings.Contains(d.Reason, c.want) {
			t.Errorf("%.40q: event %+v", c.send, d)
		}
		if _, err := io.ReadAll(conn); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%.40q: %v", c.send, err)
		}
	}
	select {
	case b := <-got:
		t.Errorf("a server got %q", b)
	default:
	}
}

// A client that sends nothing is refused after a while.
func TestSilentClient(t *testing.T) {
	newZone(t)
	networktest.Serve(t, networktest.Public+":443", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	b := newBox(t, []string{"www.test"}, nil, func(c *Config) { c.Limits.Hello = time.Second })
	conn := b.dialNamed(t, "443", "www.test")
	b.awaitDenial(t, func(d policy.Denial) bool { return strings.Contains(d.Reason, "in time") })
	_, _ = io.ReadAll(conn)
}

// The server's name can be hidden from the check by ECH, so ECH is refused.
func TestEncryptedHello(t *testing.T) {
	newZone(t)
	serveHTTP(t, networktest.Public+":443", true)
	b := newBox(t, []string{"www.test"}, nil)
	conn := b.dialNamed(t, "443", "www.test")
	config := &tls.Config{ServerName: "secret.example", MinVersion: tls.VersionTLS13, EncryptedClientHelloConfigList: echList(t, "www.test")}
	if err := tls.Client(conn, config).Handshake(); err == nil {
		t.Error("it is connected")
	}
	b.awaitDenial(t, func(d policy.Denial) bool { return strings.Contains(d.Reason, "ECH") })
}

// Requests to the allowed host pass whole, with their bodies, on one connection. The first one for
// another host ends it and does not arrive.
func TestHost(t *testing.T) {
	newZone(t)
	serveHTTP(t, networktest.Public+":80", false)
	b := newBox(t, []string{"www.test"}, nil)
	conn := b.dialNamed(t, "80", "www.test")
	in := bufio.NewReader(conn)
	send := func(text, want string) {
		t.Helper()
		_, _ = io.WriteString(conn, text)
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r.Body); err != nil || string(got) != want {
			t.Errorf("got %q, %v", got, err)
		}
	}
	send("GET /a//b%2F?c=%20 HTTP/1.1\r\nHost: www.test\r\n\r\n", "www.test/a//b%2F?c=%20 ")
	send("POST / HTTP/1.1\r\nHost: WWW.test:80\r\nUser-Agent: me\r\nContent-Length: 3\r\n\r\nabc", "WWW.test:80/ abcme")
	send("POST / HTTP/1.1\r\nHost: www.test\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n2\r\nab\r\n0\r\n\r\n", "www.test/ ab")
	send("GET / HTTP/1.1\r\nHost: www.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", "www.test/ ")
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
	if r, err := http.ReadResponse(in, nil); err == nil {
		t.Errorf("got %v", r)
	}
	b.awaitDenial(t, func(d policy.Denial) bool { return d.Name == "evil.example" })
	// Servers do not take a name in brackets for the name.
	conn = b.dialNamed(t, "80", "www.test")
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: [www.test]:80\r\n\r\n")
	b.awaitDenial(t, func(d policy.Denial) bool { return d.Name == "[www.test]" })
}

// The server sees the version of the request: it may answer one of HTTP/1.1 with chunks, which clients of
// HTTP/1.0 do not know.
func TestHostOldVersion(t *testing.T) {
	newZone(t)
	heads := make(chan string, 10)
	networktest.Serve(t, networktest.Public+":80", func(c net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		body, _ := io.ReadAll(r.Body)
		heads <- r.Method + " " + r.RequestURI + " " + r.Proto + " " + r.Host + " " + string(body)
		_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n")
	})
	b := newBox(t, []string{"www.test"}, nil)
	for _, tt := range []struct{ send, want string }{
		{"GET /a%20HTTP/1.1 HTTP/1.0\r\nHost: www.test\r\n\r\n", "GET /a%20HTTP/1.1 HTTP/1.0 www.test "},
		{"POST / HTTP/1.0\r\nHost: www.test\r\nContent-Length: 12\r\n\r\n HTTP/1.1\r\nx", "POST / HTTP/1.0 www.test  HTTP/1.1\r\nx"},
		{"GET / HTTP/1.1\r\nHost: www.test\r\n\r\n", "GET / HTTP/1.1 www.test "},
	} {
		conn := b.dialNamed(t, "80", "www.test")
		_, _ = io.WriteString(conn, tt.send)
		if got, err := io.ReadAll(conn); err != nil || len(got) == 0 {
			t.Fatalf("%.40q: %q, %v", tt.send, got, err)
		}
		if got := <-heads; got != tt.want {
			t.Errorf("%.40q: the server got %q", tt.send, got)
		}
	}
}

// A request of HTTP/1.0 needs no Host, and gets none.
func TestOldVersionWithoutHost(t *testing.T) {
	newZone(t)
	heads := make(chan string, 1)
	networktest.Serve(t, networktest.Public+":80", func(c net.Conn) {
		in := bufio.NewReader(c)
		head := ""
		for !strings.HasSuffix(head, "\r\n\r\n") {
			line, err := in.ReadString('\n')
			if err != nil {
				break
			}
			head += line
		}
		heads <- head
	})
	b := newBox(t, []string{"public"}, []string{"bad.test"})
	conn := b.dialNamed(t, "80", "www.test")
	_, _ = io.WriteString(conn, "GET / HTTP/1.0\r\nA: b\r\n\r\n")
	if got := <-heads; !strings.HasPrefix(got, "GET / HTTP/1.0\r\n") || strings.Contains(got, "Host") {
		t.Errorf("the server got %q", got)
	}
}

// A deny rule for a port holds for an address after its pin has ended, also if public allows the address.
func TestDeniedPortOfOldAddress(t *testing.T) {
	newZone(t)
	networktest.Serve(t, networktest.Public+":7000", echo)
	b := newBox(t, []string{"public:80,7000"}, []string{"www.test:7000"})
	if m := b.ask(t, "udp", "www.test", dns.TypeA); addresses(m) != networktest.Public {
		t.Fatal(m)
	}
	pins := b.gateway.pins
	pins.mu.Lock()
	pins.named[netip.MustParseAddr(networktest.Public)][0].ends = time.Now()
	pins.prune(time.Now())
	pins.mu.Unlock()
	if c, err := b.Dial("tcp", networktest.Public+":7000"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v, %v", c, err)
	}
	b.awaitDenial(t, func(d policy.Denial) bool { return d.Rule == "www.test:7000" })
}

// A client may wait for the answer to its head before it sends the body.
func TestHostExpectContinue(t *testing.T) {
	newZone(t)
	serveHTTP(t, networktest.Public+":80", false)
	b := newBox(t, []string{"www.test"}, nil)
	conn := b.dialNamed(t, "80", "www.test")
	_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: www.test\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
	in := bufio.NewReader(conn)
	if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("got %q, %v", line, err)
	}
	_, _ = in.ReadString('\n')
	_, _ = io.WriteString(conn, "abc")
	r, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(r.Body); !bytes.HasPrefix(got, []byte("www.test/ abc")) {
		t.Errorf("got %q", got)
	}
}

// echList returns an ECHConfigList (RFC 9849) for a public name, with a new key.
func echList(t *testing.T, publicName string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sized := func(b []byte) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...) }
	contents := []byte{1, 0, 0x20} // config id, DHKEM(X25519, HKDF-SHA256)
	contents = append(contents, sized(key.PublicKey().Bytes())...)
	contents = append(contents, sized([]byte{0, 1, 0, 1})...) // HKDF-SHA256, AES-128-GCM
	contents = append(contents, 32, byte(len(publicName)))
	contents = append(contents, publicName...)
	contents = append(contents, 0, 0) // no extensions
	return sized(append([]byte{0xfe, 0x0d}, sized(contents)...))
}
