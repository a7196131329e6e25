package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/skillrun/skillrun/internal/network/dial"
	"github.com/skillrun/skillrun/internal/network/networktest"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// Tests of what a client sends first, and of what the Gateway says about it.

// A prefixed connection sends something before the client's first bytes.
type prefixed struct {
	net.Conn
	prefix string
}

func (p *prefixed) Write(b []byte) (int, error) {
	whole := append([]byte(p.prefix), b...)
	p.prefix = ""
	_, err := p.Conn.Write(whole)
	return len(b), err
}

// Some servers skip a record before the client's hello: crypto/tls an alert, OpenSSL an empty change_cipher_spec.
func TestRecordBeforeHello(t *testing.T) {
	newZone(t)
	for _, port := range []string{"443", "8443"} {
		serveHTTP(t, networktest.Public+":"+port, true)
	}
	for _, rules := range [][2][]string{{{"www.test:443,8443"}, nil}, {{"public:*"}, {"evil.example"}}} {
		for _, port := range []string{"443", "8443"} {
			for _, prefix := range []string{"\x15\x03\x01\x00\x02\x01\x70", "\x15\x02\x01\x00\x02\x01\x5a", "\x14\x03\x03\x00\x00", "\x17\x03\x03\x00\x00"} {
				b := newBox(t, rules[0], rules[1])
				conn := &prefixed{b.dialNamed(t, port, "www.test"), prefix}
				err := tls.Client(conn, &tls.Config{ServerName: "evil.example", InsecureSkipVerify: true}).Handshake()
				if err == nil {
					t.Errorf("%q, port %s, prefix %q: the server has answered", rules, port, prefix)
				}
				b.awaitDenial(t, func(d policy.Denial) bool { return strings.Contains(d.Reason, "not valid TLS") })
			}
		}
	}
}

// A client may end its data before it has sent any, and read.
func TestClientOnlyReads(t *testing.T) {
	newZone(t)
	networktest.Serve(t, networktest.Public+":8443", func(c net.Conn) {
		_, _ = io.Copy(io.Discard, c)
		_, _ = io.WriteString(c, "banner")
	})
	b := newBox(t, []string{"www.test:8443"}, nil)
	c := b.dialNamed(t, "8443", "www.test")
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); string(got) != "banner" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// A client that ends within its first message was not refused anything.
func TestClientEndsTooEarly(t *testing.T) {
	newZone(t)
	for _, port := range []string{"80", "443"} {
		networktest.Serve(t, networktest.Public+":"+port, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	}
	for port, start := range map[string]string{"80": "GET / HTTP/1.1\r\nHost: www.test\r\nX: ", "443": "\x16\x03\x01\x01\x00\x01\x00"} {
		b := newBox(t, []string{"www.test"}, nil)
		c := b.dialNamed(t, port, "www.test")
		_, _ = io.WriteString(c, start)
		c.Close()
		if closed := b.awaitClosed(t); closed.Error != "" || closed.Sent != 0 {
			t.Errorf("port %s: %+v", port, closed)
		}
		b.gateway.Close()
		if len(b.denials) > 0 {
			t.Errorf("port %s: %+v", port, b.denials)
		}
	}
}

// The memory and the time of every head are bounded, also of one after a whole request.
func TestHeadsAreBounded(t *testing.T) {
	newZone(t)
	serveHTTP(t, networktest.Public+":80", false)
	const whole = "GET / HTTP/1.1\r\nHost: www.test\r\n\r\n"
	for _, rules := range [][2][]string{{{"www.test"}, nil}, {{"public"}, {"bad.test"}}} {
		for name, tt := range map[string]struct{ head, want string }{
			"lines": {"GET / HTTP/1.1\r\nHost: www.test\r\n" + strings.Repeat("a:\r\n", 10_000) + "\r\n", "not valid HTTP"},
			"slow":  {"GET / HTTP/1.1\r\nHost: www.test\r\n", "in time"},
		} {
			for _, first := range []string{"", whole} {
				b := newBox(t, rules[0], rules[1], func(c *Config) {
					if name == "slow" {
						c.Limits.Hello = time.Second // the first request needs a part of it
					}
				})
				c := b.dialNamed(t, "80", "www.test")
				if _, _ = io.WriteString(c, first); first != "" {
					if _, err := c.Read(make([]byte, 1000)); err != nil {
						t.Fatal(err)
					}
				}
				_, _ = io.WriteString(c, tt.head)
				b.awaitDenial(t, func(d policy.Denial) bool { return strings.Contains(d.Reason, tt.want) })
				if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("%q, %s after %q: %v", rules, name, first, err)
				}
			}
		}
	}
}

// A connection between two requests is not refused for its silence.
func TestIdleBetweenRequests(t *testing.T) {
	newZone(t)
	serveHTTP(t, networktest.Public+":80", false)
	b := newBox(t, []string{"www.test"}, nil, func(c *Config) { c.Limits.Hello, c.Limits.Idle = time.Second, 1500*time.Millisecond })
	c := b.dialNamed(t, "80", "www.test")
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: www.test\r\n\r\n")
	_, _ = io.ReadAll(c) // until Idle
	b.gateway.Close()
	if len(b.denials) > 0 || len(b.closed) != 1 || b.closed[0].Error != "" {
		t.Errorf("%+v, %+v", b.denials, b.closed)
	}
}

