package sandbox

import (
	"os"
	"testing"
	"time"
)

// chunks takes what drain hands over.
type chunks struct{ got []string }

func (c *chunks) Write(p []byte) (int, error) { c.got = append(c.got, string(p)); return len(p), nil }

// What is in the pipe is handed over whole, in order, whatever its pieces are.
func TestDrainKeepsOrder(t *testing.T) {
	for _, pieces := range [][]string{{"a\n"}, {"a", "\n"}, {"no end"}, {"a", "b", "c\n", "d"}, {}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		var want, got string
		for _, p := range pieces {
			if _, err := w.WriteString(p); err != nil {
				t.Fatal(err)
			}
			want += p
		}
		w.Close()
		var c chunks
		drain(r, &c)
		r.Close()
		for _, g := range c.got {
			got += g
		}
		if got != want {
			t.Errorf("%q: got %q", pieces, c.got)
		}
	}
}

// A line whose end is written apart is one piece.
func TestReadNow(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b := make([]byte, 8)
	if n := readNow(r, b); n != 0 {
		t.Errorf("of an empty pipe: %d bytes", n)
	}
	if _, err := w.WriteString("rest"); err != nil {
		t.Fatal(err)
	}
	if n := readNow(r, b); string(b[:n]) != "rest" {
		t.Errorf("got %q, want %q", b[:n], "rest")
	}
	w.Close()
	if n := readNow(r, b); n != 0 {
		t.Errorf("at the end: %d bytes", n)
	}
}

// A slow taker gets everything that a dead program left in its pipe, however long
// after the patience for it.
func TestDrainAfterItsDeadline(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() // held open, as by somebody who should not
	defer r.Close()
	if _, err := w.WriteString("first\n"); err != nil {
		t.Fatal(err)
	}
	taken := make(chan string)
	done := make(chan struct{})
	go func() {
		drain(r, writerFunc(func(p []byte) (int, error) { taken <- string(p); return len(p), nil }))
		close(done)
	}()
	<-taken
	// drain is in a Read now, or about to be: its next piece is followed by a taker
	// that is busy while the deadline passes.
	if _, err := w.WriteString("second\n"); err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	rest := ""
	for rest != "second\n" {
		select {
		case p := <-taken:
			rest += p
		case <-done:
			t.Fatalf("got %q of the rest", rest)
		}
	}
	<-done
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
