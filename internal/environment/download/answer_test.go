package download

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// The pages that a build has not read yet can't fill the daemon's memory: the text of a page has a bound, and the
// daemon holds one large page at a time.
func TestAnswersAreBounded(t *testing.T) {
	x := newIndex(t)
	x.handle = func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Type", "text/html")
		links := map[string]int{"/simple/small/": 100, "/simple/large/": 1000, "/simple/huge/": 3000}[r.URL.Path]
		// Each quote becomes five bytes.
		fmt.Fprint(w, strings.Repeat(`<a href="p-1-py3-none-any.whl" data-yanked='`+strings.Repeat(`"`, 3000)+`'>`, links))
		return true
	}
	f := fetcherOf(t, x.url())
	f.maxBytes = 1 << 30
	large := f.Get(t.Context(), "/simple/large/")
	if large.status != http.StatusOK || large.length < maxSmallAnswer {
		t.Fatalf("got %d, %d bytes", large.status, large.length)
	}
	second := make(chan Response, 1)
	go func() { second <- f.Get(t.Context(), "/simple/large/") }()
	if code, text := fetch(t, f, "/simple/small/"); code != http.StatusOK || len(text) > maxSmallAnswer {
		t.Errorf("a small page beside a large one: got %d, %d bytes", code, len(text))
	}
	// One that ends while it waits for its turn is no failure of the index.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := f.newAnswer(ctx)
	if _, err := a.Write(make([]byte, maxSmallAnswer+1)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the end of the request", err)
	}
	a.Close()
	select {
	case <-second:
		t.Error("two large pages at a time")
	default:
	}
	text, err := io.ReadAll(large.body)
	if int64(len(text)) != large.length || err != nil {
		t.Errorf("read %d of %d bytes, %v", len(text), large.length, err)
	}
	large.body.Close()
	large.body.Close() // has given its turn back
	if r := <-second; r.status != http.StatusOK || r.length < maxSmallAnswer {
		t.Errorf("the second large page: got %d, %d bytes", r.status, r.length)
	} else {
		r.body.Close()
	}
	if reason(f) != "" {
		t.Errorf("failed: %s", reason(f))
	}
	for range 2 { // one that is refused gives its turn back, too
		code, _ := fetch(t, f, "/simple/huge/")
		if code != http.StatusBadGateway || !strings.Contains(reason(f), "the page of huge has more than") {
			t.Errorf("a page that is too long: got %d, %q", code, reason(f))
		}
	}
}

// An answer has the bytes that were written, in whatever parts.
func TestAnswerKeepsItsBytes(t *testing.T) {
	f := fetcherOf(t, "https://index.example/simple/")
	a := f.newAnswer(t.Context())
	defer a.Close()
	var want bytes.Buffer
	for i := range 300 {
		part := bytes.Repeat([]byte{byte(i)}, i*i%(answerPiece/10)+i)
		want.Write(part)
		if n, err := a.Write(part); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	if a.length() != int64(want.Len()) {
		t.Errorf("%d bytes, want %d", a.length(), want.Len())
	}
	if got, err := io.ReadAll(a); !bytes.Equal(got, want.Bytes()) || err != nil {
		t.Errorf("got %d other bytes, %v", len(got), err)
	}
}
