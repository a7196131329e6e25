package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/skillrun/skillrun/internal/certtest"
	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/network/dial"
	"github.com/skillrun/skillrun/internal/network/networktest"
	"github.com/skillrun/skillrun/internal/network/policy"
)

const proxyAddress = networktest.Private + ":3128"

// A connector is a proxy that notes the requests. It carries each connection to the test's public host.
type connector struct {
	mu    sync.Mutex
	asked []string // target, and the header Proxy-Authorization
}

func (p *connector) handle(c net.Conn) {
	from := bufio.NewReader(c)
	r, err := http.ReadRequest(from)
	if err != nil || r.Method != http.MethodConnect {
		_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		return
	}
	p.mu.Lock()
	p.asked = append(p.asked, r.RequestURI+" "+r.Host+" "+r.Header.Get("Proxy-Authorization"))
	p.mu.Unlock()
	_, port, _ := net.SplitHostPort(r.RequestURI)
	out, err := net.Dial("tcp", net.JoinHostPort(networktest.Public, port))
	if err != nil {
		_, _ = io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\n\r\n")
		return
	}
	defer out.Close()
	_, _ = io.WriteString(c, "HTTP/1.1 200 Connection established\r\nVia: 1.1 test\r\n\r\n")
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(c, out)
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
	})
	_, _ = io.Copy(out, from)
	_ = out.(*net.TCPConn).CloseWrite()
	back.Wait()
}

func (p *connector) want(t *testing.T, want ...string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.asked, want) {
		t.Errorf("the proxy was asked for %q, want %q", p.asked, want)
	}
}

func newConnector(t *testing.T) *connector {
	p := &connector{}
	networktest.Serve(t, proxyAddress, p.handle)
	return p
}

// through gives a Gateway the test's proxy.
func through(change ...func(*dial.Proxy)) func(*Config) {
	p := &dial.Proxy{Addresses: []netip.AddrPort{netip.MustParseAddrPort(proxyAddress)}}
	for _, f := range change {
		f(p)
	}
	return func(c *Config) { c.Proxy = p }
}

func resolvesNames(p *dial.Proxy) { p.ResolvesNames = true }

// talk sends a byte to an echo server, gets it back, and the end after its own end.
func talk(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(c, "x"); err != nil {
		t.Fatal(err)
	}
	_ = c.(*net.TCPConn).CloseWrite()
	if b, err := io.ReadAll(c); string(b) != "x" || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
	c.Close()
}

// The proxy gets the address that was resolved and judged, with the credentials. It gets no connection that the
// rules refuse, and the sandbox does not reach the proxy itself.
func TestProxyGetsJudgedAddresses(t *testing.T) {
	newZone(t)
	p := newConnector(t)
	networktest.Serve(t, networktest.Public+":7000", echo)
	networktest.Serve(t, "["+networktest.Public6+"]:7000", func(net.Conn) { t.Error("the connection did not go through the proxy") })
	b := newBox(t, []string{"*.test:7000", "[" + networktest.Public6 + "]:7000"}, nil, through(func(p *dial.Proxy) { p.Authorization = "Basic dTpw" }))
	talk(t, b.dialNamed(t, "7000", "www.test"))
	if e := b.awaitClosed(t); e.Name != "www.test" || e.To.String() != networktest.Public+":7000" || e.Sent != 1 || e.Received != 1 {
		t.Errorf("event: %+v", e)
	}
	c, err := b.Dial("tcp", "["+networktest.Public6+"]:7000")
	if err != nil {
		t.Fatal(err)
	}
	talk(t, c)
	for _, to := range []string{proxyAddress, networktest.Public2 + ":7000"} {
		if c, err := b.Dial("tcp", to); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: got %v, %v", to, c, err)
		}
	}
	p.want(t, "20.1.0.1:7000 20.1.0.1:7000 Basic dTpw", "[2600::1]:7000 [2600::1]:7000 Basic dTpw")
}

