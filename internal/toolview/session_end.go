package toolview

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/skillrun/skillrun/internal/executor"
)

// A SessionEnd lists the changes of a call to a session of files.
type SessionEnd struct {
	ID      string
	Version int                      // the newest one that the call knows
	Changes []executor.SessionChange // the first ones
	LeftOut int                      // how many more there are
	// NotKept says why the session does not have the call's changes, or, with Unknown, why it may lack them. Empty: it has
	// them.
	NotKept string
	Unknown bool
}

// sessionResultProperty is the schema of the field session of a result.
const sessionResultProperty = `"session": {
      "type": "object",
      "description": "The session of files, and what the call has changed in it",
      "properties": {
        "id": {"type": "string"},
        "version": {"type": "integer", "description": "Of its files; each call that changes them makes the next one"},
        "changes": {
          "type": "array",
          "items": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "change": {"type": "string", "enum": ["added", "changed", "deleted"]}, "size_bytes": {"type": "integer"}, "uri": {"type": "string", "description": "The file as a resource, and as uri in files of another call"}},
            "required": ["path", "change"],
            "additionalProperties": false
          }
        },
        "changes_left_out": {"type": "integer", "description": "How many more files it changed"},
        "not_kept": {"type": "string", "description": "Why the session does not have the changes, or may lack them"}
      },
      "required": ["id", "version"],
      "additionalProperties": false
    }`

// sessionEnd returns nil if the execution had no session.
func (r run) sessionEnd() *SessionEnd {
	s := r.Outcome.Session
	if s == nil {
		return nil
	}
	return &SessionEnd{
		ID: s.ID, Version: cmp.Or(s.Committed, s.Version), Changes: r.SessionChanges,
		LeftOut: s.Added + s.Changed + s.Deleted - len(r.SessionChanges), NotKept: toolWords.Replace(s.Reason),
		Unknown: s.Uncommitted == executor.CommitUnknown,
	}
}

// A listedSession is a SessionEnd in a result.
type listedSession struct {
	ID      string         `json:"id"`
	Version int            `json:"version"`
	Changes []listedChange `json:"changes,omitempty"`
	LeftOut int            `json:"changes_left_out,omitempty"`
	NotKept string         `json:"not_kept,omitempty"`
	unknown bool
}

type listedChange struct {
	Path      string `json:"path"`
	Change    string `json:"change"`
	SizeBytes *int64 `json:"size_bytes,omitempty"` // of a file that is there
	URI       string `json:"uri,omitempty"`
}

// list returns the fields of a result. It returns nil for nil. The executor has bounded the changes.
func (s *SessionEnd) list() *listedSession {
	if s == nil {
		return nil
	}
	out := &listedSession{ID: s.ID, Version: s.Version, LeftOut: s.LeftOut, NotKept: s.NotKept, unknown: s.Unknown}
	for _, c := range s.Changes {
		line := listedChange{Path: c.Path, Change: string(c.Kind)}
		if !c.Deleted() {
			line.SizeBytes, line.URI = &c.SizeBytes, c.URI(s.ID)
		}
		out.Changes = append(out.Changes, line)
	}
	return out
}

// text returns the same as lines in brackets, for a result that is a text. It returns "" for nil.
func (s *listedSession) text() string {
	if s == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n[Session %s, version %d]", s.ID, s.Version)
	for _, c := range s.Changes {
		fmt.Fprintf(&b, "\n[Session: %s %s", c.Change, c.Path)
		if c.URI != "" {
			fmt.Fprintf(&b, ", %d bytes: %s", *c.SizeBytes, c.URI)
		}
		b.WriteByte(']')
	}
	if s.LeftOut > 0 {
		fmt.Fprintf(&b, "\n[Session: %d more files changed.]", s.LeftOut)
	}
	switch {
	case s.unknown:
		fmt.Fprintf(&b, "\n[Session: the changes may be lost: %s]", s.NotKept)
	case s.NotKept != "":
		fmt.Fprintf(&b, "\n[Session: the changes were not kept: %s]", s.NotKept)
	}
	return b.String()
}
