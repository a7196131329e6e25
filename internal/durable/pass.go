package durable

import (
	"errors"
	"syscall"
)

// MayPass reports whether the next attempt to read may succeed although no file has changed: the process had no
// descriptor or no memory left, or the disk did not answer. Such an error says nothing about the content. MayPass is false
// for errors that don't come from the operating system, and for a missing file or another kind of file.
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
