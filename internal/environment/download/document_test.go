package download

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// read reads a document of the package left with a new Fetcher.
func read(t *testing.T, text string) (string, error) {
	t.Helper()
	at, err := url.Parse("https://registry.example/left")
	if err != nil {
		t.Fatal(err)
	}
	f := New(Config{Index: at, Registry: true})
	t.Cleanup(f.Close)
	a := f.newAnswer(t.Context())
	defer a.Close()
	if err := (registry{f}).readDocument("left", strings.NewReader(text), at, a); err != nil {
		return "", err
	}
	doc, err := io.ReadAll(a)
	return string(doc), err
}

// npm gets the versions that have a file, and the tags that lead to them. The places of the files are the build's.
func TestDocument(t *testing.T) {
	got, err := read(t, `{"_id": "left", "readme": [{"a": ["<", 1e999]}], "dist-tags": {"latest": "1.1.0", "gone": "3.0.0"}, "versions": {
		"1.0.0": {"name": "left", "dist": {"tarball": "https://files.example/l.tgz", "integrity": "sha512-a"}, "engines": {"node": ">=18"},
			"readme": "r", "devDependencies": {"d": "1"}, "Engines": "e", "scripts": {"install": "x"}},
		"1.1.0": {"dist": {"tarball": "left/-/left-1.1.0.tgz", "shasum": "b", "unpackedSize": 7}},
		"2.0.0": {"dist": {"tarball": "https://files.example/l.tgz"}},
		"2.1.0": {"dist": {"tarball": "file:///etc/passwd", "shasum": "b"}},
		"2.2.0": {"dist": 7}, "2.3.0": null, "file:../x": {"dist": {"tarball": "https://files.example/l.tgz", "shasum": "b"}}
	}}`)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name": "left", "dist-tags": {"latest": "1.1.0"}, "versions": {
		"1.0.0": {"name": "left", "dist": {"tarball": "http://127.0.0.1:4873/file/0/left-1.0.0.tgz", "integrity": "sha512-a"}, "engines": {"node": ">=18"}, "scripts": {"install": "x"}},
		"1.1.0": {"dist": {"tarball": "http://127.0.0.1:4873/file/1/left-1.1.0.tgz", "shasum": "b"}}
	}}`
	var g, w any
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g, w) || !strings.Contains(got, ">=18") {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, text := range []string{`null`, `{}`, `{"versions": null, "dist-tags": null}`} {
		if got, err := read(t, text); err != nil || got != `{"versions":{},"dist-tags":{},"name":"left"}` {
			t.Errorf("%s: got %q, %v", text, got, err)
		}
	}
}

// members writes n members of an object.
func members(n int, member string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, member, i)
	}
	return b.String()
}

// A document can't fill the daemon's memory: a long one is read piece by piece, and the pieces have bounds.
func TestDocumentsAreBounded(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"versions", `{"versions": {` + members(maxLinks+1, `"%d": {"a": 0}`) + `}}`, "more than 100000 versions and tags"},
		{"tags", `{"dist-tags": {` + members(maxLinks+1, `"%d": "1.0.0"`) + `}}`, "more than 100000 versions and tags"},
		{"fields of a version", `{"versions": {"1.0.0": {` + members(maxDocumentValue/8, `"%d": 0`) + `}}}`, "is too long"},
		{"a text", `{"readme": "` + strings.Repeat("x", 2*maxDocumentExtra) + `"}`, "is too long"},
		{"a number", `{"readme": ` + strings.Repeat("1", 2*maxDocumentExtra) + `}`, "is too long"},
		{"blanks", `{` + strings.Repeat(" ", 2*maxDocumentValue) + `}`, "is too long"},
		{"length", `{` + members(maxPageBytes/maxDocumentExtra+1, `"%d": "`+strings.Repeat("x", maxDocumentExtra-100)+`"`) + `}`, "longer than 67108864 bytes"},
		{"a long document for npm", `{"versions": {` + members(40, `"1.0.%d": {"dist": {"shasum": "b", "tarball": "c"}, "deprecated": "`+strings.Repeat("x", maxDocumentValue-200)+`"}`) + `}}`, "more than 33554432 bytes for the build"},
		{"long tags", `{"dist-tags": {` + members(maxLinks, `"%06d`+strings.Repeat("\xff", 80)+`": "`+strings.Repeat("1", 200)+`"`) + `}}`, "more than 33554432 bytes for the build"},
		{"no end", `{"versions": {"1.0.0": `, "not that of a package"},
		{"a list", `[]`, "not that of a package"},
		{"versions as a list", `{"versions": []}`, "not that of a package"},
		{"a version as a text", `{"versions": {"1.0.0": ""}}`, "not that of a package"},
		{"a tag as a number", `{"dist-tags": {"latest": 1}}`, "not that of a package"},
	} {
		if doc, err := read(t, c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %d bytes, %v; want an error with %q", c.name, len(doc), err, c.want)
		}
	}
	// Documents of many small fields: what is left of them is not much more than their texts.
	text := `{"versions": {` + members(maxLinks/4, `"1.0.%d": {"a":0,"b":0,"c":0,"d":0,"e":0,"dist":{"shasum":"b","tarball":"c"}}`) + `}}`
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	doc, err := read(t, text)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if held := int(after.HeapAlloc) - int(before.HeapAlloc); err != nil || held > 8*len(text) {
		t.Errorf("a document of %d bytes holds %d bytes of memory, %v", len(text), held, err)
	}
	runtime.KeepAlive(doc)
}
