package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/executor/executortest"
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

// path is the error of a path into a skill.
func path(reason snapshot.Reason) error {
	return &snapshot.PathError{Path: "scripts/x.py", Reason: reason, Refused: &snapshot.Refused{Path: "scripts", Reason: "is a link that leaves the skill"}}
}

var errorCases = []struct {
	err   error
	want  refusal
	meta  map[string]string
	retry time.Duration
	quota string
}{
	{err: &unidentifiedError{errors.New("no token")}, want: refusal{codes.Unauthenticated, "UNIDENTIFIED", ""}},
	{err: &unknownMethodError{"/a/b"}, want: refusal{codes.Unimplemented, "UNKNOWN_METHOD", ""}},
	{
		err: &roleError{identity.Identity{Role: identity.Read}, identity.Invoke}, want: refusal{codes.PermissionDenied, "ROLE_REQUIRED", ""},
		meta: map[string]string{"role": "read", "requiredRole": "invoke"},
	},
	{err: &messageError{"proto: cannot parse invalid wire-format data"}, want: refusal{codes.InvalidArgument, "MALFORMED_MESSAGE", "request"}},
	{err: &executor.RequestError{Field: "args[3]", Reason: "has a NUL byte"}, want: refusal{codes.InvalidArgument, "INVALID_REQUEST", "args[3]"}},
	{
		err: &sequenceError{after: 8, last: 7}, want: refusal{codes.OutOfRange, "OFFSET_PAST_END", "after_sequence"},
		meta: map[string]string{"lastSequence": "7"},
	},
	{
		err: &offsetError{size: 10, offset: 11}, want: refusal{codes.OutOfRange, "OFFSET_PAST_END", "offset_bytes"},
		meta: map[string]string{"sizeBytes": "10"},
	},
	{
		err: &executor.UnknownTenantError{Tenant: "acme"}, want: refusal{codes.PermissionDenied, "TENANT_UNKNOWN", ""},
		meta: map[string]string{"tenant": "acme"},
	},
	{
		err: &executor.TenantConfiguredError{Tenant: "acme"}, want: refusal{codes.FailedPrecondition, "TENANT_CONFIGURED", ""},
		meta: map[string]string{"tenant": "acme"},
	},
	{
		err: &executor.TenantBusyError{Tenant: "acme", Reason: "2 of its executions run or wait"}, want: refusal{codes.FailedPrecondition, "TENANT_BUSY", ""},
		meta: map[string]string{"tenant": "acme"},
	},
	{
		err:  &executor.LimitError{Field: "limits.wall_time", Asked: "601s", Ceiling: "600s", SetBy: "daemon"},
		want: refusal{codes.InvalidArgument, "LIMIT_TOO_LARGE", "limits.wall_time"},
		meta: map[string]string{"asked": "601s", "ceiling": "600s", "setBy": "daemon"},
	},
	{
		err:  &executor.LimitError{Field: "limits.memory_bytes", Asked: "1 bytes", Ceiling: "8388608 bytes", TooSmall: true},
		want: refusal{codes.InvalidArgument, "LIMIT_TOO_SMALL", "limits.memory_bytes"},
		meta: map[string]string{"asked": "1 bytes", "floor": "8388608 bytes"},
	},
	{err: &executor.ArgumentError{Size: 10_000_001}, want: refusal{codes.InvalidArgument, "ARGUMENTS_TOO_LARGE", "json_arguments"}},
	{err: &executor.ArgumentError{Reason: "not an object"}, want: refusal{codes.InvalidArgument, "INVALID_ARGUMENTS", "json_arguments"}},
	{
		err: &executor.InputError{Path: "../x", Reason: "leaves"}, want: refusal{codes.InvalidArgument, "INVALID_INPUT_FILE", "files"},
		meta: map[string]string{"path": "../x"},
	},
	{
		err: &digestError{path: "in.csv", want: "aa", have: "bb"}, want: refusal{codes.DataLoss, "FILE_DIGEST_MISMATCH", ""},
		meta: map[string]string{"path": "in.csv"},
	},
	{
		err: &permission.EnvError{Name: "LD_PRELOAD", Reason: "reserved"}, want: refusal{codes.InvalidArgument, "ENV_NOT_ALLOWED", "env"},
		meta: map[string]string{"name": "LD_PRELOAD"},
	},
	{
		err: &executor.KeyConflictError{ID: "e1"}, want: refusal{codes.AlreadyExists, "IDEMPOTENCY_KEY_REUSED", ""},
		meta: map[string]string{"executionId": "e1"},
	},
	{
		err: &executor.BoundaryError{Names: []string{"mounts", "swap"}}, want: refusal{codes.FailedPrecondition, "BOUNDARY_MISSING", ""},
		meta: map[string]string{"boundaries": "mounts, swap"},
	},
	{
		err: &audit.UnavailableError{}, want: refusal{codes.Unavailable, "AUDIT_UNAVAILABLE", ""}, retry: retryFull,
	},
	{
		err: &toolview.UnknownToolError{Name: "rm"}, want: refusal{codes.NotFound, "UNKNOWN_TOOL", ""},
		meta: map[string]string{"tool": "rm"},
	},
	{
		err:  &toolview.ArgumentsError{Tool: "bash", Field: "command", Reason: "is required"},
		want: refusal{codes.InvalidArgument, "INVALID_TOOL_ARGUMENTS", "arguments_json"},
		meta: map[string]string{"tool": "bash", "argument": "command"},
	},
	{
		err: &toolview.Exception{Name: toolview.PathSecurityError, Text: "no"}, want: refusal{codes.InvalidArgument, "PATH_SECURITY_ERROR", "script_path"},
		meta: map[string]string{"error": "PathSecurityError"},
	},
	{
		err: &toolview.Exception{Name: toolview.ScriptPermissionError, Text: "no"}, want: refusal{codes.FailedPrecondition, "SCRIPT_PERMISSION_ERROR", ""},
		meta: map[string]string{"error": "ScriptPermissionError"},
	},
	{
		err: &toolview.Exception{Name: toolview.InterpreterNotFoundError, Text: "no"}, want: refusal{codes.FailedPrecondition, "INTERPRETER_NOT_FOUND_ERROR", ""},
		meta: map[string]string{"error": "InterpreterNotFoundError"},
	},
	{
		err: &toolview.Exception{Name: toolview.ArgumentSerializationError, Text: "no"}, want: refusal{codes.InvalidArgument, "ARGUMENT_SERIALIZATION_ERROR", "arguments"},
		meta: map[string]string{"error": "ArgumentSerializationError"},
	},
	{
		err: &toolview.Exception{Name: toolview.ArgumentSizeError, Text: "no"}, want: refusal{codes.InvalidArgument, "ARGUMENT_SIZE_ERROR", "arguments"},
		meta: map[string]string{"error": "ArgumentSizeError"},
	},
	{
		err: &toolview.Exception{Name: toolview.FileNotFoundError, Text: "no"}, want: refusal{codes.NotFound, "FILE_NOT_FOUND_ERROR", ""},
		meta: map[string]string{"error": "FileNotFoundError"},
	},
	{
		err: &toolview.Exception{Name: toolview.ValueError, Text: "no"}, want: refusal{codes.InvalidArgument, "VALUE_ERROR", ""},
		meta: map[string]string{"error": "ValueError"},
	},
	{
		err: &toolview.Exception{Name: toolview.OSError, Text: "no"}, want: refusal{codes.FailedPrecondition, "OS_ERROR", ""},
		meta: map[string]string{"error": "OSError"},
	},
	{
		err: &toolview.ScriptPathError{Path: "x"}, want: refusal{codes.InvalidArgument, "VALUE_ERROR", "script_path"},
		meta: map[string]string{"error": "ValueError"},
	},
	{
		err: &toolview.ScriptPathError{Path: "x", Missing: true}, want: refusal{codes.NotFound, "VALUE_ERROR", ""},
		meta: map[string]string{"error": "ValueError"},
	},
	{err: &toolview.NoSlotError{Advice: "wait"}, want: refusal{codes.ResourceExhausted, "QUEUE_TIMED_OUT", ""}, retry: retryQueue, quota: "executions"},
	{err: &manifest.InvalidNameError{Name: "a/b", Reason: "no"}, want: refusal{codes.InvalidArgument, "INVALID_SKILL_NAME", "skill"}, meta: map[string]string{"skill": "a/b"}},
	{err: &skill.InvalidPinError{Name: "a", Digest: "sha256:1"}, want: refusal{codes.InvalidArgument, "INVALID_SKILL_DIGEST", "skill"}, meta: map[string]string{"skill": "a"}},
	{
		err: &skill.AmbiguousError{Name: "a", Candidates: []string{"x/a", "y/a"}}, want: refusal{codes.InvalidArgument, "AMBIGUOUS_SKILL_NAME", "skill"},
		meta: map[string]string{"skill": "a", "candidates": "x/a, y/a"},
	},
	{
		err: &skill.DigestMismatch{Name: "a", Want: "w", Have: "h"}, want: refusal{codes.FailedPrecondition, "DIGEST_MISMATCH", ""},
		meta: map[string]string{"skill": "a", "currentDigest": "h"},
	},
	{
		err:  &skill.InvalidSkillError{Name: "a", Findings: []manifest.Finding{{File: "SKILL.md", Line: 3, Rule: "name-grammar", Message: "no"}}},
		want: refusal{codes.InvalidArgument, "SKILL_INVALID", "SKILL.md:3"}, meta: map[string]string{"skill": "a"},
	},
	{
		err: &skill.QuotaError{Quota: "skill bytes", Limit: 10, Used: 8, Asked: 3}, want: refusal{codes.ResourceExhausted, "SKILL_QUOTA_EXCEEDED", ""},
		meta: map[string]string{"limit": "10", "used": "8"}, quota: "skill bytes",
	},
	{
		err: &skill.DamagedError{Name: "a", Digest: "d", Err: errors.New("it has the digest e")}, want: refusal{codes.DataLoss, "SKILL_DAMAGED", ""},
		meta: map[string]string{"skill": "a", "digest": "d"},
	},
	{err: fmt.Errorf("pushed skills: %w", &skill.DamagedError{Err: errors.New("checksum differs")}), want: refusal{codes.DataLoss, "SKILL_DAMAGED", ""}},
	{err: &skill.NotPushedError{Name: "a"}, want: refusal{codes.FailedPrecondition, "SKILL_NOT_PUSHED", ""}, meta: map[string]string{"skill": "a"}},
	{err: &skill.ReservedNameError{Name: "a"}, want: refusal{codes.AlreadyExists, "SKILL_NAME_RESERVED", ""}, meta: map[string]string{"skill": "a"}},
	{err: &skill.SourceError{Host: "a.example"}, want: refusal{codes.PermissionDenied, "SKILL_SOURCE_NOT_ALLOWED", ""}, meta: map[string]string{"host": "a.example"}},
	{err: &ingress.FullError{}, want: refusal{codes.Unavailable, "CONNECTIONS_FULL", ""}, retry: retryFull},
	{err: &pushesFullError{4}, want: refusal{codes.ResourceExhausted, "UPLOADS_FULL", ""}, retry: retryFull, quota: "pushes of skills"},
	{err: &putsFullError{"full"}, want: refusal{codes.ResourceExhausted, "UPLOADS_FULL", ""}, retry: retryFull, quota: "uploads to sessions"},
	{err: path(snapshot.ReasonNotFound), want: refusal{codes.NotFound, "SKILL_FILE_NOT_FOUND", ""}, meta: map[string]string{"path": "scripts/x.py"}},
	{err: path(snapshot.ReasonEscapes), want: refusal{codes.InvalidArgument, "SKILL_PATH_ESCAPES", "script"}, meta: map[string]string{"path": "scripts/x.py"}},
	{err: path(snapshot.ReasonDirectory), want: refusal{codes.InvalidArgument, "SKILL_PATH_IS_DIRECTORY", "script"}, meta: map[string]string{"path": "scripts/x.py"}},
	{err: path(snapshot.ReasonRefused), want: refusal{codes.FailedPrecondition, "SKILL_FILE_REFUSED", ""}, meta: map[string]string{"path": "scripts/x.py"}},
	{err: path(snapshot.ReasonLoop), want: refusal{codes.FailedPrecondition, "SKILL_FILE_REFUSED", ""}, meta: map[string]string{"path": "scripts/x.py"}},
	{err: path(snapshot.ReasonOutside), want: refusal{codes.InvalidArgument, "INVALID_SKILL_PATH", "script"}, meta: map[string]string{"path": "scripts/x.py"}},
	{err: path(snapshot.ReasonBadPath), want: refusal{codes.InvalidArgument, "INVALID_SKILL_PATH", "script"}, meta: map[string]string{"path": "scripts/x.py"}},
	{
		err:  &fieldError{"path", path(snapshot.ReasonDirectory)},
		want: refusal{codes.InvalidArgument, "SKILL_PATH_IS_DIRECTORY", "path"}, meta: map[string]string{"path": "scripts/x.py"},
	},
	{
		err:  &fieldError{"path", path(snapshot.ReasonNotFound)},
		want: refusal{codes.NotFound, "SKILL_FILE_NOT_FOUND", ""}, meta: map[string]string{"path": "scripts/x.py"},
	},
	{err: &skill.NotFoundError{Name: "a"}, want: refusal{codes.NotFound, "SKILL_NOT_FOUND", ""}, meta: map[string]string{"skill": "a"}},
	{
		err: &executor.UnknownExtensionError{Ext: ".xyz"}, want: refusal{codes.FailedPrecondition, "UNKNOWN_EXTENSION", ""},
		meta: map[string]string{"extension": ".xyz"},
	},
	{
		err: &executor.MissingInterpreterError{Interpreter: "ruby"}, want: refusal{codes.FailedPrecondition, "INTERPRETER_MISSING", ""},
		meta: map[string]string{"interpreter": "ruby"},
	},
	{
		err: &executor.LanguageError{Language: "cobol"}, want: refusal{codes.InvalidArgument, "UNKNOWN_LANGUAGE", "code.language"},
		meta: map[string]string{"language": "cobol"},
	},
	{err: &executor.CodeError{Reason: "empty"}, want: refusal{codes.InvalidArgument, "INVALID_REQUEST", "code.text"}},
	{err: &executor.VenvError{Skill: "a"}, want: refusal{codes.FailedPrecondition, "VENV_UNUSABLE", ""}, meta: map[string]string{"skill": "a"}},
	{
		err:  &executor.PackagesError{Skill: "demo", Packages: []string{"pandas>=2", "six"}, Python: "system 3.11.2"},
		want: refusal{codes.FailedPrecondition, "PACKAGES_MISSING", ""},
		meta: map[string]string{"packages": "pandas>=2, six", "python": "system 3.11.2", "fix": "skillrun prepare demo"},
	},
	{
		err:  &executor.PackagesError{Skill: "demo", Packages: []string{"left"}, Node: "node 20.1.0"},
		want: refusal{codes.FailedPrecondition, "PACKAGES_MISSING", ""},
		meta: map[string]string{"packages": "left", "node": "node 20.1.0", "fix": "skillrun prepare demo"},
	},
	{
		err:  &executor.SystemPackagesError{Skill: "demo", Packages: []string{"jq>=1.6"}},
		want: refusal{codes.FailedPrecondition, "SYSTEM_PACKAGES_MISSING", ""},
		meta: map[string]string{"packages": "jq>=1.6", "fix": "apt-get install jq"},
	},
	{
		err:  &executor.InterpreterError{Script: "scripts/x.py", Want: ">=4", Python: "system 3.11.2"},
		want: refusal{codes.FailedPrecondition, "PYTHON_VERSION_UNSUITABLE", ""},
		meta: map[string]string{"script": "scripts/x.py", "requiresPython": ">=4", "python": "system 3.11.2"},
	},
	{
		err:  &executor.RequirementError{Text: "==2", File: "requirements.txt", Line: 3},
		want: refusal{codes.FailedPrecondition, "REQUIREMENT_INVALID", ""},
		meta: map[string]string{"requirement": "==2", "file": "requirements.txt", "line": "3"},
	},
	{err: executor.ErrNoPackageSource, want: refusal{codes.FailedPrecondition, "NO_PACKAGE_SOURCE", ""}},
	{err: executor.ErrNoPip, want: refusal{codes.FailedPrecondition, "NO_PACKAGE_SOURCE", ""}},
	{err: executor.ErrNoRegistry, want: refusal{codes.FailedPrecondition, "NO_PACKAGE_SOURCE", ""}},
	{err: executor.ErrNoNpm, want: refusal{codes.FailedPrecondition, "NO_PACKAGE_SOURCE", ""}},
	{err: &executor.IndexError{Index: "https://h/simple/"}, want: refusal{codes.Unavailable, "PACKAGE_INDEX_UNAVAILABLE", ""}, meta: map[string]string{"index": "https://h/simple/"}},
	{err: &executor.NoPackageError{Name: "six"}, want: refusal{codes.FailedPrecondition, "PACKAGE_NOT_FOUND", ""}, meta: map[string]string{"package": "six"}},
	{err: &executor.BuildError{}, want: refusal{codes.FailedPrecondition, "BUILD_FAILED", ""}},
	{err: &executor.EnvironmentTooLargeError{}, want: refusal{codes.FailedPrecondition, "ENVIRONMENT_TOO_LARGE", ""}},
	{err: &executor.BuildsFullError{RetryAfter: 7 * time.Second}, want: refusal{codes.Unavailable, "BUILDS_FULL", ""}, retry: 7 * time.Second},
	{
		err:  &permission.Denied{Command: "rm -rf /", Reason: "no rule", Rule: "Bash(rm:*)"},
		want: refusal{codes.PermissionDenied, "COMMAND_NOT_ALLOWED", ""}, meta: map[string]string{"missingRule": "Bash(rm:*)"},
	},
	{
		err:  &permission.Denied{Command: "cd x", Reason: "no shell", Instead: permission.InsteadDirectory},
		want: refusal{codes.PermissionDenied, "COMMAND_NOT_ALLOWED", ""}, meta: map[string]string{"instead": "working_directory"},
	},
	{err: &permission.Denied{Reason: "inline code is switched off"}, want: refusal{codes.PermissionDenied, "SOURCE_NOT_ALLOWED", ""}},
	{
		err: &permission.NetworkRefused{Skill: "a", Reason: "not granted"}, want: refusal{codes.FailedPrecondition, "NETWORK_NOT_GRANTED", ""},
		meta: map[string]string{"skill": "a"},
	},
	{
		err:  &credential.UnavailableError{Credential: "github", Err: errors.New("/etc/secret: no such file")},
		want: refusal{codes.FailedPrecondition, "CREDENTIAL_UNAVAILABLE", ""}, meta: map[string]string{"credential": "github"},
	},
	{err: &executor.NotFoundError{ID: "e1"}, want: refusal{codes.NotFound, "EXECUTION_NOT_FOUND", ""}, meta: map[string]string{"executionId": "e1"}},
	{
		err: &executor.NoArtifactError{ID: "e1", Path: "out.txt"}, want: refusal{codes.NotFound, "ARTIFACT_NOT_FOUND", ""},
		meta: map[string]string{"executionId": "e1", "path": "out.txt"},
	},
	{
		err: &executor.CorruptError{ID: "e1", Offset: 7, Reason: "secret"}, want: refusal{codes.DataLoss, "OUTPUT_DAMAGED", ""},
		meta: map[string]string{"executionId": "e1"},
	},
	{err: &executor.NotEndedError{ID: "e1"}, want: refusal{codes.FailedPrecondition, "NOT_ENDED", ""}, meta: map[string]string{"executionId": "e1"}},
	{err: &executor.NotRunningError{ID: "e1"}, want: refusal{codes.FailedPrecondition, "NOT_RUNNING", ""}, meta: map[string]string{"executionId": "e1"}},
	{err: fmt.Errorf("session %q: %w", "s", session.ErrNotFound), want: refusal{codes.NotFound, "SESSION_NOT_FOUND", ""}},
	{
		err: &session.BusyError{ID: "s", Writer: "execution e1"}, want: refusal{codes.FailedPrecondition, "SESSION_BUSY", ""},
		meta: map[string]string{"sessionId": "s", "writer": "execution e1"},
	},
	{
		err: &session.QuotaError{Quota: session.QuotaSessions, Limit: 3, Need: 4}, want: refusal{codes.ResourceExhausted, "SESSION_QUOTA", ""},
		quota: "sessions", meta: map[string]string{"quota": "sessions", "limit": "3"},
	},
	{err: &session.SettingsError{Setting: "ttl", Reason: "must be at most 1h"}, want: refusal{codes.InvalidArgument, "INVALID_REQUEST", "ttl"}},
	{
		err: &session.DamagedError{ID: "s", Version: 2, Err: errors.New("checksum differs")}, want: refusal{codes.DataLoss, "SESSION_DAMAGED", ""},
		meta: map[string]string{"sessionId": "s", "version": "2"},
	},
	{
		err: &session.DamagedError{ID: "s", Err: errors.New("settings: checksum differs")}, want: refusal{codes.DataLoss, "SESSION_DAMAGED", ""},
		meta: map[string]string{"sessionId": "s"},
	},
	{
		err: &session.PathError{Path: "../a", Reason: "has the component \"..\""}, want: refusal{codes.InvalidArgument, "INVALID_INPUT_FILE", "header.path"},
		meta: map[string]string{"path": "../a"},
	},
	{err: session.ErrClosed, want: refusal{codes.Unavailable, "DRAINING", ""}, retry: retryDraining},
	{err: session.ErrHandedOver, want: refusal{codes.Unavailable, "DRAINING", ""}, retry: retryDraining},
	{err: skill.ErrHandedOver, want: refusal{codes.Unavailable, "DRAINING", ""}, retry: retryDraining},
	{
		err: &executor.QuotaError{Quota: "queued executions", Limit: 3, Used: 4, RetryAfter: time.Second}, want: refusal{codes.ResourceExhausted, "SATURATED", ""},
		retry: time.Second, quota: "queued executions", meta: map[string]string{"quota": "queued", "limit": "3", "used": "4"},
	},
	{err: &executor.SaturatedError{Queued: 3, RetryAfter: 2 * time.Second}, want: refusal{codes.Unavailable, "SATURATED", ""}, retry: 2 * time.Second},
	{
		err: &uploadsFullError{asked: 10, free: 2}, want: refusal{codes.Unavailable, "UPLOADS_FULL", ""},
		retry: retryFull,
	},
	{err: &uploadTimeError{time.Minute}, want: refusal{codes.DeadlineExceeded, "UPLOAD_TIMED_OUT", ""}},
	{
		err: &budget.SizeError{Size: 9, Limit: 8}, want: refusal{codes.ResourceExhausted, "MESSAGE_TOO_LARGE", ""},
		meta: map[string]string{"sizeBytes": "9", "maxMessageBytes": "8"},
	},
	{err: &budget.FullError{Limit: 8}, want: refusal{codes.Unavailable, "REQUESTS_FULL", ""}, retry: budget.RetryAfter},
	{err: snapshot.ErrBusy, want: refusal{codes.Unavailable, "SKILL_FILE_BUSY", ""}, retry: retryBusy},
	{err: executor.ErrDraining, want: refusal{codes.Unavailable, "DRAINING", ""}, retry: retryDraining},
	{
		err: &executor.DiskFullError{ID: "e1", Err: errors.New("secret")}, want: refusal{codes.Unavailable, "DISK_FULL", ""},
		retry: retryFull,
	},
	{err: syscall.ENOSPC, want: refusal{codes.Unavailable, "DISK_FULL", ""}, retry: retryFull},
	{err: syscall.EDQUOT, want: refusal{codes.Unavailable, "DISK_FULL", ""}, retry: retryFull},
}

