package toolview

import (
	"flag"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/executor/executortest"
	"github.com/skillrun/skillrun/internal/hosttest"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/sandbox"
)

// The tests of this package run real executions in real sandboxes.

func TestMain(m *testing.M) {
	// Tests mostly wait for sandboxes. -parallel overrides this.
	flag.Set("test.parallel", strconv.Itoa(2*runtime.NumCPU()))
	os.Exit(hosttest.Main(m))
}

// A bench is a view of a real executor with skills of the test.
type bench struct {
	*View
	t    *testing.T
	dir  string
	logs *executortest.Logs
	who  permission.Principal
	// The conversation of the calls that toolCall makes. Nil: the calls share no session.
	conversation *Conversation
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
	return newBenchOn(t, hosttest.Host(t), edit, skills)
}

// newIdleBench is newBench for tests in which no program starts. They need no root.
func newIdleBench(t *testing.T, edit func(*executor.Config), skills ...skillText) *bench {
	t.Helper()
	return newBenchOn(t, nil, edit, skills)
}

func newBenchOn(t *testing.T, host *sandbox.Host, edit func(*executor.Config), skills []skillText) *bench {
	t.Helper()
	dir := hosttest.Dir(t)
	for _, s := range skills {
		s.write(t, filepath.Join(dir, "skills"))
	}
	return openBench(t, host, dir, edit)
}

// openBench makes a view of the skills in dir/skills. A nil host makes no sandboxes.
func openBench(t *testing.T, host *sandbox.Host, dir string, edit func(*executor.Config)) *bench {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "skills"), 0o755); err != nil {
		t.Fatal(err)
	}
	builtIn, err := WriteBuiltIn(filepath.Join(dir, "builtin"))
	if err != nil {
		t.Fatal(err)
	}
	x := executortest.New(t, executortest.Config{
		Dir: dir, Skills: []string{builtIn, filepath.Join(dir, "skills")}, Host: host, Level: slog.LevelDebug,
		Runtimes: hosttest.Runtimes(t).WithEmbedded(hosttest.Python(t)),
		Edit: func(c *executor.Config) {
			c.MaxQueued = 16
			if edit != nil {
				edit(c)
			}
		},
	})
	b := &bench{t: t, dir: dir, logs: x.Logs, who: permission.Principal{Tenant: "default", Name: "tester"}}
	b.View = New(Config{Executor: x.Executor, Skills: x.Skills, Log: x.Log, SessionIdle: time.Hour})
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
	version := ""
	for _, r := range hosttest.Runtimes(t).List() {
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
