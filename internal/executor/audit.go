package executor

import (
	"context"
	"errors"
	"strings"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/permission"
)

// Entries of the audit log. An entry is written before the thing that it is about: a request that
// cannot be recorded is refused, and a reader who sees an end finds it in the log. A cancel and a signal
// happen even if their entry cannot be written, so that a caller can always end an execution.
//
// An entry has the command line, which rules have judged. Like the log it has no arguments, code,
// environment, input or output: they may hold secrets.

// entryOf begins an entry about an execution.
func entryOf(ctx context.Context, event audit.Event, who permission.Principal, id string) audit.Entry {
	e := audit.By(ctx, event, who.Tenant, who.Name)
	e.Execution = id
	return e
}

// entryOfRequest begins an entry about a request.
func entryOfRequest(ctx context.Context, event audit.Event, req Request, id string) audit.Entry {
	e := entryOf(ctx, event, req.Principal, id)
	e.Skill, e.Source = req.Skill, req.Source.Kind.String()
	switch req.Source.Kind {
	case permission.Script:
		e.Script = req.Source.Script
	case permission.Command:
		e.Command = req.Source.Command
	}
	return e
}

// refused tells the audit log and the observer of a refused request. In a takeover the next daemon usually gets the
// request instead; if it does not, the server notes the refusal.
func (x *Executor) refused(ctx context.Context, req Request, err error) {
	if IsHandedOver(err) {
		return
	}
	e := entryOfRequest(ctx, audit.Execute, req, "")
	if denied, ok := errors.AsType[*permission.Denied](err); ok {
		e.Missing = denied.Rule
	}
	x.Audit.NoteRefusal(e, err)
	if x.Observer != nil {
		x.Observer.Refused(x.observed(req.Principal.Tenant), err)
	}
}

// auditAccepted writes that an execution is about to be recorded. After an error it must not be.
func (x *Executor) auditAccepted(ctx context.Context, e *execution) error {
	sk := e.grant.Skill()
	entry := entryOfRequest(ctx, audit.Execute, Request{
		Principal: e.grant.Principal(), Skill: sk.Name + "@" + sk.Digest, Source: e.grant.Source(),
	}, e.id)
	entry.Decision, entry.Rule, entry.Learn = audit.Allowed, e.grant.Rule(), e.grant.Learns()
	return x.Audit.Write(entry)
}

// auditDuplicate writes that a request got the execution of an earlier one.
func (x *Executor) auditDuplicate(ctx context.Context, req Request, id string) error {
	entry := entryOfRequest(ctx, audit.Duplicate, req, id)
	entry.Decision = audit.Allowed
	return x.Audit.WriteOrCount(entry)
}

// auditNote writes that an execution gets a cancel or a signal.
func (x *Executor) auditNote(e audit.Entry) {
	e.Decision = audit.Allowed
	x.Audit.Note(e)
}

// audited does something only if the audit log has it. It notes a failure in another entry.
func (x *Executor) audited(e audit.Entry, do func() error) error {
	allowed := e
	allowed.Decision = audit.Allowed
	end, err := x.Audit.Allow(allowed)
	if err == nil {
		err = do()
		end(err)
	}
	if err != nil {
		x.Audit.NoteRefusal(e, err)
	}
	return err
}

// auditEnd writes the end of an execution. The outcome is recorded even if that fails; the audit log
// counts the entries that it has lost.
func (x *Executor) auditEnd(who permission.Principal, id string, out Outcome) {
	_ = x.Audit.Write(audit.Entry{
		Network: auditNetwork(out.Usage.Network, out.Evidence.NetworkDenied),
		Event:   audit.End, Tenant: who.Tenant, Principal: who.Name, Execution: id,
		End: string(out.End), ExitCode: out.ExitCode, Signal: out.Signal, By: out.Evidence.CancelledBy, Why: out.Evidence.CancelReason,
	})
}

// auditConnections writes connections of a running execution. The entry about its end has them again.
func (x *Executor) auditConnections(who permission.Principal, id string, n *audit.Network) {
	_ = x.Audit.Write(audit.Entry{Event: audit.Connections, Tenant: who.Tenant, Principal: who.Name, Execution: id, Network: n})
}

// Bounds on the parts of an entry about one connection, so that the whole entry stays within the bound of a line.
const (
	maxAuditedCredentials = 2
	maxAuditedError       = 60 // bytes
)

func auditNetwork(usage *NetworkUsage, denied int64) *audit.Network {
	if usage == nil {
		return nil
	}
	n := &audit.Network{Denied: denied, Count: usage.Count, Sent: usage.Sent, Received: usage.Received, Incomplete: usage.Incomplete}
	for _, c := range usage.Connections {
		n.Connections = append(n.Connections, audit.Connection{
			Start: c.Start.UTC(), Seconds: c.Took.Seconds(), Protocol: c.Protocol, To: c.To.String(), Name: c.Name, Sent: c.Sent, Received: c.Received,
			Credentials: strings.Join(c.Credentials[:min(len(c.Credentials), maxAuditedCredentials)], ","), Error: c.Error[:min(len(c.Error), maxAuditedError)],
		})
	}
	return n
}
