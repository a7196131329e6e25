package download

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// An index is a simple index on loopback with one project, skbase, and one wheel.
type index struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string
	// handle, if set, answers first; true means that it has.
	handle func(http.ResponseWriter, *http.Request) bool
}

func newIndex(t *testing.T) *index {
	x := &index{}
	x.Server = httptest.NewServer(http.HandlerFunc(x.serve))
	t.Cleanup(x.Server.Close)
	return x
}

func (x *index) url() string { return x.Server.URL + "/simple/" }

func (x *index) requests() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.asked)
}

func (x *index) serve(w http.ResponseWriter, r *http.Request) {
	x.mu.Lock()
	x.asked = append(x.asked, r.URL.Path)
	x.mu.Unlock()
	const wheel = "skbase-1.2.0-py3-none-any.whl"
	content := []byte("PK, as a zip file begins")
	switch {
	case x.handle != nil && x.handle(w, r):
	case r.URL.Path == "/simple/skbase/":
		sum := sha256.Sum256(content)
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<!DOCTYPE html><html><body><a href=\"../../files/%s#sha256=%s\">%[1]s</a></body></html>", wheel, hex.EncodeToString(sum[:]))
	case r.URL.Path == "/files/"+wheel:
		w.Write(content)
	default:
		http.NotFound(w, r)
	}
}

// fetch asks a fetcher for a path and returns the status and the text.
func fetch(t *testing.T, f *Fetcher, path string) (int, string) {
	t.Helper()
	r := f.Get(t.Context(), path)
	defer r.body.Close()
	text, err := io.ReadAll(r.body)
	if err != nil {
		return -1, err.Error()
	}
	return r.status, string(text)
}

func fetcherOf(t *testing.T, raw string) *Fetcher {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	f := New(Config{Index: u, MaxBytes: 1 << 20, Stall: time.Minute})
	t.Cleanup(f.Close)
	return f
}

// reason is why a fetcher failed, or empty.
func reason(f *Fetcher) string {
	var failed *IndexError
	if errors.As(f.Err(), &failed) {
		return failed.Reason
	}
	return ""
}

// A path that is neither a project nor a file that a page has named causes no request.
func TestFetchesOnlyWhatPagesName(t *testing.T) {
	x := newIndex(t)
	f := fetcherOf(t, x.url())
	for _, path := range []string{
		"/", "/simple/", "/simple/Up/", "/simple/../x/", "/simple/a/b/", "/simple/a", "/file/0/skbase-1.2.0-py3-none-any.whl", "/file/-1/x", "/file/999999999/x",
		"/file/0/%zz", "http://example.com/", "//example.com/", "/simple/a%2f/", "",
	} {
		if code, _ := fetch(t, f, path); code != http.StatusNotFound {
			t.Errorf("%q: got %d, want 404", path, code)
		}
	}
	if asked := x.requests(); len(asked) > 0 {
		t.Errorf("asked for %v, want nothing", asked)
	}
	code, page := fetch(t, f, "/simple/skbase/")
	if code != http.StatusOK || !strings.Contains(page, `<a href="/file/0/skbase-1.2.0-py3-none-any.whl#sha256=`) {
		t.Fatalf("got %d %s", code, page)
	}
	if code, data := fetch(t, f, "/file/0/skbase-1.2.0-py3-none-any.whl"); code != http.StatusOK || !strings.HasPrefix(data, "PK") {
		t.Errorf("got %d, %d bytes, want the wheel", code, len(data))
	}
	for _, path := range []string{"/file/0/other.whl", "/file/0/skbase-1.2.0-py3-none-any.whl.metadata", "/file/1/skbase-1.2.0-py3-none-any.whl"} {
		if code, _ := fetch(t, f, path); code != http.StatusNotFound {
			t.Errorf("%q: got %d, want 404", path, code)
		}
	}
}

