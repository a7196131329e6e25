// Package executor runs executions: it takes a request through every stage, in
// order, to exactly one outcome, and gives its events to any number of readers.
package executor

import (
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
	"sync"
	"syscall"
	"time"

	"github.com/skillrun/skillrun/internal/environment"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/record"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/workspace"
	"github.com/skillrun/skillrun/sandbox"
)

// Config is what an Executor is made of. Every field but Environments, Missing and Log
// must be set.
type Config struct {
	Skills   *skill.Registry
	Policy   permission.Policy
	Runtimes *runtime.Set
	Record   *record.Store
	Host     *sandbox.Host
	// Environments are the prepared ones. Nil: none, and nobody looks what a skill
	// needs.
	Environments *environment.Store
	Bounds       Bounds
	// Missing names the boundaries that sandboxes of this Host lack and that nobody
	// has allowed to be missing. While there is one nothing is executed or prepared.
	Missing []string
	// StagingDir is where input files wait for their execution. It is emptied
	// by New.
	StagingDir string
	// KeyFile holds the key of request hashes; New makes it if it is missing.
	KeyFile    string
	MaxRunning int
	MaxQueued  int
	// QueueTimeout is how long a request waits for a slot that doesn't say.
	QueueTimeout time.Duration
	// Grace is between SIGTERM and SIGKILL when time is up.
	Grace time.Duration
	// CancelGrace is the same for a cancel that doesn't say.
	CancelGrace time.Duration
	// Keep bounds what is kept of a workspace.
	Keep workspace.CollectLimits
	// Log gets one audit line for every execution. Nil: slog.Default().
	Log *slog.Logger
}

// An Executor runs executions. Its methods may be called at the same time.
type Executor struct {
	Config
	admission *admission
	hashKey   []byte
	start     startFunc

	mu   sync.Mutex
	live map[string]*execution // queued and running, by ID
	runs sync.WaitGroup        // one a live execution
}

// A startFunc is [sandbox.Host.Start]; tests put another in its place.
type startFunc func(context.Context, sandbox.Spec, sandbox.IO) (process, error)

type process interface {
	Signal(syscall.Signal) error
	Stop(grace time.Duration)
	Wait() (sandbox.Exit, error)
}

// New makes an Executor and closes, as DAEMON_LOST, what ran when the last
// daemon died.
func New(ctx context.Context, c Config) (*Executor, error) {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	key, err := loadKey(c.KeyFile, c.Log)
	if err != nil {
		return nil, err
	}
	x := &Executor{
		Config:    c,
		admission: newAdmission(c.MaxRunning, c.MaxQueued),
		hashKey:   key,
		live:      map[string]*execution{},
	}
	x.start = func(ctx context.Context, spec sandbox.Spec, io sandbox.IO) (process, error) {
		p, err := c.Host.Start(ctx, spec, io)
		if err != nil {
			return nil, err // not a typed nil
		}
		return p, nil
	}
	if err := emptyDir(c.StagingDir); err != nil {
		return nil, fmt.Errorf("staging: %w", err)
	}
	if err := x.closeLost(ctx); err != nil {
		return nil, fmt.Errorf("executions of the last daemon: %w", err)
	}
	return x, nil
}

// Execute takes a request through every stage up to its record and starts it. A
// nil error means that the execution with this ID will end in exactly one
// outcome; an error means that nothing ran. duplicate is true if an earlier
// request with the same key started it.
//
// ctx bounds this call, not the execution: whoever started it ends it with
// Cancel.
func (x *Executor) Execute(ctx context.Context, req Request) (id string, duplicate bool, err error) {
	if len(x.Missing) > 0 {
		return "", false, &BoundaryError{x.Missing}
	}
	place, err := x.admission.enter()
	if err != nil {
		return "", false, err
	}
	e, err := x.accept(ctx, req)
	if err != nil {
		place.leave()
		var claimed *record.KeyClaimed
		if errors.As(err, &claimed) {
			return x.claimed(claimed, e)
		}
		return "", false, err
	}
	x.runs.Go(func() { x.run(e, place) })
	goruntime.Gosched() // the program comes before who reads its events
	return e.id, false, nil
}

// accept approves and records a request. Nothing of it runs yet.
func (x *Executor) accept(ctx context.Context, req Request) (*execution, error) {
	sk, err := x.Skills.Resolve(req.Skill)
	if err != nil {
		return nil, err
	}
	grant, err := x.Policy.Check(req.Principal, sk, req.Source, req.Network)
	if err != nil {
		return nil, err
	}
	e, err := x.newExecution(req, sk, grant)
	if err != nil {
		return nil, err
	}
	if err := x.acquire(e); err != nil {
		return nil, err
	}
	if e.workspace, err = workspace.Stage(filepath.Join(x.StagingDir, e.id), sk.Dir, sk.Has, req.Files); err != nil {
		e.lease.Release()
		return nil, err
	}
	e.req.Files = nil // they are on disk
	if err := x.recordQueued(ctx, e); err != nil {
		e.lease.Release()
		return e, errors.Join(err, e.workspace.Remove())
	}
	return e, nil
}

