package mcp

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/wellknown"
)

func publish(c *Config) { c.Publish = true }

// A page is the answer to an HTTP request.
type page struct {
	status int
	header http.Header
	body   string
}

// page sends a request to a daemon's socket.
func (d *daemon) page(method, path string, headers ...string) page {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), method, "http://localhost"+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := httpClient(d.t, d.mine).Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return page{answer.StatusCode, answer.Header, string(body)}
}

// index returns the entries of the index, by name.
func (d *daemon) index() map[string]wellknown.Entry {
	d.t.Helper()
	p := d.page(http.MethodGet, wellknown.Path)
	var index struct {
		Schema string            `json:"$schema"`
		Skills []wellknown.Entry `json:"skills"`
	}
	if err := json.Unmarshal([]byte(p.body), &index); err != nil || p.status != http.StatusOK || index.Schema != wellknown.Schema || index.Skills == nil {
		d.t.Fatalf("got %d %.300s, %v", p.status, p.body, err)
	}
	entries := map[string]wellknown.Entry{}
	for _, e := range index.Skills {
		if _, twice := entries[e.Name]; twice {
			d.t.Errorf("%s comes twice", e.Name)
		}
		entries[e.Name] = e
	}
	return entries
}

// filesIn returns the files of a .tar.gz by path, with "x " before those that are executable.
func filesIn(t *testing.T, data string) map[string]string {
	t.Helper()
	unzipped, err := gzip.NewReader(strings.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(unzipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		if _, err := text.ReadFrom(r); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg || h.Uid != 0 || h.Uname != "" || h.ModTime.Unix() != 0 {
			t.Errorf("%s: %+v", h.Name, h)
		}
		files[h.Name] = text.String()
		if h.Mode&0o111 != 0 {
			files[h.Name] = "x " + files[h.Name]
		}
	}
}

// The index has the skills of skills/list, with digests of artifacts that every download has again.
func TestPublishedIndex(t *testing.T) {
	d := startIdle(t, publish)
	d.write("only/SKILL.md", "---\nname: only\ndescription: One file.\nmetadata: {version: \"1.2.0\"}\n---\n")
	d.write("../team/guide/SKILL.md", "---\nname: guide\ndescription: Of a team.\n---\n")
	d.write("../team/demo/SKILL.md", "---\nname: demo\ndescription: Needs its namespace.\n---\n")
	d.write("../team/both/SKILL.md", "---\nname: both\ndescription: Ambiguous.\n---\n")
	d.write("../crew/both/SKILL.md", "---\nname: both\ndescription: Ambiguous.\n---\n")
	d.reload()
	entries := d.index()
	for _, name := range []string{"hidden", "odd name", "both", "team/guide"} {
		if e, ok := entries[name]; ok {
			t.Errorf("%+v is published", e)
		}
	}
	demo, only, guide := entries["demo"], entries["only"], entries["guide"]
	if len(entries) != 3 || demo.Type != wellknown.TypeArchive || only.Type != wellknown.TypeSkillMD || demo.Description != "A skill to try things with." || only.Version != "1.2.0" || guide.Description != "Of a team." || demo.Version != "" {
		t.Fatalf("got %+v", entries)
	}
	for name, e := range entries {
		contentType := map[string]string{wellknown.TypeSkillMD: "text/markdown", wellknown.TypeArchive: "application/gzip"}[e.Type]
		at := publishedDir + e.URL
		got := d.page(http.MethodGet, at)
		if digest := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(got.body))); got.status != http.StatusOK || digest != e.Digest || got.header.Get("Content-Type") != contentType || got.header.Get("Cache-Control") != "private, no-cache" {
			t.Errorf("%s: got %d %v, digest %s, want %s", name, got.status, got.header, digest, e.Digest)
		}
		head := d.page(http.MethodHead, at)
		if head.status != http.StatusOK || head.body != "" || head.header.Get("Content-Length") != strconv.Itoa(len(got.body)) || head.header.Get("ETag") != `"`+e.Digest+`"` {
			t.Errorf("%s: HEAD: %+v", name, head)
		}
		for tag, status := range map[string]int{`"` + e.Digest + `"`: http.StatusNotModified, `W/"x", "` + e.Digest + `"`: http.StatusNotModified, `"x"`: http.StatusOK} {
			if again := d.page(http.MethodGet, at, "If-None-Match", tag); again.status != status || status == http.StatusNotModified && again.body != "" {
				t.Errorf("%s: If-None-Match %s: got %d", name, tag, again.status)
			}
		}
	}
	files := filesIn(t, d.page(http.MethodGet, publishedDir+demo.URL).body)
	for path, text := range skillFiles {
		if path, ok := strings.CutPrefix(path, "demo/"); ok && files[path] != text {
			t.Errorf("%s: got %.100q", path, files[path])
		}
	}
	index := d.page(http.MethodGet, wellknown.Path)
	tag := index.header.Get("ETag")
	if index.header.Get("Content-Type") != "application/json" || tag == "" || d.page(http.MethodHead, wellknown.Path).header.Get("Content-Length") != strconv.Itoa(len(index.body)) {
		t.Errorf("got %v", index.header)
	}
	if again := d.page(http.MethodGet, wellknown.Path, "If-None-Match", tag); again.status != http.StatusNotModified {
		t.Errorf("an unchanged index: %d", again.status)
	}
	d.write("demo/references/new.md", "New.\n")
	d.reload()
	if again := d.page(http.MethodGet, wellknown.Path, "If-None-Match", tag); again.status != http.StatusOK || d.index()["demo"].URL == demo.URL {
		t.Errorf("a changed index: %d", again.status)
	}
	if old := d.page(http.MethodGet, publishedDir+demo.URL); old.status != http.StatusNotFound {
		t.Errorf("a replaced artifact: %d", old.status)
	}
}

