package toolview

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/workspace"
)

// The promises of the document "IronPython sandbox and RunPython built-in tool" about
// validation, paths, execution and output, row by row.
func TestContractRunPython(t *testing.T) {
	t.Parallel()
	demo := skillText{name: "demo", files: map[string]string{
		"scripts/hello.py":  "import os, sys\nprint('hello from', __file__, os.getcwd())",
		"scripts/fails.py":  "print('before')\nraise KeyError('k')",
		"scripts/data.txt":  "x",
		"scripts/UPPER.PY":  "print('upper')",
		"scripts/helper.py": "word = 'helped'",
		"scripts/uses.py":   "import helper\nprint(helper.word)",
		"scripts/out.py":    "-> ../../outside.py",
		"scripts/abs.py":    "-> /etc/passwd",
		"scripts/in.py":     "-> hello.py",
		"outdir":            "-> ..",
		"dir.py/file":       "x",
	}}
	b := newBench(t, nil, demo, skillText{name: "old"}.withVenv(t),
		skillText{name: "hasty", frontMatter: "max_execution_time: 2"},
		// This skill has the name of the built-in skill's folder, but is another skill.
		skillText{name: "run-python", files: map[string]string{"mine.txt": "x"}},
	)
	input := func(path, content string) Inputs {
		return Inputs{Files: []workspace.Input{{Path: path, Content: []byte(content)}}}
	}
	const (
		outside  = "Error: path must be under the run directory."
		noScript = "Error: script file not found or not a .py file."
		nothing  = "Error: provide either code or scriptPath."
	)
	for _, tt := range []struct {
		name string
		call PythonCall
		want string // a text that ends in "..." is only the beginning
	}{
		{"neither", PythonCall{}, nothing},
		{"blank", PythonCall{Code: " \n\t", ScriptPath: "  "}, nothing},
		{"code", PythonCall{Code: "import sys\nprint('a')\nprint('b', file=sys.stderr)"}, "Stdout:\na\n\nStderr:\nb\n"},
		{"nothing printed", PythonCall{Code: "pass"}, "Stdout:\n\nStderr:\n"},
		{"embedded, whatever the machine has", PythonCall{Code: "import sys\nprint(sys.version_info[:2], sys.prefix)"}, "Stdout:\n(3, 14) /opt/python\n\nStderr:\n"},
		{"embedded, whatever venv the skill has", PythonCall{Skill: "old", Code: "import sys\nprint(sys.version_info[:2])"}, "Stdout:\n(3, 14)\n\nStderr:\n"},
		{"scriptPath", PythonCall{Skill: "demo", ScriptPath: "scripts/hello.py"}, "Stdout:\nhello from /workspace/scripts/hello.py /workspace\n\nStderr:\n"},
		{"scriptPath wins", PythonCall{Skill: "demo", Code: "print('code')", ScriptPath: "scripts/UPPER.PY"}, "Stdout:\nupper\n\nStderr:\n"},
		{"code, and a blank scriptPath", PythonCall{Code: "print('code')", ScriptPath: " "}, "Stdout:\ncode\n\nStderr:\n"},
		{"absolute scriptPath beneath the run directory", PythonCall{Skill: "demo", ScriptPath: "/workspace/scripts/./uses.py"}, "Stdout:\nhelped\n\nStderr:\n"},
		{"link within", PythonCall{Skill: "demo", ScriptPath: "scripts/in.py"}, "Stdout:\nhello from ..."},
		{"file of the request", PythonCall{ScriptPath: "a/it's.py", Inputs: input("a/it's.py", "print(__name__, __file__)")}, "Stdout:\n__main__ /workspace/a/it's.py\n\nStderr:\n"},
		{"file of the request beside a skill", PythonCall{Skill: "demo", ScriptPath: "job.py", Inputs: input("job.py", "print(open('scripts/data.txt').read())")}, "Stdout:\nx\n\nStderr:\n"},
		{"workingDirectory", PythonCall{Skill: "demo", Code: "import os\nprint(os.getcwd())", WorkingDirectory: "scripts"}, "Stdout:\n/workspace/scripts\n\nStderr:\n"},
		{"workingDirectory is the run directory", PythonCall{Code: "import os\nprint(os.getcwd())", WorkingDirectory: "/workspace"}, "Stdout:\n/workspace\n\nStderr:\n"},
		{"workingDirectory of a file of the request", PythonCall{Code: "import os\nprint(os.listdir())", WorkingDirectory: "in", Inputs: input("in/x.csv", "1")}, "Stdout:\n['x.csv']\n\nStderr:\n"},
		{"the run directory without a skill", PythonCall{Code: "import os\nprint(os.listdir())"}, "Stdout:\n['SKILL.md']\n\nStderr:\n"},

		{"absolute outside", PythonCall{Skill: "demo", ScriptPath: "/etc/passwd.py"}, outside},
		{"absolute beside", PythonCall{Skill: "demo", ScriptPath: "/workspace2/x.py"}, outside},
		{"dots", PythonCall{Skill: "demo", ScriptPath: "../demo/scripts/hello.py"}, outside},
		{"dots inside", PythonCall{Skill: "demo", ScriptPath: "scripts/../../x.py"}, outside},
		{"absolute with dots", PythonCall{Skill: "demo", ScriptPath: "/workspace/../etc/x.py"}, outside},
		{"link out", PythonCall{Skill: "demo", ScriptPath: "scripts/out.py"}, outside},
		{"absolute link out", PythonCall{Skill: "demo", ScriptPath: "scripts/abs.py"}, outside},
		{"directory link out", PythonCall{Skill: "demo", ScriptPath: "outdir/x.py"}, outside},
		{"outside comes before the extension", PythonCall{Skill: "demo", ScriptPath: "../x.txt"}, outside},
		{"workingDirectory outside", PythonCall{Code: "1", WorkingDirectory: "/tmp"}, outside},
		{"workingDirectory with dots", PythonCall{Code: "1", WorkingDirectory: "a/../.."}, outside},
		{"workingDirectory by a link out", PythonCall{Skill: "demo", Code: "1", WorkingDirectory: "outdir"}, outside},
		{"workingDirectory that is not there", PythonCall{Code: "1", WorkingDirectory: "nowhere"}, "Error: Nothing ran: working directory nowhere: ..."},

		{"workingDirectory with NUL", PythonCall{Code: "1", WorkingDirectory: "a\x00"}, "Error: workingDirectory: has a NUL byte"},
		{"missing", PythonCall{Skill: "demo", ScriptPath: "scripts/none.py"}, noScript},
		{"not a .py file", PythonCall{Skill: "demo", ScriptPath: "scripts/data.txt"}, noScript},
		{"directory", PythonCall{Skill: "demo", ScriptPath: "dir.py"}, noScript},
		{"the run directory itself", PythonCall{Skill: "demo", ScriptPath: "/workspace"}, noScript},
		{"NUL", PythonCall{Skill: "demo", ScriptPath: "a\x00.py"}, noScript},

		{"exception", PythonCall{Code: "x = 1 / 0"}, "Error: division by zero\nTraceback (most recent call last):\n  File \"<string>\", line 1, in <module>\n..."},
		{"exception without a message", PythonCall{Code: "raise ValueError"}, "Error: ValueError\nTraceback ..."},
		{"syntax error", PythonCall{Code: "print(2 + )"}, "Error: invalid syntax\n  File \"<string>\", line 1\n    print(2 + )\n              ^\nSyntaxError: invalid syntax\n"},
		{"exit code", PythonCall{Code: "import sys\nprint('kept')\nsys.exit(3)"}, "Error: Script exited with code 3.\nStdout:\nkept\n\nStderr:\n"},
		{"exit with a text", PythonCall{Code: "import sys\nsys.exit('no good')"}, "Error: Script exited with code 1.\nStdout:\n\nStderr:\nno good\n"},
		{"signal", PythonCall{Code: "import os\nos.kill(os.getpid(), 9)"}, "Error: Script was ended by SIGKILL."},
		{"timeout", PythonCall{Code: "while True: pass", Timeout: time.Second}, "Error: Script timed out after 1 seconds."},
		{"timeout, fractions", PythonCall{Code: "while True: pass", Timeout: 500 * time.Millisecond}, "Error: Script timed out after 0.5 seconds."},
		{"the skill's own timeout", PythonCall{Skill: "hasty", Code: "while True: pass"}, "Error: Script timed out after 2 seconds."},

		{"no such skill", PythonCall{Skill: "nobody", Code: "1"}, "Error: \"nobody\": skill not found"},
		{"timeout above the ceiling", PythonCall{Code: "1", Timeout: 601 * time.Second}, "Error: timeout: 10m1s is above the daemon's maximum, 10m0s"},
		{"a file at a place of the skill", PythonCall{Skill: "demo", Code: "1", Inputs: input("scripts/data.txt", "y")}, "Error: input \"scripts/data.txt\": the skill has a file or directory there"},
		{"code with NUL", PythonCall{Code: "a\x00"}, "Error: code: contains a NUL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := b.RunPython(t.Context(), b.who, tt.call, nil)
			if err != nil {
				t.Fatal(err)
			}
			if want, open := strings.CutSuffix(tt.want, "..."); r.Text != tt.want && !(open && strings.HasPrefix(r.Text, want)) {
				t.Errorf("got\n%s\nwant\n%s", r.Text, tt.want)
			}
		})
	}
}

