package pyzygote

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"
)

// The bounds of a Log. A longer line counts as several lines.
const (
	maxLogLine  = 4 << 10 // bytes
	maxLogLines = 20      // per logPeriod
	logPeriod   = time.Minute
)

// A Log logs the lines that Python zygotes print, which are errors. All Python zygotes
// of a Host share one, so neither a zygote that prints much nor many zygotes that crash can
// fill the daemon's log. It logs at most maxLogLines per logPeriod, then once that it drops
// lines. A Log with a Logger is ready.
type Log struct {
	Logger *slog.Logger

	mu    sync.Mutex
	since time.Time // begin of this period
	lines int       // of this period, with the dropped ones
}

// Copy logs r's lines until r ends, and closes r. It reads on while it drops lines, so a
// zygote never waits for the log.
func (l *Log) Copy(r io.ReadCloser) {
	defer r.Close()
	lines := bufio.NewReaderSize(r, maxLogLine)
	for {
		line, err := lines.ReadSlice('\n') // bufio.ErrBufferFull: a part of a longer line
		if line = bytes.TrimSpace(line); len(line) > 0 {
			l.add(string(line))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// add logs a line, or drops it. A period begins with the first line after the last period's end.
func (l *Log) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.since) >= logPeriod {
		l.since, l.lines = now, 0
	}
	l.lines++
	switch {
	case l.lines <= maxLogLines:
		l.Logger.Warn("Python zygote", "line", line)
	case l.lines == maxLogLines+1:
		l.Logger.Warn("Python zygotes print too much; further lines are dropped", "lines_per_minute", maxLogLines)
	}
}