// A proxy that resolves names gets them. The sandbox has an address for each name, and no resolver is asked.
func TestProxyResolvesNames(t *testing.T) {
	z := newZone(t)
	p := newConnector(t)
	networktest.Serve(t, networktest.Public+":7000", echo)
	serveHTTP(t, networktest.Public+":443", true)
	b := newBox(t, []string{"only.the.proxy.knows:443,7000", "*.test:443", "public:7000", "20.1.0.1:7000"}, []string{"denied.test:7000"},
		through(resolvesNames, func(p *dial.Proxy) { p.Direct.Names = []string{"www.test"} }))
	for _, tt := range []struct {
		name string
		kind uint16
		want string
	}{
		{"only.the.proxy.knows", dns.TypeA, "198.18.0.1"},
		{"only.the.proxy.knows", dns.TypeAAAA, ""},
		{"Denied.test", dns.TypeA, "198.18.0.2"},
		{"only.the.proxy.KNOWS", dns.TypeA, "198.18.0.1"},
	} {
		if got := addresses(b.ask(t, "udp", tt.name, tt.kind)); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	if asked := z.questions(); len(asked) > 0 {
		t.Errorf("resolvers were asked for %v", asked)
	}
	for _, to := range []string{"198.18.0.1:7000", "20.1.0.1:7000"} {
		c, err := b.Dial("tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		talk(t, c)
	}
	// An address that stands for no name, a denied port, a port without a rule, another name server.
	for _, to := range []string{"198.18.0.9:7000", "198.18.0.2:7000", "198.18.0.1:7001", "198.18.0.1:53"} {
		if c, err := b.Dial("tcp", to); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: got %v, %v", to, c, err)
		}
	}
	// The client must send the name, because no rule allows port 443 for all names.
	for name, good := range map[string]bool{"only.the.proxy.knows": true, "evil.example": false} {
		c, err := b.Dial("tcp", "198.18.0.1:443")
		if err != nil {
			t.Fatal(err)
		}
		if err := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake(); (err == nil) != good {
			t.Errorf("%s: %v", name, err)
		}
		c.Close()
	}
	talk(t, b.dialNamed(t, "7000", "www.test")) // without the proxy
	p.want(t, "only.the.proxy.knows:7000 only.the.proxy.knows:7000 ", "20.1.0.1:7000 20.1.0.1:7000 ",
		"only.the.proxy.knows:443 only.the.proxy.knows:443 ", "only.the.proxy.knows:443 only.the.proxy.knows:443 ")
	e := await(t, b.log, func() (policy.Connection, bool) {
		i := slices.IndexFunc(b.closed, func(c policy.Connection) bool { return c.To.Port() == 7000 && c.Name == "only.the.proxy.knows" })
		if i < 0 {
			return policy.Connection{}, false
		}
		return b.closed[i], true
	})
	if !slices.Equal(policy.Learn([]policy.Connection{e}), []string{"only.the.proxy.knows:7000"}) {
		t.Errorf("event: %+v", e)
	}
}

// The proxy is closed to the sandbox by each of its addresses and by its name, although the rules allow public
// addresses: it could carry requests past the rules. A rule with exactly its address opens it.
func TestProxyIsClosed(t *testing.T) {
	newZone(t)
	const address = networktest.Public2 + ":443"
	networktest.Serve(t, address, echo)
	at := func(change ...func(*dial.Proxy)) func(*Config) {
		return through(append(change, func(p *dial.Proxy) {
			p.Addresses, p.Name = []netip.AddrPort{netip.MustParseAddrPort(address)}, "proxy.test"
			p.Direct.Prefixes = []netip.Prefix{netip.MustParsePrefix("20.0.0.0/8")}
		})...)
	}
	b := newBox(t, []string{"public", "20.1.0.0/16"}, nil, at())
	for _, to := range []string{address, "[64:ff9b::1401:2]:443"} {
		if c, err := b.Dial("tcp", to); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: got %v, %v", to, c, err)
		}
		b.awaitDenial(t, func(d policy.Denial) bool {
			return d.To.String() == to && d.Rule == policy.KindOwn && strings.Contains(d.Reason, "is an own address (the proxy of the daemon)") && d.Missing == ""
		})
	}
	c, err := newBox(t, []string{networktest.Public2}, nil, at()).Dial("tcp", address)
	if err != nil {
		t.Fatal("with its rule: ", err)
	}
	talk(t, c)
	b = newBox(t, []string{"public"}, nil, at(resolvesNames))
	to := addresses(b.ask(t, "udp", "Proxy.test", dns.TypeA)) + ":443"
	if c, err := b.Dial("tcp", to); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("its name: got %v, %v", c, err)
	}
	b.awaitDenial(t, func(d policy.Denial) bool { return d.Name == "proxy.test" && d.Rule == policy.KindOwn })
}

