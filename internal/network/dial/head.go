package dial

import (
	"errors"
	"io"
)

// MaxHead bounds the head of a request in bytes.
const MaxHead = 64 << 10

// A HeadReader reads at most Left bytes; a negative Left is no bound.
type HeadReader struct {
	From io.Reader
	Left int
}

// ErrLongHead is the error of a head that is longer than its bound.
var ErrLongHead = errors.New("the head of the request is too long")

func (r *HeadReader) Read(b []byte) (int, error) {
	if r.Left == 0 {
		return 0, ErrLongHead
	}
	if r.Left < 0 {
		return r.From.Read(b)
	}
	n, err := r.From.Read(b[:min(len(b), r.Left)])
	r.Left -= n
	return n, err
}
