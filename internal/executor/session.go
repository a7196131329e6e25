package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/skillrun/skillrun/internal/record"
	"github.com/skillrun/skillrun/internal/session"
	"github.com/skillrun/skillrun/internal/tenant"
	"github.com/skillrun/skillrun/internal/workspace"
	"github.com/skillrun/skillrun/sandbox"
)

// Executions in a session. The order is:
//
//	Execute   becomes the session's writer, before it takes a ticket: an execution that waits for a
//	          session must not hold a slot that the session's writer waits for
//	accept    opens the version, so that its errors come before the record
//	run       puts the files of the version beneath the snapshot and the inputs
//	          commits the changes after the program's end, before the outcome
//	end       releases the session, then records the outcome: a caller with the outcome finds the
//	          session free
//
// The files of the session lie below the snapshot. So a file that one skill has left never hides a file
// of the next one.

// A SessionUse says in which session an execution works.
type SessionUse struct {
	ID string
	// Version to start from. Zero: the newest.
	Version int `json:",omitempty"`
	// Wait for other executions in the session, within the queue timeout. False: a *session.BusyError.
	Wait bool `json:",omitempty"`
	// CommitFailed commits even if the program fails or is ended.
	CommitFailed bool `json:",omitempty"`
}

// A SessionBase is the session of an execution, and the version that it has started from.
type SessionBase struct {
	ID      string `json:"id"`
	Version int    `json:"version,omitempty"` // zero: an empty session
}

// Uncommitted says why a session did not get an execution's changes.
type Uncommitted string

const (
	NotSucceeded Uncommitted = "NOT_SUCCEEDED" // the program failed, was ended or never ran
	NotCollected Uncommitted = "NOT_COLLECTED" // a change could not be collected, so nothing was committed
	OverQuota    Uncommitted = "OVER_QUOTA"    // of the session or of the tenant's sessions
	CommitError  Uncommitted = "ERROR"         // the daemon or the sandbox failed
	// CommitUnknown: the disk failed during the commit and its undoing, or the daemon died, so the session may have the
	// changes.
	CommitUnknown Uncommitted = "UNKNOWN"
)

// A SessionOutcome says what became of the session.
type SessionOutcome struct {
	SessionBase
	// Committed is the new version. Zero: none was made, because of Uncommitted or because nothing was
	// changed.
	Committed    int   `json:"committed,omitempty"`
	Added        int   `json:"added,omitempty"` // files
	Changed      int   `json:"changed,omitempty"`
	Deleted      int   `json:"deleted,omitempty"`
	WrittenBytes int64 `json:"written_bytes,omitempty"` // of added and changed files
	// Files and Bytes count the whole new version.
	Files       int         `json:"files,omitempty"`
	Bytes       int64       `json:"bytes,omitempty"`
	Uncommitted Uncommitted `json:"uncommitted,omitempty"`
	Reason      string      `json:"reason,omitempty"` // a sentence; only with Uncommitted
}

// A sessionTurn is the time in which an execution is the writer of its session.
type sessionTurn struct {
	*session.Writer
	use  SessionUse
	once sync.Once
}

// release may be called more than once, and on nil.
func (s *sessionTurn) release() {
	if s != nil {
		s.once.Do(s.Release)
	}
}

// base returns the session and the version. It returns nil without a session.
func (s *sessionTurn) base() *SessionBase {
	if s == nil {
		return nil
	}
	return &SessionBase{s.use.ID, s.Base()}
}