// Some destinations need no proxy. UDP reaches only these.
func TestProxyIsNotAsked(t *testing.T) {
	newZone(t)
	networktest.Serve(t, networktest.Public+":7000", echo)
	networktest.Serve(t, networktest.Metadata+":7000", echo)
	l, err := net.ListenPacket("udp", networktest.Public+":7000")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	nowhere := func(p *dial.Proxy) { p.Addresses = nil }
	b := newBox(t, []string{"public:7000", networktest.Metadata + ":7000", "public:7000/udp"}, nil, through(nowhere, func(p *dial.Proxy) {
		p.Direct = dial.Direct{Names: []string{"*.test"}, Prefixes: []netip.Prefix{netip.MustParsePrefix("20.1.0.0/28")}}
	}))
	for _, to := range []string{networktest.Public + ":7000", networktest.Metadata + ":7000"} {
		c, err := b.Dial("tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		talk(t, c)
	}
	c, err := b.Dial("udp", networktest.Public+":7000")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write([]byte("x"))
	_ = l.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, _, err := l.ReadFrom(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	b = newBox(t, []string{"public:7000", "public:7000/udp"}, nil, through(nowhere))
	if c, err = b.Dial("udp", networktest.Public+":7000"); err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write([]byte("x"))
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("UDP: got %v", err)
	}
	b.awaitDenial(t, func(d policy.Denial) bool { return strings.HasPrefix(d.Reason, "the proxy carries no UDP") })
}

// Whatever the proxy answers, the program's connection is refused, and an event has the reason.
func TestProxyRefuses(t *testing.T) {
	long := "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2*dial.MaxHead) + "\r\n\r\n"
	for _, tt := range []struct{ name, answer, authorization, want string }{
		{"no credentials", "HTTP/1.1 407 x\r\nProxy-Authenticate: Basic\r\n\r\n", "", "the proxy refused the connection: 407 Proxy Authentication Required; it wants network_proxy.username and network_proxy.password"},
		{"wrong credentials", "HTTP/1.1 407 x\r\n\r\n", "Basic s3cr3t", "407 Proxy Authentication Required; it does not accept network_proxy.username"},
		{"forbidden", "HTTP/1.1 403 \x1b[2J Forbidden\r\n\r\nsecret of the proxy", "", "the proxy refused the connection: 403 Forbidden"},
		{"redirect", "HTTP/1.1 302 x\r\nLocation: http://10.0.0.1/\r\n\r\n", "", "the proxy refused the connection: 302 Found"},
		{"unknown status", "HTTP/1.1 999 x\r\n\r\n", "", "the proxy did not reach the destination: 999"},
		{"unreachable", "HTTP/1.1 503 x\r\n\r\n", "", "the proxy did not reach the destination: 503 Service Unavailable"},
		{"not HTTP", "220 mail.example ESMTP\r\n", "", "the proxy's answer is not HTTP"},
		{"a bad header", "HTTP/1.1 302 x\r\nmail.example\r\n\r\n", "", "the proxy's answer is not HTTP"},
		{"a bad status", "HTTP/1.1 mail.example\r\n\r\n", "", "the proxy's answer is not HTTP"},
		{"only 1xx", "HTTP/1.1 100 Continue\r\n\r\n", "", "the proxy did not answer the request for a connection: unexpected EOF"},
		{"endless 1xx", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", dial.MaxLines), "", "the head of the proxy's answer has more than 64 KiB or more than 256 lines"},
		{"another protocol", "HTTP/1.1 101 x\r\n\r\n", "", "the proxy refused the connection: 101 Switching Protocols"},
		{"nothing", "", "", "the proxy did not answer the request for a connection: unexpected EOF"},
		{"endless head", long, "", "the head of the proxy's answer has more than 64 KiB or more than 256 lines"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			networktest.Serve(t, proxyAddress, func(c net.Conn) {
				_, _ = http.ReadRequest(bufio.NewReader(c))
				_, _ = io.WriteString(c, tt.answer)
			})
			b := newBox(t, []string{"public:7000"}, nil, through(func(p *dial.Proxy) { p.Authorization = credential.Value(tt.authorization) }))
			if c, err := b.Dial("tcp", networktest.Public+":7000"); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Fatalf("got %v, %v", c, err)
			}
			d := b.awaitDenial(t, func(d policy.Denial) bool { return true })
			if !strings.Contains(d.Reason, tt.want) || strings.Contains(d.Reason, "s3cr3t") || strings.Contains(d.Reason, "mail.example") || d.To.String() != networktest.Public+":7000" || d.Missing != "" {
				t.Errorf("event: %+v", d)
			}
		})
	}
}

