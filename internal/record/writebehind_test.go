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

// A long spool goes to the disk while it grows. A slow reader and a late one get all of
// it.
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
	l.mu.Lock()
	if !l.writing && l.begun == 0 {
		t.Error("no write-behind has begun")
	}
	l.mu.Unlock()
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

// Bytes that a reader still needs, and new ones, stay in the page cache.
func TestNextOut(t *testing.T) {
	s := openStore(t, Config{})
	l := create(t, s, Execution{})
	l.mu.Lock()
	l.writing = true // the test calls nextOut itself
	l.mu.Unlock()
	r := newReader(t, s, "a", l.ID(), 0)
	appendMegabytes(t, l, 0, 48)
	next := func(what string, wantFrom, wantPassed int64) {
		t.Helper()
		from, to, passed, more := l.nextOut()
		if from != wantFrom || to != l.published() || passed != wantPassed || !more {
			t.Errorf("%s: from %d to %d, without %d, %v; want from %d to %d, without %d", what, from, to, passed, more, wantFrom, l.published(), wantPassed)
		}
	}
	next("at first", 0, -behindLag)
	for range 10 {
		if _, err := r.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	at := l.published()
	appendMegabytes(t, l, 48, 56)
	next("with a slow reader", at, r.frames.pos)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	at = l.published()
	appendMegabytes(t, l, 56, 64)
	next("without a reader", at, at-behindLag)
	appendMegabytes(t, l, 64, 65)
	if from, to, _, more := l.nextOut(); more || l.writing {
		t.Errorf("little is new: from %d to %d, %v, and it goes on: %v", from, to, more, l.writing)
	}
	end(t, l, "EXITED", start)
}
