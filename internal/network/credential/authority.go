package credential

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"sync"
	"time"
)

// lifetime of an Authority and its certificates. No execution takes longer.
const lifetime = 24 * time.Hour

// maxLeaves bounds the certificates of an Authority: a binding with * has names without end.
const maxLeaves = 1000

// An Authority signs the certificates that one sandbox sees for its bound domains. Its key is only in
// memory. Its methods may be called concurrently.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey

	mu     sync.Mutex
	leaf   *ecdsa.PrivateKey // of all leaves: the helper has every key, so more of them would protect nothing
	leaves map[string]*tls.Certificate
}

// NewAuthority makes an Authority for names, and the names below them. Its certificate is valid for no
// other name: it has a name constraint (RFC 5280, section 4.2.1.10), which is critical, so that a program
// that does not know constraints trusts the certificate for no name at all.
func NewAuthority(names []string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := newTemplate()
	if err != nil {
		return nil, err
	}
	template.Subject = pkix.Name{CommonName: "skillrun sandbox"}
	template.IsCA, template.MaxPathLenZero = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	template.PermittedDNSDomainsCritical, template.PermittedDNSDomains = true, names
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return newAuthority(der, key)
}

// newAuthority returns the Authority of a certificate and its key.
func newAuthority(der []byte, key *ecdsa.PrivateKey) (*Authority, error) {
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Authority{certificate: certificate, key: key, leaves: map[string]*tls.Certificate{}}, nil
}

// newTemplate returns the fields that all certificates have. Serial numbers are random: an authority must not use
// one twice, and they have at most 20 bytes (RFC 5280, section 4.1.2.2).
func newTemplate() (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	now := time.Now()
	return &x509.Certificate{
		// An hour earlier, for programs whose clock is late.
		SerialNumber: serial, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(lifetime), BasicConstraintsValid: true,
	}, err
}

// PEM returns the certificate, which the sandbox trusts.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// Leaf returns a certificate for a name, with its key.
func (a *Authority) Leaf(name string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.leaves[name]; c != nil {
		return c, nil
	}
	if a.leaf == nil {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		a.leaf = key
	}
	template, err := newTemplate()
	if err != nil {
		return nil, err
	}
	template.NotAfter = a.certificate.NotAfter
	template.Subject = pkix.Name{Organization: []string{"skillrun sandbox"}}
	template.DNSNames = []string{name}
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &a.leaf.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	c := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leaf}
	// Beyond the bound each handshake makes a new certificate.
	if len(a.leaves) < maxLeaves {
		a.leaves[name] = c
	}
	return c, nil
}

// marshal returns the certificate and the key for another process.
func (a *Authority) marshal() (certificate, key []byte, err error) {
	key, err = x509.MarshalPKCS8PrivateKey(a.key)
	return a.certificate.Raw, key, err
}

// parseAuthority reads what marshal has returned in the daemon.
func parseAuthority(certificate, key []byte) (*Authority, error) {
	parsed, err := x509.ParsePKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	private, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("the key of the authority is not ECDSA")
	}
	return newAuthority(certificate, private)
}