// A proxy that is not there, or is silent, does not hold up the program beyond the time to dial.
func TestProxyIsSilent(t *testing.T) {
	b := newBox(t, []string{"public:7000"}, nil, through(func(p *dial.Proxy) {
		p.Addresses = append(p.Addresses, netip.MustParseAddrPort("10.5.0.1:3129"))
	}))
	if c, err := b.Dial("tcp", networktest.Public+":7000"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("got %v, %v", c, err)
	}
	b.awaitDenial(t, func(d policy.Denial) bool {
		return d.Reason == "the proxy can't be reached (network_proxy.url): connect: connection refused"
	})
	ended := make(chan struct{}, 10)
	networktest.Serve(t, proxyAddress, func(c net.Conn) {
		_, _ = io.Copy(io.Discard, c)
		ended <- struct{}{}
	})
	// The sandbox repeats its first packet after 1 s and 3 s. A repetition just after the refusal would begin a new attempt.
	b = newBox(t, []string{"public:7000"}, nil, through(), func(c *Config) { c.Limits.Dial = 2 * time.Second })
	if c, err := b.Dial("tcp", networktest.Public+":7000"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("got %v, %v", c, err)
	}
	b.awaitDenial(t, func(d policy.Denial) bool { return strings.HasSuffix(d.Reason, ": no answer in time") })
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the connection to the proxy does not end, or never came")
	}
}

// The end of the sandbox's network ends a connection that waits for the proxy, without an event.
func TestProxyEndsWithItsNetwork(t *testing.T) {
	asked, ended := make(chan struct{}), make(chan struct{})
	networktest.Serve(t, proxyAddress, func(c net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		close(asked)
		_, _ = io.Copy(io.Discard, c)
		close(ended)
	})
	b := newBox(t, []string{"public:7000"}, nil, through(), func(c *Config) { c.Limits.Dial = time.Hour })
	go func() { _, _ = b.Dial("tcp", networktest.Public+":7000") }()
	<-asked
	b.gateway.Close()
	<-ended
	if len(b.denials) > 0 {
		t.Errorf("events: %v", b.denials)
	}
}

// Bytes that the destination sends first come with the proxy's answer, and are not lost. Answers with 1xx come before
// the one that counts.
func TestProxyAnswersWithData(t *testing.T) {
	networktest.Serve(t, proxyAddress, func(c net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.0 200 OK\r\n\r\n220 hello\r\n")
		_, _ = io.Copy(c, c)
	})
	b := newBox(t, []string{"public:7000"}, nil, through())
	c, err := b.Dial("tcp", networktest.Public+":7000")
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	_, _ = io.WriteString(c, "QUIT")
	_ = c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "220 hello\r\nQUIT" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// TLS to the proxy needs a valid certificate. The ends of both directions pass.
func TestProxyWithTLS(t *testing.T) {
	authority := certtest.NewAuthority(t, "authority of the proxy")
	pair := authority.Server("proxy").TLS()
	p := &connector{}
	networktest.Serve(t, proxyAddress, func(c net.Conn) { p.handle(tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}})) })
	networktest.Serve(t, networktest.Public+":7000", echo)
	secure := func(name, ca string) func(*Config) {
		return through(func(p *dial.Proxy) { p.Secure, p.Name, p.CA = true, name, ca })
	}
	ca := string(authority.PEM())
	b := newBox(t, []string{"public:7000"}, nil, secure("localhost", ca))
	c, err := b.Dial("tcp", networktest.Public+":7000")
	if err != nil {
		t.Fatal(err)
	}
	talk(t, c)
	p.want(t, "20.1.0.1:7000 20.1.0.1:7000 ")
	for name, change := range map[string]func(*Config){"another name": secure("other.test", ca), "an unknown authority": secure("localhost", "")} {
		b := newBox(t, []string{"public:7000"}, nil, change)
		if c, err := b.Dial("tcp", networktest.Public+":7000"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: got %v, %v", name, c, err)
		}
		b.awaitDenial(t, func(d policy.Denial) bool {
			return strings.HasPrefix(d.Reason, "the connection to the proxy failed: tls: failed to verify certificate")
		})
	}
}

