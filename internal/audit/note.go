package audit

import (
	"context"
	"sync/atomic"
)

// Bounds of the entries in a second. Note writes at most fullNotes entries of a tenant in full. Allow and WriteOrCount
// together write as many at once. fullUnidentified is for callers who are not identified, and so have no tenant.
const (
	fullNotes        = 20
	fullUnidentified = 1
)

// TenantUnknown is the reason of a refusal because the caller's tenant is not configured. A JSON Web Token
// can have any name there, so Note counts all these tenants as one.
const TenantUnknown = "TENANT_UNKNOWN"

// notes counts what Note does not write in full. The keys are bounded: they are reasons of the contract and
// names of configured tenants.
type notes struct {
	written map[string]int     // by tenant, in this interval
	counted map[noteKey]*Entry // the last of each kind, with the count
}

type noteKey struct {
	event          Event
	tenant, reason string
}

// Note writes an entry that callers can cause at will. Beyond a number each second, one later entry
// has the count. The failure of a write is in Stats only.
func (l *Log) Note(e Entry) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	limit, tenant := fullNotes, e.Tenant
	if e.Event == Unidentified {
		limit = fullUnidentified
	}
	if e.Reason == TenantUnknown {
		tenant = "(unknown)" // no tenant has this name
	}
	if l.notes.written[tenant] < limit {
		l.notes.written[tenant]++
		_ = l.write(e)
		return
	}
	l.count(e, tenant)
}

// flush writes the counts and begins a new interval. It also sees that the log works again, without a call.
func (l *Log) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.notes.written)
	for key, e := range l.notes.counted {
		if l.write(*e) != nil {
			l.lost += e.Count - 1 // write has counted one
		}
		delete(l.notes.counted, key)
	}
	if l.lost > 0 || l.broken != nil {
		l.report(l.retry())
	}
}

// A Caller is where a call came from. It travels in the context of the call.
type Caller struct {
	Address, Method string
	wrote           atomic.Bool
}

type callerKey struct{}

// WithCaller returns a context for a call of a caller.
func WithCaller(ctx context.Context, c *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// Wrote reports whether an entry about the call was written. A nil Caller has no entries.
func (c *Caller) Wrote() bool { return c != nil && c.wrote.Load() }

// CallerOf returns the Caller of a context, or nil.
func CallerOf(ctx context.Context) *Caller {
	c, _ := ctx.Value(callerKey{}).(*Caller)
	return c
}

// By begins an entry about the call of a context.
func By(ctx context.Context, event Event, tenant, principal string) Entry {
	e := Entry{Event: event, Tenant: tenant, Principal: principal}
	if c := CallerOf(ctx); c != nil {
		e.Address, e.Method = c.Address, c.Method
		c.wrote.Store(true)
	}
	return e
}

// NoteRefusal notes that a call was refused with an error. It sets the reason, unless the entry has one.
func (l *Log) NoteRefusal(e Entry, err error) {
	if l == nil {
		return
	}
	e.Decision, e.Detail = Refused, err.Error()
	if e.Reason == "" && l.Reason != nil {
		e.Reason = l.Reason(err)
	}
	l.Note(e)
}
