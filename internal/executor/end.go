package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/skillrun/skillrun/internal/admission"
	"github.com/skillrun/skillrun/internal/failpoint"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/quantity"
	"github.com/skillrun/skillrun/internal/record"
	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/workspace"
	"github.com/skillrun/skillrun/sandbox"

	"golang.org/x/sys/unix"
)

// This file has the ends of executions. Each way through Executor.run ends in one of neverRan,
// neverStarted and outcome, which only compute, and then in Executor.end, which writes. closeLost
// does the same for the executions of a dead daemon.

// collected lists the kept and the refused files of a workspace.
type collected struct {
	artifacts []workspace.Artifact
	refused   []string
	begun     time.Time // zero: nothing was to collect
	// For the session: see workspace.Collected.
	deleted, hiding []string
	incomplete      bool
}

// collect keeps the artifacts. Every process of the execution is dead. The sandbox calls it
// before Wait returns, so outcome finds the list. After an error no artifact is kept: a part of
// them would look like the whole. The files come first and then the rows that name them;
// record.Reopen drops both after a crash in between. Like recordEnd it uses no request's context.
func (x *Executor) collect(r *run, changes *os.Root) (err error) {
	begun := time.Now()
	ended := r.span.stage("collect")
	defer func() { ended(err) }()
	into := x.Record.ArtifactDir(r.id)
	got, err := r.workspace.Collect(changes, into, x.Keep)
	if err != nil {
		return errors.Join(fmt.Errorf("artifacts: %w", err), os.RemoveAll(into))
	}
	r.collected = newCollected(got)
	r.collected.begun = begun
	if len(got.Artifacts) == 0 {
		return nil
	}
	failpoint.Reach(failpoint.DuringCollect)
	rows := make([]record.Artifact, len(got.Artifacts))
	for i, a := range got.Artifacts {
		rows[i] = record.Artifact{Path: a.Path, SizeBytes: a.SizeBytes, SHA256: a.SHA256, Executable: a.Executable}
	}
	if err := r.log.PutArtifacts(context.Background(), rows); err != nil {
		r.collected = collected{}
		return errors.Join(fmt.Errorf("artifacts: %w", err), os.RemoveAll(into))
	}
	return nil
}

// neverRan is the outcome of an execution that left the queue without a slot: ErrQueueTime, or
// the cancellation.
func (r *run) neverRan(err error) Outcome {
	out := r.blank()
	out.Usage.Queue = time.Since(r.created)
	if errors.Is(err, admission.ErrQueueTime) {
		code := TimeoutCode
		out.End, out.TimedOut, out.Evidence.Deadline, out.ExitCode = TimedOut, true, QueueDeadline, &code
	} else {
		out.cancelledBy(r.cancelled())
	}
	out.Advice = advise(out, nil, manifest.Manifest{})
	return out
}

// neverStarted is the outcome of an execution without a program: its sandbox or its program
// could not be started. A start that was cancelled may have printed something.
// A cancellation wins over the error: after a cancel the start fails as a consequence, and the
// error would only confuse.
func (r *run) neverStarted(err error, s sinks) Outcome {
	out := r.blank()
	out.Stdout, _ = s.stdout.result()
	out.Stderr, _ = s.stderr.result()
	out.Usage.Queue = r.queued
	if c := r.cancelled(); c != nil {
		out.cancelledBy(c)
		return out
	}
	out.End = SetupFailed
	var setup *sandbox.SetupError
	if errors.As(err, &setup) {
		out.Evidence.SetupStep, out.Evidence.SetupError = setup.Step, r.publicSetupError(setup)
	}
	level := slog.LevelError
	if out.Evidence.SetupError != internalSetupError && !errors.Is(err, sandbox.ErrNoIDs) && out.Evidence.SetupStep != stepNetwork {
		level = slog.LevelInfo // the caller's request or tenant is the cause
	}
	r.logger.Log(context.Background(), level, "sandbox", "execution", r.id, "err", err)
	out.Advice = advise(out, nil, manifest.Manifest{})
	return out
}

// internalSetupError is Evidence.SetupError of a failure that is not the caller's. The log has
// the cause, with the execution's ID.
const internalSetupError = "internal error"

