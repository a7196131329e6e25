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

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/ingress/budget"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/session"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
	"github.com/skillrun/skillrun/internal/toolview"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
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

// A verdict is the answer to an error: code, text and details. The contract (error.proto) says
// which keys the metadata of each reason has.
// The zero value of a field leaves its detail out.
type verdict struct {
	code       codes.Code
	reason     pb.ErrorReason     // of google.rpc.ErrorInfo
	field      string             // of google.rpc.BadRequest, as the contract names it
	quota      string             // of google.rpc.QuotaFailure: the resource that is used up
	quotaKey   string             // of google.rpc.QuotaFailure: the key of a tenant's quota; empty: it is not one
	quotaValue int64              // of google.rpc.QuotaFailure: how much of it there is; 0: not known
	retry      time.Duration      // of google.rpc.RetryInfo
	spread     bool               // retry is longer by up to a half, at random, so that callers do not all come back at once
	metadata   map[string]string  // of google.rpc.ErrorInfo
	findings   []manifest.Finding // of google.rpc.BadRequest, in place of field
	message    string             // empty: the error's text
	log        bool               // the operator must know
}

// A row gives the verdict on one kind of error.
type row func(error) (verdict, bool)

// The errors below are this package's own. Each has its row in the table. Their numbers are bytes
// and sequences; the sums are SHA-256 in hexadecimal.
type (
	unidentifiedError  struct{ err error }
	unknownMethodError struct{ method string }
	roleError          struct {
		who  identity.Identity
		need identity.Role // None: the method has no row in accessTable
	}
	digestError      struct{ path, want, have string } // of a streamed file
	uploadsFullError struct{ asked, free int64 }
	uploadTimeError  struct{ limit time.Duration }
	pushesFullError  struct{ limit int } // of one tenant at the same time
	putsFullError    struct{ reason string }
	offsetError      struct {
		size   int64
		offset uint64
	}
	sequenceError struct{ after, last uint64 }
)

