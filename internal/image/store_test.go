package image

import (
	"archive/tar"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/skillrun/skillrun/internal/filelock"
)

// onlyLocks fails the test if a store's directory has anything but locks.
func onlyLocks(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != lockName && !strings.HasSuffix(e.Name(), lockSuffix) {
			t.Errorf("%s is left", e.Name())
		}
	}
}

// An image is pulled once. After that no registry is needed.
func TestGet(t *testing.T) {
	d := newDepot(t)
	var log strings.Builder
	source := d.push(t, "team/tools", imageWith(t,
		layerOf(t, item{name: "bin/"}, item{name: "bin/sh", text: "shell", mode: 0o4755}, item{name: "etc/gone", text: "x"}),
		static.NewLayer(archive(t, item{name: "etc/.wh.gone"}, item{name: "lib", kind: tar.TypeSymlink, to: "/usr/lib"}), types.OCIUncompressedLayer),
	))
	dir := filepath.Join(t.TempDir(), "images")
	s := openStore(t, dir, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	got, err := s.Get(t.Context(), source)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"bin drwxr-xr-x", "bin/sh -rwxr-xr-x shell", "etc drwxr-xr-x", "lib -> /usr/lib"}; !slices.Equal(treeOf(t, got.Dir), want) {
		t.Errorf("got %q, want %q", treeOf(t, got.Dir), want)
	}
	if got.Digest != source.Digest() || !strings.HasPrefix(got.Digest, "sha256:") {
		t.Errorf("digest %q", got.Digest)
	}
	for _, want := range []string{"pulling an image", "layer=1 of=2", "layer=2 of=2", "image unpacked", "image=" + source.Reference} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log.String())
		}
	}
	if b, err := os.ReadFile(filepath.Join(filepath.Dir(got.Dir), sourceName)); err != nil || string(b) != source.Reference+"\n" {
		t.Errorf("reference: got %q, %v", b, err)
	}
	if err := s.Prune(); err != nil {
		t.Fatal(err)
	}
	d.Close()
	again, err := openStore(t, dir, nil).Get(t.Context(), source)
	if err != nil || again != got {
		t.Errorf("without a registry: got %+v, %v, want %+v", again, err, got)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the store: %v, %v", info.Mode(), err)
	}
}

// The reference has the digest of the index. Only this machine's image is unpacked.
func TestGetOfIndex(t *testing.T) {
	d := newDepot(t)
	other := v1.Platform{OS: "linux", Architecture: "s390x"}
	add := func(p v1.Platform, text string) mutate.IndexAddendum {
		img := forMachine(t, imageWith(t, layerOf(t, item{name: "which", text: text})), p)
		return mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &p}}
	}
	s := openStore(t, "", nil)
	source := d.push(t, "both", mutate.AppendManifests(empty.Index, add(other, "theirs"), add(thisPlatform, "ours")))
	got, err := s.Get(t.Context(), source)
	if err != nil || !slices.Equal(treeOf(t, got.Dir), []string{"which -rw-r--r-- ours"}) {
		t.Errorf("got %+v, %v", got, err)
	}
	_, err = s.Get(t.Context(), d.push(t, "one", mutate.AppendManifests(empty.Index, add(other, "theirs"))))
	var pull *PullError
	if !errors.As(err, &pull) || !strings.Contains(err.Error(), "linux/") {
		t.Errorf("an index without this machine: got %v", err)
	}
}

// A reference without a digest is refused, and the error shows the line to write.
func TestUnpinned(t *testing.T) {
	d := newDepot(t)
	source := d.push(t, "tools", imageWith(t, layerOf(t, item{name: "a"})))
	s := openStore(t, "", nil)
	tag := Source{Reference: d.host() + "/tools:latest", Credentials: None}
	_, err := s.Get(t.Context(), tag)
	var unpinned *UnpinnedError
	if want := tag.Reference + "@" + source.Digest(); !errors.As(err, &unpinned) || !strings.HasSuffix(err.Error(), "; write: "+want) {
		t.Errorf("got %v, want it to end with %s", err, want)
	}
	if _, err := s.Get(t.Context(), Source{Reference: unpinned.Pinned, Credentials: None}); err != nil {
		t.Errorf("the line to write is refused: %v", err)
	}
	d.Close()
	_, err = s.Get(t.Context(), tag)
	if !errors.As(err, &unpinned) || unpinned.Pinned != "" || !strings.Contains(err.Error(), "write: "+tag.Reference+"@sha256:<digest>") {
		t.Errorf("without a registry: got %v", err)
	}
}

