package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/pflag"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// progressEvery bounds how often a bar is drawn: a terminal may be far away.
const progressEvery = 100 * time.Millisecond

// progress draws bars, and the position in the queue, on stderr, one at a time. Nil draws none. Its methods may be
// called at the same time: a request that failed may still be sending.
type progress struct {
	w  io.Writer
	mu sync.Mutex
	// Guarded by mu; nil while no bar is on the terminal.
	bar *progressbar.ProgressBar
	// Guarded by mu: the position is on the terminal.
	waiting bool
}

// addQuiet adds the flag that asks for no bars.
func addQuiet(flags *pflag.FlagSet, quiet *bool) {
	flags.BoolVarP(quiet, "quiet", "q", false, "show no progress of uploads and downloads, and no position in the queue (they are only shown on a terminal)")
}

// progress returns where bars are drawn: on a terminal, unless they would be
// unwelcome.
func (a *app) progress(quiet bool) *progress {
	if quiet || a.json || !terminal(a.stderr) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &progress{w: a.stderr}
}

// begin draws a new bar for so many bytes. p.mu is held.
func (p *progress) begin(what string, total int64) {
	p.clear()
	p.bar = progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(p.w),
		progressbar.OptionSetDescription(shortenTo(printable(what), 40)),
		progressbar.OptionShowBytes(true),
		progressbar.OptionUseIECUnits(true),
		progressbar.OptionSetWidth(20),
		progressbar.OptionThrottle(progressEvery),
		progressbar.OptionSetRenderBlankState(true),
		progressbar.OptionClearOnFinish())
}

// clear removes the bar or the position, so that the next line of output begins on an empty line. It ignores
// errors of the terminal: the program must not fail for them. The caller holds p.mu.
func (p *progress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
		_ = p.bar.Exit()
		p.bar = nil
	}
	if p.waiting {
		_, _ = io.WriteString(p.w, eraseLine)
		p.waiting = false
	}
}

// eraseLine goes to the beginning of the line and erases it (ECMA-48, EL).
const eraseLine = "\r\x1b[K"

// event shows the position of an execution that waits for a slot, until the next event that is stored.
// It is called before the event's output is written.
func (p *progress) event(e *pb.ExecutionEvent) {
	if p == nil || e.GetKeepalive() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	queued := e.GetQueued()
	if queued != nil && p.bar != nil {
		return // the program waits for its files, too
	}
	p.clear()
	if queued != nil {
		_, _ = fmt.Fprintf(p.w, "skillrun: waiting, position %d", queued.GetPosition())
		p.waiting = true
	}
}

// end removes the bar or the position.
func (p *progress) end() {
	if p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.clear()
	}
}

// upload is a skillrun.Cmd's OnUpload, or nil. sent falls when the request is sent again; then a
// new bar begins.
func (p *progress) upload() func(sent, total int64) {
	if p == nil {
		return nil
	}
	var last int64
	return func(sent, total int64) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.bar == nil || sent < last {
			p.begin("uploading files", total)
		}
		last = sent
		_ = p.bar.Set64(sent)
		if sent >= total {
			p.clear()
		}
	}
}

// download returns what counts an artifact's bytes: none, or a bar for it. It begins the bar at
// once; the caller calls end after the download, whether it succeeded or not.
func (p *progress) download(a *pb.Artifact) []io.Writer {
	if p == nil || a.GetSizeBytes() == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begin("saving "+artifactName(a), int64(a.GetSizeBytes()))
	return []io.Writer{lenient{p.bar}}
}

// lenient is a writer whose errors don't matter. A terminal that has gone must not end a download
// (Client.Save stops at the first error of a writer).
type lenient struct{ io.Writer }

func (l lenient) Write(data []byte) (int, error) {
	_, _ = l.Writer.Write(data)
	return len(data), nil
}
