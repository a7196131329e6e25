package executor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"unicode/utf8"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/session"
)

// Files of sessions for callers that are not executions: the tools for models.

// ErrNoSessionFile says that the tenant has no such session, or the session no such file.
var ErrNoSessionFile = session.ErrNotFound

// Bounds of Outcome.SessionChanges. The outcome is one record.
const (
	maxSessionChanges     = 100
	maxSessionChangeBytes = 64 << 10 // of paths
)

// A SessionChange is one file that the commit of an execution has changed.
type SessionChange struct {
	Path      string       `json:"path"`
	Raw       []byte       `json:"raw,omitempty"` // the path, if it is not UTF-8
	Kind      session.Kind `json:"kind"`
	SizeBytes int64        `json:"size_bytes"` // before a deletion
}

// NewSessionChange describes a file.
func NewSessionChange(f session.File, kind session.Kind) SessionChange {
	c := SessionChange{Path: f.Path, Kind: kind, SizeBytes: f.SizeBytes}
	if !utf8.ValidString(f.Path) {
		c.Raw = []byte(f.Path)
	}
	return c
}

// Deleted reports whether the file is gone.
func (c SessionChange) Deleted() bool { return c.Kind == session.Deleted }

// URI is the URI of the file in the session id.
func (c SessionChange) URI(id string) string {
	if c.Raw != nil {
		return SessionURI(id, string(c.Raw))
	}
	return SessionURI(id, c.Path)
}

// SessionURI is the URI of a file of a session.
func SessionURI(id, path string) string { return SessionScheme + id + "/" + EscapePath(path) }

// sessionChanges returns the first changes, as far as the bounds allow.
func sessionChanges(all []session.Changed) (list []SessionChange) {
	room := maxSessionChangeBytes
	for _, c := range all {
		if room -= len(c.Path); room < 0 || len(list) == maxSessionChanges {
			break
		}
		list = append(list, NewSessionChange(c.File, c.Kind))
	}
	return list
}

// errNoSessions says that Config.Sessions is nil.
var errNoSessions = &RequestError{"session", "this daemon has no sessions"}

// sessionsOf returns the sessions for a caller whose tenant exists.
func (x *Executor) sessionsOf(who permission.Principal) (*session.Store, error) {
	if x.Sessions == nil {
		return nil, errNoSessions
	}
	_, err := x.Tenant(who)
	return x.Sessions, err
}

// CreateSession makes a session of the caller's tenant. The audit log has an entry.
func (x *Executor) CreateSession(ctx context.Context, who permission.Principal, set session.Settings) (made session.Info, err error) {
	store, err := x.sessionsOf(who)
	if err != nil {
		return made, err
	}
	err = x.audited(audit.By(ctx, audit.Call, who.Tenant, who.Name), func() (err error) {
		made, err = store.Create(who.Tenant, set)
		return err
	})
	return made, err
}

// PutSessionFile makes a version of a session with one more file, or with other content in one. It waits
// for other writers, at most for the tenant's queue timeout. The audit log has an entry.
func (x *Executor) PutSessionFile(ctx context.Context, who permission.Principal, id, path string, content []byte) (v session.Version, err error) {
	store, err := x.sessionsOf(who)
	if err != nil {
		return v, err
	}
	size := int64(len(content))
	if err := store.CheckPut(who.Tenant, id, path, size); err != nil {
		return v, err
	}
	source, err := x.stageContent(content)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, os.Remove(source)) }()
	sum := sha256.Sum256(content)
	err = x.audited(audit.By(ctx, audit.Call, who.Tenant, who.Name), func() (err error) {
		v, err = x.putWaiting(ctx, who, id, session.NewFile{
			File: session.File{Path: path, SizeBytes: size, SHA256: hex.EncodeToString(sum[:])}, Source: source,
		})
		return err
	})
	return v, err
}

// putWaiting is Store.Put, but it waits for a busy session until the queue timeout. Then the error is a
// *session.BusyError. A call that waits counts in the tenant's queue.
func (x *Executor) putWaiting(ctx context.Context, who permission.Principal, id string, f session.NewFile) (session.Version, error) {
	t, err := x.Tenant(who)
	if err != nil {
		return session.Version{}, err
	}
	use := session.Use{By: "a call by " + who.Name}
	v, err := x.Sessions.Put(ctx, who.Tenant, id, use, f)
	if _, busy := errors.AsType[*session.BusyError](err); !busy {
		return v, err
	}
	place, err := x.takePlace(t, who)
	if err != nil {
		return session.Version{}, err
	}
	defer place.Leave()
	patience, cancel := context.WithTimeout(ctx, t.QueueTimeout)
	defer cancel()
	use.Wait = true
	v, err = x.Sessions.Put(patience, who.Tenant, id, use, f)
	if err != nil && patience.Err() != nil && ctx.Err() == nil {
		return v, &session.BusyError{ID: id, Writer: "an execution", Waited: true}
	}
	return v, err
}

// stageContent writes content to a file in StagingDir. The caller must remove it.
func (x *Executor) stageContent(content []byte) (path string, err error) {
	f, err := os.CreateTemp(x.StagingDir, "session-")
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// ReadSession returns the newest version of a session.
func (x *Executor) ReadSession(who permission.Principal, id string) (*session.View, error) {
	store, err := x.sessionsOf(who)
	if err != nil {
		return nil, err
	}
	return store.Read(who.Tenant, id, 0)
}

// OpenSessionFile opens a file in the newest version of a session. The caller must close it.
func (x *Executor) OpenSessionFile(who permission.Principal, id, path string) (*os.File, session.File, error) {
	view, err := x.ReadSession(who, id)
	if err != nil {
		return nil, session.File{}, err
	}
	return openIn(view, path)
}

// openIn opens a file of a version.
func openIn(view *session.View, path string) (*os.File, session.File, error) {
	f, err := view.Find(path)
	if err != nil {
		return nil, f, err
	}
	file, err := view.Open(f)
	return file, f, err
}

// DropEmptySession removes a session without a version, unless it is in use.
func (x *Executor) DropEmptySession(who permission.Principal, id string) error {
	store, err := x.sessionsOf(who)
	if err != nil {
		return err
	}
	return store.DeleteEmpty(who.Tenant, id)
}
