package toolview

import (
	"errors"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill"
)

// A refusable is an error that is about the request or its skill: whoever wrote
// them can act on it. Every other error is about the daemon.
var refusable = []func(error) bool{
	is[*skill.InvalidNameError], is[*skill.InvalidPinError], is[*skill.DigestMismatch], is[*skill.PathError],
	func(err error) bool { return errors.Is(err, skill.ErrNotFound) },
	is[*executor.RequestError], is[*executor.LimitError], is[*executor.ArgumentError], is[*executor.InputError],
	is[*executor.UnknownExtensionError], is[*executor.MissingInterpreterError],
	is[*executor.LanguageError], is[*executor.CodeError], is[*executor.VenvError],
	is[*executor.PackagesError], is[*executor.SystemPackagesError], is[*executor.InterpreterError],
	is[*Exception], is[*permission.Denied], is[*permission.NetworkRefused], is[*permission.EnvError],
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// refused reports whether err says that the request can't run as it is, so that it
// belongs into a result. Other errors stay errors: no room, draining, the caller
// gone, and what is ours.
func refused(err error) bool {
	for _, match := range refusable {
		if match(err) {
			return true
		}
	}
	return false
}

// withDir says an error about the working directory in the words of a tool's request.
func withDir(err error, field string) error {
	if e, ok := errors.AsType[*executor.RequestError](err); ok && e.Field == "working_directory" {
		return &executor.RequestError{Field: field, Reason: e.Reason}
	}
	return err
}
