package toolview

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/session"
)

// Sessions of files behind the tools. A call works in the session that its argument names, or else in the
// session of its conversation. The first call that runs a program or writes a file makes that session. Package
// executor lets one call after the other write, so calls of one conversation that come at the same time
// run one after the other.

// A Conversation remembers the session of files of one agent. The zero value has no session yet. The methods
// may be called at the same time.
type Conversation struct {
	name string // a label of its session; empty: the session has no label

	mu sync.Mutex
	id string // empty: not made, or not looked up yet
}

// NamedConversation returns a conversation that has the session of an earlier conversation with the same name, in the
// same tenant. So a conversation can go on in another daemon. An empty name is no name. The name must be a
// valid value of a session's label.
func NamedConversation(name string) *Conversation { return &Conversation{name: name} }

// A sessionUse is the way in which a tool uses a session.
type sessionUse int

const (
	noSession      sessionUse = iota
	runsInSession             // runs a program in it
	writesSession             // changes it without a program
	readsSession              // makes none
	newSessionName = "new"
	noSessionName  = "none"
)

// Labels of the sessions that tools have made.
const (
	madeByLabel       = "made-by" // tools
	conversationLabel = "conversation"
)

// sessionProperty is the schema of the argument session of tools that run a program.
const sessionProperty = `"session": {"type": "string", "maxLength": 64, "description": "Files that stay between calls: the id of a session in an earlier result, new for another session, or none. ` +
	`The program finds them in its working directory, and if it succeeds its changes stay there. Calls in one session run one after the other. Left out: the session of this conversation, if it has one"}`

// sessionReadProperty is the same for tools that run none.
const sessionReadProperty = `"session": {"type": "string", "maxLength": 64, "description": "The id of a session in an earlier result; left out: the session of this conversation"}`

// A noSessionError is the error of a call without a session that needs one.
type noSessionError struct{ reason string }

func (e *noSessionError) Error() string { return e.reason }

// enter finds or makes the session of a call.
func (v *View) enter(ctx context.Context, c *call, use sessionUse) error {
	if use == noSession {
		return nil
	}
	a, err := decode[struct {
		Session string `json:"session"`
	}](*c)
	if err != nil {
		return err
	}
	switch {
	case a.Session == noSessionName && use == runsInSession:
		return nil
	case a.Session == newSessionName && use != readsSession:
		c.session, err = v.createSession(ctx, c.Who, "")
		return err
	case a.Session != "":
		c.session = a.Session
		return v.hasSession(c.Who, a.Session)
	case use == readsSession:
		c.session = v.sessionOf(c.Who, c.Conversation)
		return nil
	}
	return v.enterOwn(ctx, c, use)
}

// hasSession returns an error unless the caller's tenant has a session.
func (v *View) hasSession(who permission.Principal, id string) error {
	if v.x.Sessions == nil {
		return &noSessionError{"this daemon has no sessions"}
	}
	_, err := v.x.Sessions.Get(who.Tenant, id)
	if errors.Is(err, session.ErrNotFound) {
		return &noSessionError{fmt.Sprintf("there is no session %.80q; it may have expired: use new, or leave session out", id)}
	}
	return err
}

// sessionOf returns the session of a conversation, or "". The conversation may be nil.
func (v *View) sessionOf(who permission.Principal, f *Conversation) string {
	if f == nil {
		return ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	v.lookUp(who, f)
	return f.id
}

// lookUp finds the session that an earlier conversation of the same name has made. f.mu is held.
func (v *View) lookUp(who permission.Principal, f *Conversation) {
	if f.id != "" || f.name == "" || v.x.Sessions == nil {
		return
	}
	for _, s := range v.x.Sessions.List(who.Tenant) {
		if s.Labels[conversationLabel] == f.name {
			f.id = s.ID
		}
	}
}

// enterOwn gives a call the session of its conversation, and makes it if there is none. A call without
// a conversation gets a session only if it writes a file. If the tenant may have no more sessions, a
// program runs without one.
func (v *View) enterOwn(ctx context.Context, c *call, use sessionUse) (err error) {
	f := c.Conversation
	if f == nil || v.sessionIdle == 0 {
		if use == writesSession {
			c.session, err = v.createSession(ctx, c.Who, "")
		}
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if v.lookUp(c.Who, f); f.id != "" {
		gone := v.hasSession(c.Who, f.id)
		// gone is nil here, or an error that says nothing about the session, such as a full disk.
		if !is[*noSessionError](gone) {
			c.session = f.id
			return gone
		}
		c.notes = append(c.notes, fmt.Sprintf("the session %s and its files are gone, because it expired or was deleted; this call has a new one", f.id))
		f.id = ""
	}
	f.id, err = v.createSession(ctx, c.Who, f.name)
	if full := (*session.QuotaError)(nil); use == runsInSession && errors.As(err, &full) {
		c.notes = append(c.notes, "the next call will not find its files: "+full.Error())
		return nil
	}
	c.session = f.id
	return err
}

// createSession makes a session for a call. name is the name of its conversation, or "".
func (v *View) createSession(ctx context.Context, who permission.Principal, name string) (id string, err error) {
	if v.x.Sessions == nil {
		return "", &noSessionError{"this daemon has no sessions"}
	}
	labels := map[string]string{madeByLabel: "tools"}
	if name != "" {
		labels[conversationLabel] = name
	}
	made, err := v.x.CreateSession(ctx, who, session.Settings{IdleTTL: v.sessionIdle, Labels: labels})
	return made.ID, err
}

// EndConversation removes the session of a conversation if nothing was ever written to it. Another
// session stays until it expires, so that a call can name it.
func (v *View) EndConversation(who permission.Principal, f *Conversation) {
	id := v.sessionOf(who, f)
	if id == "" {
		return
	}
	if err := v.x.DropEmptySession(who, id); err != nil {
		v.log.Warn("an empty session stays until it expires", "session", id, "err", err)
	}
}

// inSession returns a function that reports whether a session has a file.
func (v *View) inSession(who permission.Principal, use *executor.SessionUse) func(path string) bool {
	return func(path string) bool {
		if use == nil {
			return false
		}
		view, err := v.x.ReadSession(who, use.ID)
		if err == nil {
			_, err = view.Find(path)
		}
		return err == nil
	}
}
