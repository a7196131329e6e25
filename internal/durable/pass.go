package durable

import (
	"errors"
	"syscall"
)

// MayPass reports whether the next attempt to read may succeed though nobody has changed the files: the process had no
// descriptor or no memory left, or the disk did not answer. Such an error says nothing about the content. An error that
// is not of the operating system, and one that says what is in the place of the file, cannot pass so.
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
