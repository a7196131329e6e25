package executor

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/durable"
)

// The key of request hashes. Every idempotency key's claim in the record has a hash made with it,
// so it must be as durable as the record: with another key, a repeated request would look like a
// different one.

// keyBytes is the size of SHA-256. RFC 2104, section 3, recommends it as the minimum length of an HMAC
// key.
const keyBytes = 32

// loadKey reads the key of request hashes, or makes one. It renames a file that can't be a key, makes a
// new key, and logs that. Then no request runs twice, but an older idempotency key conflicts even with
// the same request.
func loadKey(path string, log *slog.Logger) ([]byte, error) {
	key, err := readKey(path)
	switch {
	case err == nil && len(key) == keyBytes:
		return key, nil
	case err == nil:
		aside := fmt.Sprintf("%s.damaged-%s", path, time.Now().UTC().Format("20060102T150405.000000000"))
		if err := os.Rename(path, aside); err != nil {
			return nil, fmt.Errorf("%s: is not a key of %d bytes and can't be renamed: %w", path, keyBytes, err)
		}
		log.Error("the key of request hashes is damaged; a new one replaces it. A repeated request with an older idempotency key is refused as reused, until retention removes its execution",
			"file", path, "kept_as", aside)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("key of request hashes: %w", err)
	}
	key = make([]byte, keyBytes)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	return key, durable.WriteFile(path, key)
}

// tenantKey derives a tenant's key of request hashes from the daemon's, so that a tenant that learns its
// own hashes learns nothing about another's. The default tenant has the daemon's key.
func tenantKey(key []byte, tenant string) []byte {
	if tenant == defaultTenant {
		return key
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("key of request hashes, tenant " + tenant))
	return mac.Sum(nil)
}

// readKey reads just enough to tell whether the file is a key. It returns no bytes for a path
// that is not a regular file. O_NONBLOCK keeps the open from waiting for the writer of a FIFO,
// and O_NOFOLLOW turns a symbolic link into ELOOP (open(2)).
func readKey(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) { // a link, a socket
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, keyBytes+1))
}
