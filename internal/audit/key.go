package audit

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/skillrun/skillrun/internal/durable"
)

// publicName is the file with the public key, in the directory of the log.
const publicName = "audit.pub"

// openKey reads the private key, or makes one, and writes the public key into dir. A log without its
// private key is damaged.
// A missing private key next to a public one is damage, too: a silent new key would let a person
// who removes both the key and some entries go unnoticed.
func openKey(path, dir string) (ed25519.PrivateKey, error) {
	key, err := readKey(path)
	if isMissing(err) {
		if _, err := os.Stat(filepath.Join(dir, publicName)); err == nil {
			return nil, &damagedKey{path}
		}
		if _, key, err = ed25519.GenerateKey(rand.Reader); err == nil {
			err = writeKey(path, key)
		}
	}
	if err != nil {
		return nil, err
	}
	text := encodePublic(key.Public().(ed25519.PublicKey))
	if old, err := os.ReadFile(filepath.Join(dir, publicName)); err == nil && string(old) == string(text) {
		return key, nil
	}
	return key, durable.WriteFile(filepath.Join(dir, publicName), text)
}

// writeKey stores a key for root alone, as PKCS #8 in PEM. It is durable before it signs anything, so no
// signature outlives its key.
func writeKey(path string, key ed25519.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return durable.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// readKey reads a private key. The error for any other content is a *damagedKey; a missing file is
// fs.ErrNotExist.
func readKey(path string) (ed25519.PrivateKey, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if block, _ := pem.Decode(data); block != nil {
		if parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
			if key, ok := parsed.(ed25519.PrivateKey); ok {
				return key, nil
			}
		}
	}
	return nil, &damagedKey{path}
}

// A damagedKey is the error for a file that is not a private key, or that a log lacks.
type damagedKey struct{ path string }

func (e *damagedKey) Error() string {
	return e.path + ": not the private key of the audit log; the daemon begins a new log with a new key when it starts"
}

// setAside renames the directory of the log and, if it exists, a damaged key, so that a new log begins with a new
// key. The old directory stays whole and has its public key, with which it can still be verified. The
// key goes last: if the daemon dies in between, the next one finds the damage again.
func setAside(c Config) error {
	suffix := ".damaged-" + time.Now().UTC().Format("20060102T150405.000000000")
	for _, path := range []string{c.Dir, c.KeyFile} {
		if err := os.Rename(path, path+suffix); err != nil && !(path == c.KeyFile && isMissing(err)) {
			return err
		}
	}
	c.Log.Error("the key of the audit log is damaged; a new log with a new key begins", "kept_as", c.Dir+suffix, "key", c.KeyFile, "key_kept_as", c.KeyFile+suffix)
	return nil
}

// PublicKey returns the public key of the private key in a file, as PEM.
func PublicKey(keyFile string) ([]byte, error) {
	key, err := readKey(keyFile)
	if isMissing(err) {
		return nil, fmt.Errorf("%s: no key; a daemon makes it when it starts", keyFile)
	}
	if err != nil {
		return nil, err
	}
	return encodePublic(key.Public().(ed25519.PublicKey)), nil
}

// encodePublic returns a public key as PKIX in PEM, the form that openssl pkey -pubin reads.
func encodePublic(key ed25519.PublicKey) []byte {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		panic(err) // cannot happen: the type is known
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// ParsePublicKey reads what PublicKey returns.
func ParsePublicKey(text []byte) (ed25519.PublicKey, error) {
	if block, _ := pem.Decode(text); block != nil {
		if parsed, err := x509.ParsePKIXPublicKey(block.Bytes); err == nil {
			if key, ok := parsed.(ed25519.PublicKey); ok {
				return key, nil
			}
		}
	}
	return nil, errors.New("not an Ed25519 public key in PEM, as skillrund audit key prints it")
}
