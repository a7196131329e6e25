package sandbox

import (
	"bytes"
	"encoding/binary"
	"os"
	"slices"
	"testing"
)

// A reader takes whole output up to a size, and afterwards only its number of bytes and its end.
type limited struct {
	most    int
	kept    []byte
	total   int64
	skipped int64
	last    []byte
}

func (l *limited) Write(p []byte) (int, error) {
	l.kept = append(l.kept, p[:min(len(p), l.most-len(l.kept))]...)
	l.total += int64(len(p))
	l.last = append(l.last, p...)
	l.last = slices.Clone(l.last[max(0, len(l.last)-skipTail):])
	return len(p), nil
}

func (l *limited) Skips() bool { return len(l.kept) == l.most }

func (l *limited) Skip(n int64) {
	l.total += n
	l.skipped += n
	l.last = nil
}

// numbers are bytes of which each four tell their place.
func numbers(n int) (b []byte) {
	for i := range n / 4 {
		b = binary.BigEndian.AppendUint32(b, uint32(i))
	}
	return b
}

// Output that no caller gets is counted, and only the end of the stream is copied.
func TestDrainSkips(t *testing.T) {
	for _, tt := range []struct {
		name        string
		size, limit int
		skips       bool
	}{
		{"nothing", 0, 0, false},
		{"all of it fits", 60 << 10, 64 << 10, false},
		{"exactly the limit", 60 << 10, 60 << 10, false},
		{"no more than the tail", skipTail, 0, false},
		{"all in the pipe at once", 60 << 10, 0, true},
		{"much more", 4 << 20, 100 << 10, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			want := numbers(tt.size)
			first := min(len(want), 60<<10) // the pipe takes it without a reader
			if _, err := w.Write(want[:first]); err != nil {
				t.Fatal(err)
			}
			wrote := make(chan error, 1)
			go func() {
				_, err := w.Write(want[first:])
				w.Close()
				wrote <- err
			}()
			l := &limited{most: tt.limit}
			drain(r, l)
			if err := <-wrote; err != nil {
				t.Fatal(err)
			}
			if l.total != int64(len(want)) || !bytes.Equal(l.kept, want[:min(len(want), tt.limit)]) {
				t.Errorf("%d bytes counted and %d kept, want %d and the first %d", l.total, len(l.kept), len(want), tt.limit)
			}
			if tail := want[max(0, len(want)-skipTail):]; !bytes.HasSuffix(l.last, tail) {
				t.Errorf("the last %d bytes are not the end of the output", len(l.last))
			}
			if (l.skipped > 0) != tt.skips {
				t.Errorf("%d bytes skipped", l.skipped)
			}
		})
	}
}