func TestTable(t *testing.T) {
	tested := map[int]bool{}
	for _, c := range errorCases {
		name := fmt.Sprintf("%T %s", c.err, c.want.reason)
		t.Run(name, func(t *testing.T) {
			// As it comes: wrapped by a stage.
			v, ok := classify(fmt.Errorf("stage: %w", c.err))
			if !ok {
				t.Fatal("not in the table")
			}
			tested[slices.IndexFunc(table, func(r row) bool { _, ok := r(c.err); return ok })] = true
			st := v.status()
			wantRefusal(t, st.Err(), c.want)
			var meta, quota = map[string]string{}, ""
			var retry time.Duration
			for _, detail := range st.Details() {
				switch d := detail.(type) {
				case *errdetails.ErrorInfo:
					meta = d.Metadata
				case *errdetails.RetryInfo:
					retry = d.RetryDelay.AsDuration()
				case *errdetails.QuotaFailure:
					quota = d.Violations[0].Subject
					if limit := c.meta["limit"]; limit != "" && limit != strconv.FormatInt(d.Violations[0].QuotaValue, 10) {
						t.Errorf("quota value %d, want %s", d.Violations[0].QuotaValue, limit)
					}
				}
			}
			if !maps.Equal(meta, c.meta) {
				t.Errorf("metadata %v, want %v", meta, c.meta)
			}
			most := c.retry
			if v.spread {
				most += c.retry / 2
			}
			if retry < c.retry || retry > most || quota != c.quota {
				t.Errorf("retry %s, quota %q; want %s to %s, %q", retry, quota, c.retry, most, c.quota)
			}
			// What saturates the machine is not the caller's, and the callers must not all come back at once.
			if v.spread != (c.want.code == codes.Unavailable && strings.Contains(c.want.reason, "FULL") || c.want.reason == "AUDIT_UNAVAILABLE") {
				t.Errorf("%s: spread is %v", c.want.reason, v.spread)
			}
			if st.Message() == "" {
				t.Error("no message")
			}
		})
	}
	for i := range table {
		if !tested[i] {
			t.Errorf("row %d has no case", i)
		}
	}
}

