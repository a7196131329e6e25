package gateway

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/skillrun/skillrun/internal/network/dial"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// A sizedReader returns so many bytes for each read, and notes the sizes of the buffers.
type sizedReader struct {
	reads   []int
	buffers []int
}

func (r *sizedReader) Read(b []byte) (int, error) {
	r.buffers = append(r.buffers, len(b))
	if len(r.reads) == 0 {
		return 0, errors.New("the end")
	}
	n := min(r.reads[0], len(b))
	r.reads = r.reads[1:]
	return n, nil
}

// A full buffer is followed by a large one, and a connection that waits for data has a small one.
func TestCopyBuffers(t *testing.T) {
	c := &connection{gateway: &Gateway{life: t.Context(), entries: newAdmission(policy.DefaultLimits(), NewShared(policy.DefaultTenantLimits(), dial.Ports{}))}}
	c.gateway.entries.tenant.large.most = 0 // it has no sockets to grow
	r := &sizedReader{reads: []int{1, smallCopy, largeCopy, largeCopy, smallCopy, 10}}
	var sum atomic.Int64
	var got bytes.Buffer
	if err := c.copy(&got, r, &sum); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the reader's error", err)
	}
	if want := []int{smallCopy, smallCopy, largeCopy, largeCopy, largeCopy, smallCopy, smallCopy}; !slices.Equal(r.buffers, want) {
		t.Errorf("buffers: got %d, want %d", r.buffers, want)
	}
	if want := 1 + 2*smallCopy + 2*largeCopy + 10; got.Len() != want || sum.Load() != int64(want) {
		t.Errorf("copied %d bytes and counted %d, want %d", got.Len(), sum.Load(), want)
	}
}
