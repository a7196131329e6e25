package executor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/disktest"
	"github.com/skillrun/skillrun/internal/environment"
	"github.com/skillrun/skillrun/internal/hosttest"
	"github.com/skillrun/skillrun/internal/record"
	"github.com/skillrun/skillrun/internal/session"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/sandbox"
)

// In these tests both daemons of a takeover are executors of this process, and have the record open at the same time.

// An earlierExecutor calls the executor of the earlier daemon directly.
type earlierExecutor struct{ *Executor }

func (e earlierExecutor) Cancel(id, by, reason string, grace time.Duration) error {
	e.CancelHere(id, by, reason, grace)
	return nil
}

func (e earlierExecutor) Signal(id string, sig syscall.Signal) (bool, error) {
	return e.SignalHere(context.Background(), id, sig), nil
}

// A deadEarlier is an earlier daemon that does not answer. It notes the calls.
type deadEarlier struct{ calls chan string }

func newDeadEarlier() deadEarlier { return deadEarlier{make(chan string, 10)} }

func (d deadEarlier) Cancel(id, _, _ string, _ time.Duration) error {
	d.calls <- "cancel " + id
	return syscall.EPIPE
}

func (d deadEarlier) Signal(id string, _ syscall.Signal) (bool, error) {
	d.calls <- "signal " + id
	return false, syscall.EPIPE
}

// A successorExecutor tells the next executor, if there is one, about starts and ends, and then the test.
type successorExecutor struct {
	next           *Executor
	started, ended chan string
}

func newSuccessor() *successorExecutor {
	return &successorExecutor{started: make(chan string, 10), ended: make(chan string, 10)}
}

func (h *successorExecutor) Started(e Inherited) {
	if h.next != nil {
		h.next.InheritedStarted(e)
	}
	h.started <- e.ID
}

func (h *successorExecutor) Ended(id string) {
	if h.next != nil {
		h.next.InheritedEnded(id)
	}
	h.ended <- id
}