// The contract lists exactly the reasons that the table gives. INTERNAL is the answer to an error
// without a row.
func TestReasons(t *testing.T) {
	given := map[string]bool{"UNSPECIFIED": true, "INTERNAL": true}
	for _, c := range errorCases {
		given[c.want.reason] = true
	}
	for name := range pb.ErrorReason_value {
		if reason := strings.TrimPrefix(name, "ERROR_REASON_"); !given[reason] {
			t.Errorf("the contract has %s, and no row gives it", reason)
		}
		delete(given, strings.TrimPrefix(name, "ERROR_REASON_"))
	}
	for reason := range given {
		t.Errorf("the contract does not have %s", reason)
	}
}

// metadataKey is the form of keys that google.rpc.ErrorInfo asks for: lowerCamelCase, at most 64
// characters.
var metadataKey = regexp.MustCompile(`^[a-z][a-zA-Z0-9]{1,63}$`)

func TestMetadataKeys(t *testing.T) {
	for _, c := range errorCases {
		for key := range c.meta {
			if !metadataKey.MatchString(key) {
				t.Errorf("%s: metadata key %q", c.want.reason, key)
			}
		}
	}
}

func TestOursIsNotInTheTable(t *testing.T) {
	for _, err := range []error{errors.New("boom"), io.ErrUnexpectedEOF, context.Canceled, syscall.EIO} {
		if v, ok := classify(err); ok {
			t.Errorf("%v: got %+v", err, v)
		}
	}
}