// Two registries that read the same files make the same archive.
func TestPublishedArchiveIsTheSameEverywhere(t *testing.T) {
	a, b := startIdle(t, publish).index()["demo"], startIdle(t, publish).index()["demo"]
	if a.Digest == "" || a != b {
		t.Errorf("got %+v and %+v", a, b)
	}
}

func TestPublishedRequestsThatAreRefused(t *testing.T) {
	if off := startIdle(t, nil).page(http.MethodGet, wellknown.Path); off.status != http.StatusNotFound || !strings.Contains(off.body, "the endpoint is /mcp") {
		t.Errorf("without Publish: %+v", off)
	}
	var role atomic.Int32
	role.Store(int32(identity.Read))
	d := startIdle(t, func(c *Config) {
		c.Publish = true
		c.Identify = func(identity.Credentials) (identity.Identity, error) {
			if role.Load() < 0 {
				return identity.Identity{}, errors.New("no credential")
			}
			return identity.Identity{Principal: alice, Role: identity.Role(role.Load())}, nil
		}
	})
	demo := publishedDir + d.index()["demo"].URL
	hex := strings.Split(d.index()["demo"].URL, "/")[1]
	zeros := strings.Repeat("0", 64)
	for _, path := range []string{
		publishedDir, publishedDir + "demo", publishedDir + "demo/" + zeros + "/" + archiveName, publishedDir + "nobody/" + hex + "/" + archiveName,
		publishedDir + "demo/" + hex + "/SKILL.md", publishedDir + "demo/" + hex + "/../" + archiveName, publishedDir + "../agent-skills/x", publishedDir + "v1.2.0/index.json",
	} {
		if got := d.page(http.MethodGet, path); got.status != http.StatusNotFound {
			t.Errorf("%s: got %d %s", path, got.status, got.body)
		}
	}
	hidden, err := d.skills.For(alice.Tenant).Resolve("hidden")
	if err != nil {
		t.Fatal(err)
	}
	if got := d.page(http.MethodGet, publishedDir+"hidden/"+strings.TrimPrefix(hidden.Digest, "sha256:")+"/SKILL.md"); got.status != http.StatusNotFound {
		t.Errorf("a hidden skill: %d", got.status)
	}
	if got := d.page(http.MethodPost, wellknown.Path); got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %+v", got)
	}
	if got := d.page(http.MethodPut, Path); got.header.Get("Allow") != "POST, GET, DELETE" {
		t.Errorf("PUT %s: %+v", Path, got)
	}
	if got := d.page(http.MethodGet, wellknown.Path, "Origin", "https://example.com"); got.status != http.StatusForbidden {
		t.Errorf("a web page: %d", got.status)
	}
	for _, path := range []string{wellknown.Path, demo} {
		role.Store(int32(identity.None))
		if got := d.page(http.MethodGet, path); got.status != http.StatusForbidden || !strings.Contains(got.body, "needs the role read") {
			t.Errorf("%s without a role: %+v", path, got)
		}
		role.Store(-1)
		if got := d.page(http.MethodGet, path); got.status != http.StatusUnauthorized || got.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s without a credential: %+v", path, got)
		}
	}
}

// A tenant's requests beyond the limit are refused, and those of another tenant are not.
func TestPublishedRequestsAreBounded(t *testing.T) {
	full := atomic.Bool{}
	d := startIdle(t, func(c *Config) {
		c.Publish = true
		c.Hold = func(*ingress.Conn, int64) (func(), bool) { return func() {}, !full.Load() }
	})
	var leave []func()
	for range maxPublishing {
		l, ok := d.publishing.enter(alice.Tenant)
		if !ok {
			t.Fatal("refused within the limit")
		}
		leave = append(leave, l)
	}
	if got := d.page(http.MethodGet, wellknown.Path); got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("beyond the limit: %+v", got)
	}
	other, ok := d.publishing.enter("other")
	if !ok {
		t.Error("another tenant is refused")
	}
	for _, l := range append(slices.Clone(leave), other) {
		l()
	}
	if len(d.publishing.now) != 0 {
		t.Errorf("left: %v", d.publishing.now)
	}
	d.index()
	full.Store(true)
	if got := d.page(http.MethodGet, wellknown.Path); got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, "request memory is full") {
		t.Errorf("without memory: %+v", got)
	}
}
