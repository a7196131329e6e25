package toolview

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill"
)

// template is the guide's example script; its open part reads the file.
const template = `#!/usr/bin/env python3
"""
Script description.

Usage:
    python script.py <input> [--option VALUE]
"""

import argparse
import sys
from pathlib import Path

def main():
    parser = argparse.ArgumentParser(description="Script description")
    parser.add_argument("input", help="Input file")
    parser.add_argument("--option", help="Optional parameter")

    args = parser.parse_args()

    try:
        # Validate input
        input_path = Path(args.input)
        if not input_path.exists():
            print(f"Error: File not found: {args.input}", file=sys.stderr)
            return 1

        # Process
        result = process_data(input_path, args.option)

        # Output
        print(result)
        return 0

    except Exception as e:
        print(f"Error: {e}", file=sys.stderr)
        return 1

def process_data(input_path, option):
    """Process data and return result."""
    return f"{input_path.read_text().strip()} {option}"

if __name__ == "__main__":
    sys.exit(main())
`

// analysis is the skill of the specification's tests, with more scripts.
var analysis = skillText{
	name:        "data-analysis",
	frontMatter: "allowed-tools: Bash(python:*) Bash(cat:*) Bash(pwd) Bash(nonesuch:*) Bash(git status:*) Read Write\nmax_execution_time: 60\nmax_memory: 128",
	files: map[string]string{
		"scripts/test.py":    "#!/usr/bin/env python3\nprint('Hello from script')",
		"scripts/analyze.py": "#!/usr/bin/env python3\nimport sys\nprint(\"Analysis complete\")\nsys.exit(0)\n",
		"scripts/process.py": template,
		"scripts/long.py":    "import sys, time\nprint('part', flush=True)\nsys.stderr.write('e')\nsys.stderr.flush()\ntime.sleep(300)\n",
		"scripts/fail.py":    "import sys\nprint('out')\nsys.stderr.write('bad')\nsys.exit(2)\n",
		"scripts/kill.py":    "import os\nos.kill(os.getpid(), 9)\n",
		"scripts/hungry.py":  "x = bytearray(400 * 1024 * 1024)\n",
		"scripts/env.py":     "import os, sys\nfor n in sys.argv[1:]: print(n + '=' + os.environ.get(n, 'unset'))\n",
		"scripts/net.py":     "import socket\ntry:\n    socket.create_connection(('192.0.2.1', 80), 1)\nexcept OSError as e: print(e.strerror)\n",
		"scripts/link.py":    "-> test.py",
		"scripts/out.py":     "-> ../../outside.py",
		"scripts/to-ref.py":  "-> ../references/x.py",
		"references/x.py":    "print(1)\n",
		"scripts-evil/x.py":  "print(1)\n",
		"input.csv":          "1,2\n",
	},
}

// command runs a command that must have a result.
func (b *bench) command(req CommandRequest) CommandResult {
	b.t.Helper()
	if req.Skill == "" {
		req.Skill = "data-analysis"
	}
	r, err := b.ExecuteCommand(b.t.Context(), b.who, req, nil)
	if err != nil {
		b.t.Fatalf("%s: %v", req.Command, err)
	}
	if r.Command != req.Command || r.Success != (r.ExitCode == 0) || r.Success != (r.Error == nil) || r.ExecutionID == "" && r.ExecutionTime != 0 {
		b.t.Errorf("not an ExecutionResult of the guide: %+v", r)
	}
	return r
}

func (c CommandResult) error() string {
	if c.Error == nil {
		return "None"
	}
	return *c.Error
}

