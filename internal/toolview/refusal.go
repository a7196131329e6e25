package toolview

import (
	"errors"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/session"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// refusable lists the errors that the author of the request or of the skill can act on.
// Every other error is about the daemon.
var refusable = []func(error) bool{
	is[*manifest.InvalidNameError], is[*skill.InvalidPinError], is[*skill.DigestMismatch], is[*skill.AmbiguousError], is[*snapshot.PathError],
	func(err error) bool { return errors.Is(err, skill.ErrNotFound) },
	is[*executor.RequestError], is[*executor.LimitError], is[*executor.ArgumentError], is[*executor.InputError],
	is[*executor.UnknownExtensionError], is[*executor.MissingInterpreterError],
	is[*executor.LanguageError], is[*executor.CodeError], is[*executor.VenvError],
	is[*executor.PackagesError], is[*executor.SystemPackagesError], is[*executor.InterpreterError],
	func(err error) bool { return errors.Is(err, session.ErrNotFound) },
	is[*session.BusyError], is[*session.QuotaError], is[*session.PathError], is[*noSessionError],
	is[*Exception], is[*permission.Denied], is[*permission.NetworkRefused], is[*permission.EnvError],
}

// is reports whether the chain of err has an E.
func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// refused reports whether err is about the request, so that it becomes a result. Other
// errors remain errors: no room, draining, a caller that went away, internal failures.
func refused(err error) bool {
	for _, match := range refusable {
		if match(err) {
			return true
		}
	}
	return false
}

// withDir renames the field of an error about the working directory to the tool's name
// for it.
func withDir(err error, field string) error {
	if e, ok := errors.AsType[*executor.RequestError](err); ok && e.Field == "working_directory" {
		return &executor.RequestError{Field: field, Reason: e.Reason}
	}
	return err
}
