package main

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	bits "encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A lie is how an index attacks the daemon. A skill asks it for a package, "sk" and the lie's
// name.
type lie struct {
	name string
	// page answers the request for a project's page, and wheel the one for its wheel. Nil: an
	// honest answer.
	page, wheel func(w http.ResponseWriter, project string)
	// most is how many bytes the daemon may grow above heapSlack.
	most int64
	want string // code and reason of the refusal
	says string // in the refusal's message: the bound. Another bound may hide a missing one.
}

// endless answers with an HTML page: begin, and then part until the daemon gives up.
func endless(begin, part string) func(http.ResponseWriter, string) {
	return func(w http.ResponseWriter, _ string) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, begin)
		for parts := []byte(strings.Repeat(part, 1<<20/len(part))); ; {
			if _, err := w.Write(parts); err != nil {
				return
			}
		}
	}
}

// headersForEver answers with headers until the daemon gives up.
func headersForEver(w http.ResponseWriter, _ string) {
	conn, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err) // HTTP/1.1 has a connection to hijack
	}
	defer conn.Close()
	rw.WriteString("HTTP/1.1 200 OK\r\n")
	for line := "X-Lie: " + strings.Repeat("h", 4000) + "\r\n"; err == nil; {
		_, err = rw.WriteString(line)
	}
}

const bombSize = 1 << 30

// bomb returns bombSize zeros as one gzip stream.
var bomb = sync.OnceValue(func() []byte {
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed) // a gigabyte takes seconds with the default
	io.CopyN(z, zeros{}, bombSize)                    // a buffer can't fail
	z.Close()
	return out.Bytes()
})

// zeros is a reader without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// bombWheel answers with a wheel that has one file of a gigabyte.
func bombWheel(w http.ResponseWriter, project string) {
	honest := wheelOf(project, "1", "", "")
	from, err := zip.NewReader(bytes.NewReader(honest), int64(len(honest)))
	if err != nil {
		panic(err) // wheelOf made it
	}
	z := zip.NewWriter(w)
	for _, f := range from.File {
		z.Copy(f)
	}
	// A gzip stream without a name is 10 bytes, the deflated data, its CRC-32 and its size (RFC 1952).
	stream := bomb()
	data, end := stream[10:len(stream)-8], stream[len(stream)-8:]
	file, _ := z.CreateRaw(&zip.FileHeader{
		Name: "zeros", Method: zip.Deflate, CRC32: bits.LittleEndian.Uint32(end),
		CompressedSize64: uint64(len(data)), UncompressedSize64: bombSize,
	})
	file.Write(data)
	z.Close()
}

const unavailable = "Unavailable PACKAGE_INDEX_UNAVAILABLE"

var lies = []lie{
	{name: "headers", page: headersForEver, want: unavailable, says: "headers exceeded"},
	{name: "tag", page: endless(`<a href="sktag-1-py3-none-any.whl" data-yanked="`, "y"), want: unavailable, says: "a tag or a text of more than"},
	// A page may have 64 MiB, or 100,000 short links. While the daemon reads it, Go's heap has
	// as much garbage.
	{name: "list", page: endless("", `<a href="sklist-1-py3-none-any.whl">`), most: 128 << 20, want: unavailable, says: "more than 100000 links"},
	{name: "links", page: endless("", `<a href="sklinks-1-py3-none-any.whl" data-yanked="`+strings.Repeat("y", 3900)+`">`), most: 128 << 20, want: unavailable, says: "more than 33554432 bytes for the build"},
	{name: "gzip", page: func(w http.ResponseWriter, _ string) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(bomb())
	}, want: unavailable},
	{name: "file", wheel: func(w http.ResponseWriter, _ string) { io.Copy(w, zeros{}) }, want: "FailedPrecondition BUILD_FAILED"},
	{name: "zip", wheel: bombWheel, want: "FailedPrecondition BUILD_FAILED"},
}

// serve answers a request for a page, /simple/PROJECT/, or a wheel, /files/PROJECT-1-....
func (l lie) serve(w http.ResponseWriter, r *http.Request) {
	project, _, isWheel := strings.Cut(path.Base(r.URL.Path), "-")
	switch {
	case !isWheel && l.page != nil:
		l.page(w, project)
	case !isWheel:
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<a href="/files/%s-1-py3-none-any.whl">x</a>`, project)
	case l.wheel != nil:
		l.wheel(w, project)
	default:
		w.Write(wheelOf(project, "1", "", ""))
	}
}

// lyingIndex prepares skills whose packages come from an index that lies. The index would take
// gigabytes of the daemon's memory if its answers had no bounds.
func lyingIndex(t *testing.T, _ *running, _ hostileCase) {
	dir := newDir(t)
	writeHostileSkill(t, dir)
	for _, l := range lies {
		writeSkill(t, dir, l.name, "python_packages: [sk"+l.name+"]", nil)
	}
	index := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, l := range lies {
			if strings.HasPrefix(path.Base(r.URL.Path), "sk"+l.name) {
				l.serve(w, r)
			}
		}
	}))
	t.Cleanup(index.Close)
	d := startDaemonIn(t, dir, fmt.Sprintf("environments: {index: \"%s/simple/\", memory: 256MiB}\n", index.URL))
	for _, l := range lies {
		d.forgetPeak()
		before := d.peakBytes()
		stream, err := d.skills.PrepareSkill(t.Context(), &pb.PrepareSkillRequest{Skill: l.name})
		for err == nil {
			_, err = stream.Recv()
		}
		grown := d.peakBytes() - before
		t.Logf("%s: the daemon grew by %d MiB: %v", l.name, grown>>20, err)
		code, reason, _ := strings.Cut(l.want, " ")
		wantStatus(t, err, code, reason)
		if !strings.Contains(fmt.Sprint(err), l.says) {
			t.Errorf("%s: got %v, want it to say %q", l.name, err, l.says)
		}
		if bound := l.most + heapSlack; grown > bound {
			t.Errorf("%s: more than %d MiB: the daemon grew by %d", l.name, bound>>20, grown>>20)
		}
	}
	if n := leftOver(t, dir); n > 0 {
		t.Errorf("%d entries left over", n)
	}
	d.works()
}