// Every kind of end has the ExecutionResult of the guide and the specification.
func TestContractCommandResults(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, analysis)
	for _, tt := range []struct {
		name           string
		req            CommandRequest
		code           int
		stdout, stderr string
		err            string
	}{
		{"success", CommandRequest{Command: "python scripts/test.py"}, 0, "Hello from script\n", "", "None"},
		{"arguments", CommandRequest{Command: "python scripts/analyze.py --input test.csv"}, 0, "Analysis complete\n", "", "None"},
		{"{baseDir}", CommandRequest{Command: "python {baseDir}/scripts/process.py input.csv --option 'a b'"}, 0, "1,2 a b\n", "", "None"},
		{"the template without its file", CommandRequest{Command: "python scripts/process.py no.csv"}, 1, "", "Error: File not found: no.csv\n", "Command failed with exit code 1"},
		{"failure", CommandRequest{Command: "python scripts/fail.py"}, 2, "out\n", "bad", "Command failed with exit code 2"},
		{"signal", CommandRequest{Command: "python scripts/kill.py"}, -9, "", "", "Command failed with exit code -9"},
		{"timeout keeps what was printed", CommandRequest{Command: "python scripts/long.py", Timeout: 8 * time.Second}, -1, "part\n", "e", "Execution timeout (8s)"},
		{"permission denied", CommandRequest{Command: "rm -rf /"}, -1, "", "", "Command not allowed by skill permissions: rm -rf /\n..."},
		{"a second command", CommandRequest{Command: "git status; rm -rf /"}, -1, "", "", "Command not allowed by skill permissions: git status; rm -rf /\n..."},
		{"nothing", CommandRequest{Command: ""}, -1, "", "", "Command not allowed by skill permissions: \nthe command line is empty"},
		{"no such program", CommandRequest{Command: "nonesuch x"}, -1, "", "", "Execution error: nonesuch: no such file or directory"},
		{"the working directory", CommandRequest{Command: "pwd"}, 0, "/workspace\n", "", "None"},
		{"one of the skill", CommandRequest{Command: "pwd", WorkingDir: "scripts"}, 0, "/workspace/scripts\n", "", "None"},
		{"absolute", CommandRequest{Command: "pwd", WorkingDir: "/skills/data-analysis/scripts"}, 0, "/workspace/scripts\n", "", "None"},
		{"by {baseDir}", CommandRequest{Command: "pwd", WorkingDir: "{baseDir}/references"}, 0, "/workspace/references\n", "", "None"},
		{"where it is", CommandRequest{Command: "pwd", WorkingDir: "/workspace/scripts"}, 0, "/workspace/scripts\n", "", "None"},
		{"outside", CommandRequest{Command: "pwd", WorkingDir: "/etc"}, -1, "", "", "Execution error: working directory '/etc' is outside skill directory"},
		{"a sibling's name", CommandRequest{Command: "pwd", WorkingDir: "/skills/data-analysis-evil"}, -1, "", "", "Execution error: working directory '/skills/data-analysis-evil' is outside skill directory"},
		{"climbing out", CommandRequest{Command: "pwd", WorkingDir: "scripts/../.."}, -1, "", "", "Execution error: working directory 'scripts/../..' is outside skill directory"},
		{"a directory that is not there", CommandRequest{Command: "pwd", WorkingDir: "no"}, -1, "", "", "Execution error: working directory no: no such file or directory"},
		{"a pipe", CommandRequest{Command: "cat input.csv | python -c 'import sys; print(len(sys.stdin.read()))'"}, 0, "4\n", "", "None"},
		{"no network", CommandRequest{Command: "python scripts/net.py"}, 0, "Network is unreachable\n", "", "None"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b.t = t
			r := b.command(tt.req)
			begin, open := strings.CutSuffix(tt.err, "...")
			if r.ExitCode != tt.code || r.Stdout != tt.stdout || r.Stderr != tt.stderr || r.error() != tt.err && !(open && strings.HasPrefix(r.error(), begin)) {
				t.Errorf("got  %d %q %q %s\nwant %d %q %q %s", r.ExitCode, r.Stdout, r.Stderr, r.error(), tt.code, tt.stdout, tt.stderr, tt.err)
			}
		})
	}
}

