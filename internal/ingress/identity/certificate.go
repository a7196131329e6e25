package identity

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/skillrun/skillrun/internal/ingress/reload"
)

// certificates has the authorities of client certificates.
type certificates struct {
	authorities *reload.Files[*x509.CertPool] // nil: none
	bundles     map[spiffeid.TrustDomain]*reload.Files[*x509bundle.Bundle]
}

func (c *certificates) any() bool { return c.authorities != nil || len(c.bundles) > 0 }

// openCertificates reads the authorities' files, which must be valid now. A later change that is not valid is logged, and
// the former authorities stay (package reload).
func openCertificates(c Config) (certs certificates, err error) {
	if c.Authorities != "" {
		parse := func(contents [][]byte) (*x509.CertPool, error) {
			pool := x509.NewCertPool()
			if !pool.AppendCertsFromPEM(contents[0]) {
				return nil, fmt.Errorf("%s has no certificate in PEM", c.Authorities)
			}
			return pool, nil
		}
		if certs.authorities, err = reload.Open(c.Log, "authorities of client certificates", parse, c.Authorities); err != nil {
			return certs, err
		}
	}
	certs.bundles = map[spiffeid.TrustDomain]*reload.Files[*x509bundle.Bundle]{}
	for name, path := range c.Bundles {
		domain, err := spiffeid.TrustDomainFromString(name)
		if err != nil {
			return certs, err
		}
		parse := func(contents [][]byte) (*x509bundle.Bundle, error) {
			b, err := x509bundle.Parse(domain, contents[0])
			if err == nil && b.Empty() {
				err = errors.New("it has no certificate in PEM")
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			return b, nil
		}
		if certs.bundles[domain], err = reload.Open(c.Log, "SPIFFE bundle of "+name, parse, path); err != nil {
			return certs, err
		}
	}
	return certs, nil
}

// generation changes when a file of authorities changes. It is the sum of the files' generations, each
// of which only grows.
func (c *certificates) generation() int {
	sum := 0
	if c.authorities != nil {
		_, n := c.authorities.Get()
		sum += n
	}
	for _, b := range c.bundles {
		_, n := b.Get()
		sum += n
	}
	return sum
}

// A Session keeps the identity of a connection with a client certificate, so that the signatures are not
// verified for each call. The zero Session has no identity yet.
type Session struct {
	mu         sync.Mutex
	identity   Identity  // the zero Identity: not known
	until      time.Time // when the last of the chains expires
	generation int       // of the authorities with which it was verified
	rows       *rowSet   // with which the caller was identified
}

// certificate identifies a caller by the certificate of its connection. The handshake has verified
// that the caller has the private key.
func (t *Table) certificate(c Credentials) (Identity, error) {
	generation := t.certs.generation()
	s := c.Session
	if s == nil {
		s = &Session{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := t.rows.Load()
	if s.identity != (Identity{}) && s.rows == rows && s.generation == generation && time.Now().Before(s.until) {
		return s.identity, nil
	}
	s.identity = Identity{}
	name, chains, err := t.certs.verify(c.TLS.PeerCertificates)
	if err != nil {
		return Identity{}, err
	}
	row, ok := lookup(rows.byCaller, name)
	if !ok {
		return Identity{}, refuse("%.300s has no row in identity.callers or in a tenant's callers", name)
	}
	s.identity, s.until, s.generation, s.rows = row.identity(name), expiry(chains), generation, rows
	return s.identity, nil
}

// verify returns the name in a certificate: its SPIFFE ID, or its subject if it has no URI.
func (c *certificates) verify(certs []*x509.Certificate) (name string, chains [][]*x509.Certificate, err error) {
	leaf := certs[0]
	if len(leaf.URIs) > 0 {
		id, chains, err := x509svid.Verify(certs, c)
		if err != nil {
			return "", nil, certificateError(err)
		}
		return id.String(), chains, nil
	}
	if c.authorities == nil {
		return "", nil, refuse("the client certificate has no SPIFFE ID, and identity.authorities is not set")
	}
	roots, _ := c.authorities.Get()
	between := x509.NewCertPool()
	for _, cert := range certs[1:] {
		between.AddCert(cert)
	}
	chains, err = leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return "", nil, certificateError(err)
	}
	name, err = subjectOf(leaf)
	return name, chains, err
}

// subjectOf returns the name of a certificate's subject in the form of RFC 2253. It keeps the order
// of the certificate, which pkix.Name does not.
func subjectOf(cert *x509.Certificate) (string, error) {
	var subject pkix.RDNSequence
	if rest, err := asn1.Unmarshal(cert.RawSubject, &subject); err != nil || len(rest) > 0 {
		return "", refuse("the subject of the client certificate can't be read")
	}
	return prefixSubject + subject.String(), nil
}

// certificateError returns the error for a certificate that is not accepted.
func certificateError(err error) error {
	return &Error{Reason: fmt.Sprintf("the client certificate is not accepted: %.300s", err)}
}

// GetX509BundleForTrustDomain implements x509bundle.Source, for x509svid.Verify.
func (c *certificates) GetX509BundleForTrustDomain(domain spiffeid.TrustDomain) (*x509bundle.Bundle, error) {
	files := c.bundles[domain]
	if files == nil {
		return nil, fmt.Errorf("the trust domain %s is not in identity.spiffe", domain.Name())
	}
	b, _ := files.Get()
	return b, nil
}

// expiry returns the time at which the last of the chains expires.
func expiry(chains [][]*x509.Certificate) (latest time.Time) {
	for _, chain := range chains {
		first := chain[0].NotAfter
		for _, cert := range chain {
			if cert.NotAfter.Before(first) {
				first = cert.NotAfter
			}
		}
		if first.After(latest) {
			latest = first
		}
	}
	return latest
}
