package durable

import (
	"errors"
	"syscall"
)

// MayPass reports whether an error of reading may be gone at the next attempt, though nobody has changed the files: the
// process had no descriptor or no memory left, or the disk did not answer. Such an error says nothing about the content.
// Errors that don't come from the operating system stay, and so do those that say what is in the place of the file.
func MayPass(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	if !ok {
		return false
	}
	switch errno {
	case syscall.ENOENT, syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP, syscall.ENXIO:
		return false
	}
	return true
}
