// Package executor runs executions: it takes a request through every stage, in order, to
// exactly one outcome, and gives its events to any number of readers.
//
// Theory of operation. Execute works in the caller's goroutine: it takes a ticket
// (package admission), approves the request and records it (accept). Until the record has it, a
// refusal leaves nothing on disk. Then Execute returns the ID, and the method run goes on in a
// goroutine for each execution: it waits for the slot, starts the sandbox, waits for the
// program and records the outcome.
//
// Two types keep these apart. An execution is the accepted request and never changes. A run has
// what changes from then on: the process, the cancellation, the collected files.
//
// Readers need neither. Get, List and Follow ask the record, in which the run writes each
// event, so they work the same during the run, after it, and after a restart of the daemon.
// Only Cancel and Signal look for the run, in Executor.live.
//
// Every path through run records one outcome. If the daemon dies first, New of the next daemon
// records DAEMON_LOST.
package executor

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/skillrun/skillrun/internal/admission"
	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/environment"
	"github.com/skillrun/skillrun/internal/failpoint"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/record"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/session"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/tenant"
	"github.com/skillrun/skillrun/internal/workspace"
	"github.com/skillrun/skillrun/sandbox"

	"golang.org/x/sys/unix"
)

// Config configures an Executor. Every field but Networks, Environments, Sessions, Missing, Tenants and Log must be
// set.
type Config struct {
	Skills *skill.Registry
	// Resources bound the sums of the limits of running executions. Capacity is the machine's memory and processors: a
	// tenant's share of a resource that has no bound is a fraction of its Capacity.
	Resources, Capacity admission.Resources
	// Tenants are the tenants of callers. Nil: one tenant for all callers, with the fields Policy,
	// Bounds, MaxQueued and QueueTimeout, which have no other use.
	Tenants  *tenant.Set
	Policy   permission.Policy
	Runtimes *runtime.Set
	Record   *record.Store
	Host     *sandbox.Host
	// Networks are what sandboxes with a network get. Nil: no policy may grant one.
	Networks Networks
	// Environments are the prepared environments. Nil: the needs of skills are not
	// checked.
	Environments *environment.Store
	Bounds       Bounds
	// Sessions keep files between executions. Nil: requests with a session are refused.
	Sessions *session.Store
	// Missing names the boundaries that sandboxes of this Host lack without permission
	// of the configuration. If it is not empty, nothing is executed or prepared.
	Missing []string
	// StagingDir is where input files wait for their execution. It is emptied
	// by New.
	StagingDir string
	// Owner owns the input files in sandboxes. It cannot be root.
	Owner workspace.Owner
	// KeyFile holds the key of request hashes; New makes it if it is missing.
	KeyFile string
	// MaxRunning is the number of slots of all tenants, MaxQueued the number of executions that wait for one.
	MaxRunning int
	MaxQueued  int
	// Reserved is the number of slots beyond MaxRunning for tenants with nothing running, or, if Tenants
	// is nil, for callers with nothing running. They keep long executions from delaying the others.
	Reserved int
	// QueueTimeout is how long a request waits for a slot if it does not set queue_timeout.
	QueueTimeout time.Duration
	// Grace is between SIGTERM and SIGKILL when time is up.
	Grace time.Duration
	// CancelGrace is the same for a cancel without a grace, and for a drain.
	CancelGrace time.Duration
	// Keep bounds the artifacts of an execution.
	Keep workspace.CollectLimits
	// Observer gets the ends and refusals of executions. Nil: no observer.
	Observer Observer
	// Tracer makes the spans of executions, beneath the span in the context of Execute. Nil: no
	// spans.
	Tracer trace.Tracer
	// Audit gets an entry for each request and for each end of an execution. Nothing runs that it
	// cannot record. Nil: no audit log.
	Audit *audit.Log
	// Log gets one line for every execution. Nil: slog.Default().
	Log *slog.Logger

	// Earlier is set in a takeover: it runs the executions in Inherited, until InheritedEnded or Adopt is called.
	// The configurations of Record and Sessions then have Takeover set. Nil: no other daemon uses the state directory.
	Earlier   Earlier
	Inherited []Inherited
}

