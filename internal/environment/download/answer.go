package download

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// Bounds of the pages and documents that the daemon holds for one build: maxRelayed small ones, and one large one.
// Large ones take turns.
const (
	maxAnswer      = 32 << 20 // bytes of one page or document; 70,000 ordinary links of an index
	maxSmallAnswer = 2 << 20  // bytes of one that needs no turn
	answerPiece    = 32 << 10 // bytes that are allocated at a time
)

// An answer is the text of a page or a document, from its first byte on until the build has read it. Only one goroutine
// uses it at a time. The owner calls Close.
type answer struct {
	ctx     context.Context // of the request
	large   chan struct{}   // the turn of all answers of the build
	hasTurn bool
	size    int         // bytes that take has allowed
	text    net.Buffers // pieces; a buffer that doubles would take three times its length
	ended   sync.Once
}

func (f *Fetcher) newAnswer(ctx context.Context) *answer {
	return &answer{ctx: ctx, large: f.large}
}

// take counts n bytes. It waits for the turn when the answer becomes large.
func (a *answer) take(n int) error {
	if a.size += n; a.size > maxAnswer {
		return fmt.Errorf("more than %d bytes for the build", maxAnswer)
	}
	if a.size > maxSmallAnswer && !a.hasTurn {
		select {
		case a.large <- struct{}{}:
			a.hasTurn = true
		case <-a.ctx.Done():
			return a.ctx.Err()
		}
	}
	return nil
}

// Write appends a text, and counts it. Nothing of p is written after an error.
func (a *answer) Write(p []byte) (int, error) {
	if err := a.take(len(p)); err != nil {
		return 0, err
	}
	for rest := p; len(rest) > 0; {
		last := len(a.text) - 1
		if last < 0 || len(a.text[last]) == cap(a.text[last]) {
			a.text = append(a.text, make([]byte, 0, answerPiece))
			continue
		}
		piece := a.text[last]
		n := copy(piece[len(piece):cap(piece)], rest)
		a.text[last], rest = piece[:len(piece)+n], rest[n:]
	}
	return len(p), nil
}

// length is the number of bytes that Read has not returned yet.
func (a *answer) length() (n int64) {
	for _, piece := range a.text {
		n += int64(len(piece))
	}
	return n
}

// Read reads the text that was written.
func (a *answer) Read(p []byte) (int, error) { return a.text.Read(p) }

// Close drops the text and gives the turn to the next large answer.
func (a *answer) Close() error {
	a.ended.Do(func() {
		a.text = nil
		if a.hasTurn {
			<-a.large
		}
	})
	return nil
}

var _ io.ReadWriteCloser = (*answer)(nil)
