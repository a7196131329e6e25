package toolview

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// The exceptions of the published contract of ScriptExecutor.execute.
const (
	PathSecurityError          = "PathSecurityError"
	ScriptPermissionError      = "ScriptPermissionError"
	InterpreterNotFoundError   = "InterpreterNotFoundError"
	ArgumentSerializationError = "ArgumentSerializationError"
	ArgumentSizeError          = "ArgumentSizeError"
	FileNotFoundError          = "FileNotFoundError"
	ValueError                 = "ValueError"
	OSError                    = "OSError"
)

// An Exception is an exception that a published contract raises.
type Exception struct {
	Name string // one of the constants
	Text string // the result of str()
	// Field is the wrong field of the request, if the name alone does not tell it.
	Field string
}

func (e *Exception) Error() string { return e.Text }

// raise makes an exception. Its text is part of the contract: tests compare it byte for byte.
func raise(name, format string, args ...any) *Exception {
	return &Exception{Name: name, Text: fmt.Sprintf(format, args...)}
}

// ofField is a ValueError about one field.
func ofField(field, format string, args ...any) *Exception {
	e := raise(ValueError, format, args...)
	e.Field = field
	return e
}

// TimeoutOutOfRange returns the exception for a timeout out of range.
func TimeoutOutOfRange(d time.Duration) *Exception {
	return ofField("timeout", "Timeout must be above 0 and at most %s seconds, got %s", secondsText(MaxScriptTimeout), secondsText(d))
}

// A NoSlotError reports that no slot became free in time. Nothing ran.
type NoSlotError struct{ Advice string }

func (e *NoSlotError) Error() string { return e.Advice }

// raised returns the error of a run that is not a result of the script: nothing ran, or
// the run was cancelled. Otherwise nil.
// An end of the program itself, such as a timeout or a signal, is a result with its exit code.
func (r run) raised() error {
	switch r.End {
	case executor.TimedOut:
		if r.Evidence.Deadline == executor.QueueDeadline {
			return &NoSlotError{Advice: r.why()}
		}
	case executor.Cancelled:
		return raise(OSError, "Script did not run to its end. %s", r.why())
	case executor.SetupFailed:
		return r.setupError()
	}
	return nil
}

// timeLimit returns the limit that a timed-out run exceeded. It has a meaning only if the run
// timed out while its program ran.
func (r run) timeLimit() time.Duration {
	if r.Evidence.Deadline == executor.CPUDeadline {
		return r.Limits.CPU
	}
	return r.Limits.Wall
}

// setupError says why nothing ran: an OSError if the request is the cause, else an internal
// error. The executor explains only these three steps to callers; the error of any other step
// names this machine.
func (r run) setupError() error {
	switch r.Evidence.SetupStep {
	case "exec", "directory", "memory":
		return raise(OSError, "%s", r.Evidence.SetupError)
	}
	return fmt.Errorf("execution %s: setup failed at step %q", r.id, r.Evidence.SetupStep)
}

// refuseScript converts a refusal to the contract's exception. Other errors stay as they
// are.
// The line about a security violation is part of the contract as well (docs/contracts.md).
func (v *View) refuseScript(ctx context.Context, sk *skill.Skill, req ScriptRequest, err error) error {
	if e, ok := errors.AsType[*snapshot.PathError](err); ok {
		x := pathException(sk, req.ScriptPath, e)
		if x.Name == PathSecurityError {
			v.log.WarnContext(ctx, fmt.Sprintf("Security violation: Path traversal attempt: skill=%s, script=%s", auditValue(sk.Name), auditValue(clip(req.ScriptPath))))
		}
		return x
	}
	if e, ok := errors.AsType[*executor.ArgumentError](err); ok {
		if e.Size > 0 {
			return raise(ArgumentSizeError, "%s", e)
		}
		return Unserializable(errors.New(e.Reason))
	}
	if e, ok := errors.AsType[*executor.LimitError](err); ok {
		e := limitOfTool(e)
		return ofField(e.Field, "%s", e)
	}
	if is[*executor.UnknownExtensionError](err) || is[*executor.MissingInterpreterError](err) || is[*executor.VenvError](err) {
		return raise(InterpreterNotFoundError, "%s", err)
	}
	return err
}

// limitOfTool renames the limit of an error to the tool's name for it.
func limitOfTool(e *executor.LimitError) *executor.LimitError {
	of := *e
	switch e.Field {
	case "limits.wall_time":
		of.Field = "timeout"
	case "limits.output_bytes":
		of.Field = "max_output_size"
	}
	return &of
}

// pathException returns the contract's exception for a path.
// asked is the path as the caller wrote it. Resolved paths are paths of the sandbox, never of this
// machine.
func pathException(sk *skill.Skill, asked string, e *snapshot.PathError) *Exception {
	resolved := path.Join(sk.BaseDir(), e.Resolved)
	switch e.Reason {
	case snapshot.ReasonOutside:
		return raise(PathSecurityError, "Script path outside skill directory: %s", sk.BaseDir())
	case snapshot.ReasonEscapes:
		return raise(PathSecurityError, "Script path escapes skill directory: %s", asked)
	case snapshot.ReasonLoop:
		return raise(PathSecurityError, "Script path has too many links: %s", asked)
	case snapshot.ReasonNotFound, snapshot.ReasonDirectory:
		return raise(FileNotFoundError, "Script not found: %s", resolved)
	// The snapshot has noted why it refuses an entry, so that two different texts of the contract can be told apart.
	case snapshot.ReasonRefused:
		switch e.Refused.Why {
		case snapshot.SetID:
			return setIDException(asked, e.Refused.Mode)
		case snapshot.NotRegular:
			return raise(FileNotFoundError, "Script not found: %s (it %s)", resolved, e.Refused.Reason)
		}
		return raise(OSError, "Permission denied: %s %s", asked, e.Refused.Reason)
	}
	return raise(PathSecurityError, "Script path is not valid: %s", strings.ToValidUTF8(asked, "\uFFFD"))
}

// setIDException has first the text of the published document, then the text of the library
// that the document describes.
func setIDException(asked string, mode uint32) *Exception {
	setuid, setgid := mode&0o4000 != 0, mode&0o2000 != 0
	bit := "setuid"
	if !setuid {
		bit = "setgid"
	}
	return raise(ScriptPermissionError, `Script has %s bit: %s
Script has dangerous permissions: %[2]s
  Mode: 0o%[3]o
  Setuid: %[4]s
  Setgid: %[5]s
  Recommendation: Remove the setuid and setgid bits with: chmod u-s,g-s %[2]s`,
		bit, asked, mode, pythonBool(setuid), pythonBool(setgid))
}

// pythonBool is str() of a Python bool.
func pythonBool(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

// Unserializable returns the exception for arguments that cannot become JSON text.
func Unserializable(err error) *Exception {
	return raise(ArgumentSerializationError, "Cannot serialize arguments: %s", err)
}
