package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/admission"
	"github.com/skillrun/skillrun/internal/disktest"
	"github.com/skillrun/skillrun/internal/hosttest"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/record"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/skilltest"
	"github.com/skillrun/skillrun/internal/workspace"
	"github.com/skillrun/skillrun/sandbox"
)

var who = permission.Principal{Tenant: "default", Name: "uid:0"}

// newExecutor makes an Executor with everything real but the sandbox, which start
// stands in for.
func newExecutor(t *testing.T, dir string, start startFunc, edit ...func(*Config)) *Executor {
	t.Helper()
	root := filepath.Join(dir, "skills/demo")
	if err := os.MkdirAll(filepath.Join(root, "scripts"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"SKILL.md":      "---\nname: demo\ndescription: A skill.\nversion: 1.2.3\nallowed-tools: Bash(python:*)\n---\n",
		"scripts/go.py": "print(1)",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	store, err := record.Open(record.Config{Dir: filepath.Join(dir, "record"), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	skills, err := skill.OpenRegistry(t.Context(), skill.RegistryConfig{Roots: skill.Roots(filepath.Join(dir, "skills")), Dir: filepath.Join(dir, "snapshots"), Owner: skilltest.Owner(), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	c := Config{
		Skills: skills, Runtimes: hosttest.Runtimes(t), Record: store, Bounds: StandardBounds(),
		StagingDir: filepath.Join(dir, "staging"), Owner: workspace.Owner(skilltest.Owner()), KeyFile: filepath.Join(dir, "key"),
		MaxRunning: 2, MaxQueued: 2, QueueTimeout: time.Minute, Grace: time.Second, CancelGrace: time.Second, Log: log,
	}
	for _, change := range edit {
		change(&c)
	}
	x, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	x.start = start
	return x
}

// A fakeProcess ends when the test says how.
type fakeProcess struct {
	exit    chan sandbox.Exit
	stopped chan time.Duration
	signals chan syscall.Signal
	err     error
}

func newFake() *fakeProcess {
	return &fakeProcess{exit: make(chan sandbox.Exit, 1), stopped: make(chan time.Duration, 1), signals: make(chan syscall.Signal, 1)}
}

func (f *fakeProcess) Signal(s syscall.Signal) error { f.signals <- s; return nil }
func (f *fakeProcess) Wait() (sandbox.Exit, error)   { return <-f.exit, f.err }

// Stop does not block. A cancel may call it more than once, also after the end, and a test receives the first call.
func (f *fakeProcess) Stop(grace time.Duration) {
	select {
	case f.stopped <- grace:
	default:
		return
	}
	select {
	case f.exit <- sandbox.Exit{End: sandbox.Stopped, Signal: syscall.SIGTERM}:
	default: // it has ended
	}
}

// runs starts f for every execution.
func (f *fakeProcess) runs(context.Context, sandbox.Spec, sandbox.IO) (process, error) { return f, nil }

func scriptRequest(args ...string) Request {
	return Request{Principal: who, Skill: "demo", Source: permission.Source{Kind: permission.Script, Script: "scripts/go.py"}, Args: args}
}

// follow reads an execution to its outcome.
func follow(t *testing.T, x *Executor, id string) []Event {
	t.Helper()
	return followAs(t, x, who, id)
}

func followAs(t *testing.T, x *Executor, who permission.Principal, id string) []Event {
	t.Helper()
	f, err := x.Follow(t.Context(), who, id, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var events []Event
	for {
		e, err := f.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return events
		}
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
}

// untilStarted reads an execution until its program has started.
func untilStarted(t *testing.T, x *Executor, id string) {
	t.Helper()
	f, err := x.Follow(t.Context(), who, id, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		e, err := f.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if e.Started != nil {
			return
		}
	}
}

func execute(t *testing.T, x *Executor, req Request) string {
	t.Helper()
	id, _, err := x.Execute(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestOutcomeFollowsTheExit(t *testing.T) {
	for _, tt := range []struct {
		name string
		exit sandbox.Exit
		err  error
		want Outcome
		code int
	}{
		{"exited", sandbox.Exit{End: sandbox.Exited, Code: 3}, nil, Outcome{End: Exited}, 3},
		{"signaled", sandbox.Exit{End: sandbox.Signaled, Signal: syscall.SIGSEGV}, nil, Outcome{End: Signaled, Signal: "SIGSEGV"}, -11},
		{"real-time signal", sandbox.Exit{End: sandbox.Signaled, Signal: 35}, nil, Outcome{End: Signaled, Signal: "UNKNOWN_SIGNAL_35"}, -35},
		{"wall", sandbox.Exit{End: sandbox.TimedOut, Signal: 9}, nil, Outcome{End: TimedOut, TimedOut: true, Evidence: Evidence{Deadline: WallDeadline}}, 124},
		{"cpu", sandbox.Exit{End: sandbox.TimedOut, Deadline: sandbox.CPU}, nil, Outcome{End: TimedOut, TimedOut: true, Evidence: Evidence{Deadline: CPUDeadline}}, 124},
		{"oom", sandbox.Exit{End: sandbox.OOMKilled, Signal: 9, OOMKills: 2}, nil, Outcome{End: OOMKilled, Signal: "SIGKILL", Evidence: Evidence{OOMKills: 2, OOMScope: OwnMemory}}, -9},
		{"oom of the tenant", sandbox.Exit{End: sandbox.OOMKilled, Signal: 9, OOMKills: 1, OOMScope: sandbox.GroupMemory}, nil,
			Outcome{End: OOMKilled, Signal: "SIGKILL", Advice: "It was killed because all executions of its tenant", Evidence: Evidence{OOMKills: 1, OOMScope: TenantMemory}}, -9},
		{"oom of the machine", sandbox.Exit{End: sandbox.OOMKilled, Signal: 9, OOMKills: 1, OOMScope: sandbox.MachineMemory}, nil,
			Outcome{End: OOMKilled, Signal: "SIGKILL", Advice: "It was killed because the machine ran out of memory", Evidence: Evidence{OOMKills: 1, OOMScope: MachineMemory}}, -9},
		{"sockets", sandbox.Exit{End: sandbox.OOMKilled, Signal: 9}, nil, Outcome{End: OOMKilled, Signal: "SIGKILL", Advice: "Its sockets held more than"}, -9},
		{"pids", sandbox.Exit{End: sandbox.Exited, PidsMax: 7}, nil, Outcome{End: Exited, Evidence: Evidence{PidsMax: 7}, Advice: "It was refused new processes or threads 7 times by its limit"}, 0},
		{"pids of the tenant", sandbox.Exit{End: sandbox.Exited, PidsMax: 7, PidsOfGroup: true}, nil, Outcome{End: Exited, Evidence: Evidence{PidsMax: 7, PidsOfTenant: true},
			Advice: "It was refused new processes or threads 7 times, because all executions of its tenant"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			f.exit <- tt.exit
			x := newExecutor(t, t.TempDir(), f.runs)
			events := follow(t, x, execute(t, x, scriptRequest()))
			got := events[len(events)-1].Outcome
			if got == nil || got.End != tt.want.End || got.Signal != tt.want.Signal || got.TimedOut != tt.want.TimedOut || got.Evidence != tt.want.Evidence {
				t.Fatalf("got %+v\nwant %+v", got, tt.want)
			}
			if got.ExitCode == nil || *got.ExitCode != tt.code {
				t.Errorf("exit code %v, want %d", got.ExitCode, tt.code)
			}
			if !strings.HasPrefix(got.Advice, tt.want.Advice) {
				t.Errorf("advice %q, want %q", got.Advice, tt.want.Advice)
			}
			if (got.End != Exited || got.Evidence.PidsMax > 0) && got.Advice == "" {
				t.Error("no advice")
			}
		})
	}
}

// A failure of the daemon is an outcome, too. Its text names nothing of this machine.
func TestFailuresOfOursAreOutcomes(t *testing.T) {
	secret := errors.New("open /var/lib/skillrun/secret: permission denied")
	fails := func(step string) startFunc {
		return func(context.Context, sandbox.Spec, sandbox.IO) (process, error) {
			return nil, &sandbox.SetupError{Step: step, Err: secret}
		}
	}
	for name, start := range map[string]startFunc{
		"cgroup":    fails("cgroup"),
		"posture":   fails("posture"),
		"group":     fails(stepGroup),
		"any error": func(context.Context, sandbox.Spec, sandbox.IO) (process, error) { return nil, secret },
	} {
		t.Run(name, func(t *testing.T) {
			x := newExecutor(t, t.TempDir(), start)
			events := follow(t, x, execute(t, x, scriptRequest()))
			out := events[len(events)-1].Outcome
			if out.End != SetupFailed || out.ExitCode != nil || out.Advice == "" {
				t.Errorf("got %+v, want SETUP_FAILED without an exit code", out)
			}
			if text := out.Evidence.SetupError + out.Advice; strings.Contains(text, "secret") {
				t.Errorf("%q tells about this machine", text)
			}
		})
	}
	t.Run("the caller's own part is told", func(t *testing.T) {
		x := newExecutor(t, t.TempDir(), func(context.Context, sandbox.Spec, sandbox.IO) (process, error) {
			return nil, &sandbox.SetupError{Step: stepExec, Err: syscall.ENOENT}
		})
		events := follow(t, x, execute(t, x, scriptRequest()))
		if out := events[len(events)-1].Outcome; !strings.Contains(out.Advice, "python3: no such file") {
			t.Errorf("advice %q", out.Advice)
		}
	})
	for cause, want := range map[error]string{
		sandbox.ErrGroupFull:    "Nothing ran: the tenant's executions have used up its limit",
		sandbox.ErrGroupRemoved: "Nothing ran: the tenant was removed",
		sandbox.ErrNoIDs:        "Nothing ran: too many tenants",
	} {
		t.Run(cause.Error(), func(t *testing.T) {
			x := newExecutor(t, t.TempDir(), func(context.Context, sandbox.Spec, sandbox.IO) (process, error) {
				return nil, &sandbox.SetupError{Step: stepGroup, Err: fmt.Errorf("acme: %w: %w", cause, secret)}
			})
			events := follow(t, x, execute(t, x, scriptRequest()))
			out := events[len(events)-1].Outcome
			if out.End != SetupFailed || !strings.HasPrefix(out.Advice, want) || strings.Contains(out.Advice, "secret") {
				t.Errorf("got %s, %q, want %q", out.End, out.Advice, want)
			}
		})
	}
}

// The exit that init or the kernel reported counts, even if the sandbox is lost after it.
func TestExitHoldsThoughTheSandboxIsLost(t *testing.T) {
	for _, tt := range []struct {
		name   string
		err    error
		exit   sandbox.Exit
		end    End
		advice string
	}{
		{"clean-up failed", errors.New("remove: busy"), sandbox.Exit{End: sandbox.Exited, Code: 0}, Exited, ""},
		{"init was killed", sandbox.ErrLost, sandbox.Exit{End: sandbox.Signaled, Signal: syscall.SIGKILL}, Signaled, "killed from outside"},
		{"the sockets can't be watched", fmt.Errorf("%w: %w", sandbox.ErrUnwatched, unix.EMFILE), sandbox.Exit{End: sandbox.Signaled, Signal: syscall.SIGKILL}, Signaled, "could not watch the program's sandbox (it has too many open files)"},
		{"the same while it exits", sandbox.ErrUnwatched, sandbox.Exit{End: sandbox.Exited, Code: 0}, Exited, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			f.err = tt.err
			f.exit <- tt.exit
			x := newExecutor(t, t.TempDir(), f.runs)
			events := follow(t, x, execute(t, x, scriptRequest()))
			out := events[len(events)-1].Outcome
			if out.End != tt.end || out.ExitCode == nil || !strings.Contains(out.Advice, tt.advice) || (tt.advice == "") != (out.Advice == "") {
				t.Errorf("got %+v, want %s with its exit code and advice %q", out, tt.end, tt.advice)
			}
		})
	}
}

// An outcome names as many artifacts as fit, whatever their paths are like; the
// record has all of them.
func TestManyLongArtifactsFit(t *testing.T) {
	const n = 1200
	f := newFake()
	x := newExecutor(t, t.TempDir(), func(_ context.Context, s sandbox.Spec, out sandbox.IO) (process, error) {
		upper := t.TempDir()
		deep := upper
		for range 14 {
			deep = filepath.Join(deep, strings.Repeat("\x01", 250))
			if err := os.Mkdir(deep, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for i := range n {
			if err := os.WriteFile(filepath.Join(deep, strings.Repeat("\x01", 200)+fmt.Sprint(i)), []byte("x"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		root, err := os.OpenRoot(upper)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		f.exit <- sandbox.Exit{End: sandbox.Exited, CollectErr: out.Collect(root)}
		return f, nil
	})
	id := execute(t, x, scriptRequest())
	events := follow(t, x, id)
	out := events[len(events)-1].Outcome
	if out.End != Exited || out.Count != n || len(out.Artifacts) == 0 || len(out.Artifacts) >= MaxListedArtifacts {
		t.Errorf("got %s with %d of %d artifacts, want EXITED with some of %d", out.End, len(out.Artifacts), out.Count, n)
	}
	e, err := x.Get(t.Context(), who, id)
	if err != nil || e.State != Ended || len(e.Outcome.Artifacts) != len(out.Artifacts) {
		t.Errorf("Get: %v, %v", e.State, err)
	}
	list, _, err := x.List(t.Context(), who, Filter{})
	if err != nil || len(list) != 1 || list[0].Outcome.Artifacts != nil || list[0].Outcome.Count != n {
		t.Errorf("List: %d, %v; want one without its artifacts", len(list), err)
	}
	var all []Artifact
	for token := ""; ; {
		page, next, err := x.Artifacts(t.Context(), who, id, 500, token)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page...)
		if token = next; token == "" {
			break
		}
	}
	if len(all) != n {
		t.Errorf("%d artifacts in pages, want %d", len(all), n)
	}
}

// If artifacts can't be kept, the outcome still has the program's end. It names the missing
// resource if an operator can provide it.
func TestArtifactsNotKept(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{&os.PathError{Op: "write", Path: "/state/0", Err: syscall.ENOSPC}, "its disk is full"},
		{&os.PathError{Op: "write", Path: "/state/0", Err: syscall.EDQUOT}, "its disk is full"},
		{fmt.Errorf("artifacts: %w", &os.PathError{Op: "open", Path: "/state/0", Err: syscall.EMFILE}), "it has too many open files"},
		{errors.New("odd"), "internal error"},
	} {
		f := newFake()
		x := newExecutor(t, t.TempDir(), func(context.Context, sandbox.Spec, sandbox.IO) (process, error) {
			f.exit <- sandbox.Exit{End: sandbox.Exited, CollectErr: test.err}
			return f, nil
		})
		events := follow(t, x, execute(t, x, scriptRequest()))
		out := events[len(events)-1].Outcome
		want := "every file: the daemon could not keep them (" + test.want + ")"
		if out.End != Exited || len(out.Refused) != 1 || out.Refused[0] != want {
			t.Errorf("%v: got %s, %q, want %q", test.err, out.End, out.Refused, want)
		}
	}
}

// A later cancel can shorten the grace of an earlier one; its cause stays the
// first's.
func TestSoonerCancelHolds(t *testing.T) {
	f := newFake()
	f.stopped = make(chan time.Duration, 2)
	patient := &patientProcess{fakeProcess: f}
	x := newExecutor(t, t.TempDir(), func(context.Context, sandbox.Spec, sandbox.IO) (process, error) { return patient, nil })
	id := execute(t, x, scriptRequest())
	untilStarted(t, x, id)
	go x.Cancel(context.Background(), who, id, "first", "", time.Minute)
	if grace := <-f.stopped; grace != time.Minute {
		t.Errorf("grace %s, want 1m", grace)
	}
	e, err := x.Cancel(t.Context(), who, id, "second", "", time.Millisecond)
	if err != nil || e.Outcome.Evidence.CancelledBy != "first" {
		t.Errorf("got %+v, %v; want the first cause", e.Outcome, err)
	}
}

// A patientProcess ends only when it is stopped with a short grace.
type patientProcess struct{ *fakeProcess }

func (p *patientProcess) Stop(grace time.Duration) {
	p.stopped <- grace
	if grace < time.Second {
		p.exit <- sandbox.Exit{End: sandbox.Stopped, Signal: syscall.SIGKILL}
	}
}

func TestSpecSaysWhatWasGranted(t *testing.T) {
	specs := make(chan sandbox.Spec, 1)
	f := newFake()
	f.exit <- sandbox.Exit{End: sandbox.Exited}
	x := newExecutor(t, t.TempDir(), func(_ context.Context, s sandbox.Spec, _ sandbox.IO) (process, error) {
		specs <- s
		return f, nil
	})
	req := scriptRequest("a b", "$x")
	req.Dir = "scripts"
	req.Env = map[string]string{"A": "1"}
	req.SecretEnv = map[string]Secret{"B": "hidden"}
	req.Limits = Limits{Wall: 5 * time.Second, MemoryBytes: 64 << 20}
	id := execute(t, x, req)
	follow(t, x, id)
	s := <-specs
	if s.ID != id || s.Dir != "scripts" || s.Network != nil {
		t.Errorf("got %+v", s)
	}
	args := s.Program[0].Pipeline[0].Args
	if len(s.Program) != 1 || len(s.Program[0].Pipeline) != 1 || !slices.Equal(args[len(args)-3:], []string{"/workspace/scripts/go.py", "a b", "$x"}) {
		t.Errorf("program %+v", s.Program)
	}
	for _, want := range []string{"A=1", "B=hidden", "SKILL_VERSION=1.2.3", "SKILL_NAME=demo", "HOME=/home/skill"} {
		if !slices.Contains(s.Env, want) {
			t.Errorf("no %s in %v", want, s.Env)
		}
	}
	if s.Limits.Wall != 5*time.Second || s.Limits.MemoryBytes != 64<<20 || s.Limits.Processes != 64 || s.Limits.Grace != time.Second {
		t.Errorf("limits %+v", s.Limits)
	}
	if len(s.Mounts) != 1 || s.Mounts[0].Target != "/skills/demo" || !s.Mounts[0].Owned {
		t.Errorf("mounts %+v", s.Mounts)
	}
	if _, err := os.Stat(filepath.Join(x.StagingDir, id)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("staged inputs are left: %v", err)
	}
}

func TestCommandRunsWhatWasChecked(t *testing.T) {
	specs := make(chan sandbox.Spec, 1)
	f := newFake()
	f.exit <- sandbox.Exit{End: sandbox.Exited}
	x := newExecutor(t, t.TempDir(), func(_ context.Context, s sandbox.Spec, _ sandbox.IO) (process, error) {
		specs <- s
		return f, nil
	})
	events := follow(t, x, execute(t, x, Request{Principal: who, Skill: "demo",
		Source: permission.Source{Kind: permission.Command, Command: `python 'a b.py' | python - >out.txt 2>&1 && python {baseDir}/scripts/go.py '*'*.csv`}}))
	p := (<-specs).Program
	if len(p) != 2 || len(p[0].Pipeline) != 2 || p[1].When != sandbox.IfSucceeded {
		t.Fatalf("program %+v", p)
	}
	if got := p[0].Pipeline[0].Args; !slices.Equal(got, []string{"python", "a b.py"}) {
		t.Errorf("first argv %q", got)
	}
	want := []sandbox.Redirect{{FD: 1, Kind: sandbox.Write, Path: "out.txt"}, {FD: 2, Kind: sandbox.Dup, From: 1}}
	if got := p[0].Pipeline[1].Redirects; !slices.Equal(got, want) {
		t.Errorf("redirects %+v, want %+v", got, want)
	}
	if got := p[1].Pipeline[0].Globs; !slices.Equal(got, []sandbox.Glob{{Arg: 2, Pattern: `\**.csv`}}) {
		t.Errorf("patterns %+v", got)
	}
	if got := events[0].Header.Commands; len(got) != 3 || got[2][1] != "/skills/demo/scripts/go.py" || got[2][2] != "**.csv" {
		t.Errorf("header says %q", got)
	}
}

// The text of inline code is never stored, however it reaches the program.
func TestCodeIsNotRecorded(t *testing.T) {
	for _, language := range []string{"python", "bash", "sh", "node", "perl"} {
		f := newFake()
		f.exit <- sandbox.Exit{End: sandbox.Exited}
		dir := t.TempDir()
		x := newExecutor(t, dir, f.runs)
		events := follow(t, x, execute(t, x, Request{Principal: who, Skill: "demo",
			Source: permission.Source{Kind: permission.Code, Language: language, Code: "exit # hunter2"}, Args: []string{"an argument"}}))
		args := events[0].Header.Commands[0]
		if text := strings.Join(args, " "); strings.Contains(text, "hunter2") || !strings.Contains(text, "(code)") || !strings.Contains(text, "an argument") {
			t.Errorf("%s: the header says %q", language, args)
		}
		err := filepath.WalkDir(filepath.Join(dir, "record"), func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			if bytes.Contains(data, []byte("hunter2")) {
				t.Errorf("%s: %s holds the code", language, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestOutputIsCutAtItsLimit(t *testing.T) {
	x := newExecutor(t, t.TempDir(), func(_ context.Context, _ sandbox.Spec, out sandbox.IO) (process, error) {
		f := newFake()
		var both sync.WaitGroup
		both.Go(func() { io.WriteString(out.Stdout, "12345"); io.WriteString(out.Stdout, "6789") })
		both.Go(func() { io.WriteString(out.Stderr, "1234567") })
		go func() { both.Wait(); f.exit <- sandbox.Exit{End: sandbox.Exited} }()
		return f, nil
	})
	req := scriptRequest()
	req.Limits.OutputBytes = 7
	events := follow(t, x, execute(t, x, req))
	if events[1].Started == nil {
		t.Errorf("the second event is %+v, want the start: it comes before any output", events[1])
	}
	var stdout, stderr string
	for _, e := range events {
		if e.Output != nil && e.Output.Stream == Stdout {
			if e.Output.Offset != uint64(len(stdout)) {
				t.Errorf("offset %d, want %d", e.Output.Offset, len(stdout))
			}
			stdout += string(e.Output.Data)
		} else if e.Output != nil {
			stderr += string(e.Output.Data)
		}
	}
	out := events[len(events)-1].Outcome
	if stdout != "1234567" || out.Stdout != (Truncation{7, 9}) || !out.Stdout.Truncated() {
		t.Errorf("stdout %q, %+v; want the first 7 of 9 bytes", stdout, out.Stdout)
	}
	if stderr != "1234567" || out.Stderr.Truncated() {
		t.Errorf("stderr %q, %+v; exactly the limit is not truncated", stderr, out.Stderr)
	}
	if !strings.Contains(out.Advice, "stdout") || strings.Contains(out.Advice, "stderr") {
		t.Errorf("advice %q", out.Advice)
	}
}

// Output may come before the sandbox's start returns. It is recorded after the start event,
// and a failed start with output does not hang.
func TestOutputBeforeTheStartReturns(t *testing.T) {
	for name, fails := range map[string]error{"starts": nil, "fails": &sandbox.SetupError{Step: "start", Err: errors.New("cancelled")}} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.exit <- sandbox.Exit{End: sandbox.Exited}
			x := newExecutor(t, t.TempDir(), func(_ context.Context, _ sandbox.Spec, out sandbox.IO) (process, error) {
				io.WriteString(out.Stdout, "early")
				return f, fails
			})
			events := follow(t, x, execute(t, x, scriptRequest()))
			if len(events) != 4 || events[1].Started == nil || string(events[2].Output.Data) != "early" || events[3].Outcome == nil {
				t.Errorf("events %+v, want header, started, output, outcome", events)
			}
			if got := events[len(events)-1].Outcome.Stdout; got != (Truncation{5, 5}) {
				t.Errorf("the outcome counts %+v of stdout, want the 5 bytes that were delivered", got)
			}
		})
	}
}

// A lateContext becomes done at the first check of whether it is done.
type lateContext struct {
	context.Context
	asked atomic.Bool
}

func (c *lateContext) Err() error {
	if c.asked.Swap(true) {
		return context.DeadlineExceeded
	}
	return nil
}

func (c *lateContext) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// An outcome that is being read when the reader's time is up, which a server's is at
// each keepalive, comes all the same, with its artifacts.
func TestOutcomeOutlivesItsReader(t *testing.T) {
	f := newFake()
	x := newExecutor(t, t.TempDir(), func(_ context.Context, s sandbox.Spec, out sandbox.IO) (process, error) {
		upper := t.TempDir()
		if err := os.WriteFile(filepath.Join(upper, "kept"), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(upper)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		f.exit <- sandbox.Exit{End: sandbox.Exited, CollectErr: out.Collect(root)}
		return f, nil
	})
	id := execute(t, x, scriptRequest())
	events := follow(t, x, id)
	r, err := x.Follow(t.Context(), who, id, events[len(events)-2].Seq)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for range len(events) { // the events before it are passed over
		e, err := r.Next(&lateContext{Context: t.Context()})
		if err == nil && e.Outcome != nil && len(e.Outcome.Artifacts) == 1 && e.Outcome.Artifacts[0].Path == "kept" {
			return
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %+v, %v, want the outcome with its artifact", e, err)
		}
	}
	t.Error("the outcome does not come")
}

// A reader of the started event can send the program a signal at once.
func TestSignalRightAfterTheStart(t *testing.T) {
	for range 50 {
		f := newFake()
		x := newExecutor(t, t.TempDir(), f.runs)
		id := execute(t, x, scriptRequest())
		untilStarted(t, x, id)
		if err := x.Signal(t.Context(), who, id, syscall.SIGUSR1); err != nil {
			t.Fatalf("right after the start: %v", err)
		}
		f.exit <- sandbox.Exit{End: sandbox.Exited}
		follow(t, x, id)
	}
}

func TestCancelRunning(t *testing.T) {
	f := newFake()
	x := newExecutor(t, t.TempDir(), f.runs)
	id := execute(t, x, scriptRequest())
	untilStarted(t, x, id)
	if err := x.Signal(t.Context(), who, id, syscall.SIGUSR1); err != nil || <-f.signals != syscall.SIGUSR1 {
		t.Errorf("signal: %v", err)
	}
	e, err := x.Cancel(t.Context(), who, id, "uid:7", "enough", 3*time.Second)
	if err != nil || e.State != Ended || e.Outcome.End != Cancelled || e.Outcome.Evidence.CancelledBy != "uid:7" || e.Outcome.Evidence.CancelReason != "enough" {
		t.Errorf("got %+v, %v", e.Outcome, err)
	}
	if grace := <-f.stopped; grace != 3*time.Second {
		t.Errorf("grace %s, want 3s", grace)
	}
	if err := x.Signal(t.Context(), who, id, syscall.SIGTERM); !errors.Is(err, ErrNotRunning) {
		t.Errorf("signal after the end: %v, want ErrNotRunning", err)
	}
}

// The program's first output can reach the client before the start has returned. Of two cancels in between, the shorter
// grace holds, whichever comes first.
func TestCancelTwiceDuringTheStart(t *testing.T) {
	for _, graces := range [][]time.Duration{{time.Minute, 0}, {0, time.Minute}} {
		f := newFake()
		var x *Executor
		x = newExecutor(t, t.TempDir(), func(_ context.Context, s sandbox.Spec, _ sandbox.IO) (process, error) {
			for i, grace := range graces {
				if _, err := x.CancelSoon(t.Context(), who, s.ID, fmt.Sprint("call ", i), "", grace); err != nil {
					t.Error(err)
				}
			}
			return f, nil
		})
		id := execute(t, x, scriptRequest())
		if grace := <-f.stopped; grace != 0 {
			t.Errorf("cancels with graces %v: the program got %s", graces, grace)
		}
		follow(t, x, id)
		if e, err := x.Get(t.Context(), who, id); err != nil || e.Outcome.End != Cancelled || e.Outcome.Evidence.CancelledBy != "call 0" {
			t.Errorf("got %+v, %v", e.Outcome, err)
		}
	}
}

func TestOtherTenantsSeeNothing(t *testing.T) {
	f := newFake()
	f.exit <- sandbox.Exit{End: sandbox.Exited}
	x := newExecutor(t, t.TempDir(), f.runs)
	id := execute(t, x, scriptRequest())
	follow(t, x, id)
	other := permission.Principal{Tenant: "other", Name: "uid:0"}
	if _, err := x.Get(t.Context(), other, id); !errors.Is(err, ErrNotFound) {
		t.Errorf("Get: %v", err)
	}
	if _, err := x.Follow(t.Context(), other, id, 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("Follow: %v", err)
	}
	if _, err := x.Cancel(t.Context(), other, id, "x", "", 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("Cancel: %v", err)
	}
	if err := x.Signal(t.Context(), other, id, syscall.SIGTERM); !errors.Is(err, ErrNotFound) {
		t.Errorf("Signal: %v", err)
	}
	if _, _, err := x.OpenArtifact(t.Context(), other, id, "x"); !errors.Is(err, ErrNotFound) {
		t.Errorf("OpenArtifact: %v", err)
	}
	if list, _, err := x.List(t.Context(), other, Filter{}); err != nil || len(list) != 0 {
		t.Errorf("List: %v, %v", list, err)
	}
	if list, _, err := x.List(t.Context(), who, Filter{Ends: []End{Exited}, States: []State{Ended}}); err != nil || len(list) != 1 {
		t.Errorf("List of the owner: %v, %v", list, err)
	}
}

func TestKeyIsClaimedOnce(t *testing.T) {
	starts := make(chan struct{}, 100)
	f := newFake()
	x := newExecutor(t, t.TempDir(), func(context.Context, sandbox.Spec, sandbox.IO) (process, error) {
		starts <- struct{}{}
		return f, nil
	})
	x.admission.SetTenant("default", admission.Quota{Running: 2, Queued: 100})
	req := scriptRequest("a")
	req.Key = "once"
	ids := make(chan string, 20)
	for range 20 {
		go func() {
			id, _, err := x.Execute(context.Background(), req)
			if err != nil {
				t.Error(err)
			}
			ids <- id
		}()
	}
	first := <-ids
	for range 19 {
		if id := <-ids; id != first {
			t.Errorf("two executions for one key: %s and %s", first, id)
		}
	}
	f.exit <- sandbox.Exit{End: sandbox.Exited}
	follow(t, x, first)
	if n := len(starts); n != 1 {
		t.Errorf("started %d times", n)
	}
	changes := map[string]func(*Request){
		"args":   func(r *Request) { r.Args = []string{"b"} },
		"stdin":  func(r *Request) { r.Stdin.Bytes = []byte("x") },
		"env":    func(r *Request) { r.Env = map[string]string{"A": "1"} },
		"secret": func(r *Request) { r.SecretEnv = map[string]Secret{"A": "1"} },
		"files":  func(r *Request) { r.Files = []workspace.Input{{Path: "a", Content: []byte("1")}} },
		"limits": func(r *Request) { r.Limits.Wall = time.Second },
		"labels": func(r *Request) { r.Labels = map[string]string{"a": "b"} },
	}
	for name, change := range changes {
		other := req
		change(&other)
		var conflict *KeyConflictError
		if _, _, err := x.Execute(t.Context(), other); !errors.As(err, &conflict) || conflict.ID != first {
			t.Errorf("other %s: got %v, want a KeyConflictError", name, err)
		}
	}
	// Cancel returns when the execution has given back its slot, after its outcome.
	if _, err := x.Cancel(t.Context(), who, first, "test", "", 0); err != nil {
		t.Error(err)
	}
	if running, queued, _ := x.Counts(); running+queued != 0 {
		t.Errorf("%d slots and %d queued tickets are not given back", running, queued)
	}
}

func TestSecretsPrintAsAMask(t *testing.T) {
	req := scriptRequest()
	req.SecretEnv = map[string]Secret{"KEY": "hunter2"}
	var text strings.Builder
	slog.New(slog.NewJSONHandler(&text, nil)).Info("x", "request", req, "secret", req.SecretEnv["KEY"])
	slog.New(slog.NewTextHandler(&text, nil)).Info("x", "request", req, "secret", req.SecretEnv["KEY"])
	if strings.Contains(text.String(), "hunter2") {
		t.Errorf("printed: %s", text.String())
	}
}

func TestDrainCancelsWhatIsLeft(t *testing.T) {
	f := newFake()
	x := newExecutor(t, t.TempDir(), f.runs)
	id := execute(t, x, scriptRequest())
	over, cancel := context.WithCancel(t.Context())
	cancel()
	x.Drain(over, over)
	events := follow(t, x, id)
	if out := events[len(events)-1].Outcome; out.End != Cancelled || out.Evidence.CancelledBy != "drain" {
		t.Errorf("got %+v, want CANCELLED by drain", out)
	}
	if _, _, err := x.Execute(t.Context(), scriptRequest()); !errors.Is(err, ErrDraining) {
		t.Errorf("after the drain: %v, want ErrDraining", err)
	}
}

// A program that begins during the drain is not cancelled with those that ran before.
func TestDrainLeavesTimeToLateStarts(t *testing.T) {
	fakes := make(chan *fakeProcess, 2)
	x := newExecutor(t, t.TempDir(), func(context.Context, sandbox.Spec, sandbox.IO) (process, error) {
		f := newFake()
		fakes <- f
		return f, nil
	}, func(c *Config) { c.MaxRunning = 1 })
	first := execute(t, x, scriptRequest())
	untilStarted(t, x, first)
	second := execute(t, x, scriptRequest()) // it waits for the slot
	over, cancel := context.WithCancel(t.Context())
	cancel()
	drained := make(chan struct{})
	go func() { x.Drain(over, t.Context()); close(drained) }()
	<-(<-fakes).stopped
	late := <-fakes
	untilStarted(t, x, second)
	late.exit <- sandbox.Exit{End: sandbox.Exited}
	<-drained
	for id, want := range map[string]End{first: Cancelled, second: Exited} {
		if e, err := x.Get(t.Context(), who, id); err != nil || e.Outcome.End != want {
			t.Errorf("%s: got %+v, %v, want %v", id, e.Outcome, err, want)
		}
	}
}

// When Drain returns, every accepted execution has ended, even an execution that was accepted while
// Drain began.
func TestDrainMissesNoExecution(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 5 {
		x := newExecutor(t, t.TempDir(), func(context.Context, sandbox.Spec, sandbox.IO) (process, error) { return newFake(), nil })
		ids := make(chan string, 8)
		var calls sync.WaitGroup
		for range cap(ids) {
			calls.Go(func() {
				id, _, err := x.Execute(t.Context(), scriptRequest())
				switch {
				case err == nil:
					ids <- id
				case !errors.Is(err, ErrDraining):
					if _, full := errors.AsType[*QuotaError](err); !full {
						t.Error(err)
					}
				}
			})
		}
		x.Drain(over, over)
		if running, queued, _ := x.Counts(); running+queued > 0 || len(x.live) > 0 {
			t.Errorf("%d run, %d wait, %d are live after the drain", running, queued, len(x.live))
		}
		calls.Wait()
		close(ids)
		for id := range ids {
			if e, err := x.Get(t.Context(), who, id); err != nil || e.State != Ended {
				t.Errorf("%s: got %s, %v", id, e.State, err)
			}
		}
	}
}

// Cancel finds an execution as soon as the record shows it, before its goroutine has begun.
func TestAcceptedExecutionIsLive(t *testing.T) {
	x := newExecutor(t, t.TempDir(), newFake().runs)
	ticket, err := x.enter(x.Tenants.All()[0], who)
	if err != nil {
		t.Fatal(err)
	}
	r, _, err := x.accept(t.Context(), x.Tenants.All()[0], scriptRequest(), ticket)
	if err != nil {
		t.Fatal(err)
	}
	if x.find(r.id) != r {
		t.Error("an accepted execution is not live")
	}
	r.cancel(&cancellation{by: "test"})
	x.run(r, ticket)
	x.calls.Done()
	if e, err := x.Get(t.Context(), who, r.id); err != nil || e.Outcome.End != Cancelled || x.find(r.id) != nil {
		t.Errorf("got %+v, %v; want CANCELLED", e.Outcome, err)
	}
}

func TestLostExecutionsAreClosed(t *testing.T) {
	dir := t.TempDir()
	x := newExecutor(t, dir, newFake().runs) // whose process never ends
	id := execute(t, x, scriptRequest())
	untilStarted(t, x, id)
	header, err := json.Marshal(Header{Session: &SessionBase{ID: "s1", Version: 3}})
	if err != nil {
		t.Fatal(err)
	}
	changed := record.Execution{ID: record.NewID(), Tenant: who.Tenant, Principal: who.Name, Skill: "demo", SourceKind: "script", Detail: header}
	if _, err := x.Record.Create(t.Context(), changed, header); err != nil {
		t.Fatal(err)
	}
	if err := x.Record.Close(); err != nil { // as if the daemon had died
		t.Fatal(err)
	}
	x = newExecutor(t, dir, nil)
	e, err := x.Get(t.Context(), who, id)
	if err != nil || e.State != Ended || e.Outcome.End != DaemonLost || e.Outcome.Limits.Wall != 30*time.Second || e.Outcome.Advice == "" {
		t.Errorf("got %+v, %v; want DAEMON_LOST with its limits", e.Outcome, err)
	}
	if e.Outcome.Session != nil {
		t.Errorf("a session: %+v", e.Outcome.Session)
	}
	// The daemon may have died between a version of the session and the outcome.
	e, err = x.Get(t.Context(), who, changed.ID)
	if err != nil || e.Outcome.Session == nil || e.Outcome.Session.SessionBase != (SessionBase{ID: "s1", Version: 3}) || e.Outcome.Session.Uncommitted != CommitUnknown {
		t.Errorf("got %+v, %v; want a session whose version is unknown", e.Outcome, err)
	}
}

// A lost execution that can't be closed does not keep the daemon from starting, and is closed later. After HandOver it
// belongs to the next daemon.
func TestLostExecutionsAreClosedLater(t *testing.T) {
	dir := t.TempDir()
	x := newExecutor(t, dir, nil)
	id := createRow(t, x.Record)
	unmount := disktest.MountBusy(t, x.Record.ArtifactDir(id))
	if err := x.Record.Close(); err != nil {
		t.Fatal(err)
	}
	x = newExecutor(t, dir, nil)
	if err := x.CloseLeft(t.Context()); !errors.Is(err, unix.EBUSY) {
		t.Errorf("got %v, want %v", err, unix.EBUSY)
	}
	unmount()
	x.HandOver(newSuccessor())
	if err := x.CloseLeft(t.Context()); err != nil {
		t.Errorf("handed over: %v", err)
	}
	if e, err := x.Get(t.Context(), who, id); err != nil || e.State != Queued {
		t.Errorf("handed over: got state %v, %v", e.State, err)
	}
	x.mu.Lock()
	x.successor = nil
	x.mu.Unlock()
	for range 2 {
		if err := x.CloseLeft(t.Context()); err != nil {
			t.Error(err)
		}
		if e, err := x.Get(t.Context(), who, id); err != nil || e.State != Ended || e.Outcome.End != DaemonLost {
			t.Errorf("got %+v, %v", e, err)
		}
	}
}

// On a full disk a start does not find the executions that are only in the journal. They are closed when there is room.
func TestLostExecutionInTheJournal(t *testing.T) {
	dir := t.TempDir()
	disktest.Mount(t, dir, "size=64m")
	x := newExecutor(t, dir, nil)
	createRow(t, x.Record)
	// The disk has room for the change in the journal, but not in the database, too.
	if err := record.ReleaseBallast(filepath.Join(dir, "record")); err != nil {
		t.Fatal(err)
	}
	filler := disktest.Fill(t, dir)
	free := func(bytes int64) {
		t.Helper()
		fi, err := os.Stat(filler)
		if err == nil {
			err = os.Truncate(filler, fi.Size()-bytes)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	free(5 << 20)
	lost := record.Execution{
		ID: record.NewID(), Tenant: who.Tenant, Principal: who.Name, Skill: "demo", SourceKind: "script",
		Detail: slices.Concat([]byte("{}"), bytes.Repeat([]byte(" "), 4<<20)),
	}
	if _, err := x.Record.Create(t.Context(), lost, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if err := x.Record.Close(); err == nil {
		t.Fatal("the database has the execution")
	}
	free(1536 << 10) // Open copies the write-ahead log
	x = newExecutor(t, dir, nil)
	if _, err := x.Get(t.Context(), who, lost.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if err := x.CloseLeft(t.Context()); !errors.Is(err, record.ErrPending) {
		t.Errorf("got %v, want %v", err, record.ErrPending)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := x.CloseLeft(t.Context()); err != nil {
		t.Error(err)
	}
	if e, err := x.Get(t.Context(), who, lost.ID); err != nil || e.State != Ended || e.Outcome.End != DaemonLost {
		t.Errorf("got state %v, %v", e.State, err)
	}
}

// The last output of a failed program can give a reason for advice. The output of a
// successful one can't.
func TestAdviceOnLastWords(t *testing.T) {
	for _, tt := range []struct {
		stderr string
		code   int
		want   string
	}{
		{"OSError: [Errno 30] Read-only file system: '/skills/demo/x'\n", 1, "/skills/demo/x: the snapshot of a skill is read-only. It can write to /workspace"},
		{"OSError: [Errno 30] Read-only file system: '/usr/lib/x'\n", 1, "It tried to write to /usr/lib/x, which is read-only in the sandbox. It can write to /workspace, to HOME (/home/skill) and to TMPDIR (/tmp)."},
		{"touch: cannot touch '/etc/x': Read-only file system\n", 1, "It tried to write to /etc/x, which"},
		{"open /opt/skillrun/bin/x: Read-only file system\n", 1, "It tried to write to /opt/skillrun/bin/x, which"},
		{"/bin/sh: 1: cannot create /x: Read-only file system\n", 1, "It tried to write to /x, which"},
		{"Read-only file system\n", 1, "a read-only part of the sandbox. It can write to /workspace"},
		{"open /x.\u00a0All\u00a0is\u00a0well: Read-only file system\n", 1, "It tried to write to a read-only part"},
		{"open /\x1b[31mx: Read-only file system\n", 1, "It tried to write to a read-only part"},
		{"open /\xff: Read-only file system\n", 1, "It tried to write to a read-only part"},
		{"open /" + strings.Repeat("A", 255) + ": Read-only file system\n", 1, "It tried to write to a read-only part"},
		{strings.Repeat("x", 5000) + "OSError: [Errno 28] No space left on device", 1, "limits.workspace_bytes"},
		{"No space left on device\n" + strings.Repeat("x", 5000), 1, ""},
		{"OSError: [Errno 18] Invalid cross-device link: 'out' -> 'old'\n", 1, "shutil.move"},
		{"fatal: renaming 'out' failed: Invalid cross-device link\n", 128, "git mv"},
		{"Error: EXDEV: cross-device link not permitted, rename 'out' -> 'old'\n", 1, "fs.cpSync"},
		{"npm error code EAI_AGAIN\nnpm error syscall getaddrinfo\n", 1, "network_access"},
		{"socket.gaierror: [Errno -3] Temporary failure in name resolution\n", 1, "network_access"},
		{"Read-only file system, and so what", 0, ""},
		{"ValueError", 1, ""},
	} {
		x := newExecutor(t, t.TempDir(), func(_ context.Context, _ sandbox.Spec, out sandbox.IO) (process, error) {
			f := newFake()
			go func() {
				for _, b := range []byte(tt.stderr) {
					out.Stderr.Write([]byte{b})
				}
				f.exit <- sandbox.Exit{End: sandbox.Exited, Code: tt.code}
			}()
			return f, nil
		})
		events := follow(t, x, execute(t, x, scriptRequest()))
		got := events[len(events)-1].Outcome.Advice
		if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%.60q, code %d: advice %q, want %q in it", tt.stderr, tt.code, got, tt.want)
		}
	}
}
