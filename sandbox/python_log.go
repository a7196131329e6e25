package sandbox

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"
)

// The bounds of a lineLog. A longer line counts as several lines.
const (
	maxLogLine  = 4 << 10 // bytes
	maxLogLines = 20      // per logPeriod
	logPeriod   = time.Minute
)

// A lineLog logs the lines that Python zygotes print, which are errors. All Python zygotes
// of a Host share one, so neither a zygote that prints much nor many zygotes that crash can
// fill the daemon's log. It logs at most maxLogLines per logPeriod, then once that it drops
// lines. The zero lineLog is ready.
type lineLog struct {
	mu    sync.Mutex
	since time.Time // begin of this period
	lines int       // of this period, with the dropped ones
}

// copy logs r's lines until r ends, and closes r. It reads on while it drops lines, so a
// zygote never waits for the log.
func (l *lineLog) copy(r io.ReadCloser, log *slog.Logger) {
	defer r.Close()
	lines := bufio.NewReaderSize(r, maxLogLine)
	for {
		line, err := lines.ReadSlice('\n') // bufio.ErrBufferFull: a part of a longer line
		if line = bytes.TrimSpace(line); len(line) > 0 {
			l.add(string(line), log)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (l *lineLog) add(line string, log *slog.Logger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.since) >= logPeriod {
		l.since, l.lines = now, 0
	}
	l.lines++
	switch {
	case l.lines <= maxLogLines:
		log.Warn("Python zygote", "line", line)
	case l.lines == maxLogLines+1:
		log.Warn("Python zygotes print too much; further lines are dropped", "lines_per_minute", maxLogLines)
	}
}
