package record

import (
	"errors"
	"fmt"

	"github.com/mattn/go-sqlite3"
	"golang.org/x/sys/unix"
)

var (
	// ErrNotFound says that the tenant has no such execution or artifact.
	ErrNotFound = errors.New("not found")
	// ErrEnded says that the execution has ended: nothing can be added.
	ErrEnded = errors.New("execution has ended")
	// ErrClosed says that the store was closed.
	ErrClosed = errors.New("store is closed")
	// ErrInUse says that another process has the store open, or that a log is
	// open already.
	ErrInUse = errors.New("in use")
	// ErrNotOpen says that an execution of an earlier process has neither ended
	// nor been reopened.
	ErrNotOpen = errors.New("execution has not been reopened")
)

// KeyClaimed says that the tenant's idempotency key belongs to an execution.
// Whether the request is the same one is the caller's to compare.
type KeyClaimed struct {
	Existing Execution
}

func (e *KeyClaimed) Error() string {
	return fmt.Sprintf("idempotency key: claimed by execution %s", e.Existing.ID)
}

// SpoolFullError says that the disk, or a quota on it, is full. What was written
// before stays, and the execution can still be ended.
type SpoolFullError struct {
	ID  string
	Err error
}

func (e *SpoolFullError) Error() string { return fmt.Sprintf("record %s: %v", e.ID, e.Err) }
func (e *SpoolFullError) Unwrap() error { return e.Err }

// Is makes it unix.ENOSPC whoever said so: SQLite has a code of its own.
func (e *SpoolFullError) Is(target error) bool { return target == unix.ENOSPC }

// OutcomeTooLargeError says that an outcome is longer than MaxOutcomeBytes.
// Nothing was recorded: the log is as open as before, and a smaller one can be
// its end.
type OutcomeTooLargeError struct {
	ID   string
	Size int
}

func (e *OutcomeTooLargeError) Error() string {
	return fmt.Sprintf("record %s: outcome of %d bytes: more than %d", e.ID, e.Size, MaxOutcomeBytes)
}

// CorruptError says that what is on disk is not what was written.
type CorruptError struct {
	ID string
	// Offset is where in the spool; 0 if it isn't the spool.
	Offset int64
	Reason string
	// End is the end as the database has it, which is whole although the spool
	// isn't. Nil: the execution has not ended, or it isn't the spool.
	End *Event
}

func (e *CorruptError) Error() string {
	ended := ""
	if e.End != nil {
		ended = "; the execution ended " + e.End.End
	}
	return fmt.Sprintf("record %s: corrupt at byte %d: %s%s", e.ID, e.Offset, e.Reason, ended)
}

// TokenError says that a page token is not one that this listing gave out.
type TokenError struct {
	Reason string
}

func (e *TokenError) Error() string { return "page token: " + e.Reason }

// NewerError says that a later version of the program wrote the database.
type NewerError struct {
	Path       string
	Have, Know int
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("%s: written by a newer version (schema %d, known up to %d)", e.Path, e.Have, e.Know)
}

// isFull reports whether err says that there is no room, from a file or from
// SQLite.
func isFull(err error) bool {
	var e sqlite3.Error
	if errors.As(err, &e) {
		return e.Code == sqlite3.ErrFull || e.SystemErrno == unix.ENOSPC || e.SystemErrno == unix.EDQUOT
	}
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// isCorrupt reports whether err says that the database file is damaged, or is
// none.
func isCorrupt(err error) bool {
	var e sqlite3.Error
	return errors.As(err, &e) && (e.Code == sqlite3.ErrCorrupt || e.Code == sqlite3.ErrNotADB)
}