func TestCheck(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for _, tt := range []struct {
		source Source
		want   string
	}{
		{Source{"docker.io/library/debian" + digest, None}, ""},
		{Source{"debian:12" + digest, Docker}, ""},
		{Source{"debian:12", None}, ""},
		{Source{"", None}, "is not a valid reference"},
		{Source{"Debian" + digest, None}, "is not a valid reference"},
		{Source{"debian@sha256:12", None}, "is not a valid reference"},
		{Source{"http://debian" + digest, None}, "is not a valid reference"},
	} {
		if err := tt.source.Check(); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got %v, want %q", tt.source, err, tt.want)
		}
	}
}

// Credentials from the Docker configuration are sent only if the source asks for them.
func TestCredentials(t *testing.T) {
	d := newDepot(t)
	source := d.push(t, "private", imageWith(t, layerOf(t, item{name: "a"})))
	token := base64.StdEncoding.EncodeToString([]byte("me:secret"))
	var sent int
	d.meet(func(w http.ResponseWriter, r *http.Request) bool {
		if got := r.Header.Get("Authorization"); got == "Basic "+token {
			sent++
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="private"`)
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"log in"}]}`, http.StatusUnauthorized)
		return true
	})
	config, err := json.Marshal(map[string]any{"auths": map[string]any{d.host(): map[string]string{"auth": token}}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", dir)
	s := openStore(t, "", nil)
	_, err = s.Get(t.Context(), source)
	var pull *PullError
	if !errors.As(err, &pull) || !strings.Contains(err.Error(), "set credentials: docker") || sent != 0 {
		t.Errorf("without: got %v, sent %d times", err, sent)
	}
	if err != nil && strings.Contains(err.Error(), "secret") {
		t.Errorf("the error contains the password: %v", err)
	}
	source.Credentials = Docker
	if _, err := s.Get(t.Context(), source); err != nil || sent == 0 {
		t.Errorf("with: got %v, sent %d times", err, sent)
	}
}

// Data from a registry must match the digest. A failed pull leaves no files.
func TestGetRefuses(t *testing.T) {
	d := newDepot(t)
	dir := filepath.Join(t.TempDir(), "images")
	s := openStore(t, dir, func(c *Config) { c.Bytes, c.Files = 1<<20, 100 })
	good := imageWith(t, layerOf(t, item{name: "a", text: strings.Repeat("some text", 1000)}))
	blob := func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/")
	}
	config, err := good.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	isLayer := func(r *http.Request) bool { return blob(r) && !strings.HasSuffix(r.URL.Path, config.String()) }
	layer := zipped(t, archive(t, item{name: "a", text: strings.Repeat("some text", 1000)}))
	many := make([]v1.Layer, maxLayers+1)
	for i := range many {
		many[i] = layerOf(t, item{name: "a", text: fmt.Sprint(i)})
	}
	for _, tt := range []struct {
		name   string
		image  v1.Image
		before func(w http.ResponseWriter, r *http.Request) bool
		want   string
	}{
		{"another manifest", good, func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/manifests/") {
				return false
			}
			w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
			fmt.Fprint(w, `{"schemaVersion":2,"config":{},"layers":[]}`)
			return true
		}, "does not match requested digest"},
		{"another layer of the same size", good, func(w http.ResponseWriter, r *http.Request) bool {
			if !isLayer(r) {
				return false
			}
			b := slices.Clone(layer)
			b[4] ^= 1 // the time in gzip's header, which only the digest covers
			w.Write(b)
			return true
		}, "error verifying sha256 checksum"},
		{"another layer, which is no archive", good, func(w http.ResponseWriter, r *http.Request) bool {
			if !isLayer(r) {
				return false
			}
			w.Write(slices.Repeat([]byte("x"), len(layer)))
			return true
		}, "error verifying sha256 checksum"},
		{"a short layer", good, func(w http.ResponseWriter, r *http.Request) bool {
			if !isLayer(r) {
				return false
			}
			w.Write(layer[:len(layer)/2])
			return true
		}, "does not match expected size"},
		{"a layer that breaks off", good, func(w http.ResponseWriter, r *http.Request) bool {
			if !isLayer(r) {
				return false
			}
			w.Header().Set("Content-Length", fmt.Sprint(len(layer)))
			w.Write(layer[:len(layer)/2])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, "unexpected EOF"},
		{"an endless layer", good, func(w http.ResponseWriter, r *http.Request) bool {
			if !isLayer(r) {
				return false
			}
			w.(http.Flusher).Flush() // so that the answer has no Content-Length
			for {
				if _, err := w.Write([]byte("more and more")); err != nil {
					return true
				}
			}
		}, "error verifying sha256 checksum"},
		{"a layer that is not there", good, func(w http.ResponseWriter, r *http.Request) bool {
			if isLayer(r) {
				http.NotFound(w, r)
			}
			return isLayer(r)
		}, "404"},
		{"an image that is not there", good, func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/v2/" {
				http.NotFound(w, r)
			}
			return r.URL.Path != "/v2/"
		}, "404"},
		{"another machine", forMachine(t, good, v1.Platform{OS: "linux", Architecture: "s390x"}), nil, "the image is for linux/s390x, and this machine is linux/"},
		{"another system", forMachine(t, good, v1.Platform{OS: "windows", Architecture: thisPlatform.Architecture}), nil, "the image is for windows/"},
		{"no layers", imageWith(t), nil, "0 layers"},
		{"many layers", imageWith(t, many...), nil, "128 layers; want 1 to 127"},
		{"a layer of an unsupported type", imageWith(t, static.NewLayer([]byte("x"), "application/json")), nil, "is not supported"},
		{"a layer from elsewhere", imageWith(t, static.NewLayer(layer, types.OCIRestrictedLayer)), nil, "is not supported"},
		{"a bomb", imageWith(t, layerOf(t, item{name: "zeros", text: strings.Repeat("\x00", 2<<20)})), nil, "pull.bytes"},
		{"an entry that leads out", imageWith(t, layerOf(t, item{name: "../../../x"})), nil, `layer 1 of 1: entry "../../../x"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d.meet(nil)
			source := d.push(t, "x", tt.image)
			d.meet(tt.before)
			_, err := s.Get(t.Context(), source)
			var pull *PullError
			if !errors.As(err, &pull) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), source.Reference) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
			onlyLocks(t, dir)
		})
	}
}

// A bareManifest is a manifest without the blobs that it names.
type bareManifest string

func (m bareManifest) RawManifest() ([]byte, error) { return []byte(m), nil }

func (m bareManifest) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

func (m bareManifest) Digest() (v1.Hash, error) {
	h, _, err := v1.SHA256(strings.NewReader(string(m)))
	return h, err
}

// A manifest that is not that of an image is refused with what it lacks.
func TestGetOfNoImage(t *testing.T) {
	d := newDepot(t)
	dir := filepath.Join(t.TempDir(), "images")
	s := openStore(t, dir, nil)
	zeros := strings.Repeat("0", 64)
	layers := `"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"sha256:` + zeros + `","size":1}]`
	for text, want := range map[string]string{
		`{"schemaVersion":2,` + layers + `}`:               "its manifest names no configuration (config), so it is not a container image",
		`{"schemaVersion":2,"config":{},` + layers + `}`:   "its manifest names no configuration (config), so it is not a container image",
		`{"schemaVersion":2,"config":null,` + layers + `}`: "its manifest names no configuration (config), so it is not a container image",
		`{"schemaVersion":2,"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:` + zeros + `","size":1},` + layers + `}`: "its configuration: ",
	} {
		source := d.push(t, "x", bareManifest(text))
		_, err := s.Get(t.Context(), source)
		if pull, ok := errors.AsType[*PullError](err); !ok || !strings.HasPrefix(pull.Err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
		onlyLocks(t, dir)
	}
}

// A registry that does not answer, or stops in the middle, causes an error with a reason.
func TestGetOfSilence(t *testing.T) {
	d := newDepot(t)
	source := d.push(t, "x", imageWith(t, layerOf(t, item{name: "a", text: strings.Repeat("some text", 10000)})))
	dir := filepath.Join(t.TempDir(), "images")
	s := openStore(t, dir, nil)
	silent := func(reached chan<- struct{}, stop func(r *http.Request) bool) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !stop(r) {
				return false
			}
			if strings.Contains(r.URL.Path, "/blobs/") {
				w.Write([]byte{0x1f, 0x8b})
				w.(http.Flusher).Flush()
			}
			reached <- struct{}{}
			<-r.Context().Done()
			return true
		}
	}
	config, err := imageWith(t, layerOf(t, item{name: "a", text: strings.Repeat("some text", 10000)})).ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	any := func(*http.Request) bool { return true }
	layer := func(r *http.Request) bool {
		return strings.Contains(r.URL.Path, "/blobs/") && !strings.HasSuffix(r.URL.Path, config.String())
	}
	because := errors.New("the operator has enough")
	for _, tt := range []struct {
		name string
		stop func(*http.Request) bool
	}{{"from the begin", any}, {"in a layer", layer}} {
		t.Run(tt.name, func(t *testing.T) {
			reached := make(chan struct{}, 10)
			d.meet(silent(reached, tt.stop))
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			go func() {
				<-reached
				cancel(because)
			}()
			if _, err := s.Get(ctx, source); !errors.Is(err, because) {
				t.Errorf("got %v, want %v", err, because)
			}
			onlyLocks(t, dir)
		})
	}
	t.Run("longer than allowed", func(t *testing.T) {
		d.meet(silent(make(chan struct{}, 10), any))
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(10*time.Millisecond))
		defer cancel()
		if _, err := s.Get(ctx, source); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "longer than allowed") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("stalled", func(t *testing.T) {
		d.meet(silent(make(chan struct{}, 10), layer))
		s.stall = time.Millisecond
		if _, err := s.Get(t.Context(), source); err == nil || !strings.Contains(err.Error(), "the registry sent nothing for 1ms") {
			t.Errorf("got %v", err)
		}
		onlyLocks(t, dir)
	})
}

