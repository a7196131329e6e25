package pyzygote

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
func TestZygotesDoNotFillTheLog(t *testing.T) {
	for name, print := range map[string]func(*Log){
		"one that prints much": func(l *Log) {
			printAll(l, strings.Repeat("crashed\n", 10_000))
		},
		"many that crash": func(l *Log) {
			for range 10_000 {
				printAll(l, "crashed\n")
			}
		},
		"a line without an end": func(l *Log) {
			printAll(l, strings.Repeat("x", 1<<20))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				l := &Log{Logger: slog.New(slog.NewTextHandler(&out, nil))}
				print(l)
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
				printAll(l, "a later one\n\n")
				if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "a later one") {
					t.Errorf("after a period: %s", got)
				}
			})
		})
	}
}

// printAll is a Python zygote that prints text and ends.
func printAll(l *Log, text string) {
	r, w := io.Pipe()
	var copied sync.WaitGroup
	copied.Go(func() { l.Copy(r) })
	fmt.Fprint(w, text)
	w.Close()
	copied.Wait()
}
