package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// Exit codes that are not the program's, as docker run and env(1) have them. 128+N for signal N
// is the shell's convention.
const (
	codeTimedOut = 124
	codeFailed   = 125 // the daemon or this command
	codeRefused  = 126
	codeNotFound = 127

	// maxCode is the largest exit code of a process.
	maxCode = 255

	// codeTerminated is 128 + SIGTERM.
	codeTerminated = 143
	// codeKilled is 128 + SIGKILL.
	codeKilled = 137
)

// A verdict is an answer that is no: the command did its work and said so on standard output.
// exit prints nothing for it. It is an error only because cobra's RunE has no other result for an
// exit code.
type verdict int

func (v verdict) Error() string { return fmt.Sprintf("exit code %d", int(v)) }

// A codedError is found out on this side, with the exit code that the daemon's
// answer would have had. Its text is complete: explain prints it without a reason or a hint.
type codedError struct {
	code int
	text string
}

func (e *codedError) Error() string { return e.text }

// exit prints a command's error to stderr, unless notices did, and returns the exit code. The
// order of the cases is the contract of the exit codes: a verdict, then the signal that the user
// sent, then the program's end, then the kind of the error. After Ctrl-C the code is 130
// even if the cancelled program then exited with another code.
func (a *app) exit(ctx context.Context, err error) int {
	if err == nil {
		return 0
	}
	if v := verdict(0); errors.As(err, &v) {
		return int(v)
	}
	// Any command can have waited in vain. run and attach have said so already, with a remedy for their case.
	if vain := (*waitError)(nil); a.wait.gaveUp(ctx, err) && !errors.As(err, &vain) {
		err = &waitError{err, "--wait waits longer"}
	}
	outcome := outcomeOf(err)
	ended := outcome != nil // and notices have said how
	by := (*interrupt)(nil)
	interrupted := errors.As(context.Cause(ctx), &by)
	if !ended {
		text := a.explain(err)
		if interrupted {
			// "context canceled" is Go's text for a cause that the user knows as Ctrl-C.
			text = strings.Replace(text, context.Canceled.Error(), by.Error(), 1)
		}
		fmt.Fprintf(a.stderr, "skillrun: %s\n", text)
	}
	if interrupted {
		return by.code()
	}
	if ended {
		return outcomeCode(outcome)
	}
	return errorCode(err)
}

// outcomeOf returns the outcome in an error of Wait, or nil. Only these two types mean that the
// execution ended and that ended has printed its notices.
func outcomeOf(err error) *pb.ExecutionOutcome {
	if exit := (*skillrun.ExitError)(nil); errors.As(err, &exit) {
		return exit.Outcome
	}
	if lost := (*skillrun.DaemonError)(nil); errors.As(err, &lost) {
		return lost.Outcome
	}
	return nil
}

// outcomeCode is the exit code for a program that did not succeed: never 0. The contract's exit
// code is -N for signal N; a process can only leave 128+N. A program that a limit or a cancel
// ended may still have exited with 0 in its grace; it gets the code of the signal that would have
// followed.
func outcomeCode(o *pb.ExecutionOutcome) int {
	code := int(o.GetExitCode())
	if code < 0 {
		code = 128 - code
	}
	switch o.GetEnd() {
	case pb.ExecutionEnd_EXECUTION_END_TIMED_OUT:
		if o.GetEvidence().GetDeadline() == pb.ExecutionDeadline_EXECUTION_DEADLINE_QUEUE {
			return codeFailed // nothing ran
		}
		return codeTimedOut
	case pb.ExecutionEnd_EXECUTION_END_OOM_KILLED:
		if code == 0 {
			return codeKilled
		}
	case pb.ExecutionEnd_EXECUTION_END_CANCELLED:
		if code == 0 {
			return codeTerminated
		}
	case pb.ExecutionEnd_EXECUTION_END_EXITED, pb.ExecutionEnd_EXECUTION_END_SIGNALED:
	// SETUP_FAILED, DAEMON_LOST, or an end that this client does not know.
	default:
		return codeFailed
	}
	// The daemon contradicts itself, or the code has no room in the byte that a process
	// leaves: 256 would be 0.
	if code <= 0 || code > maxCode {
		return codeFailed
	}
	return code
}

// errorCode is the exit code for an error of this command or of the daemon. The reasons are
// exceptions from the rule by gRPC code. An error without a gRPC status, such as a file that
// can't be read, is 125.
func errorCode(err error) int {
	if coded := (*codedError)(nil); errors.As(err, &coded) {
		return coded.code
	}
	if skillrun.NoToken(err) != "" {
		return codeFailed // the daemon was not asked
	}
	switch skillrun.Reason(err) {
	case "INTERPRETER_MISSING":
		return codeNotFound
	case "SATURATED", "SKILL_QUOTA_EXCEEDED": // nothing ran, nothing was pushed
		return codeRefused
	}
	switch status.Code(err) {
	case codes.NotFound:
		return codeNotFound
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument,
		codes.FailedPrecondition, codes.AlreadyExists, codes.OutOfRange:
		return codeRefused
	}
	return codeFailed
}