// publicSetupError returns the text for the caller about a failed start. If the request is not the
// cause, the error may name files of this machine, so it stays in the log.
func (e *execution) publicSetupError(err *sandbox.SetupError) string {
	switch err.Step {
	case stepExec:
		return programOf(e.grant, e.settings)[0].Pipeline[0].Args[0] + ": " + err.Err.Error()
	case stepDirectory:
		return "working directory " + e.dir + ": " + err.Err.Error()
	case stepMemory:
		return fmt.Sprintf("%s of memory is too small to start a sandbox", quantity.Bytes(e.limits.MemoryBytes))
	}
	switch {
	case err.Step == stepNetwork:
		return "its network could not be opened; try again later, or tell the operator"
	case errors.Is(err, sandbox.ErrGroupFull):
		return "the tenant's executions have used up its limit of processes or memory for all of them together; wait until some have ended"
	case errors.Is(err, sandbox.ErrGroupRemoved):
		return "the tenant was removed"
	case errors.Is(err, sandbox.ErrNoIDs):
		return "too many tenants have executions at the same time for the daemon's ids (ids.count); try again later"
	}
	return internalSetupError
}

// The steps of a sandbox's start that the caller's own request or tenant can make fail.
const (
	stepExec      = "exec"
	stepDirectory = "directory"
	stepMemory    = "memory"
	stepGroup     = "sandbox group" // of the tenant's group
	stepNetwork   = "network"       // the tenant's network
)

// oomScopes has the record's word for each scope of the sandbox.
var oomScopes = map[sandbox.OOMScope]OOMScope{
	sandbox.OwnMemory: OwnMemory, sandbox.GroupMemory: TenantMemory, sandbox.MachineMemory: MachineMemory,
}

// scarcity names the resource that the daemon lacks. The caller sees only such a cause, and can wait or
// ask the operator. Other causes are only in the log.
func scarcity(err error) string {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return "its disk is full"
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return "it has too many open files"
	}
	return "internal error"
}

// outcome is the end of a program that ran. err is the error of Wait, a failure of the sandbox. outcome
// logs it; the result still has everything that is known (exit).
func (r *run) outcome(exit sandbox.Exit, err error, s sinks) Outcome {
	out := r.blank()
	var lost [2]error
	out.Stdout, lost[0] = s.stdout.result()
	out.Stderr, lost[1] = s.stderr.result()
	out.Usage = Usage{
		UserCPU: exit.Usage.UserCPU, SystemCPU: exit.Usage.SystemCPU, MemoryPeakBytes: exit.Usage.MemoryPeakBytes,
		Wall: exit.Usage.Wall, Queue: r.queued, Setup: exit.Usage.Setup,
	}
	out.Evidence.OOMKills, out.Evidence.PidsMax, out.Evidence.PidsOfTenant = exit.OOMKills, exit.PidsMax, exit.PidsOfGroup
	if exit.OOMKills > 0 {
		out.Evidence.OOMScope = oomScopes[exit.OOMScope]
	}
	if err != nil {
		r.logger.Error("sandbox", "execution", r.id, "err", err)
	}
	code := exit.Code
	if exit.Signal != 0 {
		// As the returncode of Python's subprocess.Popen.
		code, out.Signal = -int(exit.Signal), unix.SignalName(exit.Signal)
		if out.Signal == "" { // a real-time signal
			out.Signal = fmt.Sprintf("UNKNOWN_SIGNAL_%d", int(exit.Signal))
		}
	}
	switch exit.End {
	case sandbox.Exited:
		out.End = Exited
	case sandbox.Signaled:
		out.End = Signaled
	case sandbox.OOMKilled:
		out.End = OOMKilled
	case sandbox.TimedOut:
		// The signal came from the daemon, so it says nothing about the program.
		out.End, out.TimedOut, out.Signal, code = TimedOut, true, "", TimeoutCode
		out.Evidence.Deadline = WallDeadline
		if exit.Deadline == sandbox.CPU {
			out.Evidence.Deadline = CPUDeadline
		}
	// The daemon asked for this end, whatever the program did with the signal.
	case sandbox.Stopped:
		out.cancelledBy(r.cancelled())
	}
	out.ExitCode = &code
	out.Count = len(r.collected.artifacts)
	for _, line := range r.collected.refused {
		// The cut may split a character; ToValidUTF8 removes the rest of it.
		out.Refused = append(out.Refused, strings.ToValidUTF8(line[:min(len(line), maxRefusedBytes)], ""))
	}
	if exit.CollectErr != nil {
		r.logger.Error("artifacts", "execution", r.id, "err", exit.CollectErr)
		out.Refused = append(out.Refused, "every file: the daemon could not keep them ("+scarcity(exit.CollectErr)+")")
	}
	out.Advice = advise(out, errors.Join(lost[:]...), r.grant.Skill().Manifest)
	switch {
	case errors.Is(err, sandbox.ErrLost):
		out.Advice = "Its sandbox was killed from outside: by the machine's operator, or because the whole machine ran out of memory. Whatever the program had done by then stays done."
	case errors.Is(err, sandbox.ErrUnwatched) && out.End == Signaled:
		out.Advice = "The daemon ended the program, because it could not watch the program's sandbox (" + scarcity(err) + "). Whatever the program had done by then stays done."
	}
	r.network.into(&out)
	if out.Advice == "" {
		out.Advice = r.network.advise()
	}
	if out.Advice == "" && code != 0 {
		out.Advice = adviseOn(s.stderr.ending(), r.limits, r.grant.Network() != nil, out.Session != nil)
	}
	return out
}

