package durable

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Believed returns nil if the syncs that have succeeded on the file system of f, an open file or directory, can be
// believed. When ext4 gives up its journal, for example after an error of the disk, a sync that is under way can
// still succeed: it finds that the transaction with its change is over, not that the transaction was aborted
// (jbd2_complete_transaction in fs/jbd2/journal.c of Linux). From then on every change fails. So Believed asks for a
// change that needs the journal and changes nothing: it removes an extended attribute that f does not have.
func Believed(f *os.File) error {
	switch err := unix.Fremovexattr(int(f.Fd()), "user.skillrun.none"); {
	case err == nil, errors.Is(err, unix.ENODATA):
		return nil
	// The file system has no such attributes, may not change them, or is full: removexattr(2). All three are no sign of a
	// lost journal.
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return nil
	default:
		return &os.PathError{Op: "removexattr", Path: f.Name(), Err: err}
	}
}