// enterSession makes a new execution the writer of the session of its request. The ids of executions and of
// versions agree, so the execution has its ID from now on.
func (x *Executor) enterSession(ctx context.Context, t *tenant.Tenant, req *Request) error {
	if req.Session == nil {
		return nil
	}
	if x.Sessions == nil {
		return &RequestError{"session", "this daemon has no sessions"}
	}
	if req.Session.Version < 0 {
		return &RequestError{"session.version", "negative; leave it out to get the newest version"}
	}
	req.id = record.NewID()
	use := session.Use{By: "execution " + req.id}
	w, err := x.Sessions.Acquire(ctx, req.Principal.Tenant, req.Session.ID, use)
	if _, busy := errors.AsType[*session.BusyError](err); busy && req.Session.Wait {
		w, err = x.awaitSession(ctx, t, *req, use)
	}
	if err != nil {
		return err
	}
	req.turn = &sessionTurn{Writer: w, use: *req.Session}
	return nil
}

// awaitSession waits for the session of a request. After the queue timeout the error is a
// *session.BusyError. While the request waits, it counts in the tenant's queue.
func (x *Executor) awaitSession(ctx context.Context, t *tenant.Tenant, req Request, use session.Use) (*session.Writer, error) {
	place, err := x.takePlace(t, req.Principal)
	if err != nil {
		return nil, err
	}
	defer place.Leave()
	patience, cancel := context.WithTimeout(ctx, cmp.Or(req.QueueTimeout, t.QueueTimeout))
	defer cancel()
	use.Wait = true
	w, err := x.Sessions.Acquire(patience, req.Principal.Tenant, req.Session.ID, use)
	if err != nil && patience.Err() != nil && ctx.Err() == nil {
		return nil, &session.BusyError{ID: req.Session.ID, Writer: "another execution", Waited: true}
	}
	return w, err
}

// openSession opens the version of an execution, and lowers the limits of the workspace to the bounds of
// the session. Deleting a file of the session takes an inode, too: a whiteout.
func (e *execution) openSession() error {
	if e.turn == nil {
		return nil
	}
	if err := e.turn.Open(e.turn.use.Version); err != nil {
		return err
	}
	e.hideSessionFiles()
	bytes, files := e.turn.Room()
	if bytes > 0 {
		e.limits.WorkspaceBytes = min(e.limits.WorkspaceBytes, max(bytes, minSessionRoom))
	}
	if files > 0 {
		e.limits.WorkspaceFiles = min(e.limits.WorkspaceFiles, files+e.turn.Files())
	}
	return nil
}

// hideSessionFiles hides the files of the session that the program may not see, because the program of another skill
// may have made them. A warning in the header names one. It skips a path at which the skill has a file: that file hides
// the session's file anyway.
func (e *execution) hideSessionFiles() {
	reason, hides := "", e.grant.Hides(e.dir, len(e.secretEnv) > 0)
	for path := range e.turn.Paths() {
		why := hides(path)
		if why == "" || e.grant.Skill().Has(path) {
			continue
		}
		if e.hidden = append(e.hidden, workspace.Input{Path: path, Whiteout: true}); reason == "" {
			reason = why
		}
	}
	if n := len(e.hidden); n > 0 {
		e.sessionWarnings = []string{fmt.Sprintf("%d files of the session are hidden, such as %q: %s", n, e.hidden[0].Path, reason)}
	}
}

// unseen returns a function that reports whether the program did not see a file of the session: hideSessionFiles has
// hidden it, or it is in a directory at the path of an input. Of the skill's files, session.Change.Foreign knows the same.
func (e *execution) unseen() func(path string) bool {
	hidden, inputs := make(map[string]bool, len(e.hidden)), map[string]bool{}
	for _, in := range e.hidden {
		hidden[in.Path] = true
	}
	for _, path := range e.inputs {
		inputs[path] = true
	}
	return func(file string) bool {
		for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
			if inputs[dir] {
				return true
			}
		}
		return hidden[file]
	}
}

// minSessionRoom is the least size in bytes of the workspace of an execution in a session: the sandbox needs some
// pages itself.
const minSessionRoom = 64 << 10

// withSession adds the files of the session to the workspace, below everything else.
func (e *execution) withSession() {
	if e.turn != nil && e.turn.Lower() != "" {
		e.workspace = e.workspace.Over(e.turn.Lower())
	}
}

