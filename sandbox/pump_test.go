package sandbox

import (
	"os"
	"testing"
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