// A command has SKILL_NAME, SKILL_DIR and SCRIPTS_DIR, the caller's variables, and no
// others from the host.
func TestContractCommandEnvironment(t *testing.T) {
	t.Setenv("APP_OF_THE_HOST", "leaked")
	b := newBench(t, nil, analysis)
	r := b.command(CommandRequest{
		Command: "python scripts/env.py SKILL_NAME SKILL_DIR SCRIPTS_DIR APP_MODE APP_OF_THE_HOST",
		Env:     map[string]string{"APP_MODE": "fast"},
	})
	want := "SKILL_NAME=data-analysis\nSKILL_DIR=/skills/data-analysis\nSCRIPTS_DIR=/skills/data-analysis/scripts\nAPP_MODE=fast\nAPP_OF_THE_HOST=unset\n"
	if r.Stdout != want {
		t.Errorf("got %q, want %q", r.Stdout, want)
	}
	for _, name := range []string{"SKILL_NAME", "LD_PRELOAD", "PATH", "MY_VARIABLE"} {
		_, err := b.ExecuteCommand(t.Context(), b.who, CommandRequest{Skill: "data-analysis", Command: "pwd", Env: map[string]string{name: "x"}}, nil)
		if !is[*permission.EnvError](err) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
}

// The front matter's constraints are the execution's defaults and ceilings.
func TestContractCommandConstraints(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, analysis,
		skillText{name: "plain", frontMatter: "allowed-tools: Bash(pwd)"},
		skillText{name: "short", frontMatter: "allowed-tools: Bash(python:*)\nmax_execution_time: 1", files: map[string]string{"scripts/long.py": "import time; time.sleep(10)"}},
		skillText{name: "online", frontMatter: "allowed-tools: Bash(pwd)\nnetwork_access: true"})
	for name, want := range map[string]executor.Limits{
		"plain":         {Wall: 300 * time.Second, MemoryBytes: 512 << 20},
		"data-analysis": {Wall: 60 * time.Second, MemoryBytes: 128 << 20},
	} {
		got := b.outcome(b.command(CommandRequest{Skill: name, Command: "pwd"}).ExecutionID).Limits
		if got.Wall != want.Wall || got.MemoryBytes != want.MemoryBytes {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
	// The specification's own test of a timeout.
	r := b.command(CommandRequest{Skill: "short", Command: "python scripts/long.py"})
	if r.Success || r.error() != "Execution timeout (1s)" || !strings.Contains(strings.ToLower(r.error()), "timeout") || r.ExecutionTime < 1 {
		t.Errorf("got %+v, %s", r, r.error())
	}
	r = b.command(CommandRequest{Command: "python scripts/hungry.py"})
	if r.ExitCode != -9 || !strings.HasPrefix(r.error(), "Execution error: It needed more than its 128 MiB of memory") {
		t.Errorf("got %+v, %s", r, r.error())
	}
	_, err := b.ExecuteCommand(t.Context(), b.who, CommandRequest{Skill: "short", Command: "python x.py", Timeout: 2 * time.Second}, nil)
	if e, ok := errors.AsType[*executor.LimitError](err); !ok || e.Field != "timeout" {
		t.Errorf("above the skill's ceiling: got %v", err)
	}
	// The operator grants network, not the skill.
	if _, err := b.ExecuteCommand(t.Context(), b.who, CommandRequest{Skill: "online", Command: "pwd"}, nil); !is[*permission.NetworkRefused](err) {
		t.Errorf("network: got %v", err)
	}
}

// The specification's test of insufficient permissions, and a skill without allowed-tools.
func TestContractCommandPermissionDenied(t *testing.T) {
	t.Parallel()
	files := map[string]string{"scripts/test.py": analysis.files["scripts/test.py"]}
	for _, front := range []string{"allowed-tools: Bash(git:*)", "", "allowed-tools: ''", "allowed-tools: Read"} {
		b := newIdleBench(t, nil, skillText{name: "data-analysis", frontMatter: front, files: files})
		r := b.command(CommandRequest{Command: "python scripts/test.py"})
		if !strings.HasPrefix(r.error(), "Command not allowed by skill permissions: python scripts/test.py\n") || r.ExitCode != -1 || r.ExecutionTime != 0 || r.ExecutionID != "" {
			t.Errorf("%q: got %+v, %s", front, r, r.error())
		}
	}
}

// The kernel killed a process for memory, and the last command still exited with 0.
func TestContractCommandSucceedsWithoutMemory(t *testing.T) {
	t.Parallel()
	got, err := CommandResult{}.fill(run{stderr: []byte("its own"), Outcome: executor.Outcome{End: executor.OOMKilled, ExitCode: new(0), Advice: "Too much."}})
	if want := "its own\nOut of memory: Too much."; err != nil || !got.Success || got.Error != nil || got.Stderr != want {
		t.Errorf("got %+v, %v, want stderr %q and no error", got, err, want)
	}
}

func TestContractCommandCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, analysis)
	r, err := b.ExecuteCommand(t.Context(), b.who, CommandRequest{Skill: "data-analysis", Command: "python scripts/long.py"}, func(o executor.Output) error {
		// Python writes the newline in a separate call.
		if o.Stream != executor.Stdout || !bytes.HasSuffix(o.Data, []byte("\n")) {
			return nil
		}
		list, _, err := b.x.List(t.Context(), b.who, executor.Filter{States: []executor.State{executor.Running}})
		if err != nil || len(list) != 1 {
			t.Errorf("running: %v, %v", list, err)
			return err
		}
		_, err = b.x.Cancel(t.Context(), b.who, list[0].ID, "an operator", "enough", 0)
		return err
	})
	if err != nil || r.ExitCode != -1 || r.error() != "Execution error: It was cancelled by an operator: enough." || r.Stdout != "part\n" {
		t.Errorf("got %v, %+v, %s", err, r, r.error())
	}
}

