// Package filelock locks files between processes, with flock(2). A lock belongs to the open file, and the kernel releases it
// when the file is closed or the process dies. Programs that the process executes don't inherit it, because Go opens files
// with O_CLOEXEC. A file with a lock must stay: if it were removed, two processes could lock two files with the same name.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld means that another process holds the lock, so that process is alive.
var ErrHeld = errors.New("another process holds the lock")

// A Kind is how a file is locked.
type Kind int

// Several processes may have a Shared lock on a file, or one an Exclusive lock.
const (
	Shared    Kind = unix.LOCK_SH
	Exclusive Kind = unix.LOCK_EX
)

// pause is the time between two attempts of Await. flock(2) can wait, but not until the end of a context.
const pause = 10 * time.Millisecond

// Try locks a file without waiting. The error is ErrHeld if another process has a lock that excludes this one. A lock of the
// other kind that f had is then lost: the change from one kind to the other is not atomic.
func Try(f *os.File, k Kind) error {
	err := flock(f, int(k)|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return ErrHeld
	}
	return err
}

// Lock waits for the lock of a file without a bound.
func Lock(f *os.File, k Kind) error { return flock(f, int(k)) }

// Unlock releases the lock of a file. Its close does so, too.
func Unlock(f *os.File) error { return flock(f, unix.LOCK_UN) }

// Await locks a file as soon as no other process excludes it. When ctx is over, the error is ErrHeld with the cause.
func Await(ctx context.Context, f *os.File, k Kind) error {
	return retry(ctx, func() error { return Try(f, k) })
}

// Open opens a file, or makes one that only its owner may read, and tries to lock it.
func Open(path string, k Kind) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := Try(f, k); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// AwaitOpen is Open that waits as Await does. It opens the file anew for each attempt, so an error also tells that the
// directory of the file is gone.
func AwaitOpen(ctx context.Context, path string, k Kind) (f *os.File, err error) {
	err = retry(ctx, func() error {
		f, err = Open(path, k)
		return err
	})
	return f, err
}

// retry calls try until it returns another error than ErrHeld.
func retry(ctx context.Context, try func() error) error {
	for {
		err := try()
		if !errors.Is(err, ErrHeld) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// flock calls flock(2), again if a signal interrupts it.
func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}
