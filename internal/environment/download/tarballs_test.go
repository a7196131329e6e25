package download

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
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
