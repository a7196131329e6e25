package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	skillrun "github.com/skillrun/skillrun/clients/go"
)

// waiting is the state of a command that may have to wait for a daemon, for example while the daemon restarts.
type waiting struct {
	most    time.Duration // --wait
	printed string        // the last message of waits, so that it is printed once
	some    bool          // the command has waited
}

// add adds the flag --wait.
func (w *waiting) add(flags *pflag.FlagSet) {
	w.most = skillrun.DefaultPatience.Absent
	flags.Var((*waitTime)(&w.most), "wait", "`time` to wait for a daemon that does not answer, for example during a restart; for a daemon that stops, at least 1m (0: do not wait; the default of doctor and version)")
}

// waitTime is a time of at least 0 on the command line.
type waitTime time.Duration

func (w *waitTime) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return errors.New("want a time such as 250ms, 30s or 1m30s, or 0")
	}
	*w = waitTime(d)
	return nil
}

func (w *waitTime) String() string { return time.Duration(*w).String() }

func (*waitTime) Type() string { return "time" }

// patience returns the patience for --wait. With --wait 0 a broken call is still repeated once.
func (w *waiting) patience() skillrun.Patience {
	p := skillrun.Patience{Absent: w.most, Unreached: w.most > 0}
	if w.most > 0 {
		p.Draining = max(skillrun.DefaultPatience.Draining, w.most)
	}
	return p
}

// patience returns the client's option for --wait.
func (a *app) patience(bars *progress) grpc.DialOption {
	p := a.wait.patience()
	p.OnWait = func(err error) { a.waits(bars, a.at(), skillrun.Reason(err) != "") }
	return skillrun.WithPatience(p)
}

// waits says that the command waits: on a terminal, or anywhere with -v. Scripts get no such message. answered says
// that a daemon answers that it stops.
func (a *app) waits(bars *progress, at string, answered bool) {
	w := &a.wait
	w.some = true
	text := "the daemon at " + at + " does not answer; waiting up to " + w.most.String() + " for it"
	if answered {
		text = "the daemon at " + at + " stops; waiting up to " + max(skillrun.DefaultPatience.Draining, w.most).String() + " for the next one"
	}
	if text == w.printed || bars == nil && !a.verbose {
		return
	}
	w.printed = text
	bars.end()
	a.note("%s (Ctrl-C ends the wait)", text)
}

// A waitError is the error of a command whose daemon did not answer, with a remedy.
type waitError struct {
	error
	remedy string
}

func (e *waitError) Unwrap() error { return e.error }

// gaveUp reports whether a command has waited for the daemon and then failed because the daemon did not answer.
func (w *waiting) gaveUp(ctx context.Context, err error) bool {
	return err != nil && w.some && ctx.Err() == nil && outcomeOf(err) == nil && status.Code(err) == codes.Unavailable
}

// over adds a remedy to err, the error of run or attach, if the command has waited in vain, or if nobody knows whether
// its program has started. e is nil if the daemon has not answered that it accepted the execution. Then key decides:
// with an idempotency key, the daemon may have accepted the request.
func (w *waiting) over(ctx context.Context, key string, e *skillrun.Execution, err error) error {
	switch {
	case e == nil && key == "" && ctx.Err() == nil && skillrun.MayHaveStarted(err):
		return &waitError{err, "the program may have started: 'skillrun ps --all' shows it"}
	case !w.gaveUp(ctx, err):
		return err
	case e != nil:
		return &waitError{err, "the end of the program is not known; when the daemon is back: skillrun attach " + e.ID}
	case key != "":
		return &waitError{err, "the same command with the same --key never runs twice; --wait waits longer"}
	}
	return &waitError{err, "nothing has started; --wait waits longer"}
}
