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
	"time"

	"github.com/skillrun/skillrun/internal/environment"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/record"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/workspace"
	"github.com/skillrun/skillrun/sandbox"
)

// Each field of a request has its refusal, which names it; nothing runs.
func TestRequestsThatNothingCouldMakeRight(t *testing.T) {
	x := newExecutor(t, t.TempDir(), func(context.Context, sandbox.Spec, sandbox.IO) (process, error) {
		t.Error("it was started")
		return nil, errors.New("started")
	})
	labels := func(key, value string) func(*Request) {
		return func(r *Request) { r.Labels = map[string]string{key: value} }
	}
	for _, tt := range []struct {
		name   string
		change func(*Request)
		field  string
	}{
		{"many arguments", func(r *Request) { r.Args = make([]string, MaxArgs+1) }, "args"},
		{"long argument", func(r *Request) { r.Args = []string{"a", strings.Repeat("x", MaxArgBytes+1)} }, "args[1]"},
		{"long arguments", func(r *Request) {
			r.Args = slices.Repeat([]string{strings.Repeat("x", MaxArgBytes)}, MaxArgsBytes/MaxArgBytes+1)
		}, "args"},
		{"NUL in an argument", func(r *Request) { r.Args = []string{"a\x00"} }, "args[0]"},
		{"arguments of a command", func(r *Request) {
			r.Source, r.Args = permission.Source{Kind: permission.Command, Command: "python x"}, []string{"a"}
		}, "args"},
		{"long directory", func(r *Request) { r.Dir = strings.Repeat("x", maxDirBytes+1) }, "working_directory"},
		{"NUL in the directory", func(r *Request) { r.Dir = "a\x00" }, "working_directory"},
		{"absolute directory", func(r *Request) { r.Dir = "/tmp" }, "working_directory"},
		{"directory above", func(r *Request) { r.Dir = "a/../../b" }, "working_directory"},
		{"many labels", func(r *Request) {
			r.Labels = map[string]string{}
			for i := range MaxLabels + 1 {
				r.Labels[fmt.Sprint(i)] = ""
			}
		}, "labels"},
		{"label without a key", labels("", "x"), "labels"},
		{"label with a long key", labels(strings.Repeat("é", MaxLabelKey+1), "x"), "labels"},
		{"label with a long value", labels("x", strings.Repeat("é", MaxLabelValue+1)), "labels"},
		{"key with a blank", func(r *Request) { r.Key = "a b" }, "idempotency_key"},
		{"key of a stream", func(r *Request) { r.Key, r.Stdin.Stream = "a", strings.NewReader("") }, "idempotency_key"},
		{"unknown Python", func(r *Request) { r.Python = "2" }, "python"},
		{"long queue", func(r *Request) { r.QueueTimeout = MaxQueue + 1 }, "queue_timeout"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := scriptRequest()
			tt.change(&req)
			_, _, err := x.Execute(t.Context(), req)
			if refused, ok := errors.AsType[*RequestError](err); !ok || refused.Field != tt.field {
				t.Errorf("got %v, want a refusal of %s", err, tt.field)
			}
		})
	}
	// At its bounds a request is right.
	req := scriptRequest(strings.Repeat("x", MaxArgBytes))
	req.Labels = map[string]string{strings.Repeat("é", MaxLabelKey): strings.Repeat("é", MaxLabelValue)}
	req.Dir = "a/..b/c"
	if err := checkForm(req, req.Source.Kind); err != nil {
		t.Errorf("at the bounds: %v", err)
	}
}

// An input that was removed after its upload is an error of the daemon; nothing starts.
func TestInputThatIsGone(t *testing.T) {
	x := newExecutor(t, t.TempDir(), newFake().runs)
	req := scriptRequest()
	req.Files = []workspace.Input{{Path: "a", Source: filepath.Join(t.TempDir(), "none")}}
	if _, _, err := x.Execute(t.Context(), req); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that there is no such file", err)
	}
	if running, _, _ := x.Counts(); running != 0 {
		t.Errorf("%d run", running)
	}
}

