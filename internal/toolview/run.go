package toolview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/skillrun/skillrun/internal/executor"
)

// byCaller is Evidence.CancelledBy of an execution whose caller went away.
const byCaller = "disconnect"

// A Sink receives a program's output while the program runs, from one goroutine. An error
// cancels the execution. A sink may keep the data: run does not release the events. Nil: the
// output is only collected.
type Sink func(executor.Output) error

// Inputs are the files that a call puts into the workspace.
type Inputs struct {
	Files     []executor.Input
	Resources []executor.Resource
	// Session has more files, and keeps the changes. Nil: none.
	Session *executor.SessionUse
}

// paths returns the files' paths in the workspace.
func (in Inputs) paths() []string {
	var paths []string
	for _, f := range in.Files {
		paths = append(paths, f.Path)
	}
	for _, f := range in.Resources {
		paths = append(paths, f.Path)
	}
	return paths
}

// A run is one execution from its header to its outcome.
type run struct {
	id             string
	stdout, stderr []byte // each up to its limit and up to keep
	keep           int64  // bytes of each stream; 0: everything the execution kept
	warnings       []string
	executor.Outcome
}

// outputLimit is the maximum of each stream in a result, in bytes.
func (r run) outputLimit() int64 {
	if r.keep > 0 {
		return min(r.keep, r.Limits.OutputBytes)
	}
	return r.Limits.OutputBytes
}

// stdoutCut and stderrCut report whether the result lacks part of the stream.
func (r run) stdoutCut() bool { return r.Outcome.Stdout.TotalBytes > int64(len(r.stdout)) }
func (r run) stderrCut() bool { return r.Outcome.Stderr.TotalBytes > int64(len(r.stderr)) }

// cut reports whether the result lacks part of either stream.
func (r run) cut() bool { return r.stdoutCut() || r.stderrCut() }

// keepMore appends a piece of output to the kept part of its stream. The rest is dropped here;
// the execution's record has it.
func (r *run) keepMore(kept, data []byte) []byte {
	if r.keep > 0 {
		data = data[:min(int64(len(data)), r.keep-int64(len(kept)))]
	}
	return append(kept, data...)
}

// why explains, in one sentence, why a run failed. The text is for a model: it names no flags, no
// configuration keys and no fields of gRPC.
func (r run) why() string {
	switch {
	case r.End == executor.Cancelled:
		return fmt.Sprintf("It was cancelled by %s: %s.", r.Evidence.CancelledBy, r.Evidence.CancelReason)
	case r.Advice != "":
		return toolWords.Replace(r.Advice)
	case r.cut():
		return r.cutText()
	}
	return fmt.Sprintf("It ended as %s.", r.End)
}

// toolWords replaces the fields of gRPC requests that advice names: tools have no such arguments.
var toolWords = strings.NewReplacer(
	"raise limits.memory_bytes or", "raise its memory limit, which the operator sets, or",
	"limits.memory_bytes", "its memory limit",
	"limits.wall_time", "its timeout",
	"limits.cpu_time", "its limit of processor time, which the operator sets,",
	"limits.processes", "its limit of processes, which the operator sets,",
	"limits.output_bytes", "its output limit",
	"limits.workspace_bytes", "the size of its workspace",
	"limits.workspace_files", "the number of files in its workspace",
	"queue_timeout", "queue timeout, which the operator sets",
	"artifacts_refused", "'skillrun show'",
)

// cutText is the sentence about missing output.
func (r run) cutText() string {
	return fmt.Sprintf("It printed more than %d bytes. A result holds this much of each stream; the rest is kept with execution %s. Write large results to a file: files come back as artifacts.", r.outputLimit(), r.id)
}

// run executes a request and waits for its outcome. An error means that nothing ran, or
// that the caller went away; then the execution is cancelled. keep bounds each stream of
// the result, in bytes; the execution keeps more. 0: everything that it keeps.
func (v *View) run(ctx context.Context, req executor.Request, keep int64, sink Sink) (r run, err error) {
	r.keep = keep
	id, _, err := v.x.Execute(ctx, req)
	if err != nil {
		return r, err
	}
	r.id = id
	ended := false
	defer func() {
		if !ended {
			// WithoutCancel: the usual reason for the end is that ctx has ended. -1 is the default grace.
			_, cancelErr := v.x.Cancel(context.WithoutCancel(ctx), req.Principal, id, byCaller, "the call that started it ended", -1)
			err = errors.Join(err, cancelErr)
		}
	}()
	// Follow reads from disk, so a slow sink does not slow down a program.
	events, err := v.x.Follow(ctx, req.Principal, id, 0)
	if err != nil {
		return r, err
	}
	defer events.Close()
	for {
		e, err := events.Next(ctx)
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return r, err
		}
		switch {
		case e.Header != nil:
			r.warnings = e.Header.Warnings
		case e.Output != nil:
			if e.Output.Stream == executor.Stdout {
				r.stdout = r.keepMore(r.stdout, e.Output.Data)
			} else {
				r.stderr = r.keepMore(r.stderr, e.Output.Data)
			}
			if sink != nil {
				if err := sink(*e.Output); err != nil {
					return r, err
				}
			}
		case e.Outcome != nil:
			r.Outcome, ended = *e.Outcome, true
		}
	}
}

func (r run) extras() Extras {
	return Extras{ExecutionID: r.id, Artifacts: r.Artifacts, Warnings: r.warnings, Session: r.sessionEnd()}
}

// texts returns both streams as text. A truncated stream ends with a whole character.
func (r run) texts() (stdout, stderr string) {
	out, errs := r.stdout, r.stderr
	if r.stdoutCut() {
		out = out[:wholeRunes(out)]
	}
	if r.stderrCut() {
		errs = errs[:wholeRunes(errs)]
	}
	return text(out), text(errs)
}

// text converts output to valid UTF-8 and keeps its line ends. Each invalid sequence
// becomes one U+FFFD, as Python's "replace" does: one for each maximal subpart of a
// character (Unicode, section 3.9).
func text(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	out := make([]byte, 0, len(b)+2)
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			size = begun(b)
		}
		out = utf8.AppendRune(out, r)
		b = b[size:]
	}
	return string(out)
}

// begun returns the length of the incomplete character at the start of b, at least 1. b
// must not start with a complete character.
func begun(b []byte) int {
	for n := min(len(b), utf8.UTFMax-1); n > 1; n-- {
		// b[:n] is the start of a character if more bytes could complete it. DecodeRune
		// cannot tell, because other bytes follow.
		if !utf8.FullRune(b[:n]) {
			return n
		}
	}
	return 1
}
