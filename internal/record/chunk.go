package record

import (
	"sync"
	"sync/atomic"
)

// A chunk is what a reader has read at once, with the events in it. It is used again
// when nobody needs it: of events that are never released the garbage collector takes
// it.
type chunk struct {
	bytes   [chunkBytes]byte
	holders atomic.Int32 // who reads on in it, and its events
}

const (
	// chunkBytes is what a reader takes in at once, if there is as much: an event of
	// 256 KiB is whole in it.
	chunkBytes = 256<<10 + frameSize
	// smallRead is up to where bytes of their own cost less than a chunk.
	smallRead = 16 << 10
)

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// newBytes returns size bytes to read into, and the chunk that they are of, held once;
// nil: they are of none.
func newBytes(size int) ([]byte, *chunk) {
	if size <= smallRead || size > chunkBytes {
		return make([]byte, size), nil
	}
	c := chunks.Get().(*chunk)
	c.holders.Store(1)
	return c.bytes[:size:size], c
}

// hold is for one holder more. A nil chunk has none.
func (c *chunk) hold() {
	if c != nil {
		c.holders.Add(1)
	}
}

func (c *chunk) release() {
	if c != nil && c.holders.Add(-1) == 0 {
		chunks.Put(c)
	}
}