func (e *unidentifiedError) Error() string  { return "not identified: " + e.err.Error() }
func (e *unknownMethodError) Error() string { return e.method + ": no such method" }
func (e *roleError) Error() string {
	if e.need == identity.None {
		return "no role may call this method"
	}
	return fmt.Sprintf("this call needs the role %s; %s of tenant %s has %s", e.need, e.who.Name, e.who.Tenant, e.who.Role)
}
func (e *digestError) Error() string {
	return fmt.Sprintf("%s: SHA-256 is %s, but %s was announced", e.path, e.have, e.want)
}
func (e *uploadsFullError) Error() string {
	return fmt.Sprintf("files: %d bytes announced, but only %d are free for streamed files now", e.asked, e.free)
}
func (e *uploadTimeError) Error() string {
	return fmt.Sprintf("files: not complete after %s", e.limit)
}
func (e *pushesFullError) Error() string {
	return fmt.Sprintf("%d pushes of the tenant are under way, which is the maximum; retry when one has ended", e.limit)
}
func (e *putsFullError) Error() string { return e.reason + "; retry when one has ended" }
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
		return verdict{code: codes.Unauthenticated, reason: pb.ErrorReason_ERROR_REASON_UNIDENTIFIED}
	}),
	typed(func(*unknownMethodError) verdict {
		return verdict{code: codes.Unimplemented, reason: pb.ErrorReason_ERROR_REASON_UNKNOWN_METHOD}
	}),
	typed(func(e *roleError) verdict {
		return verdict{code: codes.PermissionDenied, reason: pb.ErrorReason_ERROR_REASON_ROLE_REQUIRED,
			metadata: map[string]string{"role": e.who.Role.String(), "requiredRole": e.need.String()}}
	}),
	typed(func(e *executor.UnknownTenantError) verdict {
		return verdict{code: codes.PermissionDenied, reason: pb.ErrorReason_ERROR_REASON_TENANT_UNKNOWN, metadata: map[string]string{"tenant": e.Tenant}}
	}),
	typed(func(e *executor.TenantConfiguredError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_TENANT_CONFIGURED, metadata: map[string]string{"tenant": e.Tenant}}
	}),
	typed(func(e *executor.TenantBusyError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_TENANT_BUSY, metadata: map[string]string{"tenant": e.Tenant}}
	}),
	// A message that the codec could not decode.
	typed(func(*messageError) verdict {
		return verdict{code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_MALFORMED_MESSAGE, field: "request"} // the decoder doesn't say which
	}),
	typed(func(e *budget.SizeError) verdict {
		return verdict{code: codes.ResourceExhausted, reason: pb.ErrorReason_ERROR_REASON_MESSAGE_TOO_LARGE,
			metadata: map[string]string{"sizeBytes": strconv.FormatInt(e.Size, 10), "maxMessageBytes": strconv.FormatInt(e.Limit, 10)}}
	}),
	typed(func(*budget.FullError) verdict {
		return verdict{code: codes.Unavailable, reason: pb.ErrorReason_ERROR_REASON_REQUESTS_FULL, retry: budget.RetryAfter, spread: true}
	}),
	typed(func(*ingress.FullError) verdict {
		return verdict{code: codes.Unavailable, reason: pb.ErrorReason_ERROR_REASON_CONNECTIONS_FULL, retry: retryFull, spread: true}
	}),
	typed(func(e *executor.RequestError) verdict {
		return verdict{code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_INVALID_REQUEST, field: e.Field}
	}),
	typed(func(e *offsetError) verdict {
		return verdict{code: codes.OutOfRange, reason: pb.ErrorReason_ERROR_REASON_OFFSET_PAST_END, field: "offset_bytes",
			metadata: map[string]string{"sizeBytes": strconv.FormatInt(e.size, 10)}}
	}),
	typed(func(e *sequenceError) verdict {
		return verdict{code: codes.OutOfRange, reason: pb.ErrorReason_ERROR_REASON_OFFSET_PAST_END, field: "after_sequence",
			metadata: map[string]string{"lastSequence": strconv.FormatUint(e.last, 10)}}
	}),

	// Errors in the request.
	typed(func(e *executor.LimitError) verdict {
		v := verdict{code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_LIMIT_TOO_LARGE, field: e.Field,
			metadata: map[string]string{"asked": e.Asked, "ceiling": e.Ceiling, "setBy": e.SetBy}}
		if e.TooSmall {
			v.reason, v.metadata = pb.ErrorReason_ERROR_REASON_LIMIT_TOO_SMALL, map[string]string{"asked": e.Asked, "floor": e.Ceiling}
		}
		return v
	}),
	typed(func(e *executor.ArgumentError) verdict {
		v := verdict{code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_INVALID_ARGUMENTS, field: "json_arguments"}
		if e.Size > 0 {
			v.reason = pb.ErrorReason_ERROR_REASON_ARGUMENTS_TOO_LARGE
		}
		return v
	}),
	typed(func(e *executor.InputError) verdict {
		return verdict{code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_INVALID_INPUT_FILE, field: "files",
			metadata: map[string]string{"path": e.Path}}
	}),
	typed(func(e *digestError) verdict {
		return verdict{code: codes.DataLoss, reason: pb.ErrorReason_ERROR_REASON_FILE_DIGEST_MISMATCH, metadata: map[string]string{"path": e.path}}
	}),
	typed(func(e *permission.EnvError) verdict {
		return verdict{code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_ENV_NOT_ALLOWED, field: e.Field(),
			metadata: map[string]string{"name": e.Name}}
	}),
	typed(func(e *executor.KeyConflictError) verdict {
		return verdict{code: codes.AlreadyExists, reason: pb.ErrorReason_ERROR_REASON_IDEMPOTENCY_KEY_REUSED, metadata: map[string]string{"executionId": e.ID}}
	}),

	typed(func(e *toolview.UnknownToolError) verdict {
		return verdict{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_UNKNOWN_TOOL, metadata: map[string]string{"tool": e.Name}}
	}),
	typed(func(e *toolview.ArgumentsError) verdict {
		return verdict{code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_INVALID_TOOL_ARGUMENTS, field: "arguments_json",
			metadata: map[string]string{"tool": e.Tool, "argument": e.Field}}
	}),

	// Errors that the published contracts name.
	exception(toolview.PathSecurityError, verdict{code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_PATH_SECURITY_ERROR, field: "script_path"}),
	exception(toolview.ScriptPermissionError, verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_SCRIPT_PERMISSION_ERROR}),
	exception(toolview.InterpreterNotFoundError, verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_INTERPRETER_NOT_FOUND_ERROR}),
	exception(toolview.ArgumentSerializationError, verdict{code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_ARGUMENT_SERIALIZATION_ERROR, field: "arguments"}),
	exception(toolview.ArgumentSizeError, verdict{code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_ARGUMENT_SIZE_ERROR, field: "arguments"}),
	exception(toolview.FileNotFoundError, verdict{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_FILE_NOT_FOUND_ERROR}),
	exception(toolview.ValueError, verdict{code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_VALUE_ERROR}),
	exception(toolview.OSError, verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_OS_ERROR}),
	typed(func(e *toolview.ScriptPathError) verdict {
		v := verdict{code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_VALUE_ERROR, field: "script_path", metadata: map[string]string{"error": toolview.ValueError}}
		if e.Missing {
			v.code, v.field = codes.NotFound, ""
		}
		return v
	}),
	typed(func(*toolview.NoSlotError) verdict {
		return verdict{code: codes.ResourceExhausted, reason: pb.ErrorReason_ERROR_REASON_QUEUE_TIMED_OUT, quota: "executions", retry: retryQueue}
	}),

	// The skill.
	typed(func(e *manifest.InvalidNameError) verdict {
		return verdict{code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_INVALID_SKILL_NAME, field: "skill",
			metadata: map[string]string{"skill": e.Name}}
	}),
	typed(func(e *skill.InvalidPinError) verdict {
		return verdict{code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_INVALID_SKILL_DIGEST, field: "skill",
			metadata: map[string]string{"skill": e.Name}}
	}),
	typed(func(e *skill.AmbiguousError) verdict {
		return verdict{code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_AMBIGUOUS_SKILL_NAME, field: "skill",
			metadata: map[string]string{"skill": e.Name, "candidates": strings.Join(e.Candidates, ", ")}}
	}),
	typed(func(e *skill.DigestMismatch) verdict {
		return verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_DIGEST_MISMATCH,
			metadata: map[string]string{"skill": e.Name, "currentDigest": e.Have}}
	}),
	typed(func(e *skill.InvalidSkillError) verdict {
		return verdict{code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_SKILL_INVALID, findings: e.Findings, metadata: map[string]string{"skill": e.Name}}
	}),
	typed(func(e *skill.QuotaError) verdict {
		return verdict{code: codes.ResourceExhausted, reason: pb.ErrorReason_ERROR_REASON_SKILL_QUOTA_EXCEEDED, quota: e.Quota, quotaValue: e.Limit,
			metadata: map[string]string{"limit": strconv.FormatInt(e.Limit, 10), "used": strconv.FormatInt(e.Used, 10)}}
	}),
	typed(func(e *skill.NotPushedError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_SKILL_NOT_PUSHED, metadata: map[string]string{"skill": e.Name}}
	}),
	typed(func(e *skill.DamagedError) verdict {
		about := map[string]string{}
		if e.Name != "" {
			about["skill"], about["digest"] = e.Name, e.Digest
		}
		return verdict{code: codes.DataLoss, reason: pb.ErrorReason_ERROR_REASON_SKILL_DAMAGED, message: e.Error(), metadata: about, log: true}
	}),
	typed(func(e *skill.ReservedNameError) verdict {
		return verdict{code: codes.AlreadyExists, reason: pb.ErrorReason_ERROR_REASON_SKILL_NAME_RESERVED, metadata: map[string]string{"skill": e.Name}}
	}),
	typed(func(e *skill.SourceError) verdict {
		return verdict{code: codes.PermissionDenied, reason: pb.ErrorReason_ERROR_REASON_SKILL_SOURCE_NOT_ALLOWED, metadata: map[string]string{"host": e.Host}}
	}),
	typed(pathVerdict),
	typed(func(e *skill.NotFoundError) verdict {
		return verdict{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_SKILL_NOT_FOUND, metadata: map[string]string{"skill": e.Name}}
	}),
	sentinel(snapshot.ErrBusy, verdict{code: codes.Unavailable, reason: pb.ErrorReason_ERROR_REASON_SKILL_FILE_BUSY, retry: retryBusy}),
	typed(func(e *executor.UnknownExtensionError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_UNKNOWN_EXTENSION,
			metadata: map[string]string{"extension": e.Ext}}
	}),
	typed(func(e *executor.MissingInterpreterError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_INTERPRETER_MISSING,
			metadata: map[string]string{"interpreter": e.Interpreter}}
	}),
	typed(func(e *executor.LanguageError) verdict {
		return verdict{code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_UNKNOWN_LANGUAGE, field: "code.language",
			metadata: map[string]string{"language": e.Language}}
	}),
	typed(func(e *executor.CodeError) verdict {
		return verdict{code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_INVALID_REQUEST, field: "code.text"}
	}),
	typed(func(e *executor.VenvError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_VENV_UNUSABLE, metadata: map[string]string{"skill": e.Skill}}
	}),

	// The packages that it needs.
	typed(func(e *executor.PackagesError) verdict {
		metadata := map[string]string{"packages": strings.Join(e.Packages, ", "), "python": e.Python, "fix": e.Fix()}
		if e.Node != "" {
			metadata["node"] = e.Node
		}
		return verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_PACKAGES_MISSING, metadata: metadata}
	}),
	typed(func(e *executor.SystemPackagesError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_SYSTEM_PACKAGES_MISSING,
			metadata: map[string]string{"packages": strings.Join(e.Packages, ", "), "fix": e.Fix()}}
	}),
	typed(func(e *executor.InterpreterError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_PYTHON_VERSION_UNSUITABLE,
			metadata: map[string]string{"script": e.Script, "requiresPython": e.Want, "python": e.Python}}
	}),
	typed(func(e *executor.RequirementError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_REQUIREMENT_INVALID,
			metadata: map[string]string{"requirement": e.Text, "file": e.File, "line": strconv.Itoa(e.Line)}}
	}),
	sentinel(executor.ErrNoPackageSource, verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_NO_PACKAGE_SOURCE}),
	// Both mean the same to a caller: an operator must configure how packages are installed.
	sentinel(executor.ErrNoPip, verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_NO_PACKAGE_SOURCE}),
	sentinel(executor.ErrNoRegistry, verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_NO_PACKAGE_SOURCE}),
	sentinel(executor.ErrNoNpm, verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_NO_PACKAGE_SOURCE}),
	typed(func(e *executor.IndexError) verdict {
		return verdict{code: codes.Unavailable, reason: pb.ErrorReason_ERROR_REASON_PACKAGE_INDEX_UNAVAILABLE, metadata: map[string]string{"index": e.Index}}
	}),
	typed(func(e *executor.NoPackageError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_PACKAGE_NOT_FOUND, metadata: map[string]string{"package": e.Name}}
	}),
	typed(func(*executor.BuildError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_BUILD_FAILED}
	}),
	typed(func(*executor.EnvironmentTooLargeError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_ENVIRONMENT_TOO_LARGE}
	}),
	typed(func(e *executor.BuildsFullError) verdict {
		return verdict{code: codes.Unavailable, reason: pb.ErrorReason_ERROR_REASON_BUILDS_FULL, retry: e.RetryAfter, spread: true}
	}),

	// Errors of the policy.
	typed(func(e *permission.Denied) verdict {
		v := verdict{code: codes.PermissionDenied, reason: pb.ErrorReason_ERROR_REASON_COMMAND_NOT_ALLOWED,
			metadata: map[string]string{"missingRule": e.Rule}}
		if e.Instead != "" {
			v.metadata["instead"] = string(e.Instead)
		}
		if e.Command == "" {
			v.reason = pb.ErrorReason_ERROR_REASON_SOURCE_NOT_ALLOWED
		}
		return v
	}),
	typed(func(e *permission.NetworkRefused) verdict {
		return verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_NETWORK_NOT_GRANTED, metadata: map[string]string{"skill": e.Skill}}
	}),
	// The error itself may have a path of the machine.
	typed(func(e *credential.UnavailableError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_CREDENTIAL_UNAVAILABLE,
			metadata: map[string]string{"credential": e.Credential}, log: true,
			message: "the daemon can't read the secret or the ca_file of the credential " + e.Credential + ", which the skill may use; the daemon's log and skillrun doctor say why"}
	}),

	// Errors about executions, their output and their artifacts.
	typed(func(e *executor.NotFoundError) verdict {
		return verdict{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_EXECUTION_NOT_FOUND, metadata: map[string]string{"executionId": e.ID}}
	}),
	typed(func(e *executor.NoArtifactError) verdict {
		return verdict{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_ARTIFACT_NOT_FOUND,
			metadata: map[string]string{"executionId": e.ID, "path": e.Path}}
	}),
	typed(func(e *executor.CorruptError) verdict {
		// Only the log has the reason: it can name files of the daemon.
		v := verdict{code: codes.DataLoss, reason: pb.ErrorReason_ERROR_REASON_OUTPUT_DAMAGED, metadata: map[string]string{"executionId": e.ID},
			message: "execution " + e.ID + ": its stored data is damaged", log: true}
		if e.ID == "" {
			v.metadata, v.message = nil, "the record of executions is damaged; the daemon's log says where"
		}
		return v
	}),
	typed(func(e *executor.NotRunningError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_NOT_RUNNING, metadata: map[string]string{"executionId": e.ID}}
	}),
	typed(func(e *executor.NotEndedError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_NOT_ENDED, metadata: map[string]string{"executionId": e.ID}}
	}),

	// Errors about sessions.
	sentinel(session.ErrNotFound, verdict{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND}),
	typed(func(e *session.BusyError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_SESSION_BUSY,
			metadata: map[string]string{"sessionId": e.ID, "writer": e.Writer}}
	}),
	typed(func(e *session.QuotaError) verdict {
		return verdict{code: codes.ResourceExhausted, reason: pb.ErrorReason_ERROR_REASON_SESSION_QUOTA, quota: "sessions", quotaKey: e.Quota, quotaValue: e.Limit,
			metadata: map[string]string{"quota": e.Quota, "limit": strconv.FormatInt(e.Limit, 10)}}
	}),
	typed(func(e *session.SettingsError) verdict {
		return verdict{code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_INVALID_REQUEST, field: e.Setting}
	}),
	typed(func(e *session.PathError) verdict {
		return verdict{code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_INVALID_INPUT_FILE, field: "header.path",
			metadata: map[string]string{"path": e.Path}}
	}),
	typed(func(e *session.DamagedError) verdict {
		about := map[string]string{"sessionId": e.ID}
		if e.Version > 0 {
			about["version"] = strconv.Itoa(e.Version)
		}
		return verdict{code: codes.DataLoss, reason: pb.ErrorReason_ERROR_REASON_SESSION_DAMAGED, metadata: about, log: true}
	}),
	sentinel(session.ErrClosed, verdict{code: codes.Unavailable, reason: pb.ErrorReason_ERROR_REASON_DRAINING, retry: retryDraining}),
	// The next daemon answers on another connection.
	func(err error) (verdict, bool) {
		return verdict{code: codes.Unavailable, reason: pb.ErrorReason_ERROR_REASON_DRAINING, retry: retryDraining, message: err.Error()}, executor.IsHandedOver(err)
	},

	// The daemon has no safe sandboxes, no room, or no time.
	typed(func(e *executor.BoundaryError) verdict {
		return verdict{code: codes.FailedPrecondition, reason: pb.ErrorReason_ERROR_REASON_BOUNDARY_MISSING,
			metadata: map[string]string{"boundaries": strings.Join(e.Names, ", ")}}
	}),
	// QuotaError: the tenant's own executions are the reason. SaturatedError: all tenants together are.
	typed(func(e *executor.QuotaError) verdict {
		return verdict{code: codes.ResourceExhausted, reason: pb.ErrorReason_ERROR_REASON_SATURATED, quota: string(e.Quota), quotaKey: e.Quota.Key(), quotaValue: e.Limit, retry: e.RetryAfter,
			metadata: map[string]string{"quota": e.Quota.Key(), "limit": strconv.FormatInt(e.Limit, 10), "used": strconv.FormatInt(e.Used, 10)}}
	}),
	typed(func(e *executor.SaturatedError) verdict {
		return verdict{code: codes.Unavailable, reason: pb.ErrorReason_ERROR_REASON_SATURATED, retry: e.RetryAfter}
	}),
	typed(func(*uploadsFullError) verdict {
		return verdict{code: codes.Unavailable, reason: pb.ErrorReason_ERROR_REASON_UPLOADS_FULL, retry: retryFull, spread: true}
	}),
	typed(func(*uploadTimeError) verdict {
		return verdict{code: codes.DeadlineExceeded, reason: pb.ErrorReason_ERROR_REASON_UPLOAD_TIMED_OUT}
	}),
	typed(func(*pushesFullError) verdict {
		return verdict{code: codes.ResourceExhausted, reason: pb.ErrorReason_ERROR_REASON_UPLOADS_FULL, quota: "pushes of skills", retry: retryFull}
	}),
	typed(func(*putsFullError) verdict {
		return verdict{code: codes.ResourceExhausted, reason: pb.ErrorReason_ERROR_REASON_UPLOADS_FULL, quota: "uploads to sessions", retry: retryFull}
	}),
	sentinel(executor.ErrDraining, verdict{code: codes.Unavailable, reason: pb.ErrorReason_ERROR_REASON_DRAINING, retry: retryDraining}),
	typed(func(*audit.UnavailableError) verdict { // before ENOSPC, which can be its cause
		return verdict{code: codes.Unavailable, reason: pb.ErrorReason_ERROR_REASON_AUDIT_UNAVAILABLE, retry: retryFull, spread: true}
	}),
	typed(func(*executor.DiskFullError) verdict { return diskFull }),
	sentinel(syscall.ENOSPC, diskFull),
	sentinel(syscall.EDQUOT, diskFull),
}

