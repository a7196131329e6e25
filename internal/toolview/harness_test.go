package toolview

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/record"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/skilltest"
	"github.com/skillrun/skillrun/internal/workspace"
	"github.com/skillrun/skillrun/sandbox"
)

// The tests of this package run real executions in real sandboxes.

// TestMain runs the tests with the daemon's set-up of the process.
func TestMain(m *testing.M) {
	if os.Geteuid() == 0 {
		if err := sandbox.Isolate(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	// Tests mostly wait for sandboxes. -parallel overrides this.
	flag.Set("test.parallel", strconv.Itoa(2*goruntime.NumCPU()))
	code := m.Run()
	if shared.host != nil {
		if err := shared.host.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if shared.embedded != nil {
		shared.embedded.Close()
	}
	if shared.dir != "" {
		os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

// shared holds the parts that all views of these tests use.
var shared struct {
	once     sync.Once
	dir      string
	embedded *runtime.Installation
	runtimes *runtime.Set
	err      error

	hostOnce sync.Once
	host     *sandbox.Host
	hostErr  error
}

// installPython unpacks the embedded CPython. It uses the program from make build, or
// builds it here.
func installPython(dir string) (*runtime.Installation, error) {
	bundle := filepath.Join(os.Getenv("SKILLRUN_BIN"), "skillrun-python")
	if _, err := os.Stat(bundle); err != nil || os.Getenv("SKILLRUN_BIN") == "" {
		bundle = filepath.Join(dir, "skillrun-python")
		if out, err := exec.Command("go", "build", "-o", bundle, "../../cmd/skillrun-python").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, out)
		}
	}
	return runtime.Install(context.Background(), runtime.InstallConfig{Dir: filepath.Join(dir, "python"), Bundle: bundle})
}

func openShared(t *testing.T) {
	t.Helper()
	shared.once.Do(func() {
		// On a disk, because an overlay on an overlay is refused and /tmp may be one.
		if shared.dir, shared.err = os.MkdirTemp("/var/tmp", "toolview-test-"); shared.err != nil {
			return
		}
		if shared.err = os.Chmod(shared.dir, 0o711); shared.err != nil {
			return
		}
		if shared.embedded, shared.err = installPython(shared.dir); shared.err != nil {
			return
		}
		if shared.runtimes, shared.err = runtime.Discover(context.Background(), runtime.Config{Rootfs: "/"}); shared.err != nil {
			return
		}
		shared.runtimes = shared.runtimes.WithEmbedded(shared.embedded)
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
}

// openHost opens the host of the sandboxes.
func openHost(t *testing.T) *sandbox.Host {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("makes real sandboxes, which needs root")
	}
	openShared(t)
	shared.hostOnce.Do(func() {
		shared.host, shared.hostErr = sandbox.Open(context.Background(), sandbox.Config{
			StateDir: filepath.Join(shared.dir, "sandbox"), Links: shared.runtimes.Links(),
		})
	})
	if shared.hostErr != nil {
		t.Fatal(shared.hostErr)
	}
	return shared.host
}

// A bench is a view of a real executor with skills of the test.
type bench struct {
	*View
	t    *testing.T
	dir  string
	logs *logs
	who  permission.Principal
}

// A skillText is a skill to write: its front matter without name and description, and its
// files. The body of its SKILL.md is "Use {baseDir}."
type skillText struct {
	name, frontMatter string
	files             map[string]string
}

// newBench makes a view of these skills and the built-in one, which run in real sandboxes.
// That needs root. edit, if not nil, changes the executor's configuration.
func newBench(t *testing.T, edit func(*executor.Config), skills ...skillText) *bench {
	t.Helper()
	return newBenchOn(t, openHost(t), edit, skills)
}

// newIdleBench is newBench for tests in which no program starts. They need no root.
func newIdleBench(t *testing.T, edit func(*executor.Config), skills ...skillText) *bench {
	t.Helper()
	return newBenchOn(t, nil, edit, skills)
}

func newBenchOn(t *testing.T, host *sandbox.Host, edit func(*executor.Config), skills []skillText) *bench {
	t.Helper()
	openShared(t)
	dir, err := os.MkdirTemp(shared.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, s := range skills {
		s.write(t, filepath.Join(dir, "skills"))
	}
	return openBench(t, host, dir, edit)
}

// openBench makes a view of the skills in dir/skills. A nil host makes no sandboxes.
func openBench(t *testing.T, host *sandbox.Host, dir string, edit func(*executor.Config)) *bench {
	t.Helper()
	ctx := t.Context()
	b := &bench{t: t, dir: dir, logs: &logs{}, who: permission.Principal{Tenant: "default", Name: "tester"}}
	log := slog.New(slog.NewTextHandler(b.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if err := os.MkdirAll(filepath.Join(dir, "skills"), 0o755); err != nil {
		t.Fatal(err)
	}
	store, err := record.Open(record.Config{Dir: filepath.Join(dir, "record"), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	builtIn, err := WriteBuiltIn(filepath.Join(dir, "builtin"))
	if err != nil {
		t.Fatal(err)
	}
	registry, err := skill.OpenRegistry(ctx, skill.RegistryConfig{
		Roots: []string{builtIn, filepath.Join(dir, "skills")}, Dir: filepath.Join(dir, "snapshots"), Owner: skilltest.Owner(), Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { registry.Close() })
	c := executor.Config{
		Skills: registry, Runtimes: shared.runtimes, Record: store, Host: host, Bounds: executor.StandardBounds(),
		StagingDir: filepath.Join(dir, "staging"), Owner: workspace.Owner(skilltest.Owner()), KeyFile: filepath.Join(dir, "request.key"),
		MaxRunning: 4, MaxQueued: 16, QueueTimeout: time.Minute, Grace: 100 * time.Millisecond, CancelGrace: 100 * time.Millisecond,
		Keep: workspace.CollectLimits{Files: 1000, FileBytes: 64 << 20, TotalBytes: 64 << 20}, Log: log,
	}
	if edit != nil {
		edit(&c)
	}
	x, err := executor.New(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		x.Drain(over) // does not return if a goroutine leaks
	})
	b.View = New(Config{Executor: x, Skills: registry, Log: log})
	return b
}

// write writes the skill into a root.
func (s skillText) write(t *testing.T, root string) {
	t.Helper()
	dir := filepath.Join(root, s.name)
	front := s.frontMatter
	if front != "" {
		front += "\n"
	}
	files := map[string]string{
		"SKILL.md": "---\nname: " + s.name + "\ndescription: A skill of a test.\n" + front + "---\n\nUse {baseDir}.\n",
	}
	for path, content := range s.files {
		files[path] = content
	}
	for path, content := range files {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		// "-> target" makes a link.
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			if err := os.Symlink(target, path); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// withVenv gives a skill a virtual environment of the system's Python, like the one that
// `python3 -m venv` creates.
func (s skillText) withVenv(t *testing.T) skillText {
	t.Helper()
	openShared(t)
	version := ""
	for _, r := range shared.runtimes.List() {
		if r.Language == "python" {
			version = r.Version
			break
		}
	}
	if version == "" {
		t.Fatal("python3 is not installed")
	}
	files := map[string]string{
		"venv/pyvenv.cfg": "home = /usr/bin\ninclude-system-site-packages = true\nversion = " + version + "\n",
		"venv/bin/python": "-> /usr/bin/python3",
	}
	for path, content := range s.files {
		files[path] = content
	}
	s.files = files
	return s
}

// artifact returns the content of an execution's artifact.
func (b *bench) artifact(id, path string) string {
	b.t.Helper()
	f, _, err := b.x.OpenArtifact(b.t.Context(), b.who, id, path)
	if err != nil {
		b.t.Fatalf("artifact %s: %v", path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(data)
}

// outcome returns the outcome of an execution that has ended.
func (b *bench) outcome(id string) executor.Outcome {
	b.t.Helper()
	e, err := b.x.Get(b.t.Context(), b.who, id)
	if err != nil || e.Outcome == nil {
		b.t.Fatalf("execution %q: no outcome: %v", id, err)
	}
	return *e.Outcome
}

// logs collects log lines.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// with returns the lines that contain all parts.
func (l *logs) with(parts ...string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
lines:
	for line := range strings.Lines(l.buf.String()) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		found = append(found, line)
	}
	return found
}
