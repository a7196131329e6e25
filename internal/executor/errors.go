package executor

import (
	"errors"
	"fmt"
	"strings"

	"github.com/skillrun/skillrun/internal/admission"
	"github.com/skillrun/skillrun/internal/environment"
	"github.com/skillrun/skillrun/internal/record"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/session"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/workspace"
)

// ErrNotFound: no such execution, or another tenant's. A *NotFoundError wraps it.
var ErrNotFound = errors.New("execution not found")

// NotFoundError is ErrNotFound with the ID that was asked for.
type NotFoundError struct{ ID string }

func (e *NotFoundError) Error() string { return ErrNotFound.Error() }
func (e *NotFoundError) Unwrap() error { return ErrNotFound }

// ErrNoArtifact: the execution left no such file. A *NoArtifactError wraps it.
var ErrNoArtifact = errors.New("no such artifact")

// NoArtifactError is ErrNoArtifact with the execution and the path that was asked for.
type NoArtifactError struct{ ID, Path string }

func (e *NoArtifactError) Error() string { return ErrNoArtifact.Error() }
func (e *NoArtifactError) Unwrap() error { return ErrNoArtifact }

// A RequestError is a mistake in a request that every daemon would refuse.
type RequestError struct {
	Field  string // as the contract names it
	Reason string // the mistake and its remedy
}

func (e *RequestError) Error() string { return e.Field + ": " + e.Reason }

// A LimitError is a limit out of its range.
type LimitError struct {
	Field    string // as the contract names it
	Asked    string // with its unit
	Ceiling  string // with its unit
	SetBy    string // "daemon", "tenant" or "skill"
	TooSmall bool   // Ceiling is a floor
}

func (e *LimitError) Error() string {
	if e.TooSmall {
		return fmt.Sprintf("%s: %s is too small; the minimum is %s", e.Field, e.Asked, e.Ceiling)
	}
	return fmt.Sprintf("%s: %s is above the %s's maximum, %s", e.Field, e.Asked, e.SetBy, e.Ceiling)
}

// KeyConflictError: the idempotency key belongs to another request.
type KeyConflictError struct{ ID string }

func (e *KeyConflictError) Error() string {
	return "idempotency_key: belongs to another request (execution " + e.ID + "); use a new key"
}

// ErrDraining: the daemon is about to stop and accepts no new execution.
var ErrDraining = admission.ErrDraining

// ErrHandedOver: the next daemon accepts the executions now. See HandOver.
var ErrHandedOver = admission.ErrHandedOver

// IsHandedOver reports whether a call was refused, before it had any effect, because the next daemon must answer it.
func IsHandedOver(err error) bool {
	return errors.Is(err, ErrHandedOver) || errors.Is(err, record.ErrHandedOver) || errors.Is(err, session.ErrHandedOver) || errors.Is(err, skill.ErrHandedOver) ||
		errors.Is(err, environment.ErrHandedOver)
}

// IsDraining reports whether a call was refused, before it had any effect, because the daemon drains or has handed over.
func IsDraining(err error) bool {
	return errors.Is(err, ErrDraining) || IsHandedOver(err)
}

// tooLarge is the error for a limit above the quota of a tenant or the bound of the daemon.
func tooLarge(e *admission.TooLargeError) error {
	if e.Quota == admission.Processors {
		return &LimitError{Field: "limits.milli_cpus", Asked: count(e.Asked).String(), Ceiling: count(e.Limit).String(), SetBy: e.SetBy}
	}
	return &LimitError{Field: "limits.memory_bytes", Asked: byteCount(e.Asked).String(), Ceiling: byteCount(e.Limit).String(), SetBy: e.SetBy}
}

// BoundaryError: sandboxes of this machine lack something, so nothing runs.
type BoundaryError struct{ Names []string }

func (e *BoundaryError) Error() string {
	return "the daemon runs nothing while boundaries are missing: " + strings.Join(e.Names, ", ") +
		"; skillrun doctor says how to get them; boundaries.allow_missing in the daemon's configuration allows them to be missing"
}

// ErrNotRunning: a signal for an execution that does not run. A *NotRunningError wraps it.
var ErrNotRunning = errors.New("the execution is not running")

// NotRunningError is ErrNotRunning with the execution.
type NotRunningError struct{ ID string }

func (e *NotRunningError) Error() string { return ErrNotRunning.Error() }
func (e *NotRunningError) Unwrap() error { return ErrNotRunning }

// NotEndedError: an execution that has not ended can't be deleted.
type NotEndedError struct{ ID string }

func (e *NotEndedError) Error() string {
	return "the execution has not ended; cancel it, then delete it"
}

// Errors of the stages, collected here for the packages that turn them into codes.
type (
	// QuotaError: the tenant has used up one of its quotas.
	QuotaError = admission.QuotaError
	// SaturatedError: the machine has no slot for the tenant, and its queue is full.
	SaturatedError = admission.SaturatedError
	// InputError: an input file that can't be put where it was asked.
	InputError = workspace.InputError
	// UnknownExtensionError: neither the extension nor the #! line names an interpreter of the script.
	UnknownExtensionError = runtime.UnknownExtensionError
	// MissingInterpreterError: the sandbox has no such interpreter.
	MissingInterpreterError = runtime.MissingError
	// LanguageError: no such language for inline code.
	LanguageError = runtime.LanguageError
	// CodeError: inline code that can't be passed on.
	CodeError = runtime.CodeError
	// CorruptError: the stored data of an execution is damaged.
	CorruptError = record.CorruptError
	// DiskFullError: the disk has no room for the data of an execution.
	DiskFullError = record.SpoolFullError
	// VenvError: the skill's venv has no usable interpreter.
	VenvError = runtime.VenvError
	// PackagesError: packages that the skill needs are missing.
	PackagesError = environment.PackagesError
	// SystemPackagesError: system packages that the skill needs are missing.
	SystemPackagesError = environment.SystemPackagesError
	// InterpreterError: the script needs another version of Python.
	InterpreterError = environment.InterpreterError
	// RequirementError: a requirement of the skill has a form that can't be installed.
	RequirementError = environment.RequirementError
	// IndexError: the package index can't be reached or is not usable.
	IndexError = environment.IndexError
	// NoPackageError: the source of packages has no such package.
	NoPackageError = environment.NoPackageError
	// BuildError: the build of an environment did not succeed.
	BuildError = environment.BuildError
	// EnvironmentTooLargeError: an environment is beyond its bounds.
	EnvironmentTooLargeError = environment.TooLargeError
	// BuildsFullError: too many builds at once.
	BuildsFullError = environment.BusyError
	// Environment is a prepared environment of a skill.
	Environment = environment.Environment
)

// Errors of environments that the daemon's configuration causes.
var (
	// ErrNoPackageSource: neither an index nor wheels are configured.
	ErrNoPackageSource = environment.ErrNoSource
	// ErrNoPip: the daemon has no pip to build with.
	ErrNoPip = environment.ErrNoPip
	// ErrNoRegistry: the daemon has neither a registry of Node packages nor their files.
	ErrNoRegistry = environment.ErrNoRegistry
	// ErrNoNpm: the daemon has no npm to install Node packages with.
	ErrNoNpm = environment.ErrNoNpm
)