// blank is an outcome with the fields that every end has.
func (e *execution) blank() Outcome {
	out := Outcome{SkillDigest: e.grant.Skill().Digest, Limits: e.limits}
	if base := e.turn.base(); base != nil {
		out.Session = &SessionOutcome{SessionBase: *base, Uncommitted: NotSucceeded, Reason: "the program did not succeed"}
	}
	return out
}

// cancelledBy sets the end to Cancelled. Nil: the cause is not known.
func (out *Outcome) cancelledBy(c *cancellation) {
	out.End = Cancelled
	if c != nil {
		out.Evidence.CancelledBy, out.Evidence.CancelReason = c.by, c.reason
	}
}

// end records the outcome: exactly one for each execution. If the first try fails, perhaps because the
// outcome is too large, end tries again without the list of refused files. If the log is already
// ended (record.ErrEnded), that end stays: on a full disk the record keeps it until there is room.
func (x *Executor) end(r *run, out Outcome) {
	r.turn.release()
	now := time.Now()
	x.auditEnd(r.grant.Principal(), r.id, out) // first: readers see the recorded end
	recorded := r.span.stage("record")
	failpoint.Reach(failpoint.BeforeOutcome)
	err := recordEnd(r.log, out, now)
	if err != nil {
		r.logger.Error("outcome not recorded", "execution", r.id, "end", out.End, "err", err)
		// Without the list that makes it large. Readers must not wait for ever.
		out.Refused = nil
		err = recordEnd(r.log, out, now)
	}
	// Readers of this execution wait until their own deadline, because no end is made up for them.
	if err != nil && !errors.Is(err, record.ErrEnded) {
		r.logger.Error("outcome not recorded", "execution", r.id, "end", out.End, "err", err)
	}
	failpoint.Reach(failpoint.AfterOutcome)
	recorded(err)
	r.span.ended(out)
	x.logEnd(r.execution, out, now)
	x.observe(r.grant.Principal().Tenant, r.startup, out, r.span.id())
}

// observe tells the observer of an end.
func (x *Executor) observe(tenant string, started time.Duration, out Outcome, trace string) {
	if x.Observer != nil {
		x.Observer.Ended(x.observed(tenant), started, out, trace)
	}
}

// recordEnd shows the outcome to readers and closes the execution's row. It uses no request's
// context: the outcome must be recorded even if every client has gone.
func recordEnd(log *record.Log, out Outcome, now time.Time) error {
	data, err := json.Marshal(out)
	if err != nil {
		return err
	}
	return log.End(context.Background(), string(out.End), data, now)
}

// logEnd writes the one line that every execution of this daemon leaves in the log. It has no arguments,
// environment or output: they may hold secrets.
func (x *Executor) logEnd(e *execution, out Outcome, now time.Time) {
	code := any(nil)
	if out.ExitCode != nil {
		code = *out.ExitCode
	}
	who, sk, source := e.grant.Principal(), e.grant.Skill(), e.grant.Source()
	x.Log.Info("execution",
		"execution", e.id,
		"tenant", who.Tenant,
		"principal", who.Name,
		"skill", sk.Name+"@"+sk.Digest,
		"source", source.Kind.String(),
		"script", source.Script,
		"end", string(out.End),
		"exit_code", code,
		"signal", out.Signal,
		"created", e.created.UTC().Format(time.RFC3339Nano),
		"ended", now.UTC().Format(time.RFC3339Nano),
		"queue_ms", out.Usage.Queue.Milliseconds(),
		"setup_ms", out.Usage.Setup.Milliseconds(),
		"wall_ms", out.Usage.Wall.Milliseconds(),
		"stdout_bytes", out.Stdout.TotalBytes,
		"stderr_bytes", out.Stderr.TotalBytes,
		"artifacts", out.Count,
	)
}

// errNotClosed says that some lost executions have no end yet.
var errNotClosed = errors.New("executions that could not be closed")