// An Observer counts executions. Its methods may be called at the same time, and must be quick:
// they are called while a caller waits.
type Observer interface {
	// Ended is called once for each accepted execution, after its outcome was recorded. started is
	// the time from the acceptance to the start of the program, without the wait for a slot. Zero:
	// no program started. trace is the id of the trace that has the execution, or "".
	Ended(tenant string, started time.Duration, out Outcome, trace string)
	// Refused is called with each error of Execute.
	Refused(tenant string, err error)
	// CallRefused is called for each call beyond the tenant's quota of calls.
	CallRefused(tenant string)
}

// An Executor runs executions. Its methods may be called at the same time.
type Executor struct {
	Config
	admission *admission.Admission
	streams   streams
	starts    *turns[string] // by tenant
	lists     *turns[string] // by tenant
	outputs   *turns[string] // by tenant
	names     names
	repeated  *turns[tenantKeyOf]
	// hashKey is 32 bytes of KeyFile. request.hash and KeyedHash use it.
	hashKey []byte
	// groups orders changes of the tenants' groups of sandboxes: SetTenants and removeGroup.
	groups    sync.Mutex
	purging   sync.Mutex    // held by Purge and SetTenants, so that no tenant comes back during its Purge; before all others
	sandboxes sandboxGroups // Config.Host; nil in tests without sandboxes
	// Config.Host.Start, but for tests.
	start startFunc

	mu        sync.Mutex      // guards live, preparing and deadline, and orders calls.Add and Drain
	live      map[string]*run // accepted and not ended, by ID
	preparing map[string]int  // calls of Prepare, by tenant
	// calls counts executions from their ticket on. Execute adds to it only under mu and
	// before Drain closes the admission, so no call begins once Drain waits.
	calls    sync.WaitGroup
	deadline *cancellation // set when a drain has run out of time; cancels executions accepted later
	// mu guards these fields, too. accepting counts calls of Execute that have entered and are not in the record yet, and
	// calls of CloseLeft.
	accepting   sync.WaitGroup
	successor   Successor // set by HandOver; nil: no other daemon takes over
	inheritance inheritance

	closing     sync.Mutex      // held by the one closeLost; it guards the next two
	left        bool            // the last closeLost has failed
	endsAudited map[string]bool // executions with an end in the audit log but none in the record yet
}

// A startFunc is [sandbox.Host.Start]; tests put another in its place. Its context bounds only
// the start.
type startFunc func(context.Context, sandbox.Spec, sandbox.IO) (process, error)

// A process is the part of [sandbox.Process] that an execution uses.
type process interface {
	Signal(syscall.Signal) error
	Stop(grace time.Duration)
	Wait() (sandbox.Exit, error)
}

// New makes an Executor. It ends, as DAEMON_LOST, the executions that ran or waited when the
// last daemon died. If that is not possible yet, for example on a full disk, New logs this, and CloseLeft tries again.
// Before New, c.Host must have ended the sandboxes of that daemon: a lost execution must not run any longer.
func New(ctx context.Context, c Config) (*Executor, error) {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if !c.Owner.Valid() {
		return nil, fmt.Errorf("inputs cannot belong to %d:%d", c.Owner.UID, c.Owner.GID)
	}
	key, err := loadKey(c.KeyFile, c.Log)
	if err != nil {
		return nil, err
	}
	x := &Executor{
		Config:      c,
		admission:   admission.New(c.slots()),
		hashKey:     key,
		live:        map[string]*run{},
		preparing:   map[string]int{},
		starts:      newTurns[string](startsPerProcessor * goruntime.GOMAXPROCS(0)),
		lists:       newTurns[string](listsOfTenant),
		outputs:     newTurns[string](outputsOfTenant),
		endsAudited: map[string]bool{},
		repeated:    newTurns[tenantKeyOf](1),
	}
	x.Tenants = c.tenants()
	if c.Host != nil {
		x.sandboxes = c.Host
	}
	x.setGroups(x.Tenants.All())
	for _, t := range x.Tenants.All() {
		x.admission.SetTenant(t.Name, t.Quota)
	}
	x.start = func(ctx context.Context, spec sandbox.Spec, io sandbox.IO) (process, error) {
		p, err := c.Host.Start(ctx, spec, io)
		if err != nil {
			return nil, err // not a typed nil
		}
		return p, nil
	}
	if c.Earlier != nil {
		x.inherit(c.Earlier, c.Inherited)
	} else if err := emptyDir(c.StagingDir); err != nil {
		return nil, fmt.Errorf("staging: %w", err)
	}
	err = x.closeLost(ctx)
	if err != nil && !errors.Is(err, errNotClosed) && !errors.Is(err, record.ErrPending) {
		return nil, fmt.Errorf("executions of the last daemon: %w", err)
	}
	if err != nil {
		x.Log.Error("executions of the last daemon were not closed; the daemon tries again in a minute", "err", err)
	}
	return x, nil
}

