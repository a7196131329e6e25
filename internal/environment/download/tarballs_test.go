package download

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// packed returns the file of a Node package, version 1.0.0, with nothing but its package.json.
func packed(name string) []byte {
	text := `{"name": "` + name + `", "version": "1.0.0"}`
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	w.WriteHeader(&tar.Header{Name: "package/package.json", Mode: 0o644, Size: int64(len(text))})
	w.Write([]byte(text))
	w.Close()
	z.Close()
	return out.Bytes()
}

// A build gets documents of packages and the files that they name, and nothing else.
func TestTarballRequests(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string][]byte{"left-1.0.0.tgz": packed("left"), "a %2f#.tgz": packed("@sk/right"), "secret.txt": []byte("secret")} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	get, err := NewTarballs(dir, slog.New(slog.DiscardHandler)).Load(t.Context(), io.Discard, nil)
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]int{
		"/left": http.StatusOK, "/@sk%2fright": http.StatusOK, "/tarball/left-1.0.0.tgz": http.StatusOK, "/tarball/" + url.PathEscape("a %2f#.tgz"): http.StatusOK,
		"/tarball/secret.txt": http.StatusNotFound, "/tarball/..%2f..%2fetc%2fpasswd": http.StatusNotFound, "/tarball/": http.StatusNotFound, "/tarball/%zz": http.StatusNotFound,
		"/none": http.StatusNotFound, "/left/1.0.0": http.StatusNotFound, "/file/0/x": http.StatusNotFound, "/": http.StatusNotFound, "": http.StatusNotFound,
	} {
		r := get(t.Context(), at)
		r.body.Close()
		if r.status != want {
			t.Errorf("%q: got %d, want %d", at, r.status, want)
		}
	}
	// A file that is replaced by a link after the directory was read.
	at := filepath.Join(dir, "left-1.0.0.tgz")
	if err := errors.Join(os.Remove(at), os.Symlink("/etc/passwd", at)); err != nil {
		t.Fatal(err)
	}
	if r := get(t.Context(), "/tarball/left-1.0.0.tgz"); r.status != http.StatusBadGateway {
		t.Errorf("a link out of the directory: got %d, want %d", r.status, http.StatusBadGateway)
	}
}

// A file that is too large is left out, and not read.
func TestLargeTarballs(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "large.tgz"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "large.tgz"), maxTarball+1); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	if _, err := NewTarballs(dir, slog.New(slog.DiscardHandler)).Load(t.Context(), &log, nil); err != nil {
		t.Fatal(err)
	}
	if want := `"large.tgz" is left out: it is 536870913 bytes long, the maximum is 536870912`; !strings.Contains(log.String(), want) {
		t.Errorf("got %q, want %q", log.String(), want)
	}
}

// countdown is a context that ends when it has been asked some times.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// A build that ends stops the reading, also within a file. The next build doesn't read the files before it again, and
// the file that was half read is no bad one.
func TestTarballsGoOn(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string][]byte{"a.tgz": packed("left"), "b.tgz": slices.Concat(packed("right"), make([]byte, 1<<20))} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ts := NewTarballs(dir, slog.New(slog.DiscardHandler))
	for left := 0; ; left++ {
		if left == 1000 {
			t.Fatal("no context ended within the second file")
		}
		_, err := ts.Load(&countdown{t.Context(), left}, io.Discard, nil)
		if err == nil {
			t.Fatal("the reading did not end with its context")
		}
		if _, ok := ts.read["b.tgz"]; ok {
			t.Fatal("the second file is kept, which was not read")
		}
		if a, ok := ts.read["a.tgz"]; ok {
			if a.problem != nil {
				t.Error(a.problem)
			}
			break
		}
	}
	known := ts.read["a.tgz"]
	patient := &countdown{t.Context(), 1000}
	if _, err := ts.Load(patient, io.Discard, nil); err != nil || ts.read["b.tgz"].problem != nil {
		t.Errorf("got %v and %v", err, ts.read["b.tgz"].problem)
	}
	if asked := 1000 - patient.left; asked < 16 {
		t.Errorf("the context was asked %d times while a file of 1 MiB was read", asked)
	}
	// The same map: the file was not read again.
	if reflect.ValueOf(ts.read["a.tgz"].fields).Pointer() != reflect.ValueOf(known.fields).Pointer() {
		t.Error("the first file was read twice")
	}
	// A build that waits for another one's reading ends, too.
	ts.turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ts.Load(ctx, io.Discard, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a build that waits: got %v, want %v", err, context.Canceled)
	}
}