// handOverRecord hands the record of an executor over, and opens it for the next daemon.
func handOverRecord(t *testing.T, x *Executor, all []Inherited) *record.Store {
	t.Helper()
	if err := x.Record.HandOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := record.Config{Dir: filepath.Join(filepath.Dir(x.StagingDir), "record"), Takeover: true, Log: x.Log}
	for _, e := range all {
		c.Earlier = append(c.Earlier, e.ID)
	}
	store, err := record.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// newNext makes the executor of the next daemon. x is the executor of the earlier one.
func newNext(t *testing.T, x *Executor, from Earlier, all []Inherited, edit ...func(*Config)) *Executor {
	t.Helper()
	c := x.Config
	c.Record, c.Earlier, c.Inherited = handOverRecord(t, x, all), from, all
	for _, change := range edit {
		change(&c)
	}
	next, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// createRow records an execution of an executor that never runs it, and returns its ID.
func createRow(t *testing.T, s *record.Store) string {
	t.Helper()
	id := record.NewID()
	_, err := s.Create(t.Context(), record.Execution{
		ID: id, Tenant: who.Tenant, Principal: who.Name, Skill: "demo", SourceKind: "script", Created: time.Now(), Detail: []byte("{}"),
	}, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// newDead makes a next executor that inherits two executions of a daemon that does not answer. The first one holds a
// slot. Both have a directory of staged files. earlier is the record of that daemon.
func newDead(t *testing.T, edit ...func(*Config)) (x *Executor, from deadEarlier, ids []string, earlier *record.Store) {
	t.Helper()
	old := newExecutor(t, t.TempDir(), nil)
	from = newDeadEarlier()
	var all []Inherited
	for i := range 2 {
		id := createRow(t, old.Record)
		if err := os.Mkdir(filepath.Join(old.StagingDir, id), 0o700); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
		all = append(all, Inherited{ID: id, Tenant: who.Tenant, Principal: who.Name, MemoryBytes: 1 << 20, Running: i == 0})
	}
	return newNext(t, old, from, all, edit...), from, ids, old.Record
}

// checkCounts checks how many executions of an executor hold a slot.
func checkCounts(t *testing.T, x *Executor, when string, want int) {
	t.Helper()
	if running, _, _ := x.Counts(); running != want {
		t.Errorf("%s: %d executions hold a slot, want %d", when, running, want)
	}
}

// The executions of the earlier daemon go on. The next daemon counts them, and its callers can end them.
func TestTakeover(t *testing.T) {
	fakes := make(chan *fakeProcess, 4)
	old := newExecutor(t, t.TempDir(), func(context.Context, sandbox.Spec, sandbox.IO) (process, error) {
		f := newFake()
		fakes <- f
		return f, nil
	}, func(c *Config) { c.MaxQueued = 3 })
	over := make(chan struct{})
	req := scriptRequest()
	req.Ended = func() { close(over) } // the last that its goroutine does
	gone := execute(t, old, req)
	(<-fakes).exit <- sandbox.Exit{End: sandbox.Exited}
	<-over
	first := execute(t, old, scriptRequest())
	untilStarted(t, old, first)
	one := <-fakes
	second := execute(t, old, scriptRequest())
	untilStarted(t, old, second)
	two := <-fakes
	third := execute(t, old, scriptRequest())

	successor := newSuccessor()
	all := old.HandOver(successor)
	if _, _, err := old.Execute(t.Context(), scriptRequest()); !errors.Is(err, ErrHandedOver) {
		t.Errorf("handed over: got %v, want %v", err, ErrHandedOver)
	}
	slices.SortFunc(all, func(a, b Inherited) int { return strings.Compare(a.ID, b.ID) })
	ids := []string{first, second, third}
	slices.Sort(ids)
	if len(all) != len(ids) {
		t.Fatalf("inherited %+v, want %v", all, ids)
	}
	for i, e := range all {
		if e.ID != ids[i] || e.Tenant != who.Tenant || e.Principal != who.Name || e.MemoryBytes == 0 || e.Running != (e.ID != third) {
			t.Errorf("inherited %+v", e)
		}
	}

	next := newNext(t, old, earlierExecutor{old}, all)
	successor.next = next
	checkCounts(t, next, "inherited", 2)
	if !inherits(next) {
		t.Error("nothing is inherited")
	}
	// Only the program that runs gets a signal.
	if err := next.Signal(t.Context(), who, first, syscall.SIGUSR1); err != nil {
		t.Error(err)
	}
	if got := <-one.signals; got != syscall.SIGUSR1 {
		t.Errorf("got %v", got)
	}
	for _, id := range []string{third, gone} {
		if err := next.Signal(t.Context(), who, id, syscall.SIGUSR1); !errors.Is(err, ErrNotRunning) {
			t.Errorf("%s: got %v, want %v", id, err, ErrNotRunning)
		}
	}
	if old.CancelHere(gone, "", "", 0) || old.SignalHere(t.Context(), gone, syscall.SIGUSR1) {
		t.Error("an execution that has ended was found")
	}
	if e, err := next.Cancel(t.Context(), who, gone, "test", "", 0); err != nil || e.Outcome.End != Exited {
		t.Errorf("cancel of an execution that has ended: got %+v, %v", e, err)
	}

	// Cancel waits for the end, which frees the slot here and there; the earlier daemon starts the third execution.
	e, err := next.Cancel(t.Context(), who, first, "test", "because", -1)
	if err != nil || e.State != Ended || e.Outcome.End != Cancelled {
		t.Errorf("got %+v, %v", e, err)
	}
	if got := <-one.stopped; got != next.CancelGrace {
		t.Errorf("got a grace of %v, want %v", got, next.CancelGrace)
	}
	if got := <-successor.ended; got != first {
		t.Errorf("%s has ended, want %s", got, first)
	}
	if got := <-successor.started; got != third {
		t.Errorf("%s has started, want %s", got, third)
	}
	three := <-fakes
	checkCounts(t, next, "the third one has started", 2)

	if _, err := next.CancelSoon(t.Context(), who, second, "test", "", time.Minute); err != nil {
		t.Error(err)
	}
	if got := <-two.stopped; got != time.Minute {
		t.Errorf("got a grace of %v", got)
	}
	if got := <-successor.ended; got != second {
		t.Errorf("%s has ended, want %s", got, second)
	}
	// A drain of the next daemon ends the rest.
	late, cancel := context.WithCancel(t.Context())
	cancel()
	next.Drain(late, late)
	<-three.stopped
	checkCounts(t, next, "drained", 0)
	if inherits(next) {
		t.Error("an inherited execution is left")
	}
	next.InheritedEnded(third) // a second report changes nothing
	if e, err := next.Get(t.Context(), who, third); err != nil || e.Outcome.End != Cancelled {
		t.Errorf("got %+v, %v", e, err)
	}
}

// A heldTracer calls hold when an execution is about to be recorded.
type heldTracer struct {
	noop.Tracer
	hold func()
}

// A recordingSpan makes the executor trace the stages, too.
type recordingSpan struct{ noop.Span }

func (recordingSpan) IsRecording() bool { return true }

func (h heldTracer) Start(ctx context.Context, name string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	if name == "record" {
		h.hold()
	}
	return ctx, recordingSpan{}
}

// An execution whose Execute is under way is in the record when HandOver returns, and the next daemon inherits it.
func TestHandOverWaitsForExecute(t *testing.T) {
	hosttest.Runtimes(t) // it starts processes, and a bubble can't wait for these
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		held, release := make(chan struct{}, 2), make(chan struct{})
		x := newExecutor(t, t.TempDir(), f.runs, func(c *Config) {
			c.Tracer = heldTracer{hold: func() { held <- struct{}{}; <-release }}
		})
		executed := make(chan string, 1)
		go func() { executed <- execute(t, x, scriptRequest()) }()
		<-held
		handed := make(chan []Inherited, 1)
		go func() { handed <- x.HandOver(newSuccessor()) }()
		synctest.Wait()
		if len(handed) > 0 {
			t.Error("HandOver has not waited")
		}
		close(release)
		all, id := <-handed, <-executed
		if len(all) != 1 || all[0].ID != id {
			t.Errorf("inherited %+v, want %s", all, id)
		}
		f.exit <- sandbox.Exit{End: sandbox.Exited}
		follow(t, x, id)
		x.Drain(t.Context(), t.Context())
	})
}

// An execution of a tenant that the next daemon does not have holds no slot there.
func TestInheritedOfUnknownTenant(t *testing.T) {
	old := newExecutor(t, t.TempDir(), nil)
	e := Inherited{ID: createRow(t, old.Record), Tenant: "removed", Principal: who.Name, Running: true}
	x := newNext(t, old, newDeadEarlier(), []Inherited{e})
	x.InheritedStarted(e)
	x.InheritedStarted(Inherited{ID: "unknown", Tenant: who.Tenant})
	checkCounts(t, x, "inherited", 0)
	x.InheritedEnded(e.ID)
	if inherits(x) {
		t.Error("it has not ended")
	}
}

// Executions that die with the earlier daemon are lost, and their slots and files are freed. Until then a caller can't
// tell that this daemon does not answer.
func TestAdoptInherited(t *testing.T) {
	during := &duringAdopt{}
	x, from, ids, earlier := newDead(t, func(c *Config) { c.Observer = during })
	checkCounts(t, x, "inherited", 1)
	for _, id := range ids {
		if _, err := os.Stat(filepath.Join(x.StagingDir, id)); err != nil {
			t.Errorf("New has removed the files of a running execution: %v", err)
		}
	}
	if err := x.Signal(t.Context(), who, ids[0], syscall.SIGUSR1); !errors.Is(err, ErrNotRunning) {
		t.Errorf("got %v, want %v", err, ErrNotRunning)
	}
	if e, err := x.CancelSoon(t.Context(), who, ids[0], "test", "", 0); err != nil || e.State == Ended {
		t.Errorf("got %+v, %v", e, err)
	}
	for _, want := range []string{"signal " + ids[0], "cancel " + ids[0]} {
		if got := <-from.calls; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if err := errors.Join(earlier.Close(), x.Record.Adopt(t.Context())); err != nil {
		t.Fatal(err)
	}
	during.call = func() {
		for _, id := range ids {
			if err := x.Signal(t.Context(), who, id, syscall.SIGUSR1); !errors.Is(err, ErrNotRunning) {
				t.Errorf("got %v, want %v", err, ErrNotRunning)
			}
			select {
			case <-x.cancelInherited(audit.Entry{}, id, &cancellation{}):
				t.Errorf("%s has ended before Adopt has freed it", id)
			default:
			}
		}
		x.cancelAllInherited(&cancellation{})
	}
	if err := x.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if during.calls != len(ids) {
		t.Errorf("%d executions were lost, want %d", during.calls, len(ids))
	}
	if len(from.calls) != 0 {
		t.Errorf("the dead daemon was called: %s", <-from.calls)
	}
	for _, id := range ids {
		if e, err := x.Cancel(t.Context(), who, id, "test", "", 0); err != nil || e.Outcome.End != DaemonLost {
			t.Errorf("got %+v, %v", e, err)
		}
		if _, err := os.Stat(filepath.Join(x.StagingDir, id)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the files of %s: %v", id, err)
		}
	}
	checkCounts(t, x, "adopted", 0)
	if inherits(x) {
		t.Error("an inherited execution is left")
	}
}

// While the record can't be adopted, Adopt frees the slots. It is called again, and ends the executions then.
func TestAdoptBeforeTheRecord(t *testing.T) {
	x, _, ids, earlier := newDead(t)
	if err := x.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkCounts(t, x, "not adopted", 0)
	for _, id := range ids {
		if e, err := x.Get(t.Context(), who, id); err != nil || e.State == Ended {
			t.Errorf("got %+v, %v", e, err)
		}
	}
	if err := errors.Join(earlier.Close(), x.Record.Adopt(t.Context()), x.Adopt(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if e, err := x.Get(t.Context(), who, id); err != nil || e.State != Ended || e.Outcome.End != DaemonLost {
			t.Errorf("got %+v, %v", e, err)
		}
	}
}

// Adopt frees the executions whose files it can't remove, and removes these files when it is called again.
func TestAdoptRemovesFilesLater(t *testing.T) {
	x, _, ids, earlier := newDead(t)
	unmount := disktest.MountBusy(t, filepath.Join(x.StagingDir, ids[0]))
	if err := errors.Join(earlier.Close(), x.Record.Adopt(t.Context())); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := x.Adopt(t.Context()); !errors.Is(err, syscall.EBUSY) {
			t.Errorf("got %v, want %v", err, syscall.EBUSY)
		}
		checkCounts(t, x, "adopted", 0)
	}
	unmount()
	if err := x.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(x.StagingDir); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// Adopt logs the executions that it can't close, and closes the others. CloseLeft closes the rest. Adopt must not fail
// until then, because no other takeover begins before it has succeeded.
func TestAdoptClosesLater(t *testing.T) {
	var lines bytes.Buffer
	x, _, ids, earlier := newDead(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&lines, nil)) })
	unmount := disktest.MountBusy(t, x.Record.ArtifactDir(ids[0]))
	if err := errors.Join(earlier.Close(), x.Record.Adopt(t.Context()), x.Adopt(t.Context())); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(lines.String(), ids[0]) {
		t.Errorf("the log lacks %s: %s", ids[0], lines.String())
	}
	for i, want := range []State{Queued, Ended} {
		if e, err := x.Get(t.Context(), who, ids[i]); err != nil || e.State != want {
			t.Errorf("%d: got state %v, %v; want %v", i, e.State, err, want)
		}
	}
	if err := x.CloseLeft(t.Context()); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("got %v, want %v", err, syscall.EBUSY)
	}
	unmount()
	if err := x.CloseLeft(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e, err := x.Get(t.Context(), who, ids[0]); err != nil || e.State != Ended || e.Outcome.End != DaemonLost {
		t.Errorf("got %+v, %v", e, err)
	}
}

// A duringAdopt observes the ends of lost executions. Adopt records these ends before it frees the executions.
type duringAdopt struct {
	call  func()
	calls int
}

func (d *duringAdopt) Ended(string, time.Duration, Outcome, string) {
	d.calls++
	d.call()
}
func (d *duringAdopt) Refused(string, error) {}
func (d *duringAdopt) CallRefused(string)    {}

// Adopt frees the executions also if the record fails. A Drain that waits for them returns then. If the earlier daemon
// does not answer, Drain tries only one cancel.
func TestDrainInheritedOfDeadDaemon(t *testing.T) {
	x, from, _, _ := newDead(t)
	late, cancel := context.WithCancel(t.Context())
	cancel()
	drained := make(chan struct{})
	go func() {
		x.Drain(late, late)
		close(drained)
	}()
	<-from.calls
	if err := x.Record.Close(); err != nil {
		t.Fatal(err)
	}
	if err := x.Adopt(t.Context()); err == nil || !strings.Contains(err.Error(), "executions of the earlier daemon") {
		t.Errorf("got %v", err)
	}
	<-drained
	if len(from.calls) != 0 {
		t.Errorf("the dead daemon was called again: %s", <-from.calls)
	}
}

// After a takeover that has failed, the earlier daemon accepts executions again. What the next daemon had accepted is
// lost.
func TestHandOverAndResume(t *testing.T) {
	f := newFake()
	var lines bytes.Buffer
	x := newExecutor(t, t.TempDir(), f.runs, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&lines, nil)) })
	successor := newSuccessor()
	if all := x.HandOver(successor); len(all) != 0 {
		t.Errorf("inherited %+v", all)
	}
	store := handOverRecord(t, x, nil)
	theirs := createRow(t, store)
	if err := errors.Join(store.Close(), x.Record.Resume()); err != nil {
		t.Fatal(err)
	}
	x.Resume(t.Context())
	if e, err := x.Get(t.Context(), who, theirs); err != nil || e.State != Ended || e.Outcome.End != DaemonLost {
		t.Errorf("got %+v, %v", e, err)
	}
	f.exit <- sandbox.Exit{End: sandbox.Exited}
	id := execute(t, x, scriptRequest())
	follow(t, x, id)
	x.Drain(t.Context(), t.Context())
	if len(successor.started)+len(successor.ended) != 0 {
		t.Error("the successor that has failed got a report")
	}
	if err := x.Record.Close(); err != nil {
		t.Fatal(err)
	}
	x.HandOver(successor)
	x.Resume(t.Context())
	if want := "executions of the next daemon were not closed"; !strings.Contains(lines.String(), want) {
		t.Errorf("the log does not have %q:\n%s", want, &lines)
	}
	if _, _, draining := x.Counts(); draining {
		t.Error("it accepts nothing")
	}
}

func TestIsHandedOver(t *testing.T) {
	for _, err := range []error{record.ErrHandedOver, session.ErrHandedOver, skill.ErrHandedOver, environment.ErrHandedOver} {
		if !IsHandedOver(fmt.Errorf("x: %w", err)) {
			t.Errorf("%v does not count", err)
		}
		if !IsDraining(err) {
			t.Errorf("%v: want draining", err)
		}
	}
	if !IsDraining(fmt.Errorf("x: %w", ErrDraining)) || IsDraining(record.ErrClosed) || IsDraining(nil) {
		t.Error("IsDraining")
	}
	for _, err := range []error{nil, ErrDraining, record.ErrClosed} {
		if IsHandedOver(err) {
			t.Errorf("%v counts", err)
		}
	}
}

// inherits reports whether executions of an earlier daemon have not ended.
func inherits(x *Executor) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.inheritance.live) > 0
}
