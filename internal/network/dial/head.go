package dial

import (
	"bytes"
	"errors"
	"io"
)

// Bounds on the head of a request. A line takes about 120 bytes of memory besides its own.
const (
	MaxHead  = 64 << 10 // bytes
	MaxLines = 256
)

// A HeadReader reads at most Left bytes, and no more after Lines ends of lines. A negative Left is no bound.
type HeadReader struct {
	From  io.Reader
	Left  int
	Lines int
}

// ErrLongHead is the error of a head that is longer than its bound.
var ErrLongHead = errors.New("the head of the request is too long")

func (r *HeadReader) Read(b []byte) (int, error) {
	if r.Left < 0 {
		return r.From.Read(b)
	}
	if r.Left == 0 || r.Lines <= 0 {
		return 0, ErrLongHead
	}
	n, err := r.From.Read(b[:min(len(b), r.Left)])
	r.Left -= n
	// Bytes behind the head may count, too. Nothing is read for the head after these.
	r.Lines -= bytes.Count(b[:n], []byte{'\n'})
	return n, err
}
