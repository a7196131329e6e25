package ingress

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/skillrun/skillrun/internal/ingress/reload"
)

// A Certificate is the daemon's certificate with its private key, for all its TLS listeners. It
// is read again when its files change.
type Certificate struct {
	files *reload.Files[*tls.Certificate]
}

// LoadCertificate reads a certificate and its private key, both in PEM. After the certificate, the file
// may have the certificates between it and its authority, in this order.
func LoadCertificate(certificate, key string, log *slog.Logger) (*Certificate, error) {
	parse := func(contents [][]byte) (*tls.Certificate, error) {
		pair, err := tls.X509KeyPair(contents[0], contents[1])
		if err != nil {
			return nil, fmt.Errorf("%s with the key %s: %w", certificate, key, err)
		}
		if end := pair.Leaf.NotAfter; time.Now().After(end) {
			log.Warn("the certificate has expired", "file", certificate, "at", end)
		}
		return &pair, nil
	}
	files, err := reload.Open(log, "TLS certificate", parse, certificate, key)
	if err != nil {
		return nil, err
	}
	return &Certificate{files}, nil
}

// Protocols that TLS listeners offer (ALPN, RFC 7301).
const (
	HTTP1 = "http/1.1"
	HTTP2 = "h2"
)

// Secure returns a listener for [Listen] that encrypts its connections with TLS 1.3. protocol is the
// protocol of the clients within TLS, HTTP1 or HTTP2.
//
// The handshake asks for a client certificate and accepts any, or none. It verifies only that the
// client has the certificate's private key. So a client without a certificate can send another
// credential, and a client whose certificate is not accepted gets an answer with the reason.
func Secure(l net.Listener, c *Certificate, protocol string) net.Listener {
	return &secureListener{l, &tls.Config{
		MinVersion:     tls.VersionTLS13,
		NextProtos:     []string{protocol},
		ClientAuth:     tls.RequestClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { pair, _ := c.files.Get(); return pair, nil },
		// A resumed session would keep the identity of a certificate that has expired in between.
		SessionTicketsDisabled: true,
	}}
}

type secureListener struct {
	net.Listener
	config *tls.Config
}