// The three ValueErrors of validate_script_path, and valid paths.
func TestContractValidateScriptPath(t *testing.T) {
	t.Parallel()
	b := newIdleBench(t, nil, analysis)
	for _, tt := range []struct{ path, want string }{
		{"scripts/test.py", "/skills/data-analysis/scripts/test.py"},
		{"scripts/../scripts/./test.py", "/skills/data-analysis/scripts/test.py"},
		{"/skills/data-analysis/scripts/test.py", "/skills/data-analysis/scripts/test.py"},
		{"scripts/link.py", "/skills/data-analysis/scripts/test.py"},
		{"{baseDir}/scripts/test.py", "/skills/data-analysis/scripts/test.py"},
		{"a\x00b", "ValueError: Script path 'a\x00b' is outside skill directory"},
		{"../../etc/passwd", "ValueError: Script path '../../etc/passwd' is outside skill directory"},
		{"/etc/passwd", "ValueError: Script path '/etc/passwd' is outside skill directory"},
		{"scripts/out.py", "ValueError: Script path 'scripts/out.py' is outside skill directory"},
		{"../data-analysis-evil/scripts/x.py", "ValueError: Script path '../data-analysis-evil/scripts/x.py' is outside skill directory"},
		{"scripts/nonexistent.py", "ValueError: Script not found: scripts/nonexistent.py"},
		{"scripts", "ValueError: Script not found: scripts"},
		{"references/x.py", "ValueError: Script must be in scripts/ directory: references/x.py"},
		{"scripts-evil/x.py", "ValueError: Script must be in scripts/ directory: scripts-evil/x.py"},
		{"scripts/to-ref.py", "ValueError: Script must be in scripts/ directory: scripts/to-ref.py"},
		{"SKILL.md", "ValueError: Script must be in scripts/ directory: SKILL.md"},
		{".", "ValueError: Script must be in scripts/ directory: ."},
	} {
		got, err := b.ValidateScriptPath(t.Context(), b.who, "data-analysis", tt.path)
		if e, ok := errors.AsType[*ScriptPathError](err); ok {
			got = "ValueError: " + e.Error()
		} else if err != nil {
			t.Errorf("%s: %v", tt.path, err)
		}
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.path, got, tt.want)
		}
	}
	if _, err := b.ValidateScriptPath(t.Context(), b.who, "nope", "scripts/x.py"); !errors.Is(err, skill.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if lines := b.logs.With("Path traversal attack detected", `script=\"a\\x00b\"`); len(lines) != 1 {
		t.Errorf("got %q", lines)
	}
}

