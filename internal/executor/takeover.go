package executor

import (
	"cmp"
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

// A takeover, seen by the executors of both daemons. The earlier daemon has called HandOver: it accepts
// nothing new, and its executions go on to their ends. The next daemon has the same record, so Get, List and
// Follow need nothing from the earlier one. Cancel and Signal ask it. Its running executions hold slots of the
// next daemon, so that both together run no more than one daemon may.

// An Inherited is an execution that another daemon runs or will run.
type Inherited struct {
	ID, Tenant, Principal string
	MemoryBytes           int64
	MilliCPUs             int
	Running               bool // it holds a slot
}

// An Earlier is the daemon that runs the inherited executions. Its methods return an error only if it does
// not answer.
type Earlier interface {
	Cancel(id, by, reason string, grace time.Duration) error
	// Signal returns false if the program does not run.
	Signal(id string, sig syscall.Signal) (running bool, err error)
}

// An Heir is the daemon that takes over. Its methods return when it knows. They have no error: an heir that
// has died needs to know nothing.
type Heir interface {
	Started(Inherited)
	Ended(id string)
}

// An inheritance has the executions of the earlier daemon. Executor.mu guards it.
type inheritance struct {
	from Earlier
	live map[string]*inherited
}

type inherited struct {
	ticket *admission.Ticket // nil: it has no slot yet, or its tenant is not configured any longer
	done   chan struct{}     // closed when it has ended, or when its daemon has
}

// HandOver refuses new executions from now on, and returns those that have not ended. They go on, and heir is
// told of their starts and ends. HandOver waits until each call of Execute under way is refused or recorded.
func (x *Executor) HandOver(heir Heir) []Inherited {
	x.mu.Lock()
	x.admission.Close()
	x.heir = heir
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

// Resume undoes HandOver, after the heir has failed and its sandboxes are gone. Executions that the heir has accepted
// end as DAEMON_LOST.
func (x *Executor) Resume(ctx context.Context) {
	x.mu.Lock()
	x.heir = nil
	x.mu.Unlock()
	if err := x.closeLost(ctx); err != nil {
		x.Log.Error("executions of the next daemon could not be closed", "err", err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.admission.Open()
}

// inherited describes a run for an heir.
func (r *run) inherited() Inherited {
	who := r.grant.Principal()
	return Inherited{
		ID: r.id, Tenant: who.Tenant, Principal: who.Name,
		MemoryBytes: r.limits.MemoryBytes, MilliCPUs: r.limits.MilliCPUs, Running: r.admitted.Load(),
	}
}

// noteAdmitted notes that a run has its slot.
func (x *Executor) noteAdmitted(r *run) {
	r.admitted.Store(true)
	if heir := x.currentHeir(); heir != nil {
		heir.Started(r.inherited())
	}
}

// currentHeir returns the daemon that takes over, or nil.
func (x *Executor) currentHeir() Heir {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.heir
}

// inherit takes the executions of the earlier daemon into account. New calls it.
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
		i.ticket = x.admission.Hold(e.Tenant, e.Principal, admission.Resources{MemoryBytes: e.MemoryBytes, MilliCPUs: int64(cmp.Or(e.MilliCPUs, 1000))})
	}
}

// InheritedStarted notes that an inherited execution has got a slot of the earlier daemon.
func (x *Executor) InheritedStarted(e Inherited) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.holdSlot(e)
}

// InheritedEnded notes that an inherited execution has ended. The record has its outcome.
func (x *Executor) InheritedEnded(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.endInherited(id)
}

// endInherited is InheritedEnded. x.mu is held.
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

// Adopt must be called when the earlier daemon has ended, its sandboxes are gone, and Config.Record is adopted. It ends
// the executions that the earlier daemon has left, as DAEMON_LOST.
func (x *Executor) Adopt(ctx context.Context) error {
	x.mu.Lock()
	x.inheritance.from = nil
	left := slices.Collect(maps.Keys(x.inheritance.live))
	x.mu.Unlock()
	err := x.closeLost(ctx)
	if err != nil {
		err = fmt.Errorf("executions of the earlier daemon: %w", err)
	}
	for _, id := range left {
		err = errors.Join(err, os.RemoveAll(filepath.Join(x.StagingDir, id)))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range left {
		x.endInherited(id)
	}
	return err
}

// findInherited returns the daemon that runs an execution, or nil. A caller must check with row that the
// principal may see the execution. from is nil when that daemon has ended, and the execution is about to be
// lost.
func (x *Executor) findInherited(id string) (i *inherited, from Earlier) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.inheritance.live[id], x.inheritance.from
}

// cancelInherited cancels an execution of the earlier daemon. done is closed when the execution has ended; nil:
// the earlier daemon has no such execution.
func (x *Executor) cancelInherited(entry audit.Entry, id string, c *cancellation) (done <-chan struct{}) {
	i, from := x.findInherited(id)
	if i == nil {
		return nil
	}
	x.auditNote(entry)
	if from != nil {
		// After an error the daemon is dying, and the execution with it.
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
	running, err := from.Signal(id, sig)
	if err != nil || !running {
		return true, &NotRunningError{id}
	}
	x.auditNote(entry)
	return true, nil
}

// CancelHere cancels a live execution for the heir, which has checked the caller and written the audit log.
// It reports whether the execution is live.
func (x *Executor) CancelHere(id, by, reason string, grace time.Duration) bool {
	r := x.find(id)
	if r != nil {
		r.cancel(&cancellation{by: by, reason: reason, grace: grace})
	}
	return r != nil
}

// SignalHere sends a signal for the heir. It returns false if the program does not run.
func (x *Executor) SignalHere(ctx context.Context, id string, sig syscall.Signal) bool {
	r := x.find(id)
	if r == nil {
		return false
	}
	p := r.running(ctx)
	return p != nil && p.Signal(sig) == nil
}

// Inherits reports whether executions of an earlier daemon have not ended.
func (x *Executor) Inherits() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.inheritance.live) > 0
}

// cancelAllInherited asks the earlier daemon to end its executions. Drain calls it when its time is over.
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
			return // that daemon is dying
		}
	}
}