func TestNewIsHindered(t *testing.T) {
	dir := t.TempDir()
	config := newExecutor(t, dir, nil).Config
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Config){
		"key of request hashes: ": func(c *Config) { c.KeyFile = file + "/x" },
		"staging: ":               func(c *Config) { c.StagingDir = file + "/x" },
	} {
		c := config
		c.Log = nil
		change(&c)
		if _, err := New(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
	// Files that an earlier daemon staged are removed; links are not followed.
	if err := errors.Join(os.MkdirAll(filepath.Join(config.StagingDir, "old/x"), 0o700), os.Symlink(file, filepath.Join(config.StagingDir, "link"))); err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(config.StagingDir); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("what a link led to: %v", err)
	}
	config.Record.Close()
	if _, err := New(t.Context(), config); err == nil || !strings.Contains(err.Error(), "executions of the last daemon") {
		t.Errorf("a closed record: got %v", err)
	}
}

// A signal that comes too late, and one that can't be sent.
func TestSignalErrors(t *testing.T) {
	for _, tt := range []struct {
		name      string
		err, want error
	}{
		{"ended", fmt.Errorf("x: %w", sandbox.ErrEnded), ErrNotRunning},
		{"not sent", syscall.EPERM, syscall.EPERM},
	} {
		f := &unsignalled{newFake(), tt.err}
		x := newExecutor(t, t.TempDir(), func(context.Context, sandbox.Spec, sandbox.IO) (process, error) { return f, nil })
		id := execute(t, x, scriptRequest())
		r, err := x.Follow(t.Context(), who, id, 0)
		if err != nil {
			t.Fatal(err)
		}
		for started := false; !started; {
			e, err := r.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			started = e.Started != nil
		}
		r.Close()
		if err := x.Signal(t.Context(), who, id, syscall.SIGUSR1); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
		// A caller that has gone doesn't wait for the end, and the cancel holds.
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := x.Cancel(gone, who, id, "test", "", 0); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: cancel: got %v, want %v", tt.name, err, context.Canceled)
		}
		f.exit <- sandbox.Exit{End: sandbox.Stopped, Signal: syscall.SIGTERM}
		events := follow(t, x, id)
		if got := events[len(events)-1].Outcome; got.End != Cancelled {
			t.Errorf("%s: got %+v", tt.name, got)
		}
	}
}

// An unsignalled process answers every signal with an error, and doesn't stop.
type unsignalled struct {
	*fakeProcess
	err error
}

func (u *unsignalled) Signal(syscall.Signal) error { return u.err }
func (u *unsignalled) Stop(time.Duration)          {}

