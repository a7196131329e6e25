package server

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress/budget"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
	"github.com/skillrun/skillrun/internal/toolview"
)

// Waits that a refused caller is told, in google.rpc.RetryInfo.
const (
	// A daemon that restarts is back within a second.
	retryDraining = time.Second
	// Memory, disks and builds do not become free within a second.
	retryFull  = 10 * time.Second
	retryQueue = time.Second
	retryBusy  = time.Second
)

// A verdict is the answer to an error: code, text and details. The contract lists every reason
// (proto/skillrun/v1); a new row needs its line there.
type verdict struct {
	code       codes.Code
	reason     string            // of google.rpc.ErrorInfo; never changes
	field      string            // of google.rpc.BadRequest, as the contract names it
	quota      string            // of google.rpc.QuotaFailure: the resource that is used up
	quotaValue int64             // of google.rpc.QuotaFailure: how much of it there is; 0: not known
	retry      time.Duration     // of google.rpc.RetryInfo
	metadata   map[string]string // of google.rpc.ErrorInfo
	message    string            // empty: the error's text
	log        bool              // the operator must know
}

// A row gives the verdict on one kind of error.
type row func(error) (verdict, bool)

// The errors below are this package's own. Each has its row in the table. Their numbers are bytes
// and sequences; the sums are SHA-256 in hexadecimal.
type (
	unidentifiedError  struct{ err error }
	unknownMethodError struct{ method string }
	sessionError       struct{}
	digestError        struct{ path, want, have string } // of a streamed file
	uploadsFullError   struct{ asked, free int64 }
	uploadTimeError    struct{ limit time.Duration }
	offsetError        struct {
		size   int64
		offset uint64
	}
	sequenceError struct{ after, last uint64 }
)

func (e *unidentifiedError) Error() string  { return "not identified: " + e.err.Error() }
func (e *unknownMethodError) Error() string { return e.method + ": no such method" }
func (e *sessionError) Error() string       { return "session: this version has no sessions" }
func (e *digestError) Error() string {
	return fmt.Sprintf("%s: SHA-256 is %s, but %s was announced", e.path, e.have, e.want)
}
func (e *uploadsFullError) Error() string {
	return fmt.Sprintf("files: %d bytes announced, but only %d are free for streamed files now", e.asked, e.free)
}
func (e *uploadTimeError) Error() string {
	return fmt.Sprintf("files: not complete after %s", e.limit)
}
func (e *offsetError) Error() string {
	return fmt.Sprintf("offset_bytes: %d is past the end, %d", e.offset, e.size)
}
func (e *sequenceError) Error() string {
	return fmt.Sprintf("after_sequence: %d is past the newest event, %d", e.after, e.last)
}

