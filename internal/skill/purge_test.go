package skill

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Purge removes everything that one tenant has pushed, also damaged skills and skills that an earlier
// daemon stored.
func TestPurge(t *testing.T) {
	b := newTenantBench(t)
	b.push("acme", "one", "1")
	b.push("acme", "one", "2")
	b.push("globex", "one", "theirs")
	dir := filepath.Join(b.state, "tenants", "acme")
	sk, release, err := b.now.For("acme").Hold("one")
	mustDo(t, err)
	if _, _, err := b.now.Purge(t.Context(), "acme"); !errors.Is(err, ErrInUse) {
		t.Errorf("while a version is held: got %v", err)
	}
	if _, err := os.Stat(sk.Dir); err != nil {
		t.Errorf("the held version: %v", err)
	}
	release()
	b.rules.NoPush = true
	purge := func(want int) {
		t.Helper()
		n, bytes, err := b.now.Purge(t.Context(), "acme")
		if err != nil || n != want || (bytes > 0) != (want > 0) {
			t.Errorf("got %d, %d bytes, %v; want %d", n, bytes, err, want)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the directory: %v", err)
		}
	}
	purge(2)
	purge(0)
	if _, err := b.try("acme", "one", "3", nil); err == nil {
		t.Error("a push after the purge: no error")
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a refused push made the directory: %v", err)
	}
	var missing *NotFoundError
	if _, err := b.now.For("acme").Resolve("one"); !errors.As(err, &missing) {
		t.Errorf("got %v", err)
	}
	if _, err := b.now.For("globex").Resolve("one"); err != nil {
		t.Errorf("the other tenant: %v", err)
	}
	// The tenant comes back, and pushes again.
	b.rules.NoPush = false
	b.push("acme", "one", "4")
	b.restart()
	b.push("acme", "two", "5")
	b.restart()
	purge(2)
	b.push("acme", "one", "6")
	b.restart()
	mustDo(t, os.WriteFile(filepath.Join(dir, "skills", indexName), []byte("{"), 0o600))
	purge(0)
	b.push("acme", "one", "7")
}
