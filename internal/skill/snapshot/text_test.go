package snapshot

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPrintable(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", ""},
		{"plain é 日本", "plain é 日本"},
		{"a\nb\x1b[31m\x00", `a\u000ab\u001b[31m\u0000`},
		{"a\u2028b\u0085", `a\u2028b\u0085`},
		{"a\xffb", "a\ufffdb"},
		{strings.Repeat("x", 200), strings.Repeat("x", 200)},
		{strings.Repeat("x", 201), strings.Repeat("x", 200) + "..."},
	}
	for _, tt := range tests {
		if got := Printable(tt.in); got != tt.want {
			t.Errorf("Printable(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestExcluded(t *testing.T) {
	for name, want := range map[string]bool{
		".git": true, ".hg": true, ".svn": true, "__pycache__": true, ".DS_Store": true, ".pytest_cache": true,
		"node_modules": false, "venv": false, ".venv": false, ".github": false, ".gitignore": false, "git": false, "": false,
	} {
		if got := Excluded(name); got != want {
			t.Errorf("Excluded(%q) = %t, want %t", name, got, want)
		}
	}
}

// The reasons' texts are part of the digest: they must never change.
func TestRefusedWhyText(t *testing.T) {
	want := []string{"unknown", "leaves-skill", "venv-interpreter", "link-loop", "set-id", "not-regular", "bad-name", "too-deep", "unreadable", "unknown"}
	for i, w := range want {
		if got := RefusedWhy(i).String(); got != w {
			t.Errorf("%d: %s, want %s", i, got, w)
		}
	}
}

func TestOrChanging(t *testing.T) {
	for _, err := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.ENXIO, unix.EAGAIN, unix.ESTALE, unix.EINVAL} {
		if got := orChanging(err); !errors.Is(got, ErrChanging) {
			t.Errorf("%v: got %v, want ErrChanging", err, got)
		}
	}
	for _, err := range []error{unix.EIO, unix.EACCES, unix.EMFILE} {
		if got := orChanging(err); got != err {
			t.Errorf("%v: got %v, want the same", err, got)
		}
	}
}
