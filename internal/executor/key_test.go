package executor

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/sandbox"
)

func TestLoadKey(t *testing.T) {
	write := func(n int64) func(string) error {
		return func(path string) error {
			if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
				return err
			}
			return os.Truncate(path, n)
		}
	}
	for _, tt := range []struct {
		name    string
		make    func(path string) error
		damaged bool
	}{
		{"none yet", func(string) error { return nil }, false},
		{"one", write(keyBytes), false},
		{"empty", write(0), true},
		{"cut short", write(keyBytes - 1), true},
		{"too long", write(keyBytes + 1), true},
		{"larger than memory", write(1 << 42), true},
		{"a directory", func(path string) error { return os.MkdirAll(filepath.Join(path, "in it"), 0o700) }, true},
		{"a pipe", func(path string) error { return unix.Mkfifo(path, 0o600) }, true},
		{"a socket", func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) }, true},
		{"a link", func(path string) error { return os.Symlink("/etc/hostname", path) }, true},
		{"a dangling link", func(path string) error { return os.Symlink("nothing", path) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "request.key")
			if err := tt.make(path); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			logger := slog.New(slog.NewTextHandler(&log, nil))
			key, err := loadKey(path, logger)
			if err != nil || len(key) != keyBytes {
				t.Fatalf("got %d bytes, %v", len(key), err)
			}
			aside, err := filepath.Glob(path + ".damaged-*")
			if err != nil || len(aside) > 0 != tt.damaged {
				t.Errorf("put aside: %v, %v", aside, err)
			}
			if got := strings.Contains(log.String(), "idempotency key is refused as reused"); got != tt.damaged {
				t.Errorf("the log says %q", log.String())
			}
			if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != 0o600 {
				t.Errorf("got %v, %v, want a file with mode 0600", info, err)
			}
			log.Reset()
			again, err := loadKey(path, logger)
			if err != nil || !bytes.Equal(again, key) || log.Len() > 0 {
				t.Errorf("the next time: %v, another key: %v, log %q", err, !bytes.Equal(again, key), log.String())
			}
		})
	}
}

// A path that is not a key and can't be replaced is refused by name.
func TestKeyCanNotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(t.TempDir(), "missing", "request.key"), filepath.Join(file, "request.key")} {
		if _, err := loadKey(path, slog.Default()); err == nil || !strings.Contains(err.Error(), filepath.Dir(path)) {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

// Idempotency keys belong to a tenant, not to a principal of it: another principal with the
// same request gets the execution, and with another request a conflict. The keys of
// two tenants are separate.
func TestKeyBelongsToATenant(t *testing.T) {
	f := newFake()
	started := 0
	x := newExecutor(t, t.TempDir(), func(context.Context, sandbox.Spec, sandbox.IO) (process, error) {
		started++
		return f, nil
	})
	req := scriptRequest("a")
	req.Key = "once"
	as := func(p permission.Principal) (string, bool, error) {
		r := req
		r.Principal = p
		return x.Execute(t.Context(), r)
	}
	colleague := permission.Principal{Tenant: who.Tenant, Name: who.Name + "-2"}
	first, _, err := as(who)
	if err != nil {
		t.Fatal(err)
	}
	f.exit <- sandbox.Exit{End: sandbox.Exited}
	follow(t, x, first)
	if id, again, err := as(colleague); err != nil || id != first || !again {
		t.Errorf("another principal: got %s, %v, %v, want the execution %s", id, again, err, first)
	}
	req.Args = []string{"b"}
	for _, p := range []permission.Principal{colleague, who} {
		var conflict *KeyConflictError
		if id, _, err := as(p); !errors.As(err, &conflict) || conflict.ID != first {
			t.Errorf("another request of %s: got %q, %v, want a conflict with %s", p.Name, id, err, first)
		}
	}
	stranger := permission.Principal{Tenant: who.Tenant + "-2", Name: who.Name}
	second, again, err := as(stranger)
	if err != nil || second == first || again {
		t.Fatalf("another tenant: got %s, %v, %v, want an execution of its own", second, again, err)
	}
	f.exit <- sandbox.Exit{End: sandbox.Exited}
	if _, err := x.Follow(t.Context(), who, second, 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("another tenant's execution: got %v, want ErrNotFound", err)
	}
}
