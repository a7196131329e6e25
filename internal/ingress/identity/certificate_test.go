package identity

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/certtest"
)

// presented is a connection over TLS whose client has a certificate.
func presented(t *testing.T, p *certtest.Pair) Credentials {
	t.Helper()
	c := Credentials{Addr: host("192.0.2.1"), TLS: &tls.ConnectionState{}, Session: &Session{}}
	for _, der := range p.TLS().Certificate {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		c.TLS.PeerCertificates = append(c.TLS.PeerCertificates, cert)
	}
	return c
}

func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	a, spire, other := certtest.NewAuthority(t, "authority"), certtest.NewAuthority(t, "spire", "spiffe://example.org"), certtest.NewAuthority(t, "other")
	table := openTable(t, Config{
		Rows: []Row{
			{"subject:CN=agent", "acme", Invoke},
			{`subject:O=Glo\, bex,CN=agent`, "globex", Invoke},
			{"spiffe://example.org/agent", "acme", Read},
			{"spiffe://example.org/ci/*", "globex", Invoke},
			{"spiffe://example.org/ci/release", "globex", Admin},
			{"spiffe://else.org/agent", "acme", Operator},
		},
		Authorities: a.WriteRoots(filepath.Join(dir, "ca.crt")),
		Bundles:     map[string]string{"example.org": spire.WriteRoots(filepath.Join(dir, "spire.crt"))},
	})
	old := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	early := func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }
	server := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }
	// RFC 2253 begins with the last name: here the organization comes after the common name.
	unusual := func(c *x509.Certificate) {
		var err error
		if c.RawSubject, err = asn1.Marshal(pkix.RDNSequence{
			{{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "agent"}}, {{Type: asn1.ObjectIdentifier{2, 5, 4, 10}, Value: "Glo, bex"}},
		}); err != nil {
			t.Error(err)
		}
	}
	authority := func(c *x509.Certificate) { c.IsCA = true }
	web := func(c *x509.Certificate) { c.URIs = []*url.URL{{Scheme: "https", Host: "example.org", Path: "/agent"}} }
	for _, c := range []struct {
		name   string
		pair   *certtest.Pair
		want   Identity
		reason string
	}{
		{"a subject", a.Client("agent", nil), identified("acme", "subject:CN=agent", Invoke), ""},
		{"a subject in an unusual order", a.Client("", unusual), identified("globex", `subject:O=Glo\, bex,CN=agent`, Invoke), ""},
		{"a SPIFFE ID", spire.Client("", nil, "spiffe://example.org/agent"), identified("acme", "spiffe://example.org/agent", Read), ""},
		{"beneath a pattern", spire.Client("", nil, "spiffe://example.org/ci/a/b"), identified("globex", "spiffe://example.org/ci/a/b", Invoke), ""},
		{"before the pattern", spire.Client("", nil, "spiffe://example.org/ci/release"), identified("globex", "spiffe://example.org/ci/release", Admin), ""},
		{"the pattern's own ID", spire.Client("", nil, "spiffe://example.org/ci"), Identity{}, "spiffe://example.org/ci has no row in identity.callers or in a tenant's callers"},
		{"a subject without a row", a.Client("stranger", nil), Identity{}, "subject:CN=stranger has no row in identity.callers or in a tenant's callers"},
		{"another authority", other.Client("agent", nil), Identity{}, "signed by unknown authority"},
		{"an authority of SPIFFE alone", spire.Client("agent", nil), Identity{}, "signed by unknown authority"},
		{"an authority of subjects alone", a.Client("agent", nil, "spiffe://example.org/agent"), Identity{}, "signed by unknown authority"},
		{"another authority of SPIFFE", other.Client("", nil, "spiffe://example.org/agent"), Identity{}, "signed by unknown authority"},
		{"another trust domain", spire.Client("", nil, "spiffe://else.org/agent"), Identity{}, "the trust domain else.org is not in identity.spiffe"},
		{"expired", a.Client("agent", old), Identity{}, "has expired or is not yet valid"},
		{"expired, of SPIFFE", spire.Client("", old, "spiffe://example.org/agent"), Identity{}, "has expired or is not yet valid"},
		{"not valid yet", a.Client("agent", early), Identity{}, "has expired or is not yet valid"},
		{"two SPIFFE IDs", spire.Client("", nil, "spiffe://example.org/agent", "spiffe://example.org/ci/a"), Identity{}, "more than one URI SAN"},
		{"another URI", spire.Client("", web), Identity{}, "scheme is missing or invalid"},
		{"for servers", a.Client("agent", server), Identity{}, "incompatible key usage"},
		{"an authority", spire.Client("", authority, "spiffe://example.org/agent"), Identity{}, "CA flag"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := presented(t, c.pair)
			for range 2 { // the second time from the session
				wantIdentity(t, table, got, c.want, c.reason)
			}
			got.Session = nil
			wantIdentity(t, table, got, c.want, c.reason)
		})
	}
	none := Credentials{Addr: host("127.0.0.1"), TLS: &tls.ConnectionState{}}
	wantIdentity(t, table, none, Identity{}, "no credential was sent; send a client certificate")

	subjects := openTable(t, Config{Authorities: filepath.Join(dir, "ca.crt")})
	wantIdentity(t, subjects, presented(t, spire.Client("", nil, "spiffe://example.org/agent")), Identity{}, "is not in identity.spiffe")
	ids := openTable(t, Config{Bundles: map[string]string{"example.org": filepath.Join(dir, "spire.crt")}})
	wantIdentity(t, ids, presented(t, a.Client("agent", nil)), Identity{}, "has no SPIFFE ID, and identity.authorities is not set")
}