// A page's links as the sandbox sees them: rewritten, and nothing else of it.
func TestPages(t *testing.T) {
	at, _ := url.Parse("https://index.example/simple/p/")
	sum := strings.Repeat("a", 64)
	for _, c := range []struct{ page, want string }{
		{`<a href="p-1-py3-none-any.whl">`, `<a href="/file/7/p-1-py3-none-any.whl">p-1-py3-none-any.whl</a><br>`},
		{`<a href="https://files.example/x/p-1-py3-none-any.whl#sha256=` + sum + `">x</a>`, `<a href="/file/7/p-1-py3-none-any.whl#sha256=` + sum + `">p-1-py3-none-any.whl</a><br>`},
		{`<a href="p-1.tar.gz" data-requires-python="&gt;=3.8" data-yanked="why &lt;">`, `<a href="/file/7/p-1.tar.gz" data-requires-python="&gt;=3.8" data-yanked="why &lt;">p-1.tar.gz</a><br>`},
		{`<a href="p-1-py3-none-any.whl" data-core-metadata="sha256=` + sum + `">`, `<a href="/file/7/p-1-py3-none-any.whl" data-core-metadata="sha256=` + sum + `" data-dist-info-metadata="sha256=` + sum + `">p-1-py3-none-any.whl</a><br>`},
		{`<a href="p-1-py3-none-any.whl" data-core-metadata='"><script>'>`, `<a href="/file/7/p-1-py3-none-any.whl">p-1-py3-none-any.whl</a><br>`},
		{`<a href="p-1.zip" data-requires-python="` + strings.Repeat("'", 200) + `">`, `<a href="/file/7/p-1.zip">p-1.zip</a><br>`},
		{`<a href="p-1.zip" data-requires-python="` + strings.Repeat("3", maxPython+1) + `">`, `<a href="/file/7/p-1.zip">p-1.zip</a><br>`},
		{`<a href="p-1.zip" data-requires-python="!=3.0.*, ~=3.8">`, `<a href="/file/7/p-1.zip" data-requires-python="!=3.0.*, ~=3.8">p-1.zip</a><br>`},
		{`<a href="p-1-py3-none-any.whl#sha256=short">`, `<a href="/file/7/p-1-py3-none-any.whl">p-1-py3-none-any.whl</a><br>`},
		{`<base href="https://b.example/"><a href="p-1.zip">`, `<a href="/file/7/p-1.zip">p-1.zip</a><br>`},
		{`<a href="file:///etc/passwd.whl">`, ""}, {`<a href="p.exe">`, ""}, {`<a>`, ""}, {`<a href="%zz.whl">`, ""},
		{`<a href="a b.whl">`, ""}, {`text <script>alert(1)</script>`, ""},
		{`<a href="` + strings.Repeat("p", maxFileName-4) + `.zip">`, `<a href="/file/7/` + strings.Repeat("p", maxFileName-4) + `.zip">` + strings.Repeat("p", maxFileName-4) + `.zip</a><br>`},
		{`<a href="` + strings.Repeat("p", maxFileName-3) + `.zip">`, ""},
	} {
		links, err := linksOf(c.page, at)
		if err != nil {
			t.Fatal(err)
		}
		want := c.want
		if want != "" {
			want += "\n"
		}
		if got := written(links, 7); got != want {
			t.Errorf("%s: got %s, want %s", c.page, got, want)
		}
	}
}

// linksOf returns the links of a page.
func linksOf(page string, at *url.URL) (links []link, err error) {
	err = readPage(strings.NewReader(page), at, func(l link) error {
		links = append(links, l)
		return nil
	})
	return links, err
}

// written returns links as the sandbox sees them. first is the number of the first one.
func written(links []link, first int) string {
	var b strings.Builder
	for i, l := range links {
		_ = l.write(&b, first+i) // a Builder has no errors
	}
	return b.String()
}

