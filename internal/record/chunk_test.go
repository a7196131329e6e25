package record

import (
	"bytes"
	"io"
	"testing"
)

// An event keeps its bytes until it is released, whatever is read and released
// meanwhile.
func TestRelease(t *testing.T) {
	s := openStore(t, Config{})
	l := create(t, s, Execution{})
	const n = 64
	piece := func(i int) []byte { return bytes.Repeat([]byte{byte(i) + 1}, smallRead+i*1000) }
	for i := range n {
		if _, err := l.Append(Event{Kind: KindOutput, Stream: 1, Data: piece(i)}); err != nil {
			t.Fatal(err)
		}
	}
	end(t, l, "EXITED", start)
	r := newReader(t, s, "a", l.ID(), 1)
	var held []Event
	for i := 0; ; i++ {
		e, err := r.Next(t.Context())
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 && e.Kind == KindOutput {
			held = append(held, e)
			continue
		}
		e.Release()
	}
	for i, e := range held {
		if !bytes.Equal(e.Data, piece(3*i)) {
			t.Errorf("event %d has other bytes than it had", e.Seq)
		}
		e.Release()
	}
}

// A chunk is free after its last holder released it.
func TestChunkHolders(t *testing.T) {
	b, c := newBytes(chunkBytes)
	if len(b) != chunkBytes || c == nil {
		t.Fatalf("got %d bytes of %p", len(b), c)
	}
	c.hold()
	c.release()
	if got := c.holders.Load(); got != 1 {
		t.Errorf("got %d holders, want 1", got)
	}
	c.release()
	for _, size := range []int{0, smallRead, chunkBytes + 1} {
		if b, c := newBytes(size); len(b) != size || c != nil {
			t.Errorf("%d bytes: got %d of %p", size, len(b), c)
		}
	}
}