// claimed answers a request whose key an earlier one has.
func (x *Executor) claimed(c *record.KeyClaimed, e *execution) (string, bool, error) {
	if string(c.Existing.RequestHash) != string(e.hash) {
		return "", false, &KeyConflictError{ID: c.Existing.ID}
	}
	return c.Existing.ID, true, nil
}

// run takes a recorded execution to its outcome. It never fails: what goes wrong
// is the outcome.
func (x *Executor) run(e *execution, place *place) {
	defer x.forget(e)
	defer place.leave()
	defer e.removeWorkspace()

	if err := place.wait(e.ctx, e.queueTimeout); err != nil {
		x.end(e, e.neverRan(err))
		return
	}
	e.queued = time.Since(e.created)

	spec := newSpec(e)
	out := newSinks(e)
	p, err := x.start(e.ctx, spec, sandbox.IO{
		Stdin:   e.stdin,
		Stdout:  out.stdout,
		Stderr:  out.stderr,
		Collect: func(changes *os.Root) error { return x.collect(e, changes) },
	})
	e.settle(p)
	if err != nil {
		x.end(e, e.neverStarted(err, out))
		return
	}
	e.recordStarted()
	stop := context.AfterFunc(e.ctx, func() { p.Stop(e.cancelled().grace) })
	exit, err := p.Wait()
	stop()
	x.end(e, e.outcome(exit, err, out))
}

// Cancel asks an execution to end and waits until it has. An ended one is
// returned as it is. A negative grace means the default.
func (x *Executor) Cancel(ctx context.Context, who permission.Principal, id, by, reason string, grace time.Duration) (Execution, error) {
	if _, err := x.row(ctx, who, id); err != nil {
		return Execution{}, err
	}
	if grace < 0 {
		grace = x.CancelGrace
	}
	if e := x.find(id); e != nil {
		e.cancel(&cancellation{by: by, reason: reason, grace: grace})
		select {
		case <-e.done:
		case <-ctx.Done():
			return Execution{}, ctx.Err()
		}
	}
	ended, err := x.Get(ctx, who, id)
	if err == nil && ended.State != Ended {
		err = fmt.Errorf("execution %s: %s by its record, but it does not run", id, ended.State)
	}
	return ended, err
}

// Signal sends sig to the main process of a running execution.
func (x *Executor) Signal(ctx context.Context, who permission.Principal, id string, sig syscall.Signal) error {
	if _, err := x.row(ctx, who, id); err != nil {
		return err
	}
	e := x.find(id)
	if e == nil {
		return ErrNotRunning
	}
	p := e.running(ctx)
	if p == nil {
		return ErrNotRunning
	}
	if err := p.Signal(sig); err != nil {
		if errors.Is(err, sandbox.ErrEnded) {
			return ErrNotRunning
		}
		return fmt.Errorf("signal %s: %w", id, err)
	}
	return nil
}

// Drain takes nothing new, waits for what runs until ctx is done, then cancels
// it, and returns when nothing is left.
func (x *Executor) Drain(ctx context.Context) {
	x.admission.close()
	idle := make(chan struct{})
	go func() { x.runs.Wait(); close(idle) }()
	select {
	case <-idle:
		return
	case <-ctx.Done():
	}
	x.mu.Lock()
	for _, e := range x.live {
		e.cancel(&cancellation{by: "drain", reason: "the daemon stops", grace: x.CancelGrace})
	}
	x.mu.Unlock()
	<-idle
}

// EffectiveLimits returns the limits that an execution of a skill would run
// with. The error is a *LimitError or a *RequestError.
func (x *Executor) EffectiveLimits(asked Limits, kind permission.SourceKind, sk *skill.Skill) (Limits, error) {
	return x.Bounds.effective(asked, kind, sk.Manifest)
}

// KeyedHash is a hash of data, as hex, that tells equal data of one purpose apart
// from other data, and that nobody can guess from without the daemon's key.
func (x *Executor) KeyedHash(purpose string, data []byte) string {
	mac := hmac.New(sha256.New, x.hashKey)
	fmt.Fprintf(mac, "%d %s ", len(purpose), purpose) // no request begins like that
	mac.Write(data)
	return hex.EncodeToString(mac.Sum(nil))
}

// Counts returns how many executions hold a slot and how many wait for one.
func (x *Executor) Counts() (running, queued int, draining bool) { return x.admission.counts() }

func (x *Executor) find(id string) *execution {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.live[id]
}

func (x *Executor) forget(e *execution) {
	x.mu.Lock()
	delete(x.live, e.id)
	x.mu.Unlock()
	e.lease.Release()
	e.end(nil) // frees the context
	close(e.done)
	if e.req.Ended != nil {
		e.req.Ended()
	}
}

// emptyDir removes what is in dir, links as links, and makes dir if need be.
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