// A page can't fill the daemon's memory, and neither can all pages of a build.
func TestPagesAreBounded(t *testing.T) {
	at, _ := url.Parse("https://index.example/simple/p/")
	for name, page := range map[string]string{
		"links":                   strings.Repeat(`<a href="p-1.zip">`, maxLinks+1),
		"an attribute":            `<a href="p-1.zip" data-yanked="` + strings.Repeat("y", maxTag) + `">`,
		"attributes":              `<a ` + strings.Repeat("a=b ", maxTag/4+1) + `href="p-1.zip">`,
		"a text":                  strings.Repeat("t", maxTag+1) + `<a href="p-1.zip">`,
		"a comment":               `<!--` + strings.Repeat("t", maxTag+1) + `--><a href="p-1.zip">`,
		"a tag that never ends":   `<a href="` + strings.Repeat("u", maxTag+1),
		"links that are left out": strings.Repeat(`<a href="x">`, maxLinks+1),
		"a base":                  `<base href="https://index.example/` + strings.Repeat("b", maxLinkText) + `/"><a href="p-1.zip">`,
	} {
		if links, err := linksOf(page, at); err == nil {
			t.Errorf("%s: got %d links and no error", name, len(links))
		}
	}
	// Only the first base counts (HTML 5). Each one would make the next one longer.
	links, err := linksOf(`<base href="x/"><base href="y/"><a href="p-1.zip">`, at)
	if err != nil || len(links) != 1 || links[0].url != "https://index.example/simple/p/x/p-1.zip" {
		t.Errorf("got %v, %v; want a link beneath the first base", links, err)
	}
	long := strings.Repeat("l", maxLinkText)
	links, err = linksOf(`<a href="`+long+`/p-1.zip"><a href="p-2.zip" data-yanked="`+long+`"><a href="p-3.zip">`, at)
	if err != nil || len(links) != 1 || links[0].name != "p-3.zip" {
		t.Errorf("got %d links, %v; want only the short one", len(links), err)
	}

	x := newIndex(t)
	x.handle = func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<a href="%s/p-1-py3-none-any.whl">`, long[:maxLinkText/2])
		return true
	}
	f := fetcherOf(t, x.url())
	f.text = maxFilesText - maxLinkText
	if code, _ := fetch(t, f, "/simple/p/"); code != http.StatusOK {
		t.Errorf("the last link that fits: got %d, %q", code, reason(f))
	}
	if code, _ := fetch(t, f, "/simple/p/"); code == http.StatusOK || !strings.Contains(reason(f), "bytes of links") {
		t.Errorf("a link too many: got %d, %q", code, reason(f))
	}
	g := fetcherOf(t, x.url())
	g.files = make([]listedFile, maxFiles)
	if code, _ := fetch(t, g, "/simple/p/"); code == http.StatusOK || !strings.Contains(reason(g), "name more than") {
		t.Errorf("a file too many: got %d, %q", code, reason(g))
	}
}

// FuzzPages looks for a page that breaks out of the page that the relay writes for the
// sandbox.
func FuzzPages(f *testing.F) {
	at, _ := url.Parse("https://index.example/simple/p/")
	f.Add(`<a href="p-1.zip" data-yanked>`)
	f.Fuzz(func(t *testing.T, page string) {
		links, err := linksOf(page, at)
		if err != nil {
			return
		}
		out := written(links, 0)
		if n := strings.Count(out, "<a "); n != len(links) || strings.Contains(out, "<script") {
			t.Errorf("%d links from %d: %s", n, len(links), out)
		}
	})
}

// Attacks of an index on the daemon fail.
func TestHostileIndexes(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("another host was asked") }))
	defer elsewhere.Close()
	page := func(links ...string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasPrefix(r.URL.Path, "/simple/") {
				return false
			}
			w.Header().Set("Content-Type", "text/html")
			for _, l := range links {
				fmt.Fprintf(w, "<a href=%q>", l)
			}
			return true
		}
	}
	const file = "/file/0/p-1-py3-none-any.whl"
	for _, c := range []struct {
		name   string
		handle func(http.ResponseWriter, *http.Request) bool
		path   string
		want   string
	}{
		{"redirect to metadata", func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "http://169.254.169.254/latest/", http.StatusFound)
			return true
		}, "", "redirects to another host, 169.254.169.254"},
		{"redirect to loopback", func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
			return true
		}, "", "redirects to another host"},
		{"redirect to a file", func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
			return true
		}, "", "redirects to another host"},
		{"redirect for ever", func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, r.URL.Path+"x/", http.StatusFound)
			return true
		}, "", "more than 3 redirects"},
		{"file on loopback", page(elsewhere.URL + "/p-1-py3-none-any.whl"), file, "want https"},
		{"file on loopback by https", page("https" + strings.TrimPrefix(elsewhere.URL, "http") + "/p-1-py3-none-any.whl"), file, "an address that is not allowed"},
		{"file at metadata", page("https://169.254.169.254/p-1-py3-none-any.whl"), file, "169.254.169.254, an address that is not allowed"},
		{"file in a private network", page("https://10.0.0.1/p-1-py3-none-any.whl"), file, "an address that is not allowed"},
		{"file at a carrier's", page("https://100.100.100.200/p-1-py3-none-any.whl"), file, "an address that is not allowed"},
		{"file on IPv6 loopback", page("https://[::1]/p-1-py3-none-any.whl"), file, "an address that is not allowed"},
		{"file on mapped loopback", page("https://[::ffff:127.0.0.1]/p-1-py3-none-any.whl"), file, "an address that is not allowed"},
		{"file on no host", page("https://0.0.0.0/p-1-py3-none-any.whl"), file, "an address that is not allowed"},
		{"file behind a translator", page("https://[64:ff9b::a9fe:a9fe]/p-1-py3-none-any.whl"), file, "an address that is not allowed"},
		{"file in a private network behind a translator", page("https://[64:ff9b::10.0.0.1]/p-1-py3-none-any.whl"), file, "an address that is not allowed"},
		{"file behind a local translator", page("https://[64:ff9b:1::a9fe:a9fe]/p-1-py3-none-any.whl"), file, "an address that is not allowed"},
		{"file by 6to4", page("https://[2002:a9fe:a9fe::1]/p-1-py3-none-any.whl"), file, "an address that is not allowed"},
		{"file by Teredo", page("https://[2001::1]/p-1-py3-none-any.whl"), file, "an address that is not allowed"},
		{"file on this network", page("https://0.0.0.1/p-1-py3-none-any.whl"), file, "an address that is not allowed"},
		{"file at a site-local address", page("https://[fec0::1]/p-1-py3-none-any.whl"), file, "an address that is not allowed"},
		{"file by name of loopback", page("https://localhost/p-1-py3-none-any.whl"), file, "an address that is not allowed"},
		{"no file", page("/none/p-1-py3-none-any.whl"), file, "answered 404"},
		{"wants credentials", func(w http.ResponseWriter, r *http.Request) bool { w.WriteHeader(http.StatusUnauthorized); return true }, "", "refuses the credentials"},
		{"broken", func(w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(http.StatusInternalServerError)
			return true
		}, "", "answered 500"},
		{"JSON", func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Type", "application/json")
			return true
		}, "", "not the HTML of PEP 503"},
		{"too long a file", func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasPrefix(r.URL.Path, "/simple/") {
				return page("/p-1-py3-none-any.whl")(w, r)
			}
			w.Write(make([]byte, 2<<20))
			return true
		}, file, "bytes of downloads"},
		{"lies about its length", func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasPrefix(r.URL.Path, "/simple/") {
				return page("/p-1-py3-none-any.whl")(w, r)
			}
			w.Header().Set("Content-Length", "1000")
			w.Write([]byte("short"))
			return true
		}, file, "unexpected EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newIndex(t)
			x.handle = c.handle
			f := fetcherOf(t, x.url())
			code, text := fetch(t, f, "/simple/p/")
			if c.path != "" && code == http.StatusOK {
				code, text = fetch(t, f, c.path)
			}
			if code == http.StatusOK || !strings.Contains(reason(f), c.want) {
				t.Errorf("got %d %q, %q; want %q", code, text, reason(f), c.want)
			}
		})
	}
}

// An index that sends nothing more is given up.
func TestStallingIndex(t *testing.T) {
	for _, part := range []string{"header", "page", "file"} {
		t.Run(part, func(t *testing.T) {
			hold := make(chan struct{})
			x := newIndex(t)
			x.handle = func(w http.ResponseWriter, r *http.Request) bool {
				isFile := strings.HasPrefix(r.URL.Path, "/files/")
				if isFile != (part == "file") {
					return false
				}
				if part != "header" {
					w.Header().Set("Content-Type", "text/html")
					w.Write([]byte("begin"))
					w.(http.Flusher).Flush()
				}
				<-hold
				return true
			}
			u, _ := url.Parse(x.url())
			f := New(Config{Index: u, MaxBytes: 1 << 20, Stall: 50 * time.Millisecond})
			defer f.Close()
			defer close(hold)
			code, _ := fetch(t, f, "/simple/skbase/")
			if part == "file" {
				code, _ = fetch(t, f, "/file/0/skbase-1.2.0-py3-none-any.whl")
			}
			if code == http.StatusOK || reason(f) == "" {
				t.Errorf("got %d, %q; want a failure", code, reason(f))
			}
		})
	}
}

// A roundTrip answers requests without a network.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A server is given up if it sends nothing for the whole time. A build that reads slowly is not
// the server's fault.
func TestSlowBuildIsNoStall(t *testing.T) {
	for _, c := range []struct {
		name          string
		build, server time.Duration // what each takes for a byte
		want          error
	}{
		{"slow build", time.Hour, 0, nil},
		{"slow server", 0, time.Minute - 1, nil},
		{"both", time.Hour, time.Minute - 1, nil},
		{"stalled server", 0, time.Minute + 1, errStalled},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u, _ := url.Parse("https://index.example/simple/")
				f := New(Config{Index: u, MaxBytes: 1 << 20, Stall: time.Minute})
				from, to := io.Pipe()
				f.client.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
					// As net/http does, the end of the request's context ends its body.
					context.AfterFunc(r.Context(), func() { to.CloseWithError(r.Context().Err()) })
					return &http.Response{StatusCode: http.StatusOK, Body: from, Request: r}, nil
				})
				var server sync.WaitGroup
				defer server.Wait()
				server.Go(func() {
					defer to.Close()
					for range 3 {
						time.Sleep(c.server)
						to.Write([]byte("x")) // an error: the request has ended
					}
				})
				_, body, err := f.open(t.Context(), f.index, "*/*")
				if err != nil {
					t.Fatal(err)
				}
				defer body.Close()
				for err == nil {
					time.Sleep(c.build)
					_, err = body.Read(make([]byte, 1))
				}
				if err == io.EOF {
					err = nil
				}
				if err != c.want {
					t.Errorf("got %v, want %v", err, c.want)
				}
			})
		})
	}
}

// A download that the end of its build cuts off is no failure of the index.
func TestEndOfABuildIsNoFailure(t *testing.T) {
	for _, part := range []string{"header", "page"} {
		asked := make(chan struct{})
		x := newIndex(t)
		x.handle = func(w http.ResponseWriter, r *http.Request) bool {
			if part == "page" {
				w.Header().Set("Content-Type", "text/html")
				w.Write([]byte("begin"))
				w.(http.Flusher).Flush()
			}
			close(asked)
			<-r.Context().Done()
			return true
		}
		f := fetcherOf(t, x.url())
		ctx, end := context.WithCancel(t.Context())
		go func() { <-asked; end() }()
		if r := f.Get(ctx, "/simple/p/"); r.status == http.StatusOK || f.Err() != nil {
			t.Errorf("%s: got %d, %v; want a refusal that blames nobody", part, r.status, f.Err())
		}
	}
}

// Credentials go to the index and to no other server.
func TestCredentials(t *testing.T) {
	x := newIndex(t)
	var denied int
	x.handle = func(w http.ResponseWriter, r *http.Request) bool {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "s3cret" {
			denied++
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		return false
	}
	f := fetcherOf(t, strings.Replace(x.url(), "http://", "http://me:s3cret@", 1))
	if code, page := fetch(t, f, "/simple/skbase/"); code != http.StatusOK || strings.Contains(page, "s3cret") {
		t.Errorf("got %d %s", code, page)
	}
	if code, _ := fetch(t, f, "/file/0/skbase-1.2.0-py3-none-any.whl"); code != http.StatusOK || denied > 0 {
		t.Errorf("got %d, %d denied", code, denied)
	}
	x.Close()
	fetch(t, f, "/simple/other/")
	if err := f.Err(); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("got %v, want an error without the password", err)
	}
	other, _ := url.Parse("http://other.example/simple/")
	if f.isIndex(other) {
		t.Error("another host passes for the index")
	}
}

// The index's certificate counts.
func TestIndexByHTTPS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<a href="p-1-py3-none-any.whl">`)
	}))
	s.Config.ErrorLog = nil
	defer s.Close()
	u, _ := url.Parse(s.URL + "/simple/")
	f := New(Config{Index: u, MaxBytes: 1 << 20, Stall: time.Minute})
	defer f.Close()
	if code, _ := fetch(t, f, "/simple/p/"); code == http.StatusOK || !strings.Contains(reason(f), "certificate") {
		t.Errorf("unknown authority: got %d, %q", code, reason(f))
	}
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	g := New(Config{Index: u, MaxBytes: 1 << 20, Stall: time.Minute, Roots: roots})
	defer g.Close()
	if code, _ := fetch(t, g, "/simple/p/"); code != http.StatusOK {
		t.Errorf("known authority: got %d, %q", code, reason(g))
	}
}