// Requests that go through a proxy get credentials. The proxy sees no credential.
func TestProxyAndCredentials(t *testing.T) {
	o := newOrigin(t, nil, "api.test")
	p := newConnector(t)
	set := bind(t, o.authority.PEM(), false, "api.test")
	b := newBox(t, []string{"api.test"}, nil, through(resolvesNames), func(c *Config) { c.Credentials = set })
	if got := addresses(b.ask(t, "udp", "api.test", dns.TypeA)); got != "198.18.0.1" {
		t.Fatal(got)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(set.Authority().PEM())
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return b.Dial("tcp", "198.18.0.1:443") }}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr, Timeout: time.Minute}
	const wants = "HTTP/2.0 api.test / [Bearer " + secret + "] []"
	if status, got := get(t, client, "https://api.test/"); status != 200 || got != wants {
		t.Errorf("got %d %q, want %q", status, got, wants)
	}
	p.want(t, "api.test:443 api.test:443 ")
}

// The daemon's own connections take the way of the sandboxes' ones: the proxy gets the address that was judged, or the
// name, and gets nothing that is refused or has no need of it.
func TestProxyDial(t *testing.T) {
	networktest.Serve(t, networktest.Public+":7000", echo)
	networktest.Serve(t, "127.0.0.1:7001", echo)
	refused := errors.New("refused")
	for _, tt := range []struct {
		name, to string
		change   func(*dial.Proxy)
		asked    string // the proxy; empty: not
		judged   string
		want     error
	}{
		{"an address", networktest.Public + ":7000", func(*dial.Proxy) {}, "20.1.0.1:7000 20.1.0.1:7000 ", networktest.Public + ":7000", nil},
		{"a mapped address", "[::ffff:20.1.0.1]:7000", func(*dial.Proxy) {}, "20.1.0.1:7000 20.1.0.1:7000 ", networktest.Public + ":7000", nil},
		{"a refused address", networktest.Private + ":7000", func(*dial.Proxy) {}, "", networktest.Private + ":7000", refused},
		{"an address of no_proxy", networktest.Public + ":7000", func(p *dial.Proxy) { p.Direct.Prefixes = []netip.Prefix{netip.MustParsePrefix("20.1.0.0/24")} }, "", networktest.Public + ":7000", nil},
		{"loopback", "localhost:7001", func(*dial.Proxy) {}, "", "127.0.0.1:7001", nil},
		{"a name for the proxy", "Only.the.proxy.knows.:7000", resolvesNames, "only.the.proxy.knows:7000 only.the.proxy.knows:7000 ", "", nil},
		{"an address beside names", networktest.Private + ":7000", resolvesNames, "", networktest.Private + ":7000", refused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newConnector(t)
			proxy := &dial.Proxy{Addresses: []netip.AddrPort{netip.MustParseAddrPort(proxyAddress)}}
			tt.change(proxy)
			var judged string
			c, err := proxy.Dial(t.Context(), tt.to, func(a netip.AddrPort) error {
				if a.Addr().Is6() { // of localhost
					return refused
				}
				if judged = a.String(); a.Addr().IsPrivate() {
					return refused
				}
				return nil
			})
			if !errors.Is(err, tt.want) || judged != tt.judged {
				t.Errorf("got %v, judged %q, want %v and %q", err, judged, tt.want, tt.judged)
			}
			if err == nil {
				if _, err := io.WriteString(c, "x"); err != nil {
					t.Error(err)
				}
				if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
					t.Error(err)
				}
				c.Close()
			}
			if tt.asked == "" {
				p.want(t)
			} else {
				p.want(t, tt.asked)
			}
		})
	}
}