// table is the one table from errors to codes. The first row that fits counts, so a row for a
// wrapping error must come before the row for the error inside. The reasons are part of the
// contract: clients compare them.
//
// InvalidArgument asks the caller for another request. FailedPrecondition asks for a change of the
// skill, the daemon or the machine, or for another state of the execution. A row sets retry if the
// same request may succeed a moment later, without any change.
var table = []row{
	// The call as such.
	typed(func(*unidentifiedError) verdict {
		return verdict{code: codes.Unauthenticated, reason: "UNIDENTIFIED"}
	}),
	typed(func(*unknownMethodError) verdict {
		return verdict{code: codes.Unimplemented, reason: "UNKNOWN_METHOD"}
	}),
	// A message that the codec could not decode.
	typed(func(*messageError) verdict {
		return verdict{code: codes.InvalidArgument, reason: "MALFORMED_MESSAGE", field: "request"} // the decoder doesn't say which
	}),
	typed(func(e *budget.SizeError) verdict {
		return verdict{code: codes.ResourceExhausted, reason: "MESSAGE_TOO_LARGE",
			metadata: map[string]string{"size_bytes": strconv.FormatInt(e.Size, 10), "max_message_bytes": strconv.FormatInt(e.Limit, 10)}}
	}),
	typed(func(*budget.FullError) verdict {
		return verdict{code: codes.ResourceExhausted, reason: "REQUESTS_FULL", quota: "memory for requests", retry: budget.RetryAfter}
	}),
	typed(func(e *executor.RequestError) verdict {
		return verdict{code: codes.InvalidArgument, reason: "INVALID_REQUEST", field: e.Field}
	}),
	typed(func(*sessionError) verdict {
		return verdict{code: codes.Unimplemented, reason: "SESSIONS_NOT_OFFERED"}
	}),
	typed(func(e *offsetError) verdict {
		return verdict{code: codes.OutOfRange, reason: "OFFSET_PAST_END", field: "offset_bytes",
			metadata: map[string]string{"size_bytes": strconv.FormatInt(e.size, 10)}}
	}),
	typed(func(e *sequenceError) verdict {
		return verdict{code: codes.OutOfRange, reason: "OFFSET_PAST_END", field: "after_sequence",
			metadata: map[string]string{"last_sequence": strconv.FormatUint(e.last, 10)}}
	}),

	// Errors in the request.
	typed(func(e *executor.LimitError) verdict {
		v := verdict{code: codes.InvalidArgument, reason: "LIMIT_TOO_LARGE", field: e.Field,
			metadata: map[string]string{"asked": e.Asked, "ceiling": e.Ceiling, "set_by": e.SetBy}}
		if e.TooSmall {
			v.reason, v.metadata = "LIMIT_TOO_SMALL", map[string]string{"asked": e.Asked, "floor": e.Ceiling}
		}
		return v
	}),
	typed(func(e *executor.ArgumentError) verdict {
		v := verdict{code: codes.InvalidArgument, reason: "INVALID_ARGUMENTS", field: "json_arguments"}
		if e.Size > 0 {
			v.reason = "ARGUMENTS_TOO_LARGE"
		}
		return v
	}),
	typed(func(e *executor.InputError) verdict {
		return verdict{code: codes.InvalidArgument, reason: "INVALID_INPUT_FILE", field: "files",
			metadata: map[string]string{"path": e.Path}}
	}),
	typed(func(e *digestError) verdict {
		return verdict{code: codes.DataLoss, reason: "FILE_DIGEST_MISMATCH", metadata: map[string]string{"path": e.path}}
	}),
	typed(func(e *permission.EnvError) verdict {
		return verdict{code: codes.InvalidArgument, reason: "ENV_NOT_ALLOWED", field: e.Field(),
			metadata: map[string]string{"name": e.Name}}
	}),
	typed(func(e *executor.KeyConflictError) verdict {
		return verdict{code: codes.AlreadyExists, reason: "IDEMPOTENCY_KEY_REUSED", metadata: map[string]string{"execution_id": e.ID}}
	}),

	typed(func(e *toolview.UnknownToolError) verdict {
		return verdict{code: codes.NotFound, reason: "UNKNOWN_TOOL", metadata: map[string]string{"tool": e.Name}}
	}),
	typed(func(e *toolview.ArgumentsError) verdict {
		return verdict{code: codes.InvalidArgument, reason: "INVALID_TOOL_ARGUMENTS", field: "arguments_json",
			metadata: map[string]string{"tool": e.Tool, "argument": e.Field}}
	}),

	// Errors that the published contracts name.
	exception(toolview.PathSecurityError, verdict{code: codes.InvalidArgument, reason: "PATH_SECURITY_ERROR", field: "script_path"}),
	exception(toolview.ScriptPermissionError, verdict{code: codes.FailedPrecondition, reason: "SCRIPT_PERMISSION_ERROR"}),
	exception(toolview.InterpreterNotFoundError, verdict{code: codes.FailedPrecondition, reason: "INTERPRETER_NOT_FOUND_ERROR"}),
	exception(toolview.ArgumentSerializationError, verdict{code: codes.InvalidArgument, reason: "ARGUMENT_SERIALIZATION_ERROR", field: "arguments"}),
	exception(toolview.ArgumentSizeError, verdict{code: codes.InvalidArgument, reason: "ARGUMENT_SIZE_ERROR", field: "arguments"}),
	exception(toolview.FileNotFoundError, verdict{code: codes.NotFound, reason: "FILE_NOT_FOUND_ERROR"}),
	exception(toolview.ValueError, verdict{code: codes.InvalidArgument, reason: "VALUE_ERROR"}),
	exception(toolview.OSError, verdict{code: codes.FailedPrecondition, reason: "OS_ERROR"}),
	typed(func(e *toolview.ScriptPathError) verdict {
		v := verdict{code: codes.InvalidArgument, reason: "VALUE_ERROR", field: "script_path", metadata: map[string]string{"error": toolview.ValueError}}
		if e.Missing {
			v.code, v.field = codes.NotFound, ""
		}
		return v
	}),
	typed(func(*toolview.NoSlotError) verdict {
		return verdict{code: codes.ResourceExhausted, reason: "QUEUE_TIMED_OUT", quota: "executions", retry: retryQueue}
	}),

	// The skill.
	typed(func(e *manifest.InvalidNameError) verdict {
		return verdict{code: codes.InvalidArgument, reason: "INVALID_SKILL_NAME", field: "skill"}
	}),
	typed(func(e *skill.InvalidPinError) verdict {
		return verdict{code: codes.InvalidArgument, reason: "INVALID_SKILL_DIGEST", field: "skill"}
	}),
	typed(func(e *skill.AmbiguousError) verdict {
		return verdict{code: codes.InvalidArgument, reason: "AMBIGUOUS_SKILL_NAME", field: "skill",
			metadata: map[string]string{"candidates": strings.Join(e.Candidates, ", ")}}
	}),
	typed(func(e *skill.DigestMismatch) verdict {
		return verdict{code: codes.FailedPrecondition, reason: "DIGEST_MISMATCH",
			metadata: map[string]string{"skill": e.Name, "current_digest": e.Have}}
	}),
	typed(pathVerdict),
	sentinel(skill.ErrNotFound, verdict{code: codes.NotFound, reason: "SKILL_NOT_FOUND"}),
	sentinel(snapshot.ErrBusy, verdict{code: codes.Unavailable, reason: "SKILL_FILE_BUSY", retry: retryBusy}),
	typed(func(e *executor.UnknownExtensionError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: "UNKNOWN_EXTENSION"}
	}),
	typed(func(e *executor.MissingInterpreterError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: "INTERPRETER_MISSING",
			metadata: map[string]string{"interpreter": e.Interpreter}}
	}),
	typed(func(e *executor.LanguageError) verdict {
		return verdict{code: codes.InvalidArgument, reason: "UNKNOWN_LANGUAGE", field: "code.language"}
	}),
	typed(func(e *executor.CodeError) verdict {
		return verdict{code: codes.InvalidArgument, reason: "INVALID_REQUEST", field: "code.text"}
	}),
	typed(func(e *executor.VenvError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: "VENV_UNUSABLE"}
	}),

	// The packages that it needs.
	typed(func(e *executor.PackagesError) verdict {
		metadata := map[string]string{"packages": strings.Join(e.Packages, ", "), "python": e.Python, "fix": e.Fix()}
		if e.Node != "" {
			metadata["node"] = e.Node
		}
		return verdict{code: codes.FailedPrecondition, reason: "PACKAGES_MISSING", metadata: metadata}
	}),
	typed(func(e *executor.SystemPackagesError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: "SYSTEM_PACKAGES_MISSING",
			metadata: map[string]string{"packages": strings.Join(e.Packages, ", "), "fix": e.Fix()}}
	}),
	typed(func(e *executor.InterpreterError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: "PYTHON_VERSION_UNSUITABLE",
			metadata: map[string]string{"script": e.Script, "requires_python": e.Want, "python": e.Python}}
	}),
	typed(func(e *executor.RequirementError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: "REQUIREMENT_INVALID",
			metadata: map[string]string{"requirement": e.Text, "file": e.File, "line": strconv.Itoa(e.Line)}}
	}),
	sentinel(executor.ErrNoPackageSource, verdict{code: codes.FailedPrecondition, reason: "NO_PACKAGE_SOURCE"}),
	// Both mean the same to a caller: an operator must configure how packages are installed.
	sentinel(executor.ErrNoPip, verdict{code: codes.FailedPrecondition, reason: "NO_PACKAGE_SOURCE"}),
	sentinel(executor.ErrNoRegistry, verdict{code: codes.FailedPrecondition, reason: "NO_PACKAGE_SOURCE"}),
	sentinel(executor.ErrNoNpm, verdict{code: codes.FailedPrecondition, reason: "NO_PACKAGE_SOURCE"}),
	typed(func(e *executor.IndexError) verdict {
		return verdict{code: codes.Unavailable, reason: "PACKAGE_INDEX_UNAVAILABLE", metadata: map[string]string{"index": e.Index}}
	}),
	typed(func(e *executor.NoPackageError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: "PACKAGE_NOT_FOUND", metadata: map[string]string{"package": e.Name}}
	}),
	typed(func(*executor.BuildError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: "BUILD_FAILED"}
	}),
	typed(func(*executor.EnvironmentTooLargeError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: "ENVIRONMENT_TOO_LARGE"}
	}),
	typed(func(*executor.BuildsFullError) verdict {
		return verdict{code: codes.ResourceExhausted, reason: "BUILDS_FULL", quota: "builds of environments", retry: retryFull}
	}),

	// Errors of the policy.
	typed(func(e *permission.Denied) verdict {
		v := verdict{code: codes.PermissionDenied, reason: "COMMAND_NOT_ALLOWED",
			metadata: map[string]string{"missing_rule": e.Rule}}
		if e.Instead != "" {
			v.metadata["instead"] = string(e.Instead)
		}
		if e.Command == "" {
			v.reason = "SOURCE_NOT_ALLOWED"
		}
		return v
	}),
	typed(func(e *permission.NetworkRefused) verdict {
		return verdict{code: codes.FailedPrecondition, reason: "NETWORK_NOT_GRANTED"}
	}),

	// Errors about executions, their output and their artifacts.
	sentinel(executor.ErrNotFound, verdict{code: codes.NotFound, reason: "EXECUTION_NOT_FOUND"}),
	sentinel(executor.ErrNoArtifact, verdict{code: codes.NotFound, reason: "ARTIFACT_NOT_FOUND"}),
	typed(func(e *executor.CorruptError) verdict {
		// Only the log has the reason: it can name files of the daemon.
		return verdict{code: codes.DataLoss, reason: "OUTPUT_DAMAGED", metadata: map[string]string{"execution_id": e.ID},
			message: "execution " + e.ID + ": what the daemon has stored of it is damaged", log: true}
	}),
	sentinel(executor.ErrNotRunning, verdict{code: codes.FailedPrecondition, reason: "NOT_RUNNING"}),

	// The daemon has no safe sandboxes, no room, or no time.
	typed(func(e *executor.BoundaryError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: "BOUNDARY_MISSING",
			metadata: map[string]string{"boundaries": strings.Join(e.Names, ", ")}}
	}),
	// The tenant's own doing, and that of all tenants together.
	typed(func(e *executor.QuotaError) verdict {
		return verdict{code: codes.ResourceExhausted, reason: "SATURATED", quota: string(e.Quota), quotaValue: e.Limit, retry: e.RetryAfter,
			metadata: map[string]string{"limit": strconv.FormatInt(e.Limit, 10), "used": strconv.FormatInt(e.Used, 10)}}
	}),
	typed(func(e *executor.SaturatedError) verdict {
		return verdict{code: codes.Unavailable, reason: "SATURATED", retry: e.RetryAfter}
	}),
	typed(func(*uploadsFullError) verdict {
		return verdict{code: codes.ResourceExhausted, reason: "UPLOADS_FULL", quota: "streamed input files", retry: retryFull}
	}),
	typed(func(*uploadTimeError) verdict {
		return verdict{code: codes.DeadlineExceeded, reason: "UPLOAD_TIMED_OUT"}
	}),
	sentinel(executor.ErrDraining, verdict{code: codes.Unavailable, reason: "DRAINING", retry: retryDraining}),
	typed(func(*executor.DiskFullError) verdict { return diskFull }),
	sentinel(syscall.ENOSPC, diskFull),
	sentinel(syscall.EDQUOT, diskFull),
}