// A connection loses its identity when its authority leaves the file, and when its certificate expires.
func TestSessionsEnd(t *testing.T) {
	dir := t.TempDir()
	a := certtest.NewAuthority(t, "authority")
	path := a.WriteRoots(filepath.Join(dir, "ca.crt"))
	table := openTable(t, Config{Rows: []Row{{"subject:CN=agent", "acme", Invoke}}, Authorities: path})
	c := presented(t, a.Client("agent", nil))
	wantIdentity(t, table, c, identified("acme", "subject:CN=agent", Invoke), "")
	if want := c.TLS.PeerCertificates[0].NotAfter; c.Session.until.After(want) || c.Session.until.IsZero() {
		t.Errorf("the session ends at %v, want at most %v", c.Session.until, want)
	}
	c.Session.until = time.Now()
	c.TLS.PeerCertificates = presented(t, certtest.NewAuthority(t, "other").Client("agent", nil)).TLS.PeerCertificates
	wantIdentity(t, table, c, Identity{}, "signed by unknown authority")

	c = presented(t, a.Client("agent", nil))
	wantIdentity(t, table, c, identified("acme", "subject:CN=agent", Invoke), "")
	certtest.NewAuthority(t, "next").WriteRoots(path)
	wantIdentity(t, table, c, Identity{}, "signed by unknown authority")
}

func TestFilesOfAuthorities(t *testing.T) {
	dir := t.TempDir()
	_, key := certtest.NewAuthority(t, "a").Client("agent", nil).Write(dir, "agent")
	for want, c := range map[string]Config{
		"has no certificate in PEM":           {Authorities: key},
		"no such file":                        {Authorities: dir + "/none"},
		"agent.key: ":                         {Bundles: map[string]string{"example.org": key}},
		"none: no such file":                  {Bundles: map[string]string{"example.org": dir + "/none"}},
		"agent.key has no certificate in PEM": {Issuers: []Issuer{{URL: "https://a", Authorities: key}}},
		"none: no such file or directory":     {Issuers: []Issuer{{URL: "https://a", Authorities: dir + "/none"}}},
	} {
		c.Log = openTable(t, Config{}).log
		if _, err := Open(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for name, ok := range map[string]bool{"example.org": true, "": false, "Example.org": false, "spiffe://example.org/a": false, "a/b": false} {
		if err := CheckTrustDomain(name); (err == nil) != ok {
			t.Errorf("%q: got %v", name, err)
		}
	}
	if TrustDomain("spiffe://example.org/a/*") != "example.org" || TrustDomain("uid:0") != "" || !IsSubject("subject:CN=a") || IsSubject("uid:0") {
		t.Error("kinds of callers")
	}
	if got := hostOf(User{UID: 7}) + " " + hostOf(&net.UnixAddr{Name: "x"}); got != "uid:7 x" {
		t.Errorf("got %q", got)
	}
}