// Execute takes a request through every stage up to its record and starts it. A
// nil error means that the execution with this ID will end in exactly one
// outcome; an error means that nothing ran. duplicate is true if an earlier
// request with the same key started it.
//
// ctx bounds this call and not the execution, which Cancel ends. The errors are the types of
// errors.go, the errors of packages permission and skill, and unexpected errors.
func (x *Executor) Execute(ctx context.Context, req Request) (id string, duplicate bool, err error) {
	defer func() {
		if err != nil {
			x.refused(ctx, req, err)
		}
	}()
	ctx, span := x.trace(ctx)
	defer func() {
		if err != nil || duplicate {
			span.refused(id)
		}
	}()
	if len(x.Missing) > 0 {
		return "", false, &BoundaryError{x.Missing}
	}
	t, err := x.Tenant(req.Principal)
	if err != nil {
		return "", false, err
	}
	if req.Key != "" {
		// The key comes first: a repeated request gets its execution even if no new request could be accepted now.
		leave, earlier, err := x.enterKey(ctx, t, req)
		if err != nil {
			return "", false, err
		}
		defer leave()
		if earlier != "" {
			err := x.auditDuplicate(ctx, req, earlier)
			return earlier, err == nil, err
		}
	}
	if err := x.enterSession(ctx, t, &req); err != nil {
		return "", false, err
	}
	// Before any other work, so that a refused request costs next to nothing.
	ticket, err := x.enter(t, req.Principal)
	if err != nil {
		req.turn.release()
		return "", false, err
	}
	r, earlier, err := x.accept(ctx, t, req, ticket)
	x.accepting.Done()
	if r == nil {
		req.turn.release()
		ticket.Release()
		x.calls.Done()
		if err == nil {
			err = x.auditDuplicate(ctx, req, earlier)
		}
		return earlier, err == nil, err
	}
	if t.Quota.CallsPerSecond > 0 {
		x.admission.Uncall(t.Name)
	}
	go func() {
		defer x.calls.Done()
		x.run(r, ticket)
	}()
	goruntime.Gosched() // let the program start before a reader of its events
	return r.id, false, nil
}

// enter takes a ticket and adds to x.calls and x.accepting. The caller must release the ticket and call Done of
// both.
func (x *Executor) enter(t *tenant.Tenant, who permission.Principal) (*admission.Ticket, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	ticket, err := x.admission.Enter(t.Name, who.Name)
	switch {
	case err == nil:
		x.calls.Add(1)
		x.accepting.Add(1)
	case errors.Is(err, admission.ErrNoTenant): // it was removed a moment ago
		err = &UnknownTenantError{who.Tenant}
	}
	return ticket, err
}

// needOf returns the resources that admission reserves for an execution with these limits. Without a limit on processors
// it reserves one processor, which most scripts never exceed.
func needOf(memoryBytes int64, milliCPUs int) admission.Resources {
	return admission.Resources{MemoryBytes: memoryBytes, MilliCPUs: int64(cmp.Or(milliCPUs, 1000))}
}

// need tells a ticket the memory and processors of an execution with these limits. The error is a
// *LimitError, or the error of a full queue.
func need(ticket *admission.Ticket, limits Limits) error {
	err := ticket.Need(needOf(limits.MemoryBytes, limits.MilliCPUs))
	if large, ok := errors.AsType[*admission.TooLargeError](err); ok {
		return tooLarge(large)
	}
	return err
}