// diskFull does not quote the error: it names the daemon's own paths.
var diskFull = verdict{code: codes.ResourceExhausted, reason: "DISK_FULL", quota: "the daemon's disk", retry: retryFull,
	message: "the daemon's disk is full; make room on the disk of its state_dir, or try again later", log: true}

// pathVerdict is about a path into a skill: a script, unless the error says of
// another field that it is there.
func pathVerdict(e *snapshot.PathError) verdict {
	v := verdict{code: codes.InvalidArgument, reason: "INVALID_SKILL_PATH", field: "script",
		metadata: map[string]string{"path": e.Path}}
	switch e.Reason {
	case snapshot.ReasonNotFound:
		v.code, v.reason, v.field = codes.NotFound, "SKILL_FILE_NOT_FOUND", ""
	case snapshot.ReasonEscapes:
		v.reason = "SKILL_PATH_ESCAPES"
	case snapshot.ReasonDirectory:
		v.reason = "SKILL_PATH_IS_DIRECTORY"
	case snapshot.ReasonRefused, snapshot.ReasonLoop:
		v.code, v.reason, v.field = codes.FailedPrecondition, "SKILL_FILE_REFUSED", ""
	}
	return v
}

// A fieldError says in which field of a request the cause of err is, where the
// table can't know. The words of the error are not changed.
type fieldError struct {
	field string
	err   error
}

