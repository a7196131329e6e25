package toolview

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/skillrun/skillrun/internal/executor"
)

// byCaller is who cancels an execution whose caller has gone.
const byCaller = "disconnect"

// A Sink gets what a program prints while it runs. An error ends the execution.
// Nil: nobody looks.
type Sink func(executor.Output) error

// A run is one execution from its header to its outcome.
type run struct {
	id             string
	stdout, stderr []byte // up to the limit of each
	executor.Outcome
}

// truncated reports whether the program printed more than was kept.
func (r run) truncated() bool { return r.Outcome.Stdout.Truncated() || r.Outcome.Stderr.Truncated() }

// why says, in one sentence, why a run is not what its caller asked for.
func (r run) why() string {
	switch {
	case r.End == executor.Cancelled:
		return fmt.Sprintf("It was cancelled by %s: %s.", r.Evidence.CancelledBy, r.Evidence.CancelReason)
	case r.Advice != "":
		return r.Advice
	}
	return fmt.Sprintf("It ended as %s.", r.End)
}

// run executes a request and waits for its outcome. An error means that nothing
// ran, or that the caller went away, and then the execution is cancelled.
func (v *View) run(ctx context.Context, req executor.Request, sink Sink) (r run, err error) {
	id, _, err := v.x.Execute(ctx, req)
	if err != nil {
		return run{}, err
	}
	r.id = id
	ended := false
	defer func() {
		if !ended {
			_, cancelErr := v.x.Cancel(context.WithoutCancel(ctx), req.Principal, id, byCaller, "the call that started it ended", -1)
			err = errors.Join(err, cancelErr)
		}
	}()
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
		case e.Output != nil:
			if e.Output.Stream == executor.Stdout {
				r.stdout = append(r.stdout, e.Output.Data...)
			} else {
				r.stderr = append(r.stderr, e.Output.Data...)
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

// text is output as a contract of text has it: what is not UTF-8 becomes U+FFFD,
// a character for each byte that can't be read, and line ends stay.
func text(b []byte) string { return string([]rune(string(b))) }
