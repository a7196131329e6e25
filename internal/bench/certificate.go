package bench

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// listenWithTLS adds a TCP listener with TLS to the configuration of a prepared daemon.
func listenWithTLS(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(24 * time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	config := filepath.Join(dir, "skillrund.yaml")
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	const unix, both = `listen: {unix: s.sock, `, `listen: {unix: s.sock, tcp: "127.0.0.1:0", tls: {certificate: tls.crt, key: tls.key}, `
	return errors.Join(
		os.WriteFile(config, []byte(strings.Replace(string(text), unix, both, 1)), 0o600),
		os.WriteFile(filepath.Join(dir, "tls.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), 0o600),
		os.WriteFile(filepath.Join(dir, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600),
	)
}
