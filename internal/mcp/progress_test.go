package mcp

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/skillrun/skillrun/internal/executor"
)

// A note is one notification.
type note struct {
	text  string
	bytes uint64
	at    time.Duration
}

// noted runs a program with a fake clock and returns the notifications that a client got.
func noted(t *testing.T, program func(p *progress)) (notes []note) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p := &progress{send: func(text string, bytes uint64) {
			notes = append(notes, note{text, bytes, time.Since(began)})
		}}
		program(p)
		p.end()
		time.Sleep(time.Minute) // no notification comes later
	})
	return notes
}

func out(p *progress, text string) {
	p.add(executor.Output{Stream: executor.Stdout, Data: []byte(text)})
}
func errs(p *progress, text string) {
	p.add(executor.Output{Stream: executor.Stderr, Data: []byte(text)})
}

func TestProgressNotes(t *testing.T) {
	ms := time.Millisecond
	for _, tt := range []struct {
		name    string
		program func(p *progress)
		want    []note
	}{
		{"silence", func(p *progress) { time.Sleep(time.Second) }, nil},
		{"the first at once", func(p *progress) { out(p, "a"); time.Sleep(time.Second) }, []note{{"a", 1, 0}}},
		{"the rest together, though nothing follows", func(p *progress) {
			out(p, "a")
			out(p, "b")
			errs(p, "c")
			time.Sleep(time.Second)
		}, []note{{"a", 1, 0}, {"bc", 3, 100 * ms}}},
		{"the last at the end", func(p *progress) { out(p, "a"); out(p, "b") }, []note{{"a", 1, 0}, {"b", 2, 0}}},
		{"at once after a pause", func(p *progress) {
			out(p, "a")
			time.Sleep(time.Second)
			out(p, "b")
			time.Sleep(10 * ms)
			out(p, "c")
			time.Sleep(time.Second)
		}, []note{{"a", 1, 0}, {"b", 2, time.Second}, {"c", 3, 1100 * ms}}},
		{"whole characters", func(p *progress) {
			out(p, "x\xc3")
			time.Sleep(time.Second)
			out(p, "\xa4\xf0\x9f")
			time.Sleep(time.Second)
			out(p, "\x98\x80")
		}, []note{{"x", 1, 0}, {"ä", 3, time.Second}, {"😀", 7, 2 * time.Second}}},
		{"characters of two streams", func(p *progress) {
			out(p, "\xc3")
			errs(p, "\xe2\x82")
			out(p, "\xa4")
			errs(p, "\xac")
		}, []note{{"ä", 2, 0}, {"€", 5, 0}}},
		{"invalid UTF-8", func(p *progress) { out(p, "a\xff\xfeb\xc3"); time.Sleep(time.Second) }, []note{{"a\uFFFDb", 4, 0}, {"\uFFFD", 5, time.Second}}},
		{"nothing", func(p *progress) { out(p, "") }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := noted(t, tt.program)
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("got  %v\nwant %v", got, tt.want)
			}
			for i := range got {
				if i > 0 && got[i].bytes <= got[i-1].bytes {
					t.Errorf("%d bytes after %d, want more", got[i].bytes, got[i-1].bytes)
				}
			}
		})
	}
}

// However much a program prints, the rate and size of notifications are limited, and the
// newest text is among them.
func TestProgressIsBounded(t *testing.T) {
	const lines = 10_000
	notes := noted(t, func(p *progress) {
		for i := range lines {
			out(p, fmt.Sprintf("€ %06d\n", i))
			time.Sleep(100 * time.Microsecond)
		}
	})
	if len(notes) > 13 {
		t.Errorf("%d notifications in a second", len(notes))
	}
	last := uint64(0)
	for _, n := range notes {
		if len(n.text) > maxProgressText+100 || !utf8.ValidString(n.text) || n.bytes <= last {
			t.Errorf("%d bytes after %d: %.20q...", n.bytes, last, n.text)
		}
		last = n.bytes
	}
	if end := notes[len(notes)-1]; last != lines*11 || !strings.HasSuffix(end.text, "€ 009999\n") {
		t.Errorf("the last is %d, %q", last, end.text)
	}
	if !strings.HasPrefix(notes[1].text, "[... ") {
		t.Errorf("the notification does not mention the dropped bytes: %.40q", notes[1].text)
	}
}
