package wellknown

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A host publishes documents by their paths.
type host struct {
	*httptest.Server
	pages map[string]http.HandlerFunc
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{pages: map[string]http.HandlerFunc{}}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if page := h.pages[r.URL.Path]; page != nil {
			page(w, r)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *host) client() Client { return Client{Transport: h.Client().Transport} }

func (h *host) page(path, contentType string, data []byte) {
	h.pages[path] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Write(data)
	}
}

func (h *host) index(skills ...Entry) {
	data, err := json.Marshal(map[string]any{"$schema": Schema, "skills": skills, "unknown": 1})
	if err != nil {
		panic(err)
	}
	h.page(Path, "application/json", data)
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// A member is an entry of an archive.
type member struct {
	name, text, link string
	hard             bool
	mode             int64
}

func tarGz(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, m := range members {
		h := &tar.Header{Name: m.name, Size: int64(len(m.text)), Mode: 0o644 | m.mode, Typeflag: tar.TypeReg}
		if m.link != "" {
			h.Typeflag, h.Linkname = tar.TypeSymlink, m.link
		}
		if m.hard {
			h.Typeflag = tar.TypeLink
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(m.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipped(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, m := range members {
		h := &zip.FileHeader{Name: m.name, Method: zip.Deflate}
		h.SetMode(fs.FileMode(0o644 | m.mode))
		if m.link != "" {
			h.SetMode(fs.ModeSymlink | 0o777)
			m.text = m.link
		}
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(m.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

var skillMD = member{name: "SKILL.md", text: "---\nname: say\ndescription: d\n---\n"}

func TestIndexAndArtifacts(t *testing.T) {
	h := newHost(t)
	script := member{name: "scripts/say.sh", text: "echo x", mode: 0o111}
	md, tgz, zip := []byte(skillMD.text), tarGz(t, skillMD, script), zipped(t, skillMD, script)
	h.page("/.well-known/agent-skills/md/SKILL.md", "text/markdown", md)
	h.page("/tar", "application/gzip", tgz)
	h.page("/x.tar.gz", "application/octet-stream", tarGz(t, member{name: "./SKILL.md", text: "x"}))
	h.page("/x.zip", "application/zip", zip)
	h.pages["/moved"] = func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/tar", http.StatusFound) }
	h.index(
		Entry{Name: "md", Type: TypeSkillMD, URL: "md/SKILL.md", Digest: digest(md), Version: "1.0.0"},
		Entry{Name: "tar", Type: TypeArchive, URL: "/moved", Digest: digest(tgz)},
		Entry{Name: "dot", Type: TypeArchive, URL: "/x.tar.gz", Digest: digest(tarGz(t, member{name: "./SKILL.md", text: "x"}))},
		Entry{Name: "zip", Type: TypeArchive, URL: h.URL + "/x.zip", Digest: digest(zip)},
		Entry{Name: "new", Type: "of tomorrow"},
	)
	at, err := IndexURL(h.URL)
	if err != nil {
		t.Fatal(err)
	}
	index, err := h.client().Index(t.Context(), at)
	if err != nil || len(index.Skills) != 4 || len(index.Skipped) != 1 || index.Skills[0].Version != "1.0.0" {
		t.Fatalf("got %+v, %v", index, err)
	}
	for _, e := range index.Skills {
		dir := t.TempDir()
		if err := h.client().Fetch(t.Context(), e, dir); err != nil {
			t.Errorf("%s: %v", e.Name, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "SKILL.md")); err != nil {
			t.Errorf("%s: %v", e.Name, err)
		}
		if fi, err := os.Stat(filepath.Join(dir, "scripts/say.sh")); (e.Name == "tar" || e.Name == "zip") && (err != nil || fi.Mode()&0o100 == 0) {
			t.Errorf("%s: got %v, %v; want an executable", e.Name, fi, err)
		}
	}
}

func TestIndexesThatAreRefused(t *testing.T) {
	h := newHost(t)
	good := Entry{Name: "a", Type: TypeSkillMD, URL: "a", Digest: digest(nil)}
	with := func(edit func(*Entry)) []Entry { e := good; edit(&e); return []Entry{e} }
	for name, skills := range map[string][]Entry{
		"plain http":     with(func(e *Entry) { e.URL = "http://a.example/x" }),
		"file":           with(func(e *Entry) { e.URL = "file:///etc/passwd" }),
		"credentials":    with(func(e *Entry) { e.URL = "https://u:p@a.example/x" }),
		"no name":        with(func(e *Entry) { e.Name = "" }),
		"upper-case sum": with(func(e *Entry) { e.Digest = strings.ToUpper(e.Digest) }),
		"no sum":         with(func(e *Entry) { e.Digest = "" }),
		"twice":          {good, good},
	} {
		h.index(skills...)
		if index, err := h.client().Index(t.Context(), h.URL+Path); err == nil {
			t.Errorf("%s: got %+v", name, index)
		}
	}
	for name, text := range map[string]string{
		"no schema": `{"skills": []}`, "another schema": `{"$schema": "https://schemas.agentskills.io/discovery/0.3.0/schema.json"}`, "no JSON": "<html>",
		"large": `{"$schema": "` + Schema + `", "x": "` + strings.Repeat("x", MaxIndexBytes) + `"}`,
	} {
		h.page(Path, "application/json", []byte(text))
		if _, err := h.client().Index(t.Context(), h.URL+Path); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	h.pages[Path] = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
	if _, err := h.client().Index(t.Context(), h.URL+Path); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("without a token: got %v", err)
	}
	other := newHost(t)
	other.index(good)
	h.pages[Path] = func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL+Path, http.StatusFound) }
	if _, err := h.client().Index(t.Context(), h.URL+Path); err == nil || !strings.Contains(err.Error(), "only redirects within") {
		t.Errorf("another host: %v", err)
	}
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	h.pages[Path] = func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, plain.URL, http.StatusFound) }
	if _, err := h.client().Index(t.Context(), h.URL+Path); err == nil || !strings.Contains(err.Error(), "only redirects within") {
		t.Errorf("plain http: %v", err)
	}
	h.pages[Path] = func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, Path, http.StatusFound) }
	if _, err := h.client().Index(t.Context(), h.URL+Path); err == nil || !strings.Contains(err.Error(), "too often") {
		t.Errorf("a loop: %v", err)
	}
	for _, text := range []string{"http://a.example", "a.example", "https://", "https://u@a.example", "https://a.example/team", "file:///x.json"} {
		if at, err := IndexURL(text); err == nil {
			t.Errorf("%s: got %s", text, at)
		}
	}
}

func TestArtifactsThatAreRefused(t *testing.T) {
	h := newHost(t)
	bomb := member{name: "bomb", text: strings.Repeat("\x00", maxUnpackedBytes+1)}
	var many []member
	for i := range maxFiles + 1 {
		many = append(many, member{name: fmt.Sprint("f", i)})
	}
	for name, tt := range map[string]struct {
		data        []byte
		contentType string
		want        string
	}{
		"parent":            {tarGz(t, skillMD, member{name: "../x"}), "application/gzip", "not a path inside"},
		"parent inside":     {tarGz(t, skillMD, member{name: "a/../../x"}), "application/gzip", "not a path inside"},
		"absolute":          {tarGz(t, skillMD, member{name: "/etc/x"}), "application/gzip", "not a path inside"},
		"symbolic link":     {tarGz(t, skillMD, member{name: "x", link: "SKILL.md"}), "application/gzip", "is a link"},
		"hard link":         {tarGz(t, skillMD, member{name: "x", link: "SKILL.md", hard: true}), "application/gzip", "is a link"},
		"twice":             {tarGz(t, skillMD, skillMD), "application/gzip", `"SKILL.md" is in the archive twice`},
		"zip twice":         {zipped(t, skillMD, skillMD), "application/zip", `"SKILL.md" is in the archive twice`},
		"file, then folder": {tarGz(t, skillMD, member{name: "a"}, member{name: "a/b"}), "application/gzip", `"a/b" is beneath a file of the archive`},
		"folder, then file": {tarGz(t, skillMD, member{name: "a/b"}, member{name: "a"}), "application/gzip", `"a" is in the archive twice`},
		"nested":            {tarGz(t, member{name: "say/SKILL.md"}), "application/gzip", "no SKILL.md at its root"},
		"bomb":              {tarGz(t, skillMD, bomb), "application/gzip", "bytes unpacked"},
		"many files":        {tarGz(t, many...), "application/gzip", "files"},
		"zip parent":        {zipped(t, skillMD, member{name: "../x"}), "application/zip", ""},
		"zip backslash":     {zipped(t, skillMD, member{name: `..\x`}), "application/zip", ""},
		"zip link":          {zipped(t, skillMD, member{name: "x", link: "SKILL.md"}), "application/zip", "is a link"},
		"zip bomb":          {zipped(t, skillMD, bomb), "application/zip", "bytes unpacked"},
		"not an archive":    {[]byte("x"), "application/gzip", ""},
		"unknown":           {tarGz(t, skillMD), "text/html", "Content-Type"},
		"truncated archive": {tarGz(t, skillMD, member{name: "x", text: "abc"})[:60], "application/gzip", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h.page("/x", tt.contentType, tt.data)
			parent := t.TempDir()
			dir := filepath.Join(parent, "skill")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			err := h.client().Fetch(t.Context(), Entry{Name: "x", Type: TypeArchive, URL: h.URL + "/x", Digest: digest(tt.data)}, dir)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if beside, err := os.ReadDir(parent); err != nil || len(beside) != 1 {
				t.Errorf("outside the directory: %v, %v", beside, err)
			}
		})
	}
	data := tarGz(t, skillMD)
	h.page("/x", "application/gzip", data)
	dir := t.TempDir()
	err := h.client().Fetch(t.Context(), Entry{Name: "x", Type: TypeArchive, URL: h.URL + "/x", Digest: digest([]byte("other"))}, dir)
	if left, readErr := os.ReadDir(dir); err == nil || !strings.Contains(err.Error(), "nothing was installed") || readErr != nil || len(left) != 0 {
		t.Errorf("a lying digest: %v, %v", err, left)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(tarGz(f, skillMD, member{name: "a/b", text: "x"}), true)
	f.Add(tarGz(f, member{name: "../x", text: "x"}), true)
	f.Add(zipped(f, skillMD, member{name: "a/b", text: "x"}), false)
	f.Fuzz(func(t *testing.T, data []byte, isTar bool) {
		parent := t.TempDir()
		dir := filepath.Join(parent, "skill")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		contentType := "application/zip"
		if isTar {
			contentType = "application/gzip"
		}
		_ = unpack(Entry{Name: "x", Type: TypeArchive, URL: "https://a.example/x"}, contentType, data, dir)
		if err := filepath.WalkDir(parent, func(p string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && (!d.Type().IsRegular() || !strings.HasPrefix(p, dir+"/")) {
				t.Errorf("%s was made", p)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// A client reads the files that a server writes, and the archive has the same bytes each time.
func TestWriteArchive(t *testing.T) {
	long := "references/" + strings.Repeat("ä", 100) + ".md"
	texts := map[string]string{"SKILL.md": skillMD.text, long: "", "scripts/say.sh": "echo x"}
	var files []File
	for _, path := range []string{"SKILL.md", long, "scripts/say.sh"} {
		files = append(files, File{Path: path, Size: int64(len(texts[path])), Executable: path == "scripts/say.sh", Open: func() (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(texts[path])), nil
		}})
	}
	var one, two bytes.Buffer
	if err := errors.Join(WriteArchive(&one, files), WriteArchive(&two, files)); err != nil || !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Fatalf("%v, or two archives differ", err)
	}
	dir := t.TempDir()
	if err := unpack(Entry{Type: TypeArchive}, "application/gzip", one.Bytes(), dir); err != nil {
		t.Fatal(err)
	}
	for path, want := range texts {
		got, err := os.ReadFile(filepath.Join(dir, path))
		fi, statErr := os.Stat(filepath.Join(dir, path))
		if err != nil || statErr != nil || string(got) != want || (fi.Mode()&0o100 != 0) != (path == "scripts/say.sh") {
			t.Errorf("%s: got %q %v, %v, %v", path, got, fi, err, statErr)
		}
	}
	files[0].Size++
	if err := WriteArchive(io.Discard, files); err == nil || !strings.Contains(err.Error(), "SKILL.md") {
		t.Errorf("a short file: %v", err)
	}
	files[0].Size -= 2
	if err := WriteArchive(io.Discard, files); err == nil || !strings.Contains(err.Error(), "SKILL.md") {
		t.Errorf("a long file: %v", err)
	}
}

func TestEncodeIndex(t *testing.T) {
	data, err := EncodeIndex(nil)
	if index, parseErr := parse(data, "https://a.example/index.json"); err != nil || parseErr != nil || len(index.Skills) != 0 || !strings.Contains(string(data), "[]") {
		t.Errorf("got %s, %v, %v", data, err, parseErr)
	}
	if _, err := EncodeIndex([]Entry{{Description: strings.Repeat("x", MaxIndexBytes)}}); err == nil || !strings.Contains(err.Error(), "the maximum is") {
		t.Errorf("a large index: %v", err)
	}
}

// Only the named host gets the token, also after a redirect within it.
func TestTokenGoesToOneHost(t *testing.T) {
	asks := func(h *host, path string, got *[]string) {
		page := h.pages[path]
		h.pages[path] = func(w http.ResponseWriter, r *http.Request) {
			*got = append(*got, r.Header.Get("Authorization"))
			page(w, r)
		}
	}
	h, cdn := newHost(t), newHost(t)
	md := []byte(skillMD.text)
	var own, others []string
	h.page("/here", "text/markdown", md)
	h.pages["/moved"] = func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/here", http.StatusFound) }
	cdn.page("/there", "text/markdown", md)
	h.index(Entry{Name: "moved", Type: TypeSkillMD, URL: "/moved", Digest: digest(md)}, Entry{Name: "there", Type: TypeSkillMD, URL: cdn.URL + "/there", Digest: digest(md)})
	for _, path := range []string{Path, "/moved", "/here"} {
		asks(h, path, &own)
	}
	asks(cdn, "/there", &others)
	c := h.client()
	c.Token, c.Host = "secret", strings.TrimPrefix(h.URL, "https://")
	index, err := c.Index(t.Context(), h.URL+Path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range index.Skills {
		if err := c.Fetch(t.Context(), e, t.TempDir()); err != nil {
			t.Error(err)
		}
	}
	if want := []string{"Bearer secret", "Bearer secret", "Bearer secret"}; !slices.Equal(own, want) || !slices.Equal(others, []string{""}) {
		t.Errorf("the host got %q, another one %q", own, others)
	}
}