// The metadata of a wheel comes without the wheel, if the index has it.
func TestMetadataFiles(t *testing.T) {
	x := newIndex(t)
	x.handle = func(w http.ResponseWriter, r *http.Request) bool {
		switch r.URL.Path {
		case "/simple/p/":
			w.Header().Set("Content-Type", "text/html")
			sum := sha256.Sum256([]byte("Name: p\n"))
			h := hex.EncodeToString(sum[:])
			fmt.Fprintf(w, `<a href="/p-1-py3-none-any.whl" data-core-metadata="sha256=%s"><a href="/p-2-py3-none-any.whl" data-core-metadata="true"><a href="/p-1.tar.gz">`, h)
		case "/p-1-py3-none-any.whl.metadata":
			w.Write([]byte("Name: p\n"))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
		return true
	}
	f := fetcherOf(t, x.url())
	if code, page := fetch(t, f, "/simple/p/"); code != http.StatusOK || strings.Contains(page, "tar.gz") {
		t.Errorf("got %d %s, want a page without sources", code, page)
	}
	if code, text := fetch(t, f, "/file/0/p-1-py3-none-any.whl.metadata"); code != http.StatusOK || text != "Name: p\n" {
		t.Errorf("got %d %q", code, text)
	}
	if code, _ := fetch(t, f, "/file/1/p-2-py3-none-any.whl.metadata"); code != http.StatusNotFound || reason(f) != "" {
		t.Errorf("got %d, %q; want 404 and no failure", code, reason(f))
	}
}

// Requests of a build are bounded, and the relay takes nothing else.
func TestRelayTakesRequestsOnly(t *testing.T) {
	for _, c := range []struct {
		name, text string
		bad        bool
	}{
		{"a request", "{\"id\":1,\"path\":\"/x\"}\n", false},
		{"in pieces", "{\"id\":1,", false},
		{"no request", "hello\n", true},
		{"too long", strings.Repeat("x", maxRelayLine+1), true},
		{"too many", strings.Repeat("{\"id\":1,\"path\":\"/x\"}\n", maxRelayWait+1), true},
	} {
		r, in := NewRelay(t.Context(), nil)
		_, err := r.Write([]byte(c.text))
		if (err != nil) != c.bad {
			t.Errorf("%s: got %v, want error %t", c.name, err, c.bad)
		}
		r.Close(in)
	}
	r, in := NewRelay(t.Context(), nil)
	go r.Write([]byte("{\"id\":258,\"path\":\"/x\"}\n"))
	got := make([]byte, 9)
	if _, err := io.ReadFull(in, got); err != nil || !bytes.Equal(got[:5], []byte{0, 0, 1, 2, 'h'}) {
		t.Errorf("got %v, %v; want the head of answer 258", got, err)
	}
	r.Close(in)
}

// zerosUntil is a download without an end.
type zerosUntil struct{ ctx context.Context }

func (z zerosUntil) Read(p []byte) (int, error) { return len(p), z.ctx.Err() }
func (z zerosUntil) Close() error               { return nil }

// If no request waits for an answer any longer, its download ends. Other downloads continue.
func TestRelayEndsWhatIsDropped(t *testing.T) {
	r, in := NewRelay(t.Context(), func(ctx context.Context, _ string) Response {
		return Response{http.StatusOK, "x", -1, zerosUntil{ctx}}
	})
	defer r.Close(in)
	frames := func(most int, end uint32) (ids []uint32, ended bool) {
		for range most {
			head := make([]byte, 9)
			if _, err := io.ReadFull(in, head); err != nil {
				t.Fatal(err)
			}
			if _, err := io.CopyN(io.Discard, in, int64(binary.BigEndian.Uint32(head[5:]))); err != nil {
				t.Fatal(err)
			}
			id := binary.BigEndian.Uint32(head)
			if ids = append(ids, id); id == end && head[4] == frameEnd {
				return ids, true
			}
		}
		return ids, false
	}
	write := func(line string) {
		if _, err := r.Write([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"id":7,"path":"/a"}`)
	write(`{"id":8,"path":"/b"}`)
	if _, ended := frames(50, 7); ended {
		t.Fatal("answer 7 ended before it was dropped")
	}
	write(`{"drop":7}`)
	write(`{"drop":9}`) // none has this id
	if _, ended := frames(10_000, 7); !ended {
		t.Error("answer 7 goes on after it was dropped")
	}
	if ids, ended := frames(50, 8); ended || !slices.Contains(ids, 8) {
		t.Errorf("answer 8 does not go on: frames of %v", ids)
	}
}

func TestPrivateIndexMayNamePrivateFiles(t *testing.T) {
	f := fetcherOf(t, "http://index.example/simple/")
	if err := f.checkAddress(netip.MustParseAddrPort("10.1.2.3:443")); err == nil {
		t.Error("a public index may name private files")
	}
	_ = f.notePrivate(netip.MustParseAddrPort("192.168.1.1:80"))
	if err := f.checkAddress(netip.MustParseAddrPort("10.1.2.3:443")); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	if err := f.checkAddress(netip.MustParseAddrPort("127.0.0.1:443")); err == nil {
		t.Error("a private index may name loopback")
	}
	for _, public := range []string{"8.8.8.8:443", "[64:ff9b::808:808]:443", "[2606:4700::1]:443"} {
		if err := f.checkAddress(netip.MustParseAddrPort(public)); err != nil {
			t.Errorf("%s: got %v, want nil", public, err)
		}
	}
	if f.checkAddress(netip.AddrPort{}) == nil {
		t.Error("got nil for no address")
	}
}

// If the daemon has a proxy, it carries the pages and the files. The address of a file is judged as without a proxy, and
// the address of the index is not.
func TestFetchesByTheConfiguredDial(t *testing.T) {
	x := newIndex(t)
	x.handle = func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<a href="https://files.example/p-1-py3-none-any.whl">`)
		return true
	}
	f := fetcherOf(t, "http://index.example/simple/")
	var dialed []string
	f.connect = func(ctx context.Context, to string, check func(netip.AddrPort) error) (net.Conn, error) {
		dialed = append(dialed, to)
		if err := check(netip.MustParseAddrPort("127.0.0.1:80")); err != nil {
			return nil, err
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(x.URL, "http://"))
	}
	if code, page := fetch(t, f, "/simple/p/"); code != http.StatusOK || !strings.Contains(page, "p-1-py3") {
		t.Errorf("the page: got %d %s", code, page)
	}
	if code, _ := fetch(t, f, "/file/0/p-1-py3-none-any.whl"); code != http.StatusBadGateway || !strings.Contains(reason(f), "an address that is not allowed") {
		t.Errorf("the file: got %d, %q", code, reason(f))
	}
	if want := []string{"index.example:80", "files.example:443"}; !slices.Equal(dialed, want) {
		t.Errorf("dialed %q, want %q", dialed, want)
	}
}
