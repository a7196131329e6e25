package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// An item is an entry of an archive.
type item struct {
	name string
	kind byte // tar's type; 0: a file, or a directory if the name ends in /
	text string
	to   string
	mode int64
	size int64 // size in the header; 0: the length of text
	time time.Time
}

// archive returns the bytes of a layer. The test fails if package tar refuses an item.
func archive(t testing.TB, items ...item) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, i := range items {
		h := &tar.Header{Name: i.name, Typeflag: i.kind, Linkname: i.to, Mode: i.mode, Size: int64(len(i.text)), ModTime: i.time, Format: tar.FormatPAX}
		if i.kind == 0 && strings.HasSuffix(i.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o644
			if h.Typeflag == tar.TypeDir {
				h.Mode = 0o755
			}
		}
		if i.size != 0 {
			h.Size = i.size
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, i.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil && !strings.Contains(err.Error(), "missed writing") {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// layerOf returns a compressed layer with these items.
func layerOf(t testing.TB, items ...item) v1.Layer {
	return static.NewLayer(zipped(t, archive(t, items...)), types.OCILayer)
}

// imageWith returns an image for this machine.
func imageWith(t testing.TB, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layers...)
	if err != nil {
		t.Fatal(err)
	}
	return forMachine(t, img, thisPlatform)
}

func forMachine(t testing.TB, img v1.Image, on v1.Platform) v1.Image {
	t.Helper()
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = on.OS, on.Architecture
	if img, err = mutate.ConfigFile(img, c); err != nil {
		t.Fatal(err)
	}
	return img
}

// A depot is a registry on loopback with a handler in front of it.
type depot struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []string                                                    // "GET /v2/..."
	before func(w http.ResponseWriter, r *http.Request) (handled bool) // may be nil
}

func newDepot(t testing.TB) *depot {
	t.Helper()
	d := &depot{}
	behind := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		d.asked = append(d.asked, r.Method+" "+r.URL.Path)
		before := d.before
		d.mu.Unlock()
		if before == nil || !before(w, r) {
			behind.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(d.Close)
	return d
}

// meet sets the handler in front of the registry.
func (d *depot) meet(before func(w http.ResponseWriter, r *http.Request) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before = before
}

// count returns how many requests had this method and a path with this end.
func (d *depot) count(method, end string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, a := range d.asked {
		if strings.HasPrefix(a, method+" ") && strings.HasSuffix(a, end) {
			n++
		}
	}
	return n
}

func (d *depot) host() string { return strings.TrimPrefix(d.URL, "http://") }

// push puts an image or index into the registry and returns the source to pull it from.
func (d *depot) push(t testing.TB, repository string, what remote.Taggable) Source {
	t.Helper()
	ref, err := name.ParseReference(d.host() + "/" + repository + ":latest")
	if err != nil {
		t.Fatal(err)
	}
	switch what := what.(type) {
	case v1.ImageIndex:
		err = remote.WriteIndex(ref, what)
	case v1.Image:
		err = remote.Write(ref, what)
	default:
		err = remote.Put(ref, what)
	}
	if err != nil {
		t.Fatal(err)
	}
	h, err := what.(interface{ Digest() (v1.Hash, error) }).Digest()
	if err != nil {
		t.Fatal(err)
	}
	return Source{Reference: ref.Context().Name() + "@" + h.String(), Credentials: None}
}

// openStore opens a store in dir, or in a new directory if dir is empty.
func openStore(t testing.TB, dir string, change func(*Config)) *Store {
	t.Helper()
	if dir == "" {
		dir = filepath.Join(t.TempDir(), "images")
	}
	c := Config{Dir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if change != nil {
		change(&c)
	}
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// treeOf lists the entries below dir with mode and content or link target.
func treeOf(t testing.TB, dir string) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s %v", strings.TrimPrefix(path, dir+"/"), info.Mode())
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line = fmt.Sprintf("%s -> %s", strings.TrimPrefix(path, dir+"/"), target)
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += " " + string(b)
		}
		list = append(list, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}