// If two stores want the same image, one pulls it and the other one finds it.
func TestTwoStores(t *testing.T) {
	d := newDepot(t)
	img := imageWith(t, layerOf(t, item{name: "a", text: "x"}))
	source := d.push(t, "x", img)
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "images")
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			s, err := Open(t.Context(), Config{Dir: dir})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if _, err := s.Get(t.Context(), source); err != nil {
				t.Error(err)
			}
			if err := s.Prune(); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if n := d.count(http.MethodGet, "/blobs/"+digest.String()); n != 1 {
		t.Errorf("the layer was fetched %d times, want 1", n)
	}
	t.Run("a store waits until its context ends", func(t *testing.T) {
		openStore(t, dir, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := Open(ctx, Config{Dir: dir}); !errors.Is(err, filelock.ErrHeld) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// TestKilled kills a process in the middle of a layer. The next process removes the
// incomplete image and pulls it again.
func TestKilled(t *testing.T) {
	d := newDepot(t)
	first := layerOf(t, item{name: "a/b/c", text: "x"}, item{name: "a/l", kind: tar.TypeSymlink, to: "/"})
	img := imageWith(t, first, layerOf(t, item{name: "b", text: "y"}))
	source := d.push(t, "x", img)
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	second, err := layers[1].Digest()
	if err != nil {
		t.Fatal(err)
	}
	reached := make(chan struct{}, 1)
	d.meet(func(_ http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, second.String()) {
			return false
		}
		reached <- struct{}{}
		<-r.Context().Done()
		return true
	})
	dir := filepath.Join(t.TempDir(), "images")
	cmd := exec.Command("/proc/self/exe", source.Reference)
	cmd.Env = append(os.Environ(), pullVar+"="+dir)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-reached
	left, err := filepath.Glob(filepath.Join(dir, newPrefix+"*", rootName, "a/b/c"))
	if err != nil || len(left) != 1 {
		t.Errorf("the first layer is not there: %v, %v", left, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if _, err := os.Stat(filepath.Join(dir, dirName(source))); err == nil {
		t.Error("an incomplete image has its final name")
	}
	d.meet(nil)
	s := openStore(t, dir, nil)
	onlyLocks(t, dir)
	got, err := s.Get(t.Context(), source)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a drwxr-xr-x", "a/b drwxr-xr-x", "a/b/c -rw-r--r-- x", "a/l -> /", "b -rw-r--r-- y"}; !slices.Equal(treeOf(t, got.Dir), want) {
		t.Errorf("got %q, want %q", treeOf(t, got.Dir), want)
	}
}

// Prune removes images that were not requested, unless another process uses them.
func TestPrune(t *testing.T) {
	d := newDepot(t)
	dir := filepath.Join(t.TempDir(), "images")
	var sources []Source
	for i := range 3 {
		sources = append(sources, d.push(t, fmt.Sprint("x", i), imageWith(t, layerOf(t, item{name: "a", text: fmt.Sprint(i)}))))
	}
	s := openStore(t, dir, nil)
	for _, source := range sources {
		if _, err := s.Get(t.Context(), source); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.Prune(), s.Close()); err != nil {
		t.Fatal(err)
	}
	other, err := filelock.Open(filepath.Join(dir, dirName(sources[1])+lockSuffix), filelock.Shared)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	s = openStore(t, dir, nil)
	if _, err := s.Get(t.Context(), sources[0]); err != nil {
		t.Fatal(err)
	}
	if err := s.Prune(); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, true, false} {
		if _, err := os.Stat(filepath.Join(dir, dirName(sources[i]))); (err == nil) != want {
			t.Errorf("image %d: got %v, want it there: %t", i, err, want)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, newPrefix+"*")); err != nil || len(left) > 0 {
		t.Errorf("remaining: %v, %v", left, err)
	}
}

// A second store opens, pulls and prunes while the first one's images are in use. It removes none of them, and the
// first one's end removes none of its own. Adopt removes what only the first one has used.
func TestTakeover(t *testing.T) {
	d := newDepot(t)
	dir := filepath.Join(t.TempDir(), "images")
	var sources []Source
	for i := range 3 {
		sources = append(sources, d.push(t, fmt.Sprint("x", i), imageWith(t, layerOf(t, item{name: "a", text: fmt.Sprint(i)}))))
	}
	open := func(used ...int) *Store {
		t.Helper()
		s := openStore(t, dir, nil)
		for _, i := range used {
			if _, err := s.Get(t.Context(), sources[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Prune(); err != nil {
			t.Fatal(err)
		}
		return s
	}
	want := func(there ...bool) {
		t.Helper()
		for i, want := range there {
			if _, err := os.Stat(filepath.Join(dir, dirName(sources[i]))); (err == nil) != want {
				t.Errorf("image %d: got %v, want it there: %t", i, err, want)
			}
		}
	}
	earlier := open(0, 1)
	next := open(1, 2)
	want(true, true, true)
	if err := earlier.Close(); err != nil {
		t.Fatal(err)
	}
	want(true, true, true)
	for range 2 {
		if err := next.Adopt(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(false, true, true)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 5 { // two images, their locks, and lock
		t.Errorf("left: %v, %v", left, err)
	}
	open(2) // the start after that
	want(false, true, true)
}

// A process that dies may hold its locks for a moment. Adopt waits for them, and for the lock of the store, and gives
// up with an error.
func TestAdoptWaits(t *testing.T) {
	d := newDepot(t)
	dir := filepath.Join(t.TempDir(), "images")
	source := d.push(t, "x", imageWith(t, layerOf(t, item{name: "a", text: "x"})))
	earlier := openStore(t, dir, nil)
	if _, err := earlier.Get(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	if err := earlier.Prune(); err != nil {
		t.Fatal(err)
	}
	next := openStore(t, dir, nil)
	if err := next.Prune(); err != nil {
		t.Fatal(err)
	}
	name := dirName(source)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := next.Adopt(ended); !errors.Is(err, filelock.ErrHeld) || !strings.Contains(err.Error(), name) {
		t.Errorf("of an image in use: got %v, want %v", err, filelock.ErrHeld)
	}
	lock, err := filelock.Open(filepath.Join(dir, lockName), filelock.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Adopt(ended); !errors.Is(err, filelock.ErrHeld) {
		t.Errorf("of a store that is locked: got %v, want %v", err, filelock.ErrHeld)
	}
	adopted := make(chan error)
	go func() { adopted <- next.Adopt(t.Context()) }()
	lock.Close()
	if err := errors.Join(earlier.Close(), <-adopted); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the image is still there: %v", err)
	}
}
