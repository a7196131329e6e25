package record

import (
	"io"
	"testing"
)

// megabyte is the data of event i of a long spool.
func megabyte(i int) []byte {
	b := make([]byte, 1<<20)
	for j := range b {
		b[j] = byte(i + j>>8)
	}
	return b
}

func appendMegabytes(t *testing.T, l *Log, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if _, err := l.Append(Event{Kind: KindOutput, Stream: 1, Data: megabyte(i)}); err != nil {
			t.Fatal(err)
		}
	}
}

// A slow reader and a late one get all of a long spool.
func TestLongSpool(t *testing.T) {
	s := openStore(t, Config{})
	l := create(t, s, Execution{})
	slow := newReader(t, s, "a", l.ID(), 0)
	const n = 80
	appendMegabytes(t, l, 0, n/2)
	for range n / 4 {
		e, err := slow.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		e.Release()
	}
	appendMegabytes(t, l, n/2, n)
	end(t, l, "EXITED", start)
	for _, r := range []*Reader{slow, newReader(t, s, "a", l.ID(), 0)} {
		for {
			e, err := r.Next(t.Context())
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == KindOutput && string(e.Data) != string(megabyte(int(e.Seq)-2)) {
				t.Fatalf("event %d has other bytes than were written", e.Seq)
			}
			e.Release()
		}
	}
}
