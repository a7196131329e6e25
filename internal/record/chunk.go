package record

import (
	"sync"
	"sync/atomic"
)

// A chunk is the memory of one read, which the events in it share. A pool takes it
// back after the last release. Without that release the garbage collector frees it.
// An output stream of some hundred MiB/s would otherwise make as much garbage. A reader that
// keeps one event keeps the whole chunk.
type chunk struct {
	bytes   [chunkBytes]byte
	holders atomic.Int32 // the reader, until its next read, and the events
}

const (
	// chunkBytes is the size of one read: it holds an event of 256 KiB whole.
	chunkBytes = 256<<10 + frameSize
	// smallRead is the largest read, in bytes, that is cheaper without a chunk.
	smallRead = 16 << 10
)

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// newBytes returns size bytes to read into. If they are in a chunk, it has one holder;
// else the chunk is nil.
func newBytes(size int) ([]byte, *chunk) {
	if size <= smallRead || size > chunkBytes {
		return make([]byte, size), nil
	}
	c := chunks.Get().(*chunk)
	c.holders.Store(1)
	// The capacity ends there, so an append can't write into another event's bytes.
	return c.bytes[:size:size], c
}

// hold adds a holder. A nil chunk needs none.
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