// accept approves and records a request; nothing runs yet. It returns a live run, or the ID of the
// earlier execution that has this request's key, or an error.
//
// The record comes last: the claim of the key and the header must be true. The run is live
// before that, because Cancel may come as soon as the record shows the execution. A stage that
// fails after acquire releases the packages and the staged files again.
func (x *Executor) accept(ctx context.Context, t *tenant.Tenant, req Request, ticket *admission.Ticket) (r *run, earlier string, err error) {
	if err := x.CheckState(ctx, t); err != nil {
		return nil, "", err
	}
	sk, release, err := x.skillsOf(req.Principal).Hold(req.Skill)
	if err != nil {
		return nil, "", err
	}
	defer func() {
		if r == nil {
			release()
		}
	}()
	source := req.Source
	source.Dir = req.Dir
	grant, err := x.check(t, req.Principal, sk, source, req.Network)
	if err != nil {
		return nil, "", err
	}
	e, err := x.newExecution(t, req, grant)
	if err != nil {
		return nil, "", err
	}
	e.span = spanOf(ctx)
	e.trace = e.span.environment()
	if err := need(ticket, e.limits); err != nil {
		return nil, "", err
	}
	if err := x.openCredentials(e); err != nil {
		return nil, "", err
	}
	if err := e.openSession(); err != nil {
		return nil, "", err
	}
	if err := x.acquire(e, req.Python); err != nil {
		return nil, "", err
	}
	inputs := slices.Concat(req.Files, x.resources(ctx, req), e.hidden)
	if e.workspace, err = workspace.Stage(filepath.Join(x.StagingDir, e.id), x.Owner, sk.Dir, sk.Has, inputs); err != nil {
		e.lease.Release()
		return nil, "", err
	}
	e.withSession()
	e.releaseSkill = release
	accepted := newRun(e, ticket)
	x.register(accepted)
	// Before the record, whose claim of the key can't be undone.
	if err = x.auditAccepted(ctx, e); err == nil {
		failpoint.Reach(failpoint.BeforeClaim)
		recorded := e.span.stage("record")
		e.log, err = x.recordQueued(ctx, e)
		recorded(err)
		failpoint.Reach(failpoint.AfterClaim)
	}
	if err != nil {
		x.unregister(accepted)
		e.lease.Release()
		if removeErr := e.workspace.Remove(); removeErr != nil {
			return nil, "", errors.Join(err, removeErr)
		}
		if claimed, ok := errors.AsType[*record.KeyClaimed](err); ok {
			earlier, err = sameRequest(claimed.Existing.ID, claimed.Existing.RequestHash, e.hash)
		}
		return nil, earlier, err
	}
	e.span.accepted(e)
	return accepted, "", nil
}

// skillsOf returns the skills that a principal sees.
func (x *Executor) skillsOf(who permission.Principal) skill.View { return x.Skills.For(who.Tenant) }

// register lets Cancel, Signal and Drain find a run.
func (x *Executor) register(r *run) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.live[r.id] = r
	if x.deadline != nil {
		r.cancel(x.deadline)
	}
}

// unregister undoes register, and frees the run's context.
func (x *Executor) unregister(r *run) {
	x.mu.Lock()
	delete(x.live, r.id)
	x.mu.Unlock()
	r.end(nil)
}

// sameRequest returns the ID of the execution that has claimed a request's key, if their hashes are equal.
func sameRequest(id string, existing, hash []byte) (string, error) {
	if string(existing) != string(hash) {
		return "", &KeyConflictError{ID: id}
	}
	return id, nil
}

