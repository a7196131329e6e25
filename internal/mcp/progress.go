package mcp

import (
	"bytes"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/skillrun/skillrun/internal/executor"
)

// A progress sends a client the output of a program while it runs. Each notification has the
// output since the last one, in whole characters, and the number of bytes so far. That number
// counts a character when it is whole, so it increases with each notification, as the
// specification of MCP requires ("Progress"). There is at most one notification in each
// progressInterval. A timer sends waiting text at the end of the interval, even if the program
// prints nothing more.
type progress struct {
	send func(text string, bytes uint64)

	mu      sync.Mutex
	total   uint64    // bytes whose text was sent, waits or was dropped; without rest
	text    []byte    // waiting to be sent, whole characters
	skipped uint64    // bytes dropped before text
	rest    [2][]byte // of each stream: an incomplete character
	last    time.Time
	timer   *time.Timer // of the next notification; nil: not set
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
	p.put(data[:whole])
	p.soon()
	return nil
}

// put adds to the waiting text. If that becomes too long, it drops the oldest part. p.mu is held.
// The cut moves on to the beginning of a character.
func (p *progress) put(data []byte) {
	p.total += uint64(len(data))
	p.text = append(p.text, bytes.ToValidUTF8(data, []byte("\uFFFD"))...)
	if over := len(p.text) - maxProgressText; over > 0 {
		for over < len(p.text) && !utf8.RuneStart(p.text[over]) {
			over++
		}
		p.skipped += uint64(over)
		p.text = append(p.text[:0], p.text[over:]...)
	}
}

// soon sends the waiting text now, or when the interval is over. p.mu is held, also while send
// blocks: then the output waits on disk, and the program does not wait.
func (p *progress) soon() {
	if p.timer != nil || len(p.text) == 0 {
		return
	}
	if wait := progressInterval - time.Since(p.last); wait > 0 && !p.last.IsZero() {
		p.timer = time.AfterFunc(wait, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			// Timer.Stop does not wait for a function that has begun (package time).
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

// flush sends the waiting text now. p.mu is held.
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

// end sends the text that still waits and stops all further notifications.
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

// wholeRunes returns the length of data without an incomplete character at its end.
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