// commitSession commits the changes of an execution whose program has run, and notes that in the outcome. lost is the
// failure of its sandbox.
func (x *Executor) commitSession(r *run, exit sandbox.Exit, lost error, out *Outcome) {
	if r.turn == nil {
		return
	}
	s := out.Session // by blank: not succeeded
	switch {
	case lost != nil && out.End != Exited, !r.turn.use.CommitFailed && (out.End != Exited || *out.ExitCode != 0):
		return
	case lost != nil: // the daemon may have ended other processes of the program, so the files may lack something
		s.Uncommitted, s.Reason = CommitError, "its sandbox failed when the program exited ("+scarcity(lost)+")"
	case exit.CollectErr != nil || r.collected.incomplete:
		s.Uncommitted, s.Reason = NotCollected, "not all of its changes could be collected; artifacts_refused says why"
	default:
		done, err := r.turn.Commit(x.changeOf(r))
		*s = sessionOutcome(s.SessionBase, done, err)
		out.SessionChanges = sessionChanges(r.turn.Changes())
		if s.Uncommitted == CommitError || s.Uncommitted == CommitUnknown {
			r.logger.Error("session not committed", "execution", r.id, "session", s.ID, "err", err)
		}
	}
	switch {
	case out.Advice != "" || s.Uncommitted == "":
	case s.Uncommitted == CommitUnknown:
		out.Advice = "The session may lack its changes: " + s.Reason + "."
	default:
		out.Advice = "The session does not have its changes: " + s.Reason + "."
	}
}

// sessionOutcome describes the result of a commit.
func sessionOutcome(base SessionBase, done session.Committed, err error) SessionOutcome {
	s := SessionOutcome{
		SessionBase: base, Committed: done.Version.Number, Added: done.Added, Changed: done.Changed, Deleted: done.Deleted,
		WrittenBytes: done.WrittenBytes, Files: done.Version.Files, Bytes: done.Version.Bytes,
	}
	if err == nil {
		return s
	}
	if full, ok := errors.AsType[*session.QuotaError](err); ok {
		s.Uncommitted, s.Reason = OverQuota, full.Error()
	} else if unknown, ok := errors.AsType[*session.UnknownError](err); ok {
		s.Uncommitted, s.Reason = CommitUnknown, fmt.Sprintf("the disk failed while the daemon wrote version %d; look at the session's versions when the disk works again", unknown.Version)
	} else {
		s.Uncommitted, s.Reason = CommitError, "the daemon could not write them ("+scarcity(err)+")"
	}
	return s
}

// changeOf returns the changes of the program. Package session leaves out the paths at which the skill
// has a file or a directory.
func (x *Executor) changeOf(r *run) session.Change {
	change := session.Change{
		Deleted: append(r.collected.deleted, r.collected.hiding...), Foreign: r.grant.Skill().Has, Unseen: r.unseen(),
	}
	dir := x.Record.ArtifactDir(r.id)
	for i, a := range r.collected.artifacts {
		change.Files = append(change.Files, session.NewFile{
			File:   session.File{Path: a.Path, SizeBytes: a.SizeBytes, SHA256: a.SHA256, Executable: a.Executable},
			Source: filepath.Join(dir, strconv.Itoa(i)),
		})
	}
	return change
}

// SessionUse returns the number of a tenant's sessions, and what all of their versions have on disk.
func (x *Executor) SessionUse(tenant string) (sessions int, bytes int64) {
	if x.Sessions == nil {
		return 0, 0
	}
	return x.Sessions.Usage(tenant)
}

// newCollected keeps the parts for the outcome and for the session.
func newCollected(got workspace.Collected) collected {
	return collected{
		artifacts: got.Artifacts, refused: got.Refused, deleted: got.Deleted, hiding: got.Hiding, incomplete: got.Incomplete,
	}
}