// run takes a recorded execution to its outcome. It has no error: failures are outcomes.
//
// The deferred calls run from the last to the first: they remove the workspace, free the slot, and
// then forget lets Cancel return and calls Request.Ended. All of them come after end, so an execution
// that is not live has its outcome.
func (x *Executor) run(r *run, ticket *admission.Ticket) {
	defer x.forget(r)
	defer ticket.Release()
	defer r.removeWorkspace()

	admitted := r.span.stage("admission")
	err := ticket.Wait(r.ctx, r.queueTimeout)
	if err != nil {
		admitted(err)
		ticket.Release() // who sees the outcome may need the place in the queue
		x.end(r, r.neverRan(err))
		return
	}
	x.noteAdmitted(r)
	leave := x.starts.enter(r.ctx, r.grant.Principal().Tenant)
	admitted(nil)
	r.queued = time.Since(r.created)

	// A ticket can get its slot after a cancel. Then start fails, because r.ctx is done.
	spec := newSpec(r.grant, r.settings)
	spec.Network = x.openNetwork(r)
	out := newSinks(r)
	failpoint.Reach(failpoint.BeforeCreate)
	assigned := r.span.stage("assign")
	var p process
	if err = r.writeTrusted(); err == nil {
		p, err = x.start(r.ctx, spec, sandbox.IO{
			Stdin:   r.stdin,
			Stdout:  out.stdout,
			Stderr:  out.stderr,
			Collect: func(changes *os.Root) error { return x.collect(r, changes) },
		})
	}
	leave()
	assigned(err)
	failpoint.Reach(failpoint.AfterStart)
	r.setProcess(p)
	if err != nil {
		x.end(r, r.neverStarted(err, out))
		return
	}
	r.recordStarted()
	// Cancels before setProcess did not stop p. Until stop is called, only cancel ends r.ctx.
	stop := context.AfterFunc(r.ctx, func() { p.Stop(r.shortestGrace()) })
	exit, err := p.Wait()
	stop()
	ended := r.outcome(exit, err, out)
	x.commitSession(r, exit, err, &ended)
	r.span.ran(r, ended)
	x.end(r, ended)
}

// Cancel asks an execution to end and waits for the end. It returns an ended execution
// unchanged. A negative grace means the default. The outcome has by and reason of the first Cancel as
// evidence. The error is ErrNotFound for an unknown ID, or the error of ctx; after an error of ctx the
// execution still ends.
func (x *Executor) Cancel(ctx context.Context, who permission.Principal, id, by, reason string, grace time.Duration) (Execution, error) {
	done, err := x.beginCancel(ctx, who, id, by, reason, grace)
	if err != nil {
		return Execution{}, err
	}
	if done != nil {
		select {
		case <-done:
		case <-ctx.Done():
			return Execution{}, ctx.Err()
		}
	}
	ended, err := x.Get(ctx, who, id)
	if err == nil && ended.State != Ended {
		err = fmt.Errorf("execution %s: its record says %s, but it does not run", id, ended.State)
	}
	return ended, err
}

// CancelSoon is like Cancel, but does not wait for the end. It returns the present state of the
// execution.
func (x *Executor) CancelSoon(ctx context.Context, who permission.Principal, id, by, reason string, grace time.Duration) (Execution, error) {
	if _, err := x.beginCancel(ctx, who, id, by, reason, grace); err != nil {
		return Execution{}, err
	}
	return x.Get(ctx, who, id)
}

// beginCancel asks an execution to end. done is closed when the execution ends. It is nil if the execution has ended.
func (x *Executor) beginCancel(ctx context.Context, who permission.Principal, id, by, reason string, grace time.Duration) (done <-chan struct{}, _ error) {
	entry := entryOf(ctx, audit.Cancel, who, id)
	entry.By, entry.Why = by, reason
	if _, err := x.row(ctx, who, id); err != nil {
		x.Audit.NoteRefusal(entry, err)
		return nil, err
	}
	if grace < 0 {
		grace = x.CancelGrace
	}
	c := &cancellation{by: by, reason: reason, grace: grace}
	r := x.find(id)
	if r == nil {
		return x.cancelInherited(entry, id, c), nil
	}
	x.auditNote(entry)
	r.cancel(c)
	return r.done, nil
}