// A connection is reported with the name that the client has sent, not with another one of the address.
func TestReportedName(t *testing.T) {
	newZone(t)
	serveHTTP(t, networktest.Public+":443", true)
	serveHTTP(t, networktest.Public+":80", false)
	for _, rules := range [][2][]string{{{"www.test", "second.test"}, nil}, {{"public"}, {"bad.test"}}} {
		b := newBox(t, rules[0], rules[1])
		secure := tls.Client(b.dialNamed(t, "443", "www.test", "second.test"), &tls.Config{ServerName: "WWW.test", InsecureSkipVerify: true})
		if err := secure.Handshake(); err != nil {
			t.Fatal(err)
		}
		secure.Close()
		if c := b.awaitClosed(t); c.Name != "www.test" || len(c.Names) > 0 || c.Error != "" {
			t.Errorf("TLS: %+v", c)
		}
		b = newBox(t, rules[0], rules[1])
		plain := b.dialNamed(t, "80", "www.test", "second.test")
		_, _ = io.WriteString(plain, "GET / HTTP/1.1\r\nHost: www.test\r\n\r\nGET / HTTP/1.1\r\nHost: second.test:80\r\nConnection: close\r\n\r\n")
		_, _ = io.ReadAll(plain)
		plain.Close()
		if c := b.awaitClosed(t); c.Name != "www.test" || fmt.Sprint(c.Names) != "[second.test]" {
			t.Errorf("HTTP: %+v", c)
		}
	}
}

// A name that the client sends without a lookup is reported, and nothing learns it.
func TestReportedClaim(t *testing.T) {
	newZone(t)
	serveHTTP(t, networktest.Public+":443", true)
	for _, resolved := range [][]string{nil, {"second.test"}} {
		b := newBox(t, []string{"public"}, []string{"bad.test"})
		c := tls.Client(b.dialNamed(t, "443", resolved...), &tls.Config{ServerName: "bank.test", InsecureSkipVerify: true})
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		c.Close()
		e := b.awaitClosed(t)
		if got := policy.Learn([]policy.Connection{e}); e.Name != "bank.test" || fmt.Sprint(got) != "["+networktest.Public+":443]" {
			t.Errorf("%+v, learned %q", e, got)
		}
	}
}

// A program may end a connection before its handshake is complete. The destination has seen it, so it counts.
func TestEndDuringTheHandshake(t *testing.T) {
	networktest.Serve(t, networktest.Public+":80", echo)
	w := newWire(t, nil)
	w.send(t, segment(3000, firstSequence, 0, header.TCPFlagSyn, ""))
	s := w.receive(t, 3000)
	w.send(t, segment(3000, firstSequence+1, s.SequenceNumber()+1, header.TCPFlagRst, ""))
	if c := w.awaitClosed(t); c.To.String() != networktest.Public+":80" || c.Error != "the program ended the connection" {
		t.Errorf("%+v", c)
	}
}

// A connection whose first data was refused was not used: nothing learns from it.
func TestRefusedDataIsNoUse(t *testing.T) {
	newZone(t)
	serveHTTP(t, networktest.Public+":443", true)
	serveHTTP(t, networktest.Public+":80", false)
	for port, send := range map[string]func(net.Conn){
		"443": func(c net.Conn) {
			_ = tls.Client(c, &tls.Config{ServerName: "bad.test", InsecureSkipVerify: true}).Handshake()
		},
		"80": func(c net.Conn) { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: bad.test\r\n\r\n") },
	} {
		b := newBox(t, []string{"public"}, []string{"bad.test"})
		send(b.dialNamed(t, port, "www.test"))
		c := b.awaitClosed(t)
		if !strings.Contains(c.Error, "bad.test") || len(policy.Learn([]policy.Connection{c})) > 0 {
			t.Errorf("port %s: %+v", port, c)
		}
	}
}

// The rule that would allow a name behind a proxy that resolves names has the name: the address only stands for one.
func TestMissingRuleBehindProxy(t *testing.T) {
	newConnector(t)
	serveHTTP(t, networktest.Public+":443", true)
	b := newBox(t, []string{"www.test"}, nil, through(resolvesNames))
	c, err := b.Dial("tcp", net.JoinHostPort(addresses(b.ask(t, "udp", "www.test", dns.TypeA)), "443"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = tls.Client(c, &tls.Config{ServerName: "evil.example", InsecureSkipVerify: true}).Handshake()
	d := b.awaitDenial(t, func(d policy.Denial) bool { return d.To.Port() == 443 })
	if d.Missing != "evil.example:443" || !strings.Contains(d.Reason, "evil.example") {
		t.Errorf("%+v", d)
	}
}

// The Gateway is ready for the packets that wait in the device before it reads the first.
func TestFirstPacketWaits(t *testing.T) {
	newZone(t)
	rules, err := policy.Parse(policy.Config{Allow: []string{"www.test"}})
	if err != nil {
		t.Fatal(err)
	}
	shared := NewShared(policy.DefaultTenantLimits(), dial.Ports{})
	for range 40 {
		box, events := networktest.NewSandbox(t), newLog()
		c, err := box.Dial("udp", net.JoinHostPort(NameServerIPv4.String(), "53"))
		if err != nil {
			t.Fatal(err)
		}
		question, err := new(dns.Msg).SetQuestion("www.test.", dns.TypeA).Pack()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(question); err != nil {
			t.Fatal(err)
		}
		g, err := New(Config{TUN: box.TUN, Rules: rules, Limits: policy.DefaultLimits(), Shared: shared, Sink: events,
			Resolvers: []netip.AddrPort{netip.MustParseAddrPort(networktest.Resolver + ":53")}})
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := c.Read(make([]byte, 1000)); err != nil {
			t.Errorf("the first question has no answer: %v; %+v", err, events.denials)
		}
		c.Close()
		g.Close()
	}
}
