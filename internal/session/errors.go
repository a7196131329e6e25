package session

import (
	"errors"
	"fmt"
)

// ErrNotFound says that the tenant has no such session, or the session no such version or file. A session
// of another tenant and an expired one do not exist either.
var ErrNotFound = errors.New("not found")

// ErrClosed says that the store was closed.
var ErrClosed = errors.New("sessions are closed")

// ErrHandedOver says that another process makes, changes and deletes the sessions now; see Store.HandOver.
var ErrHandedOver = errors.New("sessions were handed over to the next daemon")

// BusyError says that a session has a writer.
type BusyError struct {
	ID     string
	Writer string // the execution or the call that writes
	Queued int    // that wait; 0: the caller did not want to wait
	Waited bool   // until the end of the caller's queue timeout
}

func (e *BusyError) Error() string {
	if e.Queued > 0 {
		return fmt.Sprintf("session %s is in use by %s, and %d more wait; try again later", e.ID, e.Writer, e.Queued)
	}
	if e.Waited {
		return fmt.Sprintf("session %s is in use by %s, also at the end of the queue timeout", e.ID, e.Writer)
	}
	return fmt.Sprintf("session %s is in use by %s; try again when it has ended", e.ID, e.Writer)
}

// The quotas of a QuotaError.
const (
	QuotaSessions    = "sessions"      // of the tenant
	QuotaTenantBytes = "session_bytes" // of all versions of all sessions of the tenant, on disk
	QuotaBytes       = "bytes"         // of the files of one version
	QuotaFiles       = "files"         // of one version
	QuotaList        = "list_bytes"    // of the list of one version's files, with their paths
)

// QuotaError says which quota a change exceeds. Nothing was changed.
type QuotaError struct {
	Quota string
	Limit int64
	Need  int64 // with the change
}

func (e *QuotaError) Error() string {
	switch e.Quota {
	case QuotaSessions:
		return fmt.Sprintf("the tenant has %d sessions, and may have no more; delete one", e.Limit)
	case QuotaTenantBytes:
		return fmt.Sprintf("the sessions of the tenant would need %d bytes on disk, of at most %d; delete files or sessions", e.Need, e.Limit)
	case QuotaList:
		return fmt.Sprintf("the list of the session's files would have %d bytes, of at most %d; use shorter paths or fewer files", e.Need, e.Limit)
	}
	return fmt.Sprintf("the session would have %d %s, of at most %d; delete files", e.Need, e.Quota, e.Limit)
}

// SettingsError says which setting of a session is not valid.
type SettingsError struct{ Setting, Reason string }

func (e *SettingsError) Error() string { return e.Setting + " " + e.Reason }

// PathError says why a session can't have a file with a path.
type PathError struct{ Path, Reason string }

func (e *PathError) Error() string { return fmt.Sprintf("path %q: %s", e.Path, e.Reason) }

// UnknownError says that a commit failed, and that the disk also failed when the commit was to be undone. So it is
// unknown whether the version is on the disk. The next use of the session removes the version, if the disk works again.
// If the daemon ends before that, the next start finds the version, or does not.
type UnknownError struct {
	ID      string
	Version int
	Err     error
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("session %s: version %d may be on the disk or not: %v; list the session's versions before you repeat the call", e.ID, e.Version, e.Err)
}

func (e *UnknownError) Unwrap() error { return e.Err }

// DamagedError says that a version on disk can't be used, while other versions can. With Version 0 the whole session
// can't be used; its files stay for the operator.
type DamagedError struct {
	ID      string
	Version int
	Err     error
}

func (e *DamagedError) Error() string {
	if e.Version == 0 {
		return fmt.Sprintf("session %s is damaged: %v; the daemon keeps its files, use another session", e.ID, e.Err)
	}
	return fmt.Sprintf("session %s: version %d is damaged: %v; use an earlier version", e.ID, e.Version, e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }
