package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/skillrun/skillrun/internal/admission"
	"github.com/skillrun/skillrun/internal/audit"
)

// The executors of both daemons in a takeover. The earlier daemon has called HandOver: it accepts no new execution,
// and its executions go on until they end. The next daemon has the same record, so Get, List and Follow work
// without the earlier daemon. For Cancel and Signal, the next daemon calls the earlier one. Executions that run in the
// earlier daemon hold slots of the next daemon, so that both together run no more executions than one daemon may.

// An Inherited is an execution of the earlier daemon that runs there, or waits there for a slot.
type Inherited struct {
	ID, Tenant, Principal string
	MemoryBytes           int64
	MilliCPUs             int
	Running               bool // it holds a slot
}

// An Earlier is the daemon that runs the inherited executions. An error of its methods means that this daemon does
// not answer.
type Earlier interface {
	Cancel(id, by, reason string, grace time.Duration) error
	// Signal returns false if the program does not run.
	Signal(id string, sig syscall.Signal) (running bool, err error)
}

// A Successor is the next daemon, seen from the earlier one, which reports the starts and ends of executions to it. The
// methods must not block. They return no error, because a successor that has died needs no report.
type Successor interface {
	Started(Inherited)
	Ended(id string)
}

// An inheritance has the executions of the earlier daemon. Executor.mu guards it.
type inheritance struct {
	from   Earlier
	live   map[string]*inherited
	staged []string // executions that have ended and whose staging directories Adopt could not remove
}

type inherited struct {
	ticket *admission.Ticket // nil: the execution has no slot yet, or its tenant was removed from the configuration
	done   chan struct{}     // closed when the execution has ended, also as lost with its daemon
}

// HandOver makes the executor refuse new executions, and returns the executions that have not ended. These go on, and
// the executor reports their starts and ends to successor. HandOver waits until each call of Execute that has begun is
// either refused or in the record.
func (x *Executor) HandOver(successor Successor) []Inherited {
	x.mu.Lock()
	x.admission.HandOver()
	x.successor = successor
	x.mu.Unlock()
	x.accepting.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	var all []Inherited
	for _, r := range x.live {
		all = append(all, r.inherited())
	}
	return all
}

// Resume undoes HandOver, after the successor has failed and its sandboxes are gone. Executions that the successor
// has accepted end as DAEMON_LOST.
func (x *Executor) Resume(ctx context.Context) {
	x.mu.Lock()
	x.successor = nil
	x.mu.Unlock()
	if err := x.closeLost(ctx); err != nil {
		x.Log.Error("executions of the next daemon were not closed; the daemon tries again in a minute", "err", err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.admission.Open()
}

// inherited describes a run for a successor.
func (r *run) inherited() Inherited {
	who := r.grant.Principal()
	return Inherited{
		ID: r.id, Tenant: who.Tenant, Principal: who.Name,
		MemoryBytes: r.limits.MemoryBytes, MilliCPUs: r.limits.MilliCPUs, Running: r.admitted.Load(),
	}
}

// noteAdmitted notes that a run has got its slot. After HandOver it also reports this to the successor.
func (x *Executor) noteAdmitted(r *run) {
	r.admitted.Store(true)
	if successor := x.currentSuccessor(); successor != nil {
		successor.Started(r.inherited())
	}
}

// currentSuccessor returns the daemon that takes over, or nil.
func (x *Executor) currentSuccessor() Successor {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.successor
}

// inherit registers the executions of the earlier daemon, with their slots. New calls it.
func (x *Executor) inherit(from Earlier, all []Inherited) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.inheritance = inheritance{from: from, live: map[string]*inherited{}}
	for _, e := range all {
		x.inheritance.live[e.ID] = &inherited{done: make(chan struct{})}
		x.calls.Add(1)
		if e.Running {
			x.holdSlot(e)
		}
	}
}

// holdSlot gives an inherited execution a slot. x.mu is held.
func (x *Executor) holdSlot(e Inherited) {
	if i := x.inheritance.live[e.ID]; i != nil && i.ticket == nil {
		i.ticket = x.admission.Hold(e.Tenant, e.Principal, needOf(e.MemoryBytes, e.MilliCPUs))
	}
}

// InheritedStarted notes that an inherited execution has got its slot in the earlier daemon. It gets one here, too.
func (x *Executor) InheritedStarted(e Inherited) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.holdSlot(e)
}

// InheritedEnded notes that an inherited execution has ended, and frees its slot. The record has its outcome.
func (x *Executor) InheritedEnded(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.endInherited(id)
}

// endInherited does the work of InheritedEnded. x.mu is held.
func (x *Executor) endInherited(id string) {
	i := x.inheritance.live[id]
	if i == nil {
		return
	}
	delete(x.inheritance.live, id)
	if i.ticket != nil {
		i.ticket.Release()
	}
	close(i.done)
	x.calls.Done()
}

// Adopt ends the executions that died with the earlier daemon, as DAEMON_LOST. Call it when the earlier daemon has
// ended, its sandboxes are removed, and Config.Record is adopted. If Config.Record is not adopted yet, Adopt only frees
// the slots. It can be called again, and must be after an error. An execution that can't be closed is no error: Adopt
// logs it, and CloseLeft tries again.
func (x *Executor) Adopt(ctx context.Context) error {
	x.mu.Lock()
	x.inheritance.from = nil
	left := slices.Collect(maps.Keys(x.inheritance.live))
	staged := append(x.inheritance.staged, left...)
	x.mu.Unlock()
	err := x.closeLost(ctx)
	switch {
	case errors.Is(err, errNotClosed):
		x.Log.Error("executions of the earlier daemon were not closed; the daemon tries again in a minute", "err", err)
		err = nil
	case err != nil:
		err = fmt.Errorf("executions of the earlier daemon: %w", err)
	}
	var remain []string
	for _, id := range staged {
		if failed := os.RemoveAll(filepath.Join(x.StagingDir, id)); failed != nil {
			err, remain = errors.Join(err, failed), append(remain, id)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.inheritance.staged = remain
	for _, id := range left {
		x.endInherited(id)
	}
	return err
}

// findInherited returns an inherited execution and the daemon that runs it, or nil if the execution is not inherited.
// The caller must check with row that the principal may see the execution. from is nil if that daemon has ended; Adopt
// then ends the execution as lost.
func (x *Executor) findInherited(id string) (i *inherited, from Earlier) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.inheritance.live[id], x.inheritance.from
}

// cancelInherited cancels an execution of the earlier daemon. done is closed when the execution has ended. It is nil
// if the earlier daemon has no such execution.
func (x *Executor) cancelInherited(entry audit.Entry, id string, c *cancellation) (done <-chan struct{}) {
	i, from := x.findInherited(id)
	if i == nil {
		return nil
	}
	x.auditNote(entry)
	if from != nil {
		// A daemon that does not answer is dying, and its executions end with it. So the caller need not retry.
		if err := from.Cancel(id, c.by, c.reason, c.grace); err != nil {
			x.Log.Warn("the earlier daemon does not answer", "execution", id, "err", err)
		}
	}
	return i.done
}

// signalInherited sends a signal to an execution of the earlier daemon. It returns false if that daemon has no
// such execution.
func (x *Executor) signalInherited(entry audit.Entry, id string, sig syscall.Signal) (found bool, _ error) {
	i, from := x.findInherited(id)
	if i == nil {
		return false, nil
	}
	if from == nil {
		return true, &NotRunningError{id}
	}
	x.auditNote(entry) // as before any signal: an answer that is lost must not leave the log without it
	if running, err := from.Signal(id, sig); err != nil || !running {
		return true, &NotRunningError{id}
	}
	return true, nil
}

// CancelHere cancels an execution of this daemon for the successor. The successor has checked the caller and written
// the audit entry. CancelHere returns false if the execution has ended.
func (x *Executor) CancelHere(id, by, reason string, grace time.Duration) bool {
	r := x.find(id)
	if r != nil {
		r.cancel(&cancellation{by: by, reason: reason, grace: grace})
	}
	return r != nil
}

// SignalHere sends a signal to a program of this daemon for the successor. It returns false if the program does not run.
func (x *Executor) SignalHere(ctx context.Context, id string, sig syscall.Signal) bool {
	r := x.find(id)
	if r == nil {
		return false
	}
	p := r.running(ctx)
	return p != nil && p.Signal(sig) == nil
}

// cancelAllInherited asks the earlier daemon to end all its executions. Drain calls it when the time of a drain is over.
func (x *Executor) cancelAllInherited(c *cancellation) {
	x.mu.Lock()
	from := x.inheritance.from
	ids := slices.Sorted(maps.Keys(x.inheritance.live))
	x.mu.Unlock()
	if from == nil {
		return
	}
	for _, id := range ids {
		if err := from.Cancel(id, c.by, c.reason, c.grace); err != nil {
			return // the earlier daemon does not answer: it is dying, and its executions end with it
		}
	}
}
