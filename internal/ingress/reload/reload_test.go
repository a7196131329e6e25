package reload

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/scarcetest"
)

// joined parses files to one text. It refuses the word bad.
func joined(contents [][]byte) (string, error) {
	text := string(bytes.Join(contents, []byte("+")))
	if strings.Contains(text, "bad") {
		return "", errors.New("a bad word")
	}
	return text, nil
}

func write(t *testing.T, path, text string) {
	t.Helper()
	// Editors and tools for certificates also write a new file and rename it.
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestFilesAreReadAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "files")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	write(t, a, "1")
	write(t, b, "2")
	var logs bytes.Buffer
	parsed := 0
	f, err := Open(slog.New(slog.NewTextHandler(&logs, nil)), "words", func(c [][]byte) (string, error) { parsed++; return joined(c) }, a, b)
	if err != nil {
		t.Fatal(err)
	}
	want := func(text string, generation, reads, lines int) {
		t.Helper()
		for range 2 { // the second call finds nothing new
			if got, n := f.Get(); got != text || n != generation {
				t.Errorf("got %q of generation %d, want %q of %d", got, n, text, generation)
			}
		}
		if parsed != reads || strings.Count(logs.String(), "\n") != lines {
			t.Errorf("parsed %d times, want %d; want %d lines:\n%s", parsed, reads, lines, logs.String())
		}
	}
	want("1+2", 1, 1, 0)
	write(t, b, "3")
	want("1+3", 2, 2, 1)
	write(t, a, "bad")
	want("1+3", 2, 3, 2)
	if !strings.Contains(logs.String(), "level=ERROR") || !strings.Contains(logs.String(), "what=words") || !strings.Contains(logs.String(), "a bad word") {
		t.Errorf("the log does not say what is wrong:\n%s", logs.String())
	}
	if err := os.Remove(a); err != nil {
		t.Fatal(err)
	}
	want("1+3", 2, 3, 3)
	write(t, a, "4")
	want("4+3", 3, 4, 4)
	for lines := 5; lines <= 6; lines++ { // each time that the file is away is one problem
		if err := os.Rename(dir, dir+".away"); err != nil {
			t.Fatal(err)
		}
		want("4+3", 3, 4, lines)
		if err := os.Rename(dir+".away", dir); err != nil {
			t.Fatal(err)
		}
		want("4+3", 3, 4, lines)
	}
}

func TestOptionalFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	log := slog.New(slog.DiscardHandler)
	if _, err := Open(log, "words", joined, path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want the error of a missing file", err)
	}
	f, err := OpenOptional(log, "words", joined, path)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := f.Get(); got != "" {
		t.Errorf("got %q", got)
	}
	write(t, path, "1")
	if got, _ := f.Get(); got != "1" {
		t.Errorf("got %q", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got, _ := f.Get(); got != "" {
		t.Errorf("after it is removed: got %q", got)
	}
}

func TestFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	big := filepath.Join(dir, "big")
	if err := os.WriteFile(big, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(big, maxBytes+1); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{big: "larger than", dir: "is not a file", "/dev/zero": "is not a file"} {
		if _, err := Open(slog.New(slog.DiscardHandler), "words", joined, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
}

// A file that could not be read for a moment is read by the next call, though it has not changed again. So a token that
// was revoked in this moment does not stay valid.
func TestFileThatCannotBeReadForAMoment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	write(t, path, "1")
	var logs bytes.Buffer
	f, err := Open(slog.New(slog.NewTextHandler(&logs, nil)), "words", joined, path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, "2")
	scarcetest.WithoutDescriptors(t, func() {
		for range 2 {
			if got, _ := f.Get(); got != "1" {
				t.Errorf("without descriptors: got %q", got)
			}
		}
	})
	if n := strings.Count(logs.String(), "\n"); n != 1 {
		t.Errorf("%d lines for one error:\n%s", n, logs.String())
	}
	if got, _ := f.Get(); got != "2" {
		t.Errorf("with descriptors again: got %q", got)
	}
}