// diskFull does not quote the error: it names the daemon's own paths.
var diskFull = verdict{code: codes.Unavailable, reason: pb.ErrorReason_ERROR_REASON_DISK_FULL, retry: retryFull, spread: true,
	message: "the daemon's disk is full; make room on the disk of its state_dir, or try again later", log: true}

// pathVerdict is about a path into a skill: a script, unless the error says of
// another field that it is there.
func pathVerdict(e *snapshot.PathError) verdict {
	v := verdict{code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_INVALID_SKILL_PATH, field: "script",
		metadata: map[string]string{"path": e.Path}}
	switch e.Reason {
	case snapshot.ReasonNotFound:
		v.code, v.reason, v.field = codes.NotFound, pb.ErrorReason_ERROR_REASON_SKILL_FILE_NOT_FOUND, ""
	case snapshot.ReasonEscapes:
		v.reason = pb.ErrorReason_ERROR_REASON_SKILL_PATH_ESCAPES
	case snapshot.ReasonDirectory:
		v.reason = pb.ErrorReason_ERROR_REASON_SKILL_PATH_IS_DIRECTORY
	case snapshot.ReasonRefused, snapshot.ReasonLoop:
		v.code, v.reason, v.field = codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_SKILL_FILE_REFUSED, ""
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
// The search is linear. Errors are rare, and the order of the rows has a meaning.
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
// The check of ctx matters: a deadline within the daemon, such as a build's, gives the same errors.
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
// The exceptions share one Go type, since only their names and texts are published.
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
