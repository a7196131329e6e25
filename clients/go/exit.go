package skillrun

import (
	"fmt"
	"strings"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// An ExitError means that the program did not succeed: it exited with a code other than
// zero, a signal or limit ended it, or it was cancelled. An outcome EXITED without an exit
// code breaks the protocol and counts as a failure, too.
type ExitError struct {
	// ID is the execution's id.
	ID string
	// Outcome says how the execution ended, with the evidence. It is never nil.
	Outcome *pb.ExecutionOutcome
	// Stderr is the end of the program's standard error, at most 32 KiB. Only Output sets
	// it, and only if Cmd.Stderr is nil.
	Stderr []byte
}

// Error says how the program ended, in one line.
func (e *ExitError) Error() string {
	o := e.Outcome
	switch o.GetEnd() {
	case pb.ExecutionEnd_EXECUTION_END_EXITED:
		if o.ExitCode == nil {
			return "exited, but the daemon did not say with which exit code"
		}
		return fmt.Sprintf("exit status %d", o.GetExitCode())
	case pb.ExecutionEnd_EXECUTION_END_SIGNALED:
		return "signal: " + o.GetSignal()
	case pb.ExecutionEnd_EXECUTION_END_TIMED_OUT:
		return "timed out: " + deadline(o.GetEvidence().GetDeadline())
	case pb.ExecutionEnd_EXECUTION_END_OOM_KILLED:
		return "out of memory" + memoryOwner(o.GetEvidence().GetOomScope())
	case pb.ExecutionEnd_EXECUTION_END_CANCELLED:
		text := "cancelled"
		if by := o.GetEvidence().GetCancelledBy(); by != "" {
			text += " by " + by
		}
		if why := o.GetEvidence().GetCancelReason(); why != "" {
			text += ": " + why
		}
		return text
	}
	return word("EXECUTION_END_", o.GetEnd().String())
}

// ExitCode returns the program's exit code, -N if signal N ended it, 124 if it
// timed out, and -1 if no program ran or the daemon did not say.
func (e *ExitError) ExitCode() int {
	if e.Outcome.ExitCode == nil {
		return -1
	}
	return int(e.Outcome.GetExitCode())
}

// A DaemonError means that an accepted execution ended without a result of its program: the
// sandbox could not be made, or the daemon died during the run.
type DaemonError struct {
	ID      string
	Outcome *pb.ExecutionOutcome // SETUP_FAILED or DAEMON_LOST; never nil
}

// Error says in one line why the program has no result.
func (e *DaemonError) Error() string {
	if e.Outcome.GetEnd() == pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED {
		evidence := e.Outcome.GetEvidence()
		return fmt.Sprintf("execution %s: setup failed: %s: %s", e.ID, evidence.GetSetupStep(), evidence.GetSetupError())
	}
	return fmt.Sprintf("execution %s: daemon lost: it died before the execution ended", e.ID)
}

// outcomeError returns the error of Wait for an outcome, or nil for success. It is the only place
// that decides which outcomes count as success.
func outcomeError(id string, o *pb.ExecutionOutcome) error {
	switch {
	case o.GetEnd() == pb.ExecutionEnd_EXECUTION_END_EXITED && o.ExitCode != nil && *o.ExitCode == 0:
		return nil
	case o.GetEnd() == pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED, o.GetEnd() == pb.ExecutionEnd_EXECUTION_END_DAEMON_LOST:
		return &DaemonError{ID: id, Outcome: o}
	}
	return &ExitError{ID: id, Outcome: o}
}

// memoryOwner says whose memory ran out, unless it was the execution's own.
func memoryOwner(scope pb.OomScope) string {
	switch scope {
	case pb.OomScope_OOM_SCOPE_TENANT:
		return " of the tenant"
	case pb.OomScope_OOM_SCOPE_MACHINE:
		return " of the machine"
	}
	return ""
}

// deadline says in words which limit of time has passed.
func deadline(d pb.ExecutionDeadline) string {
	switch d {
	case pb.ExecutionDeadline_EXECUTION_DEADLINE_WALL:
		return "wall time"
	case pb.ExecutionDeadline_EXECUTION_DEADLINE_CPU:
		return "CPU time"
	case pb.ExecutionDeadline_EXECUTION_DEADLINE_QUEUE:
		return "waiting for a slot"
	}
	return "deadline"
}

// word converts an enum's name into words: EXECUTION_END_DAEMON_LOST becomes "daemon lost".
func word(prefix, name string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, prefix), "_", " "))
}
