// Package certtest makes certificates and JSON Web Tokens for tests.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An Authority signs certificates.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority. Names in uris are for authorities of SPIFFE: the URI of the
// trust domain.
func NewAuthority(t testing.TB, name string, uris ...string) *Authority {
	t.Helper()
	a := &Authority{t: t}
	c := template(t, name, uris)
	c.IsCA, c.BasicConstraintsValid = true, true
	c.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	a.cert, a.key = a.sign(c, nil, nil)
	return a
}

// Roots returns a pool with the authority alone.
func (a *Authority) Roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// PEM returns the authority's certificate.
func (a *Authority) PEM() []byte { return encode("CERTIFICATE", a.cert.Raw) }

// WriteRoots writes the authority's certificate to a file and returns its path.
func (a *Authority) WriteRoots(path string) string {
	a.t.Helper()
	write(a.t, path, a.PEM())
	return path
}

// Server makes a certificate of a server on this machine: localhost, 127.0.0.1 and ::1.
func (a *Authority) Server(name string) *Pair {
	a.t.Helper()
	c := template(a.t, name, nil)
	c.DNSNames, c.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return a.pair(c)
}

// Client makes a certificate of a client with a common name and SPIFFE ids. edit may change it;
// nil changes nothing.
func (a *Authority) Client(name string, edit func(*x509.Certificate), uris ...string) *Pair {
	a.t.Helper()
	c := template(a.t, name, uris)
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if edit != nil {
		edit(c)
	}
	return a.pair(c)
}

// pair signs a certificate with a new key, and returns both as PEM.
func (a *Authority) pair(c *x509.Certificate) *Pair {
	a.t.Helper()
	cert, key := a.sign(c, a.cert, a.key)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return &Pair{t: a.t, Certificate: encode("CERTIFICATE", cert.Raw), Key: encode("PRIVATE KEY", der)}
}

// sign makes a key and a certificate for it. Without a parent the certificate signs itself.
func (a *Authority) sign(c, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if parent == nil {
		parent, by = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// A Pair is a certificate with its private key, both in PEM.
type Pair struct {
	t                testing.TB
	Certificate, Key []byte
}

// TLS returns the pair for package tls.
func (p *Pair) TLS() tls.Certificate {
	p.t.Helper()
	c, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// Write writes the pair to NAME.crt and NAME.key in a directory, and returns the two paths. An
// earlier pair there is replaced.
func (p *Pair) Write(dir, name string) (certificate, key string) {
	p.t.Helper()
	certificate, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	write(p.t, certificate, p.Certificate)
	write(p.t, key, p.Key)
	return certificate, key
}

// template is valid from an hour ago until tomorrow.
func template(t testing.TB, name string, uris []string) *x509.Certificate {
	t.Helper()
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
	}
	for _, s := range uris {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		c.URIs = append(c.URIs, u)
	}
	return c
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// write replaces a file, so that a reader sees the old content or the new one.
func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
