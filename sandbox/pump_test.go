package sandbox

import (
	"bytes"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// chunks collects the pieces that drain writes.
type chunks struct{ got []string }

func (c *chunks) Write(p []byte) (int, error) { c.got = append(c.got, string(p)); return len(p), nil }

// drain copies the whole content of the pipe, in order, whatever the pieces are.
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

// A program that fills a small buffer gets a large pipe and is read in large pieces, in
// order. A program that prints less gets neither.
func TestDrainMuch(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	size := func() int {
		n, err := unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := size()
	want := make([]byte, 2*largePipe)
	for i := range want {
		want[i] = byte(i>>12) ^ byte(i) | 1
	}
	fed := make(chan struct{})
	pieces := make(chan []byte)
	go func() {
		drain(r, writerFunc(func(p []byte) (int, error) {
			pieces <- bytes.Clone(p)
			return len(p), nil
		}))
		close(pieces)
	}()
	go func() {
		defer close(fed)
		w.WriteString("little\n")
	}()
	if got := <-pieces; string(got) != "little\n" {
		t.Errorf("got %q", got)
	}
	<-fed
	if got := size(); got != before {
		t.Errorf("after a line the pipe is of %d bytes, not %d", got, before)
	}
	go func() {
		w.Write(want)
		w.Close()
	}()
	var got []byte
	largest := 0
	for p := range pieces {
		got, largest = append(got, p...), max(largest, len(p))
	}
	if !bytes.Equal(got, want) {
		t.Error("what came is not what was written")
	}
	if largest <= pumpBuffer || largest > largeBuffer {
		t.Errorf("the largest piece has %d bytes", largest)
	}
}

// The number of large buffers is bounded; beyond the bound get returns small ones.
func TestBuffers(t *testing.T) {
	b := newBuffers()
	var held []*[]byte
	for range largeBuffers {
		held = append(held, b.get(true))
		if got := len(*held[len(held)-1]); got != largeBuffer {
			t.Fatalf("got %d bytes, want %d", got, largeBuffer)
		}
	}
	for range 2 {
		small := b.get(true)
		if got := len(*small); got != pumpBuffer {
			t.Errorf("beyond the bound: got %d bytes, want %d", got, pumpBuffer)
		}
		b.put(small)
	}
	b.put(held[0])
	if got := len(*b.get(true)); got != largeBuffer {
		t.Errorf("after one came back: got %d bytes, want %d", got, largeBuffer)
	}
	if got := len(*b.get(false)); got != pumpBuffer {
		t.Errorf("a small one has %d bytes", got)
	}
}

// A line whose newline is written separately is one piece.
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

// A slow writer gets everything that a dead program left in its pipe, even after
// drainPatience.
func TestDrainAfterItsDeadline(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() // held open, like a leaked descriptor
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
	// drain is in a Read now, or will be soon. After its next piece the writer is busy
	// while the deadline passes.
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
