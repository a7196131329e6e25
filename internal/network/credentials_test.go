package network

import (
	"bytes"
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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/skillrun/skillrun/internal/certtest"
	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/network/networktest"
	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/sandbox"
)

const secretOfTest = "s3cr3t-of-the-manager"

// serveOrigin starts a server for api.test that answers with the header, and the name server. The
// authority of its certificate is the machine's only one.
func serveOrigin(t *testing.T) {
	t.Helper()
	authority := certtest.NewAuthority(t, "origin")
	t.Setenv("SSL_CERT_FILE", authority.WriteRoots(t.TempDir()+"/roots.pem"))
	pair := authority.Client("origin", func(c *x509.Certificate) {
		c.DNSNames, c.ExtKeyUsage = []string{"api.test"}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})
	l, err := net.Listen("tcp", networktest.Public+":443")
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{ErrorLog: stdlog.New(io.Discard, "", 0), TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair.TLS()}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("X-Key")) })}
	go web.ServeTLS(l, "", "")
	packets, err := net.ListenPacket("udp", networktest.Resolver+":53")
	if err != nil {
		t.Fatal(err)
	}
	names := &dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		a := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			r, _ := dns.NewRR(q.Question[0].Name + " 60 IN A " + networktest.Public)
			a.Answer = append(a.Answer, r)
		}
		_ = w.WriteMsg(a)
	})}
	go names.ActivateAndServe()
	t.Cleanup(func() { web.Close(); packets.Close() })
}

// request makes a request in the sandbox, which trusts only its own authority.
func (b *box) request(t *testing.T, set *credential.Set) (body string, err error) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(set.Authority().PEM())
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			c, err := b.Dial("udp", "192.0.0.1:53")
			if err != nil {
				return nil, err
			}
			defer c.Close()
			question := new(dns.Msg).SetQuestion("api.test.", dns.TypeA)
			for late := time.Now().Add(30 * time.Second); ; { // a question can be lost with a helper
				_, _, err = new(dns.Client).ExchangeWithConn(question, &dns.Conn{Conn: c})
				if !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(late) {
					break
				}
			}
			if err != nil {
				return nil, err
			}
			return b.Dial("tcp", networktest.Public+":443")
		}}
	r, err := (&http.Client{Transport: tr, Timeout: time.Minute}).Get("https://api.test/")
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	all, err := io.ReadAll(r.Body)
	return string(all), err
}

// The confined helper adds credentials, compares certificates with the machine's authorities, and is
// replaced with the same authority. No secret is in its environment.
func TestCredentials(t *testing.T) {
	serveOrigin(t)
	t.Setenv("SECRET_OF_TEST", secretOfTest)
	set, err := credential.Open([]credential.Binding{{Name: "key", Domain: "api.test", Header: "X-Key", Value: "{secret}", Secret: credential.Source{Env: "SECRET_OF_TEST"}}})
	if err != nil {
		t.Fatal(err)
	}
	m := newManager(t, func(c *Config) {
		c.Resolvers = []netip.AddrPort{netip.MustParseAddrPort(networktest.Resolver + ":53")}
	})
	// The second rule: the machine of these tests has the address of the server.
	rules, _ := policy.Parse(policy.Config{Allow: []string{"api.test", networktest.Public + ":443"}})
	b := &box{Sandbox: networktest.NewSandbox(t), events: &events{}, cut: make(chan struct{}, 10)}
	b.network = m.Open("acme", "execution", rules, set, b.events).(*Network)
	if err := b.network.Attach(t.Context(), sandbox.Link{TUN: b.TUN, Cut: func() error { b.cut <- struct{}{}; return nil }}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.network.Detach)
	if body, err := b.request(t, set); body != secretOfTest || err != nil {
		t.Fatalf("got %q, %v", body, err)
	}
	p := m.process(t, "acme")
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.command.Process.Pid))
	if err != nil || bytes.Contains(environ, []byte(secretOfTest)) {
		t.Errorf("the helper's environment: %q, %v", environ, err)
	}
	p.kill()
	<-b.cut
	for m.process(t, "acme") == p {
		<-p.noted
	}
	// The new helper attaches the network a moment after it runs. Until then, requests fail.
	late := time.Now().Add(30 * time.Second)
	for {
		body, err := b.request(t, set)
		if body == secretOfTest {
			break
		}
		if time.Now().After(late) {
			t.Fatalf("after the helper's death: got %q, %v", body, err)
		}
	}
}

// Without the machine's authorities, no network starts whose credentials need them.
func TestCredentialsNeedAuthorities(t *testing.T) {
	t.Setenv("SECRET_OF_TEST", secretOfTest)
	set, err := credential.Open([]credential.Binding{{Name: "key", Domain: "api.test", Header: "X-Key", Value: "{secret}", Secret: credential.Source{Env: "SECRET_OF_TEST"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", t.TempDir()+"/missing.pem")
	m := newManager(t)
	n := m.Open("acme", "execution", nil, set, &events{}).(*Network)
	err = n.Attach(t.Context(), sandbox.Link{TUN: networktest.NewSandbox(t).TUN, Cut: func() error { return nil }})
	if err == nil || !strings.Contains(err.Error(), "install the package ca-certificates") || strings.Contains(err.Error(), secretOfTest) {
		t.Errorf("got %v", err)
	}
}

// The names of an address are few, and text.
func TestReportedNames(t *testing.T) {
	names := slices.Repeat([]string{"a\nb"}, policy.MaxNames+1)
	if c := newAccount(&events{}).connection(policy.Connection{Names: names}); len(c.Names) != policy.MaxNames || c.Names[0] != "a\ufffdb" {
		t.Errorf("got %q", c.Names)
	}
}

// A helper can't report a credential that the network does not have.
func TestReportedCredentials(t *testing.T) {
	a := newAccount(&events{}, "api")
	if c := a.connection(policy.Connection{Credentials: []string{"other", "api", "api", "\n"}}); len(c.Credentials) != 1 || c.Credentials[0] != "api" {
		t.Errorf("got %q", c.Credentials)
	}
	if c := newAccount(&events{}).connection(policy.Connection{Credentials: []string{"api"}}); c.Credentials != nil {
		t.Errorf("without credentials: %q", c.Credentials)
	}
}