// A message about a full disk must not name the daemon's paths.
func TestDiskFullIsTerse(t *testing.T) {
	for _, err := range []error{syscall.ENOSPC, &executor.DiskFullError{ID: "e1", Err: errors.New("/var/lib/skillrun/x")}} {
		v, _ := classify(fmt.Errorf("write /var/lib/skillrun/x: %w", err))
		if got, want := v.status().Message(), "the daemon's disk is full; make room on the disk of its state_dir, or try again later"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A credential may be unavailable because of either of its files. The message must not name the daemon's paths.
func TestUnavailableCredentialNamesBothFiles(t *testing.T) {
	v, _ := classify(&credential.UnavailableError{Credential: "github", Err: errors.New("open /etc/ca.pem: no such file")})
	if got := v.status().Message(); !strings.Contains(got, "the secret or the ca_file of the credential github") || strings.Contains(got, "/etc") {
		t.Errorf("got %q", got)
	}
}

// A status must pass through clients that take no more than 8 KiB of trailers,
// whatever a caller made it quote.
func TestStatusIsBounded(t *testing.T) {
	long := strings.Repeat("\xff\"\u00e9\n", 100_000)
	v := verdict{
		code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_INVALID_REQUEST, field: "skill", quota: "executions", retry: time.Second,
		metadata: map[string]string{"a": long, "b": long}, message: long,
	}
	st := v.status()
	if len(st.Details()) != 4 {
		t.Errorf("%d details, want 4", len(st.Details()))
	}
	encoded := 3*len(st.Message()) + (proto.Size(st.Proto())+2)/3*4
	if encoded > 8<<10 {
		t.Errorf("%d bytes encoded", encoded)
	}
}

func TestClip(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"12345678", "12345678"},
		{"123456789", "12345..."},
		{"1234é678", "1234..."},
		{"a\xffb", "a\uFFFDb"},
	} {
		got := clip(c.in, 8)
		if got != c.want || !utf8.ValidString(got) {
			t.Errorf("clip(%q): got %q, want %q", c.in, got, c.want)
		}
	}
}