// All output before a failure is in the text, and the traceback once, before the output on
// stderr.
func TestContractRunPythonKeepsWhatWasPrinted(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	r, err := b.RunPython(t.Context(), b.who, PythonCall{Code: `
import sys
print('out')
print('err', file=sys.stderr)
try:
    {}['a']
except KeyError as e:
    raise RuntimeError('two\nlines') from e
`}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := "Error: two\nlines\nTraceback (most recent call last):\n"; !strings.HasPrefix(r.Text, want) {
		t.Errorf("got %q, want it to begin with %q", r.Text, want)
	}
	if want := "RuntimeError: two\nlines\nStdout:\nout\n\nStderr:\nerr\n"; !strings.HasSuffix(r.Text, want) {
		t.Errorf("got %q, want it to end with %q", r.Text, want)
	}
	if !strings.Contains(r.Text, "KeyError: 'a'") || strings.Count(r.Text, "RuntimeError: two") != 1 {
		t.Errorf("got %q, want both exceptions, each once", r.Text)
	}
}

// The view's default of 60 s applies below the limits of the skill and the daemon.
func TestContractRunPythonDefaultTimeout(t *testing.T) {
	t.Parallel()
	wide := newBench(t, nil, skillText{name: "slow", frontMatter: "max_execution_time: 300"})
	narrow := newBench(t, func(c *executor.Config) { c.Bounds.Default.Wall, c.Bounds.Max.Wall = 5*time.Second, 10*time.Second })
	for _, tt := range []struct {
		on    *bench
		skill string
		want  time.Duration
	}{{wide, "", time.Minute}, {wide, "slow", time.Minute}, {narrow, "", 10 * time.Second}} {
		r, err := tt.on.RunPython(t.Context(), tt.on.who, PythonCall{Skill: tt.skill, Code: "1"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := tt.on.outcome(r.ExecutionID).Limits.Wall; got != tt.want {
			t.Errorf("skill %q: got %s, want %s", tt.skill, got, tt.want)
		}
	}
}

func TestRunPythonArtifactsAndCutOutput(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	r, err := b.RunPython(t.Context(), b.who, PythonCall{Code: "open('out.txt', 'w').write('kept')\nprint('x' * 100)", KeepBytes: 4}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := "Stdout:\nxxxx\nStderr:\n\n[It printed more than 4 bytes. "; !strings.HasPrefix(r.Text, want) {
		t.Errorf("got %q, want it to begin with %q", r.Text, want)
	}
	if got := b.artifact(r.ExecutionID, "out.txt"); got != "kept" || len(r.Artifacts) != 1 {
		t.Errorf("got %q, %v", got, r.Artifacts)
	}
}

func TestRunPythonOtherEnds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		outcome executor.Outcome
		want    string
	}{
		{executor.Outcome{End: executor.OOMKilled, Advice: "Too much."}, "Error: Too much.\nStdout:\nout\nStderr:\n"},
		{executor.Outcome{End: executor.Cancelled, Evidence: executor.Evidence{CancelledBy: "uid:0", CancelReason: "enough"}}, "Error: It was cancelled by uid:0: enough.\nStdout:\nout\nStderr:\n"},
	} {
		if got := pythonText(run{stdout: []byte("out"), Outcome: tt.outcome}, newRunner(false), 0); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// A full queue and a sandbox that cannot be made are errors of the daemon.
func TestNoSlotIsAnError(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *executor.Config) { c.MaxRunning, c.QueueTimeout = 1, time.Millisecond }, skillText{name: "calc"}.withVenv(t))
	full, free := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := b.RunPython(t.Context(), b.who, PythonCall{Code: "print('ready')\nwhile True: pass"}, func(executor.Output) error {
			close(full)
			<-free
			return errors.New("enough")
		})
		done <- err
	}()
	<-full
	if r, err := b.RunPythonScript(t.Context(), b.who, PythonScriptCall{Skill: "calc", Script: "1"}, nil); !is[*NoSlotError](err) || r.ExecutionID == "" {
		t.Errorf("run_python_script: got %+v, %v", r, err)
	}
	if r, err := b.RunPython(t.Context(), b.who, PythonCall{Code: "1"}, nil); !is[*NoSlotError](err) || r.ExecutionID == "" {
		t.Errorf("RunPython: got %+v, %v", r, err)
	}
	close(free)
	if err := <-done; err == nil {
		t.Error("the sink's error was lost")
	}
}

func TestWriteBuiltIn(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "builtin")
	root, err := WriteBuiltIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	first, err := os.Stat(filepath.Join(root, "SKILL.md"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := WriteBuiltIn(dir); err != nil {
		t.Fatal(err)
	}
	if again, err := os.Stat(filepath.Join(root, "SKILL.md")); err != nil || !os.SameFile(first, again) {
		t.Errorf("a correct folder was written again: %v", err)
	}
	if err := os.WriteFile(filepath.Join(root, "SKILL.md"), []byte("---\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := WriteBuiltIn(dir); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(root, "SKILL.md")); err != nil || string(data) != builtInManifest {
		t.Errorf("not corrected: %q, %v", data, err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := WriteBuiltIn(file); err == nil {
		t.Error("no error although the folder cannot be created")
	}
}

// A user's folder cannot take the built-in skill's name.
func TestBuiltInSkillIsNotReplaced(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, skillText{name: BuiltInSkill, files: map[string]string{"theirs.txt": "x"}})
	r, err := b.RunPython(t.Context(), b.who, PythonCall{Code: "import os\nprint(os.listdir())"}, nil)
	if want := "Stdout:\n['SKILL.md']\n\nStderr:\n"; err != nil || r.Text != want {
		t.Errorf("got %q, %v, want %q", r.Text, err, want)
	}
	var duplicate *skill.DuplicateError
	for _, p := range b.skills.Problems() {
		errors.As(p.Err, &duplicate)
	}
	if duplicate == nil {
		t.Errorf("the folder is not reported as a problem: %v", b.skills.Problems())
	}
}

// NoCode refuses code, also in input files, and allows the skill's scripts.
func TestRunPythonFollowsPolicy(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *executor.Config) { c.Policy = permission.Policy{NoCode: true} },
		skillText{name: "demo", files: map[string]string{"x.py": "print(1)"}})
	for call, want := range map[*PythonCall]string{
		{Code: "1"}: "Error: denied: ",
		{ScriptPath: "y.py", Inputs: Inputs{Files: []workspace.Input{{Path: "y.py"}}}}: "Error: denied: ",
		{Skill: "demo", ScriptPath: "x.py"}:                                            "Stdout:\n1\n\nStderr:\n",
	} {
		if r, err := b.RunPython(t.Context(), b.who, *call, nil); err != nil || !strings.HasPrefix(r.Text, want) {
			t.Errorf("%s: got %q, %v, want %q", fmt.Sprint(*call), r.Text, err, want)
		}
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a\r\né\x00": "a\r\né\x00", "\xff\xfe": "\ufffd\ufffd", "a\xe2\x82": "a\ufffd", "\xe2\x82b": "\ufffdb", "\xf0\x9f\x98\xf0": "\ufffd\ufffd",
		"\xed\xa0\x80": "\ufffd\ufffd\ufffd", "\xe2\x82\xe2\x82\xac": "\ufffd€", "\xc0\x80": "\ufffd\ufffd", "\xf4\x90\x80\x80": "\ufffd\ufffd\ufffd\ufffd", "\ufffd": "\ufffd", "\xc3": "\ufffd",
	} {
		if got := text([]byte(in)); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