// closeLost ends, as DAEMON_LOST, every execution that has no end in the record. The sandboxes of the
// last daemon are already gone. An execution that can't be closed, for example on a full disk, holds up no other; the
// error is then errNotClosed. After any error CloseLeft tries again.
// New calls it before the first request, so readers see an execution of a dead daemon as running only after such an
// error.
func (x *Executor) closeLost(ctx context.Context) error {
	x.closing.Lock()
	defer x.closing.Unlock()
	lost, err := x.Record.Unended(ctx)
	if err != nil {
		x.left = true
		return err
	}
	failed := 0
	for _, r := range lost {
		switch closed, failure := x.closeLostOne(ctx, r); {
		case failure != nil:
			if failed++; failed == 1 {
				err = failure
			}
		case closed:
			x.Log.Warn("an execution ended with the last daemon: DAEMON_LOST", "execution", r.ID, "skill", r.Skill+"@"+r.Digest)
		}
	}
	x.left = failed > 0
	if x.left {
		return fmt.Errorf("%w: %d; the first: %w", errNotClosed, failed, err)
	}
	return nil
}

// CloseLeft ends the lost executions that New, Resume or Adopt could not end. Without any it does nothing, and after
// HandOver it leaves them to the next daemon. cmd/skillrund calls it after each sweep of the record, which may have
// made room.
func (x *Executor) CloseLeft(ctx context.Context) error {
	x.closing.Lock()
	left := x.left
	x.closing.Unlock()
	if !left || !x.beginClosing() {
		return nil
	}
	defer x.accepting.Done()
	return x.closeLost(ctx)
}

// beginClosing adds to x.accepting, so that HandOver waits: the next daemon would close the same executions. It returns
// false after HandOver.
func (x *Executor) beginClosing() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.successor != nil {
		return false
	}
	x.accepting.Add(1)
	return true
}

// closeLostOne ends one lost execution. Its output stays readable: Reopen keeps every whole event.
// The outcome has no exit code and no usage: this daemon saw neither, and the record makes nothing
// up. A version of the session is written before the outcome, so it may exist. closed is false if the spool had an end.
func (x *Executor) closeLostOne(ctx context.Context, r record.Execution) (closed bool, _ error) {
	d := x.detail(r)
	out := Outcome{End: DaemonLost, SkillDigest: r.Digest, Limits: d.Limits}
	if d.Session != nil {
		out.Session = &SessionOutcome{SessionBase: *d.Session, Uncommitted: CommitUnknown,
			Reason: "the daemon died; look at the session's versions for one that this execution made"}
	}
	out.Advice = advise(out, nil, manifest.Manifest{})
	log, err := x.Record.Reopen(ctx, r.ID)
	if errors.Is(err, record.ErrEnded) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !x.endsAudited[r.ID] { // else an earlier attempt has failed after that
		x.auditEnd(permission.Principal{Tenant: r.Tenant, Name: r.Principal}, r.ID, out)
	}
	if err := recordEnd(log, out, time.Now()); err != nil {
		x.endsAudited[r.ID] = true
		return false, err
	}
	delete(x.endsAudited, r.ID)
	x.observe(r.Tenant, 0, out, "")
	return true, nil
}

// recordQueued makes the execution durable and claims its key; event 1 is its
// header. If the key belongs to an earlier execution, the error of the record says so
// (sameRequest).
// It returns after the row is in the journal (package record). Only then may the caller hear of the
// execution: the ID in its hands must survive a crash of the daemon.
func (x *Executor) recordQueued(ctx context.Context, e *execution) (*record.Log, error) {
	who, sk, source := e.grant.Principal(), e.grant.Skill(), e.grant.Source()
	h := Header{
		Skill: sk.Name, SkillDigest: sk.Digest, Limits: e.limits,
		Network: newNetwork(e.grant), Commands: e.commands(), Session: e.turn.base(), Warnings: e.warnings(),
	}
	header, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	about, err := json.Marshal(detail{h, e.asked})
	if err != nil {
		return nil, err
	}
	log, err := x.Record.Create(ctx, record.Execution{
		ID: e.id, Tenant: who.Tenant, Principal: who.Name, Skill: sk.Name, Digest: sk.Digest,
		SourceKind: source.Kind.String(), Script: source.Script, Labels: e.labels,
		Key: e.key, RequestHash: e.hash, Created: e.created, Detail: about,
	}, header)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	return log, nil
}

// recordStarted records, once, that the program runs. The program's first output may come before the
// sandbox's start has returned. So both sinks call recordStarted before their first write, and
// Executor.run calls it after the start.
func (r *run) recordStarted() {
	r.once.Do(func() {
		close(r.started) // first: a reader of the started event may send a signal at once
		now := time.Now()
		r.startup = now.Sub(r.created) - r.queued
		data, err := json.Marshal(Started{Queue: r.queued, Setup: r.startup})
		if err := errors.Join(err, r.log.Started(context.Background(), now, data)); err != nil {
			r.logger.Error("start not recorded", "execution", r.id, "err", err)
		}
	})
}
