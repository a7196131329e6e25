package mcp

import (
	"bytes"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/skillrun/skillrun/internal/executor"
)

// A progress tells a client what a program prints, while it prints: every
// notification has what came since the last one, in whole characters, and how many
// bytes there were so far. Between two of them there is an interval, at whose end
// what waits is sent, so that nothing waits for output to come.
type progress struct {
	send func(text string, bytes uint64)

	mu      sync.Mutex
	total   uint64
	text    []byte    // that waits, whole characters
	skipped uint64    // bytes before it that were too many
	rest    [2][]byte // of each stream: the beginning of a character
	last    time.Time
	timer   *time.Timer // of the next notification, nil: none
	over    bool
}

// add takes a piece of output. It is a [toolview.Sink].
func (p *progress) add(o executor.Output) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	rest := &p.rest[0]
	if o.Stream == executor.Stderr {
		rest = &p.rest[1]
	}
	data := append(*rest, o.Data...)
	whole := wholeRunes(data)
	*rest = bytes.Clone(data[whole:])
	p.total += uint64(len(o.Data))
	p.put(data[:whole])
	p.soon()
	return nil
}

// put adds to the text that waits, of which the newest is kept.
func (p *progress) put(data []byte) {
	p.text = append(p.text, bytes.ToValidUTF8(data, []byte("\uFFFD"))...)
	if over := len(p.text) - maxProgressText; over > 0 {
		for over < len(p.text) && !utf8.RuneStart(p.text[over]) {
			over++
		}
		p.skipped += uint64(over)
		p.text = append(p.text[:0], p.text[over:]...)
	}
}

// soon sends what waits, now or when the interval is over.
func (p *progress) soon() {
	if p.timer != nil || len(p.text) == 0 {
		return
	}
	if wait := progressInterval - time.Since(p.last); wait > 0 && !p.last.IsZero() {
		p.timer = time.AfterFunc(wait, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.over {
				return
			}
			p.timer = nil
			p.flush()
		})
		return
	}
	p.flush()
}

func (p *progress) flush() {
	if len(p.text) == 0 {
		return
	}
	text := string(p.text)
	if p.skipped > 0 {
		text = fmt.Sprintf("[... %d bytes]\n%s", p.skipped, text)
	}
	p.text, p.skipped = p.text[:0], 0
	p.send(text, p.total)
	p.last = time.Now()
}

// end sends what still waits; nothing is sent after it.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.over = true
	for i := range p.rest {
		p.put(p.rest[i])
	}
	p.flush()
}

// wholeRunes is how much of data is not the beginning of a character whose end may
// still come.
func wholeRunes(data []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		tail := data[len(data)-n:]
		if utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return len(data) - n
			}
			break
		}
	}
	return len(data)
}