func TestAnswer(t *testing.T) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	transport := status.Error(codes.Unavailable, "transport is closing")
	for _, c := range []struct {
		name    string
		ctx     context.Context
		err     error
		code    codes.Code
		message string
		logged  int
		reason  string // as it is counted
	}{
		{"none", context.Background(), nil, codes.OK, "", 0, ""},
		{"gRPC's own", context.Background(), transport, codes.Unavailable, "transport is closing", 0, ""},
		{"in the table", context.Background(), &executor.NotRunningError{ID: "e1"}, codes.FailedPrecondition, "the execution is not running", 0, "NOT_RUNNING"},
		{"caller gone", over, fmt.Errorf("read: %w", context.Canceled), codes.Canceled, "context canceled", 0, "CANCELLED"},
		{"caller out of time", late, fmt.Errorf("read: %w", context.DeadlineExceeded), codes.DeadlineExceeded, "context deadline exceeded", 0, "CANCELLED"},
		{"a deadline of ours", context.Background(), context.DeadlineExceeded, codes.Internal, "internal error (reference REF)", 1, "INTERNAL"},
		{"ours", context.Background(), errors.New("secret"), codes.Internal, "internal error (reference REF)", 1, "INTERNAL"},
		{"ours, of an execution", context.Background(), &executionError{"e1", errors.New("secret")}, codes.Internal, "internal error (execution e1)", 1, "INTERNAL"},
		{"of an execution", context.Background(), &executionError{"e1", &executor.NotFoundError{ID: "e1"}}, codes.NotFound, "execution not found", 0, "EXECUTION_NOT_FOUND"},
		{"disk full", context.Background(), fmt.Errorf("secret: %w", syscall.ENOSPC), codes.Unavailable, "the daemon's disk is full; make room on the disk of its state_dir, or try again later", 1, "DISK_FULL"},
		{"damaged", context.Background(), &executionError{"e1", &executor.CorruptError{ID: "e1", Reason: "secret"}}, codes.DataLoss, "execution e1: its stored data is damaged", 1, "OUTPUT_DAMAGED"},
	} {
		t.Run(c.name, func(t *testing.T) {
			logs := &executortest.Logs{}
			var counted string
			s := &Server{log: logs.Logger(), failed: func(reason string) { counted += reason }}
			st := status.Convert(s.answer(c.ctx, &call{method: "/m", reference: "REF"}, c.err))
			if st.Code() != c.code || st.Message() != c.message {
				t.Errorf("got %s %q, want %s %q", st.Code(), st.Message(), c.code, c.message)
			}
			if got := len(logs.With("reference=REF", "err=")); got != c.logged {
				t.Errorf("logged %d times, want %d", got, c.logged)
			}
			if counted != c.reason {
				t.Errorf("counted %q, want %q", counted, c.reason)
			}
		})
	}
}

// Reason has one of the words of Reasons for every error.
func TestReasonIsOfAClosedSet(t *testing.T) {
	all := Reasons()
	for _, c := range errorCases {
		if got := Reason(c.err); got != c.want.reason || !slices.Contains(all, got) {
			t.Errorf("%v: got %s, want %s", c.err, got, c.want.reason)
		}
	}
	for err, want := range map[error]string{context.Canceled: "CANCELLED", context.DeadlineExceeded: "CANCELLED", io.EOF: "INTERNAL"} {
		if got := Reason(fmt.Errorf("read: %w", err)); got != want || !slices.Contains(all, got) {
			t.Errorf("%v: got %s, want %s", err, got, want)
		}
	}
	if slices.Contains(all, "UNSPECIFIED") {
		t.Error("UNSPECIFIED is no reason")
	}
}