// Signal sends sig to the main process of a running execution. The error is ErrNotRunning
// before the started event and after the program's end.
func (x *Executor) Signal(ctx context.Context, who permission.Principal, id string, sig syscall.Signal) (err error) {
	entry := entryOf(ctx, audit.Signal, who, id)
	entry.Signal = unix.SignalName(sig)
	defer func() {
		if err != nil {
			x.Audit.NoteRefusal(entry, err)
		}
	}()
	if _, err := x.row(ctx, who, id); err != nil {
		return err
	}
	r := x.find(id)
	if r == nil {
		if found, err := x.signalInherited(entry, id, sig); found {
			return err
		}
		return &NotRunningError{id}
	}
	p := r.running(ctx)
	if p == nil {
		return &NotRunningError{id}
	}
	x.auditNote(entry)
	if err := p.Signal(sig); err != nil {
		if errors.Is(err, sandbox.ErrEnded) {
			return &NotRunningError{id}
		}
		return fmt.Errorf("signal %s: %w", id, err)
	}
	return nil
}

// Drain refuses new executions and waits for the accepted ones. When ctx is done, it cancels the executions whose programs
// ran when Drain began; when late is done, too, it cancels all. So a program that begins during the drain need not
// end with the drain, if late has more time than ctx. Drain returns after the last execution has ended. A cancelled
// one has CancelGrace to end. Executions that still wait for a slot run, too, if they get one in time.
func (x *Executor) Drain(ctx, late context.Context) {
	x.mu.Lock()
	x.admission.Close()
	var running []*run
	for _, r := range x.live {
		if r.hasStarted() {
			running = append(running, r)
		}
	}
	x.mu.Unlock()
	idle := make(chan struct{})
	go func() { x.calls.Wait(); close(idle) }()
	select {
	case <-idle:
		return
	case <-ctx.Done():
	}
	c := &cancellation{by: "drain", reason: "the daemon stops", grace: x.CancelGrace}
	for _, r := range running { // a cancel of an ended one does nothing
		r.cancel(c)
	}
	select {
	case <-idle:
		return
	case <-late.Done():
	}
	x.mu.Lock()
	x.deadline = c
	for _, r := range x.live {
		r.cancel(c)
	}
	x.mu.Unlock()
	x.cancelAllInherited(c)
	<-idle
}

// EffectiveLimits returns the limits that a caller's execution of a skill would run
// with. The error is a *LimitError, a *RequestError or an *UnknownTenantError.
func (x *Executor) EffectiveLimits(who permission.Principal, asked Limits, kind permission.SourceKind, sk *skill.Skill) (Limits, error) {
	t, err := x.Tenant(who)
	if err != nil {
		return Limits{}, err
	}
	return effective(t.Bounds, asked, kind, sk.Manifest)
}

// KeyedHash is a hash of data, as hex. For one purpose, equal data has an equal hash; for another
// purpose, the hash differs. Without the daemon's key, a reader of the hash can't guess the data. Lines
// of the log have the hash in place of a tool's arguments.
func (x *Executor) KeyedHash(purpose string, data []byte) string {
	mac := hmac.New(sha256.New, x.hashKey)
	fmt.Fprintf(mac, "%d %s ", len(purpose), purpose) // no request begins like that
	mac.Write(data)
	return hex.EncodeToString(mac.Sum(nil))
}

// Counts returns how many executions hold a slot and how many wait for one. draining is true once
// Drain has begun.
func (x *Executor) Counts() (running, queued int, draining bool) { return x.admission.Counts() }

// Usages returns each tenant's running and queued executions, by its name.
func (x *Executor) Usages() map[string]admission.Usage { return x.admission.Usages() }

// find returns a live run, or nil. A caller must check with row that the principal may see it:
// live has the executions of all tenants.
func (x *Executor) find(id string) *run {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.live[id]
}

// forget ends the life of a run. It releases the packages first; then the calls of Cancel
// return, and then the owner of the request may free it.
func (x *Executor) forget(r *run) {
	r.lease.Release()
	r.releaseSkill()
	x.unregister(r) // after them: Purge takes an execution that is not live to hold nothing
	x.removeGroup(r.grant.Principal().Tenant)
	close(r.done)
	if successor := x.currentSuccessor(); successor != nil {
		successor.Ended(r.id)
	}
	if r.ended != nil {
		r.ended()
	}
}

// emptyDir removes the entries of dir, or makes dir. It does not follow links. It continues after
// an error, so that it removes all other entries.
func emptyDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}
