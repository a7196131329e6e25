package record

import (
	"errors"
	"fmt"

	"github.com/mattn/go-sqlite3"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/durable"
)

var (
	// ErrNotFound says that the tenant has no such execution or artifact.
	ErrNotFound = errors.New("not found")
	// ErrEnded says that the execution has ended: nothing can be added.
	ErrEnded = errors.New("execution has ended")
	// ErrNotEnded says that the execution has not ended, so it cannot be removed.
	ErrNotEnded = errors.New("execution has not ended")
	// ErrClosed says that the store was closed.
	ErrClosed = errors.New("store is closed")
	// ErrInUse says that another process has the store open, or that the execution
	// exists already.
	ErrInUse = errors.New("in use")
	// ErrNotOpen says that an execution of an earlier process has neither ended
	// nor been reopened.
	ErrNotOpen = errors.New("execution has not been reopened")
	// ErrHandedOver says that this process has called HandOver. It may only finish the executions that it has open.
	ErrHandedOver = errors.New("store was handed over to the next process")
	// ErrPending says that the journal has changes that the database can't take yet, for example on a full disk.
	ErrPending = errors.New("changes wait in the journal")
	// ErrNotAdopted says that a call is not possible while the earlier process still has the store open. Call again
	// after Adopt.
	ErrNotAdopted = errors.New("the earlier process still has the store open")
)

// KeyClaimed says that an execution of the tenant has the idempotency key. The caller
// compares the requests.
type KeyClaimed struct {
	Existing Execution
}

func (e *KeyClaimed) Error() string {
	return fmt.Sprintf("idempotency key: claimed by execution %s", e.Existing.ID)
}

// SpoolFullError says that the disk, or a quota on it, is full. Earlier events stay,
// and the execution can still be ended.
type SpoolFullError struct {
	ID  string
	Err error
}

func (e *SpoolFullError) Error() string { return fmt.Sprintf("record %s: %v", e.ID, e.Err) }
func (e *SpoolFullError) Unwrap() error { return e.Err }

// Is makes every such error unix.ENOSPC: SQLite's own code is another.
func (e *SpoolFullError) Is(target error) bool { return target == unix.ENOSPC }

// OutcomeTooLargeError says that an outcome is longer than MaxOutcomeBytes. Nothing
// was recorded: the log is still open, and a call of End with a smaller outcome works.
type OutcomeTooLargeError struct {
	ID   string
	Size int
}

func (e *OutcomeTooLargeError) Error() string {
	return fmt.Sprintf("record %s: outcome of %d bytes: more than %d", e.ID, e.Size, MaxOutcomeBytes)
}

// CorruptError says that a file or a row was damaged since it was written.
type CorruptError struct {
	ID string // of the execution; empty: damage of the database that belongs to none
	// Offset is the position in the spool, in bytes; 0 if something else is damaged.
	Offset int64
	Reason string
	// End is the end from the database, which is whole although the spool is damaged.
	// Nil: the execution has not ended, or something else is damaged.
	End *Event
}

func (e *CorruptError) Error() string {
	if e.ID == "" {
		return "record: corrupt: " + e.Reason
	}
	ended := ""
	if e.End != nil {
		ended = "; the execution ended " + e.End.End
	}
	return fmt.Sprintf("record %s: corrupt at byte %d: %s%s", e.ID, e.Offset, e.Reason, ended)
}

// isDamage reports whether an error shows that a row or a spool was damaged.
func isDamage(err error) bool {
	var bad badFrame
	return isCorrupt(err) || err == errShort || errors.As(err, &bad)
}

// of returns err for callers of this package, with the execution that it is about. Damage becomes a *CorruptError.
func of(id string, err error) error {
	if isDamage(err) {
		return &CorruptError{ID: id, Reason: err.Error()}
	}
	return fmt.Errorf("record %s: %w", id, err)
}

// ofAll is of for a call that is about no single execution.
func ofAll(call string, err error) error {
	if isDamage(err) {
		return &CorruptError{Reason: call + ": " + err.Error()}
	}
	return fmt.Errorf("record: %s: %w", call, err)
}

// TokenError says that a page token is malformed, or of another listing.
type TokenError struct {
	Reason string
}

func (e *TokenError) Error() string { return "page token: " + e.Reason }

// NewerError says that a later version of the program wrote the database.
type NewerError struct {
	Path       string
	Have, Know int // versions of the schema: of the database, and the latest that this program knows
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("%s: written by a newer version (schema %d, known up to %d); run that version, or move the directory away", e.Path, e.Have, e.Know)
}

// SchemaError says that the earlier process uses another version of the database or of the journal. So this process
// cannot share the store with it. A plain Open works after the earlier process has ended.
type SchemaError struct {
	Path string
	// Have is the version of the database, Know the version that this process uses. Both are 0 for a journal.
	Have, Know int
}

func (e *SchemaError) Error() string {
	if e.Know == 0 {
		return fmt.Sprintf("%s: the running process writes another version of the journal; a takeover can't change that: restart the daemon", e.Path)
	}
	return fmt.Sprintf("%s: the running process works with schema %d, this one with schema %d; a takeover can't change that: restart the daemon", e.Path, e.Have, e.Know)
}

// DamagedError says that the database is damaged or missing while the earlier process has it open. Open has changed
// nothing.
type DamagedError struct {
	Path string
	Err  error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s: damaged: %v; restart the daemon, which repairs the record or begins a new one", e.Path, e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// isFull reports whether the disk is full, by an error of a file or of SQLite.
// EDQUOT is a quota on the file system (quotactl(2)); SQLite reports both as SQLITE_FULL or
// keeps the number in SystemErrno.
func isFull(err error) bool {
	var e sqlite3.Error
	if errors.As(err, &e) {
		return e.Code == sqlite3.ErrFull || e.SystemErrno == unix.ENOSPC || e.SystemErrno == unix.EDQUOT
	}
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// isBusy reports whether another process had a lock of the database for longer than busyTimeout.
func isBusy(err error) bool {
	var e sqlite3.Error
	return errors.As(err, &e) && e.Code == sqlite3.ErrBusy
}

// mayPass reports whether an error about a spool says nothing about its content, so that a later attempt may succeed.
// EIO does not count: the row of the execution can be read and written, so it is the spool that has a bad block.
func mayPass(err error) bool {
	if e, ok := errors.AsType[sqlite3.Error](err); ok {
		return isFull(e) || !isCorrupt(e) && e.Code != sqlite3.ErrIoErr
	}
	return durable.MayPass(err) && !errors.Is(err, unix.EIO)
}

// A passing error comes from SQLite, and the next attempt may succeed. durable.MayPass is true for it: that function
// looks for an error number, which SQLite's own error does not unwrap to.
type passing struct{ error }

func (e passing) Unwrap() []error { return []error{e.error, unix.EAGAIN} }

// markPassing returns err as a passing error if SQLite has reported anything but damage.
func markPassing(err error) error {
	if e, ok := errors.AsType[sqlite3.Error](err); ok && !isCorrupt(e) {
		return passing{err}
	}
	return err
}

// isCorrupt reports whether the database file is damaged, or no database.
func isCorrupt(err error) bool {
	var e sqlite3.Error
	return errors.As(err, &e) && (e.Code == sqlite3.ErrCorrupt || e.Code == sqlite3.ErrNotADB)
}
