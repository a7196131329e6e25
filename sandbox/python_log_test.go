package sandbox

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Neither one Python zygote that prints much nor many that print a little fill the log. None
// of them waits for it, and the log comes back when a period is over.
func TestPythonZygotesDoNotFillTheLog(t *testing.T) {
	for name, print := range map[string]func(*lineLog, *slog.Logger){
		"one that prints much": func(l *lineLog, log *slog.Logger) {
			printAll(l, log, strings.Repeat("crashed\n", 10_000))
		},
		"many that crash": func(l *lineLog, log *slog.Logger) {
			for range 10_000 {
				printAll(l, log, "crashed\n")
			}
		},
		"a line without an end": func(l *lineLog, log *slog.Logger) {
			printAll(l, log, strings.Repeat("x", 1<<20))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				l, log := &lineLog{}, slog.New(slog.NewTextHandler(&out, nil))
				print(l, log)
				if got := strings.Count(out.String(), "\n"); got != maxLogLines+1 {
					t.Errorf("%d entries, want %d", got, maxLogLines+1)
				}
				if most := (maxLogLines + 1) * (maxLogLine + 200); out.Len() > most {
					t.Errorf("%d bytes, want at most %d", out.Len(), most)
				}
				if got := strings.Count(out.String(), "are dropped"); got != 1 {
					t.Errorf("%d entries say that lines are dropped, want one", got)
				}
				time.Sleep(logPeriod) // of the bubble's clock
				out.Reset()
				printAll(l, log, "a later one\n\n")
				if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "a later one") {
					t.Errorf("after a period: %s", got)
				}
			})
		})
	}
}

// printAll is a Python zygote that prints text and ends.
func printAll(l *lineLog, log *slog.Logger, text string) {
	r, w := io.Pipe()
	var copied sync.WaitGroup
	copied.Go(func() { l.copy(r, log) })
	fmt.Fprint(w, text)
	w.Close()
	copied.Wait()
}