// A host path in a command leads to the sandbox's file at that path, not to the host's.
func TestContractCommandCannotReachTheHost(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, analysis)
	r := b.command(CommandRequest{Command: "cat ../../etc/passwd"})
	if strings.Contains(r.Stdout, "daemon:") || !strings.Contains(r.Stdout, "skill:") {
		t.Errorf("got %q %q", r.Stdout, r.Stderr)
	}
}

// Errors without a place in the contract stay errors.
func TestCommandOtherErrors(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, analysis)
	if _, err := b.ExecuteCommand(t.Context(), b.who, CommandRequest{Skill: "nope", Command: "pwd"}, nil); !errors.Is(err, skill.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if e, ok := errors.AsType[*executor.RequestError](second(b.ExecuteCommand(t.Context(), b.who, CommandRequest{Skill: "data-analysis", Command: "pwd", WorkingDir: "a\x00"}, nil))); !ok || e.Field != "working_dir" {
		t.Errorf("got %v", e)
	}
	gone := errors.New("gone")
	r, err := b.ExecuteCommand(t.Context(), b.who, CommandRequest{Skill: "data-analysis", Command: "python scripts/long.py"}, func(executor.Output) error { return gone })
	if !errors.Is(err, gone) || r.ExecutionID == "" {
		t.Errorf("got %v, %+v", err, r)
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	b.x.Drain(over, over)
	if _, err := b.ExecuteCommand(t.Context(), b.who, CommandRequest{Skill: "data-analysis", Command: "pwd"}, nil); !errors.Is(err, executor.ErrDraining) {
		t.Errorf("got %v", err)
	}
}

// second returns the error of a call.
func second[T any](_ T, err error) error { return err }

// The function tool has a timeout, too, which the skill's own limit bounds.
func TestBashToolTimeout(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, skillText{name: "slow", frontMatter: "allowed-tools: Bash(sleep:*)\nmax_execution_time: 30"})
	r := b.toolCall("bash", `{"skill": "slow", "command": "sleep 600", "timeout": 0.25}`)
	if want := `"error": "Execution timeout (0.25s)"`; !r.IsError || !strings.Contains(r.Content, want) {
		t.Errorf("got %s, want %s", r.Content, want)
	}
	r = b.toolCall("bash", `{"skill": "slow", "command": "sleep 0", "timeout": 31}`)
	if want := "timeout"; !r.IsError || r.ExecutionID != "" || !strings.Contains(r.Content, want) {
		t.Errorf("above the skill's limit: %s", r.Content)
	}
}

// tar takes patterns of file names. A file whose name is an option of tar stays a file.
func TestTarTakesPatterns(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, skillText{name: "packer", frontMatter: "allowed-tools: Bash(tar:*)", files: map[string]string{"data/a.csv": "a"}})
	r := b.toolCall("bash", `{"skill": "packer", "command": "tar cf out.tar * data/*.csv && tar tf out.tar", "files": [
		{"path": "--checkpoint=1", "text": ""}, {"path": "--checkpoint-action=exec=touch pwned", "text": ""}]}`)
	if want := `"stdout": "./--checkpoint-action=exec=touch pwned\n./--checkpoint=1\n`; r.IsError || !strings.Contains(r.Content, want) || !strings.Contains(r.Content, `data/a.csv`) {
		t.Errorf("got %s, want %s", r.Content, want)
	}
	if len(r.Artifacts) != 1 || r.Artifacts[0].Path != "out.tar" {
		t.Errorf("artifacts %+v, want out.tar alone", r.Artifacts)
	}
}