func (e *fieldError) Error() string { return e.err.Error() }
func (e *fieldError) Unwrap() error { return e.err }

// classify looks an error up. False means that it is ours. An error without a row is answered
// with INTERNAL and logged.
func classify(err error) (verdict, bool) {
	for _, r := range table {
		v, ok := r(err)
		if !ok {
			continue
		}
		// A verdict without a field does not blame the form of the request. It stays so.
		if at, ok := errors.AsType[*fieldError](err); ok && v.field != "" {
			v.field = at.field
		}
		return v, true
	}
	return verdict{}, false
}

// ofCaller reports whether err says no more than that the caller went away or
// ran out of time. Such an error is not logged: it is the caller's own doing.
func ofCaller(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}

// typed is the row of an error type, anywhere in the chain (errors.As). If f sets no message,
// the message is the text of that error alone, without the text of the errors around it.
func typed[E error](f func(E) verdict) row {
	return func(err error) (verdict, bool) {
		e, ok := errors.AsType[E](err)
		if !ok {
			return verdict{}, false
		}
		v := f(e)
		if v.message == "" {
			v.message = e.Error()
		}
		return v, true
	}
}

// exception is the row of one exception of the published contracts.
func exception(name string, v verdict) row {
	return func(err error) (verdict, bool) {
		e, ok := errors.AsType[*toolview.Exception](err)
		if !ok || e.Name != name {
			return verdict{}, false
		}
		v := v
		v.message, v.metadata = e.Text, map[string]string{"error": e.Name}
		if e.Field != "" {
			v.field = e.Field
		}
		return v, true
	}
}

// sentinel is the row of an error value, anywhere in the chain (errors.Is). If v has no
// message, the message is the text of the whole chain.
func sentinel(want error, v verdict) row {
	return func(err error) (verdict, bool) {
		if !errors.Is(err, want) {
			return verdict{}, false
		}
		v := v
		if v.message == "" {
			v.message = err.Error()
		}
		return v, true
	}
}
