package snapshot

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A change of a file while its content is read is noticed.
func TestContentChanges(t *testing.T) {
	tests := []struct {
		name   string
		change func(p string) error
	}{
		{"grown", func(p string) error { return os.WriteFile(p, []byte("123456"), 0o644) }},
		{"shrunk", func(p string) error { return os.Truncate(p, 2) }},
		{"written again", func(p string) error { return os.WriteFile(p, []byte("54321"), 0o644) }},
		{"permissions", func(p string) error { return os.Chmod(p, 0o755) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := filepath.Join(t.TempDir(), "f")
			mustDo(t, os.WriteFile(p, []byte("12345"), 0o644))
			// Far from now, since a clock may tick slower than a test runs.
			mustDo(t, os.Chtimes(p, ModTime, ModTime))
			f, err := os.Open(p)
			mustDo(t, err)
			defer f.Close()
			var st unix.Stat_t
			mustDo(t, unix.Fstat(int(f.Fd()), &st))
			mustDo(t, tt.change(p))
			s := newScan(context.Background(), nil, Bounds{})
			if err := s.content(int(f.Fd()), &st, nil, nil); !errors.Is(err, ErrChanging) {
				t.Errorf("err = %v, want ErrChanging", err)
			}
		})
	}
}

// The parsed manifest is the one that was hashed.
func TestManifestChanges(t *testing.T) {
	_, dir := skillDir(t, nil)
	e, err := mustScan(t, dir).Lookup("SKILL.md")
	mustDo(t, err)
	at, err := os.Open(dir)
	mustDo(t, err)
	defer at.Close()
	if text, err := ReadFile(Source{Dir: at}, e); err != nil || string(text) != minimal {
		t.Fatalf("unchanged: %q, %v", text, err)
	}
	p := filepath.Join(dir, "SKILL.md")
	changes := map[string]func() error{
		"content": func() error { return os.WriteFile(p, []byte(strings.ToUpper(minimal)), 0o644) },
		"longer":  func() error { return os.WriteFile(p, []byte(minimal+"x"), 0o644) },
		"gone":    func() error { return os.Remove(p) },
		"link":    func() error { return os.Symlink("/etc/passwd", p) },
		"FIFO":    func() error { return errors.Join(os.Remove(p), unix.Mkfifo(p, 0o644)) },
	}
	for _, name := range []string{"content", "longer", "gone", "link", "FIFO"} {
		mustDo(t, changes[name]())
		if text, err := ReadFile(Source{Dir: at}, e); !errors.Is(err, ErrChanging) {
			t.Errorf("%s: %q, %v, want ErrChanging", name, text, err)
		}
	}
}