func TestAdviceOnOutcomes(t *testing.T) {
	l := Limits{WorkspaceBytes: 1 << 20, MemoryBytes: 1 << 30, Wall: 10 * time.Second}
	oom := Outcome{End: OOMKilled}
	oom.Evidence.OOMKills = 1
	for _, tt := range []struct {
		m    manifest.Manifest
		out  Outcome
		want string
	}{
		// It advises nothing that would be refused.
		{manifest.Manifest{}, Outcome{End: TimedOut}, "It ran longer than 10s; raise limits.wall_time or let it do less."},
		{manifest.Manifest{MaxExecutionTime: time.Minute}, Outcome{End: TimedOut}, "It ran longer than 10s; raise limits.wall_time (max_execution_time in the skill's SKILL.md allows 1m0s) or let it do less."},
		{manifest.Manifest{MaxExecutionTime: 10 * time.Second}, Outcome{End: TimedOut}, "It ran longer than 10s, and max_execution_time in the skill's SKILL.md allows no more; raise it there or let it do less."},
		{manifest.Manifest{MaxMemoryBytes: 1 << 30}, oom, "It needed more than its 1 GiB of memory, and max_memory in the skill's SKILL.md allows no more; raise it there or let it work in smaller pieces. "},
		{manifest.Manifest{MaxMemoryBytes: 2 << 30}, oom, "It needed more than its 1 GiB of memory; raise limits.memory_bytes (max_memory in the skill's SKILL.md allows 2 GiB) or let it work in smaller pieces. "},
	} {
		tt.out.Limits = l
		if got := advise(tt.out, nil, tt.m); !strings.HasPrefix(got, tt.want) {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
	for _, tt := range []struct {
		out  Outcome
		lost error
		want string
	}{
		{Outcome{End: Signaled, Signal: "SIGXFSZ"}, nil, "limits.workspace_bytes"},
		{Outcome{End: Signaled, Signal: "SIGABRT"}, nil, "a bug in the program"},
		{Outcome{End: Exited, Refused: []string{"x"}}, nil, "artifacts_refused"},
		{Outcome{End: Exited}, errors.New("disk full"), "could not store all of the output"},
		{Outcome{End: Exited}, nil, ""},
		{Outcome{End: Signaled, Signal: "SIGUSR1"}, nil, "a caller's Signal request sent the signal"},
	} {
		tt.out.Limits = l
		if got := advise(tt.out, tt.lost, manifest.Manifest{}); (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%+v, %v: got %q, want %q in it", tt.out, tt.lost, got, tt.want)
		}
	}
}

// Advice is true. For a program with a network, it does not say that the network is missing. It calls
// only paths beneath /skills a skill's folder.
func TestAdviceIsTrue(t *testing.T) {
	for _, tt := range []struct {
		stderr    string
		network   bool
		session   bool
		want, not string
	}{
		{"No space left on device", false, true, "max_files", ""},
		{"No space left on device", false, false, "limits.workspace_files", "session"},
		{"Network is unreachable", false, false, "network_access: true", ""},
		{"Network is unreachable", true, false, "This machine's network", "it has none"},
		{"Read-only file system: '/usr/x'", false, false, "/usr/x", "skill's"},
		{"Read-only file system: '/usr/x'", false, false, "/usr/x", "of a skill"},
		{"'/skills/a': permission\n'/usr/x': Read-only file system", false, false, "/usr/x", "of a skill"},
	} {
		got := adviseOn(tt.stderr, Limits{}, tt.network, tt.session)
		if !strings.Contains(got, tt.want) || tt.not != "" && strings.Contains(got, tt.not) {
			t.Errorf("%q: got %q, want %q and not %q", tt.stderr, got, tt.want, tt.not)
		}
	}
}

// Readers get the intact parts of a damaged row, and the log names the damage.
func TestDamagedRow(t *testing.T) {
	x := newExecutor(t, t.TempDir(), nil)
	var log bytes.Buffer
	x.Log = slog.New(slog.NewTextHandler(&log, nil))
	got := x.toExecution(record.Execution{ID: "i", State: record.Ended, End: string(OOMKilled), Skill: "demo", Digest: "d", Detail: []byte("{"), Outcome: []byte("{")})
	if got.ID != "i" || got.Header.Skill != "demo" || got.Header.SkillDigest != "d" || got.Outcome.End != OOMKilled || got.Outcome.SkillDigest != "d" {
		t.Errorf("got %+v", got)
	}
	for _, want := range []string{"outcome is damaged", "header is damaged"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log says %q, want %q", log.String(), want)
		}
	}
}

// Without prepared environments, preparing is refused. The needs of a skill are read from
// the scripts that run.
func TestPrepareRefuses(t *testing.T) {
	x := newExecutor(t, t.TempDir(), nil)
	discard := func([]byte) error { return nil }
	if _, err := x.Prepare(t.Context(), who, "none", false, discard); !errors.Is(err, skill.ErrNotFound) {
		t.Errorf("no such skill: got %v", err)
	}
	if _, err := x.Prepare(t.Context(), who, "demo", false, discard); !errors.Is(err, environment.ErrNoSource) {
		t.Errorf("no environments: got %v", err)
	}
	x.Environments = new(environment.Store)
	if made, err := x.Prepare(t.Context(), who, "demo", false, discard); err != nil || len(made) > 0 {
		t.Errorf("a skill that needs nothing: got %+v, %v", made, err)
	}
	x.Drain(t.Context(), t.Context())
	if _, err := x.Prepare(t.Context(), who, "demo", false, discard); !errors.Is(err, ErrDraining) {
		t.Errorf("draining: got %v", err)
	}
}

// While a boundary is missing nothing is executed, prepared or recorded.
func TestMissingBoundariesRefuse(t *testing.T) {
	x := newExecutor(t, t.TempDir(), func(context.Context, sandbox.Spec, sandbox.IO) (process, error) {
		t.Error("something ran")
		return nil, errors.New("no")
	})
	x.Missing = []string{"mounts", "swap"}
	_, _, err := x.Execute(t.Context(), scriptRequest())
	_, perr := x.Prepare(t.Context(), who, "demo", false, func([]byte) error { return nil })
	for _, err := range []error{err, perr} {
		e, ok := errors.AsType[*BoundaryError](err)
		if !ok || !slices.Equal(e.Names, x.Missing) || !strings.Contains(e.Error(), "boundaries are missing: mounts, swap;") {
			t.Errorf("got %v, want a *BoundaryError that names both", err)
		}
	}
	if page, _, err := x.Record.List(t.Context(), record.Filter{Tenant: who.Tenant}); err != nil || len(page) != 0 {
		t.Errorf("recorded: %v, %v", page, err)
	}
}

func TestUseNamesTheScripts(t *testing.T) {
	x := newExecutor(t, t.TempDir(), nil)
	for _, tt := range []struct {
		source  permission.Source
		python  bool
		scripts []string
	}{
		{permission.Source{Kind: permission.Script, Script: "scripts/go.py"}, true, []string{"scripts/go.py"}},
		{permission.Source{Kind: permission.Script, Script: "scripts/./go.py"}, true, []string{"scripts/go.py"}},
		{permission.Source{Kind: permission.Code, Code: "1"}, true, nil},
		{permission.Source{Kind: permission.Command, Command: "python {baseDir}/scripts/go.py a.csv && python -c 1"}, true, []string{"scripts/go.py"}},
	} {
		sk, err := x.Skills.Resolve("demo")
		if err != nil {
			t.Fatal(err)
		}
		grant, err := x.Check(who, sk, tt.source, nil)
		if err != nil {
			t.Fatal(err)
		}
		e, err := x.newExecution(x.Tenants.All()[0], Request{Principal: who, Skill: "demo", Source: tt.source}, grant)
		if err != nil {
			t.Fatalf("%+v: %v", tt.source, err)
		}
		if got := e.use(""); got.RunsPython != tt.python || !slices.Equal(got.Scripts, tt.scripts) || got.Tenant != who.Tenant || got.Skill != sk {
			t.Errorf("%+v: got %+v", tt.source, got)
		}
	}
}

// A secret shows in no form of printing.
func TestSecretVerbs(t *testing.T) {
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		if got := fmt.Sprintf(verb, Secret("hunter2")); strings.Contains(got, "hunter2") || !strings.Contains(got, "secret") {
			t.Errorf("%s prints %s", verb, got)
		}
	}
}

// Numbers that JSON allows and Python doesn't, and arguments that end early.
func TestEncodeArgumentsDepths(t *testing.T) {
	for _, text := range []string{`{"a":[1,`, `{"a":[1`, `{"a":{"b":1e999}}`, `{"a":`, `{"a"`} {
		if got, err := EncodeArguments(text); err == nil {
			t.Errorf("%s: got %s", text, got)
		}
	}
}
