package toolview

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/hosttest"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
	"github.com/skillrun/skillrun/sandbox"
)

// pdf is the skill of the examples of the Script Executor API Contract.
var pdf = skillText{name: "pdf", frontMatter: "version: 1.2.3", files: map[string]string{
	"scripts/extract.py":   "import sys, json\nprint(json.load(sys.stdin)['file'])\n",
	"scripts/echo.py":      "import sys\nsys.stdout.write(sys.stdin.read())\n",
	"scripts/fail.py":      "import sys\nsys.stderr.write('bad')\nsys.exit(1)\n",
	"scripts/slow.py":      "import sys, time\nprint('part', flush=True)\nsys.stderr.write('e')\nsys.stderr.flush()\ntime.sleep(300)\n",
	"scripts/quiet.py":     "import time\ntime.sleep(300)\n",
	"scripts/fake.py":      "import sys\nsys.stderr.write('Timeout')\nsys.exit(124)\n",
	"scripts/segv.py":      "import ctypes\nctypes.string_at(0)\n",
	"scripts/kill.py":      "import os\nos.kill(os.getpid(), 9)\n",
	"scripts/abort.py":     "import os\nos.abort()\n",
	"scripts/realtime.py":  "import os\nos.kill(os.getpid(), 35)\n",
	"scripts/raw.py":       "import sys\nsys.stdout.buffer.write(b'a\\xff\\xfe\\r\\nb\\xc3')\nsys.stderr.buffer.write(b'\\xe2\\x82')\n",
	"scripts/big.py":       "import sys\nsys.stdout.write('x' * (10 * 1024 * 1024 + 1))\nsys.stderr.write('y' * (10 * 1024 * 1024 + 2))\nsys.exit(3)\n",
	"scripts/runes.py":     "print('é' * 100, end='')\n",
	"scripts/hungry.py":    "x = bytearray(400 * 1024 * 1024)\n",
	"scripts/env.py":       "import os\nfor n in ('SKILL_NAME', 'SKILL_BASE_DIR', 'SKILL_VERSION', 'SKILLKIT_VERSION'): print(n + '=' + os.environ[n])\n",
	"scripts/cwd.py":       "import os\nprint(os.getcwd(), os.path.exists('scripts/cwd.py'))\nopen('note.txt', 'w').write('kept')\n",
	"scripts/here":         "#!/usr/bin/env -S python3 -E\nimport sys\nprint('shebang', sys.flags.ignore_environment)\n",
	"scripts/absolute":     "#!/bin/sh\necho $0\n",
	"scripts/UP.SH":        "echo up\n",
	"scripts/x.ps1":        "Write-Host hi\n",
	"scripts/x.bat":        "echo hi\n",
	"scripts/x.xyz":        "print(1)\n",
	"scripts/tick.sh":      "read -r line\necho \"$line\" ready\nsleep 300\n",
	"scripts/link.py":      "-> extract.py",
	"scripts/out.py":       "-> ../../outside.py",
	"scripts/loop.py":      "-> loop.py",
	"scripts/dangerous.py": "print(1)\n",
	"scripts/group.py":     "print(1)\n",
	"scripts/sticky.py":    "print('sticky')\n",
	"tool.py":              "print('root')\n",
}}

// newScripts makes a view of the skill pdf. A nil host makes no sandboxes.
func newScripts(t *testing.T, host *sandbox.Host) *bench {
	t.Helper()
	dir := hosttest.Dir(t)
	pdf.write(t, filepath.Join(dir, "skills"))
	for name, mode := range map[string]uint32{"dangerous.py": 0o4755, "group.py": 0o2755, "sticky.py": 0o1777} {
		if err := syscall.Chmod(filepath.Join(dir, "skills/pdf/scripts", name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "skills/pdf/scripts/pipe.py"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "skills/outside.py"), []byte("print('outside')\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return openBench(t, host, dir, nil)
}

// script runs a script that must have a result.
func (b *bench) script(req ScriptRequest) ScriptResult {
	b.t.Helper()
	if req.Skill == "" {
		req.Skill = "pdf"
	}
	r, err := b.ExecuteScript(b.t.Context(), b.who, req, nil)
	if err != nil {
		b.t.Fatalf("%s: %v", req.ScriptPath, err)
	}
	postConditions(b.t, r)
	return r
}

// postConditions checks the post-conditions of execute() in the contract.
func postConditions(t *testing.T, r ScriptResult) {
	t.Helper()
	if r.ExecutionTimeMS <= 0 {
		t.Errorf("execution_time_ms %v", r.ExecutionTimeMS)
	}
	if !utf8.ValidString(r.Stdout) || !utf8.ValidString(r.Stderr) {
		t.Errorf("not valid UTF-8: %q, %q", r.Stdout, r.Stderr)
	}
	if r.Signal != nil && (r.ExitCode >= 0 || *r.SignalNumber != -r.ExitCode) || (r.Signal == nil) != (r.SignalNumber == nil) {
		t.Errorf("signal %v, number %v, exit code %d", r.Signal, r.SignalNumber, r.ExitCode)
	}
	if r.Timeout && (r.ExitCode != 124 || !strings.Contains(r.Stderr, "Timeout")) {
		t.Errorf("timeout with exit code %d and stderr %q", r.ExitCode, r.Stderr)
	}
	if r.Success != (r.ExitCode == 0) || r.Signaled != (r.Signal != nil) {
		t.Errorf("success %t, signaled %t: %+v", r.Success, r.Signaled, r)
	}
	if r.ExecutionID == "" || strings.HasPrefix(r.ScriptPath, "/") {
		t.Errorf("execution %q, script_path %q", r.ExecutionID, r.ScriptPath)
	}
}

// The contract's required unit tests that have a result.
func TestContractScriptResults(t *testing.T) {
	t.Parallel()
	b := newScripts(t, hosttest.Host(t))
	signal := func(name string, n int) func(*ScriptResult) {
		return func(r *ScriptResult) { r.Signal, r.SignalNumber, r.ExitCode = &name, &n, -n }
	}
	for _, tt := range []struct {
		name string
		req  ScriptRequest
		want func(*ScriptResult)
	}{
		{"successful execution", ScriptRequest{ScriptPath: "scripts/extract.py", Arguments: `{"file": "doc.pdf"}`}, func(r *ScriptResult) { r.Stdout = "doc.pdf\n" }},
		{"absolute path", ScriptRequest{ScriptPath: "/skills/pdf/scripts/extract.py", Arguments: `{"file": "doc.pdf"}`}, func(r *ScriptResult) { r.Stdout = "doc.pdf\n" }},
		{"failed execution", ScriptRequest{ScriptPath: "scripts/fail.py"}, func(r *ScriptResult) { r.ExitCode, r.Stderr = 1, "bad" }},
		{"timeout keeps what was printed", ScriptRequest{ScriptPath: "scripts/slow.py", Timeout: 8 * time.Second}, func(r *ScriptResult) {
			r.ExitCode, r.Timeout, r.Stdout, r.Stderr = 124, true, "part\n", "e\nTimeout"
		}},
		{"timeout below a second", ScriptRequest{ScriptPath: "scripts/quiet.py", Timeout: 100 * time.Millisecond}, func(r *ScriptResult) {
			r.ExitCode, r.Timeout, r.Stderr = 124, true, "\nTimeout"
		}},
		{"124 of the script's own", ScriptRequest{ScriptPath: "scripts/fake.py"}, func(r *ScriptResult) { r.ExitCode, r.Stderr = 124, "Timeout" }},
		{"SIGSEGV", ScriptRequest{ScriptPath: "scripts/segv.py"}, signal("SIGSEGV", 11)},
		{"SIGKILL", ScriptRequest{ScriptPath: "scripts/kill.py"}, signal("SIGKILL", 9)},
		{"SIGABRT", ScriptRequest{ScriptPath: "scripts/abort.py"}, signal("SIGABRT", 6)},
		{"a signal without a name", ScriptRequest{ScriptPath: "scripts/realtime.py"}, signal("UNKNOWN_SIGNAL_35", 35)},
		{"no arguments", ScriptRequest{ScriptPath: "scripts/echo.py"}, func(r *ScriptResult) { r.Stdout = "{}" }},
		{"arguments as Python prints them", ScriptRequest{ScriptPath: "scripts/echo.py", Arguments: `{"z":1,"a":["é",1.0,null]}`}, func(r *ScriptResult) {
			r.Stdout = `{"z": 1, "a": ["é", 1.0, null]}`
		}},
		{"output that is not UTF-8", ScriptRequest{ScriptPath: "scripts/raw.py"}, func(r *ScriptResult) {
			r.Stdout, r.Stderr = "a\uFFFD\uFFFD\r\nb\uFFFD", "\uFFFD"
		}},
		{"output truncation at 10 MB", ScriptRequest{ScriptPath: "scripts/big.py"}, func(r *ScriptResult) {
			r.ExitCode, r.StdoutTruncated, r.StderrTruncated = 3, true, true
			r.Stdout = strings.Repeat("x", 10<<20) + "\n[... OUTPUT TRUNCATED: exceeded 10MB limit ...]"
			r.Stderr = strings.Repeat("y", 10<<20) + "\n[... STDERR TRUNCATED: exceeded 10MB limit ...]"
		}},
		{"truncation between characters", ScriptRequest{ScriptPath: "scripts/runes.py", MaxOutputSize: 101}, func(r *ScriptResult) {
			r.StdoutTruncated = true
			r.Stdout = strings.Repeat("é", 50) + "\n[... OUTPUT TRUNCATED: exceeded 101 bytes limit ...]"
		}},
		{"the limit itself", ScriptRequest{ScriptPath: "scripts/runes.py", MaxOutputSize: 200}, func(r *ScriptResult) { r.Stdout = strings.Repeat("é", 100) }},
		{"environment variables", ScriptRequest{ScriptPath: "scripts/env.py"}, func(r *ScriptResult) {
			r.Stdout = "SKILL_NAME=pdf\nSKILL_BASE_DIR=/skills/pdf\nSKILL_VERSION=1.2.3\nSKILLKIT_VERSION=0.3.0\n"
		}},
		{"working directory", ScriptRequest{ScriptPath: "scripts/cwd.py"}, func(r *ScriptResult) { r.Stdout = "/workspace True\n" }},
		{"shebang, env with options", ScriptRequest{ScriptPath: "scripts/here"}, func(r *ScriptResult) { r.Stdout = "shebang 1\n" }},
		{"absolute path that comes back", ScriptRequest{ScriptPath: "/skills/pdf/../pdf/scripts/extract.py", Arguments: `{"file": "doc.pdf"}`}, func(r *ScriptResult) { r.Stdout = "doc.pdf\n" }},
		{"shebang, a path", ScriptRequest{ScriptPath: "scripts/absolute"}, func(r *ScriptResult) { r.Stdout = "/workspace/scripts/absolute\n" }},
		{"extension in upper case", ScriptRequest{ScriptPath: "scripts/UP.SH"}, func(r *ScriptResult) { r.Stdout = "up\n" }},
		{"a link inside", ScriptRequest{ScriptPath: "scripts/link.py", Arguments: `{"file": "f"}`}, func(r *ScriptResult) {
			r.Stdout, r.ScriptPath = "f\n", "scripts/extract.py"
		}},
		{"sticky and for all to write", ScriptRequest{ScriptPath: "scripts/sticky.py"}, func(r *ScriptResult) { r.Stdout = "sticky\n" }},
		{"not in scripts", ScriptRequest{ScriptPath: "tool.py"}, func(r *ScriptResult) { r.Stdout = "root\n" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b.t = t
			got := b.script(tt.req)
			want := ScriptResult{ScriptPath: (&skill.Skill{Name: "pdf"}).Within(tt.req.ScriptPath)}
			tt.want(&want)
			want.Success, want.Signaled = want.ExitCode == 0, want.Signal != nil
			got.ExecutionTimeMS, got.ExecutionID, got.Artifacts = 0, "", nil
			if a, b := asJSON(t, got), asJSON(t, want); a != b {
				t.Errorf("got  %s\nwant %s", tailOf(a), tailOf(b))
			}
		})
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func tailOf(s string) string { return s[max(0, len(s)-600):] }

// The exceptions of the contract, by name and text.
func TestContractScriptExceptions(t *testing.T) {
	t.Parallel()
	b := newScripts(t, hosttest.Host(t))
	const dangerous = `Script has setuid bit: scripts/dangerous.py
Script has dangerous permissions: scripts/dangerous.py
  Mode: 0o104755
  Setuid: True
  Setgid: False
  Recommendation: Remove the setuid and setgid bits with: chmod u-s,g-s scripts/dangerous.py`
	const group = `Script has setgid bit: scripts/group.py
Script has dangerous permissions: scripts/group.py
  Mode: 0o102755
  Setuid: False
  Setgid: True
  Recommendation: Remove the setuid and setgid bits with: chmod u-s,g-s scripts/group.py`
	pad := func(n int) string { return `{"x": "` + strings.Repeat("p", n-len(`{"x": ""}`)) + `"}` }
	for _, tt := range []struct {
		name string
		req  ScriptRequest
		want Exception
	}{
		{"relative traversal", ScriptRequest{ScriptPath: "../../etc/passwd"}, Exception{Name: PathSecurityError, Text: "Script path escapes skill directory: ../../etc/passwd"}},
		{"the contract's own pattern", ScriptRequest{ScriptPath: "../../../../etc/passwd"}, Exception{Name: PathSecurityError, Text: "Script path escapes skill directory: ../../../../etc/passwd"}},
		{"absolute escape", ScriptRequest{ScriptPath: "/etc/passwd"}, Exception{Name: PathSecurityError, Text: "Script path escapes skill directory: /etc/passwd"}},
		{"beneath the base, and out", ScriptRequest{ScriptPath: "/skills/pdf/../../etc/passwd"}, Exception{Name: PathSecurityError, Text: "Script path escapes skill directory: /skills/pdf/../../etc/passwd"}},
		{"a sibling's name", ScriptRequest{ScriptPath: "/skills/pdf-evil/x.py"}, Exception{Name: PathSecurityError, Text: "Script path escapes skill directory: /skills/pdf-evil/x.py"}},
		{"a link outside", ScriptRequest{ScriptPath: "scripts/out.py"}, Exception{Name: PathSecurityError, Text: "Script path escapes skill directory: scripts/out.py"}},
		{"a link to itself", ScriptRequest{ScriptPath: "scripts/loop.py"}, Exception{Name: PathSecurityError, Text: "Script path has too many links: scripts/loop.py"}},
		{"the skill itself", ScriptRequest{ScriptPath: "."}, Exception{Name: PathSecurityError, Text: "Script path outside skill directory: /skills/pdf"}},
		{"nothing", ScriptRequest{ScriptPath: ""}, Exception{Name: PathSecurityError, Text: "Script path outside skill directory: /skills/pdf"}},
		{"a line end", ScriptRequest{ScriptPath: "a\nb\xff"}, Exception{Name: PathSecurityError, Text: "Script path is not valid: a\nb\uFFFD"}},
		{"setuid", ScriptRequest{ScriptPath: "scripts/dangerous.py"}, Exception{Name: ScriptPermissionError, Text: dangerous}},
		{"setgid", ScriptRequest{ScriptPath: "scripts/group.py"}, Exception{Name: ScriptPermissionError, Text: group}},
		{"missing", ScriptRequest{ScriptPath: "scripts/no.py"}, Exception{Name: FileNotFoundError, Text: "Script not found: /skills/pdf/scripts/no.py"}},
		{"a directory", ScriptRequest{ScriptPath: "scripts"}, Exception{Name: FileNotFoundError, Text: "Script not found: /skills/pdf/scripts"}},
		{"a pipe", ScriptRequest{ScriptPath: "scripts/pipe.py"}, Exception{Name: FileNotFoundError, Text: "Script not found: /skills/pdf/scripts/pipe.py (it is neither a file, a directory nor a link)"}},
		{"missing, in a folder that is missing", ScriptRequest{ScriptPath: "scripts/sub/nope.py"}, Exception{Name: FileNotFoundError, Text: "Script not found: /skills/pdf/scripts/sub/nope.py"}},
		{"interpreter missing", ScriptRequest{ScriptPath: "scripts/x.ps1"}, Exception{Name: InterpreterNotFoundError, Text: "Interpreter 'powershell' not found in PATH for x.ps1"}},
		{"of another system", ScriptRequest{ScriptPath: "scripts/x.bat"}, Exception{Name: InterpreterNotFoundError, Text: "Interpreter 'cmd' not found in PATH for x.bat"}},
		{"interpreter unknown", ScriptRequest{ScriptPath: "scripts/x.xyz"}, Exception{Name: InterpreterNotFoundError, Text: "No interpreter mapping for extension: .xyz"}},
		{"no JSON", ScriptRequest{ScriptPath: "scripts/echo.py", Arguments: `{"a": `}, Exception{Name: ArgumentSerializationError, Text: "Cannot serialize arguments: the JSON text ends too early"}},
		{"no object", ScriptRequest{ScriptPath: "scripts/echo.py", Arguments: `[1]`}, Exception{Name: ArgumentSerializationError, Text: "Cannot serialize arguments: the arguments are not a JSON object"}},
		{"too large", ScriptRequest{ScriptPath: "scripts/echo.py", Arguments: pad(10_000_001)}, Exception{Name: ArgumentSizeError, Text: "Arguments too large: 10000001 bytes (max 10MB)"}},
		{"the contract's own size", ScriptRequest{ScriptPath: "scripts/echo.py", Arguments: pad(15_728_640)}, Exception{Name: ArgumentSizeError, Text: "Arguments too large: 15728640 bytes (max 10MB)"}},
		{"timeout too long", ScriptRequest{ScriptPath: "scripts/echo.py", Timeout: 601 * time.Second}, Exception{Name: ValueError, Text: "Timeout must be above 0 and at most 600 seconds, got 601", Field: "timeout"}},
		{"timeout negative", ScriptRequest{ScriptPath: "scripts/echo.py", Timeout: -time.Second}, Exception{Name: ValueError, Text: "Timeout must be above 0 and at most 600 seconds, got -1", Field: "timeout"}},
		{"output size negative", ScriptRequest{ScriptPath: "scripts/echo.py", MaxOutputSize: -1}, Exception{Name: ValueError, Text: "max_output_size must be at least 1 and at most 67108864 bytes, got -1", Field: "max_output_size"}},
		{"output size too large", ScriptRequest{ScriptPath: "scripts/echo.py", MaxOutputSize: 1 << 30}, Exception{Name: ValueError, Text: "max_output_size must be at least 1 and at most 67108864 bytes, got 1073741824", Field: "max_output_size"}},
		// The contract checks in this order: path, permission, interpreter, arguments.
		{"path before arguments", ScriptRequest{ScriptPath: "../x", Arguments: "{"}, Exception{Name: PathSecurityError, Text: "Script path escapes skill directory: ../x"}},
		{"interpreter before arguments", ScriptRequest{ScriptPath: "scripts/x.xyz", Arguments: "{"}, Exception{Name: InterpreterNotFoundError, Text: "No interpreter mapping for extension: .xyz"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.req.Skill = "pdf"
			r, err := b.ExecuteScript(t.Context(), b.who, tt.req, nil)
			got, ok := errors.AsType[*Exception](err)
			if !ok || *got != tt.want {
				t.Errorf("got  %v\nwant %s: %s", err, tt.want.Name, tt.want.Text)
			}
			if r.ExecutionID != "" {
				t.Errorf("an execution ran: %+v", r)
			}
		})
	}
	t.Run("the limit of arguments passes", func(t *testing.T) {
		b.t = t
		if r := b.script(ScriptRequest{ScriptPath: "scripts/echo.py", Arguments: pad(10_000_000), MaxOutputSize: 10}); !r.Success {
			t.Errorf("got %+v", r)
		}
	})
}

// The contract's example of a missing interpreter, on a machine without node.
func TestContractScriptWithoutNode(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *executor.Config) { c.Runtimes = &runtime.Set{} }, skillText{name: "pdf", files: map[string]string{"script.js": "console.log(1)\n"}})
	_, err := b.ExecuteScript(t.Context(), b.who, ScriptRequest{Skill: "pdf", ScriptPath: "script.js"}, nil)
	want := Exception{Name: InterpreterNotFoundError, Text: "Interpreter 'node' not found in PATH for script.js"}
	if x, ok := errors.AsType[*Exception](err); !ok || *x != want {
		t.Errorf("got %v, want %v", err, want)
	}
}

// A skill's max_execution_time is the default and the ceiling.
func TestContractScriptTimeouts(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil,
		skillText{name: "bounded", frontMatter: "max_execution_time: 1", files: map[string]string{"x.sh": "sleep 300\n"}},
		skillText{name: "free", files: map[string]string{"x.sh": "exit 0\n"}})
	limit := func(req ScriptRequest) time.Duration { return b.outcome(b.script(req).ExecutionID).Limits.Wall }
	if got := limit(ScriptRequest{Skill: "free", ScriptPath: "x.sh"}); got != 30*time.Second {
		t.Errorf("default %s, want 30s", got)
	}
	if got := limit(ScriptRequest{Skill: "free", ScriptPath: "x.sh", Timeout: 600 * time.Second}); got != 600*time.Second {
		t.Errorf("asked for 600 s, got %s", got)
	}
	if r := b.script(ScriptRequest{Skill: "bounded", ScriptPath: "x.sh"}); !r.Timeout {
		t.Errorf("got %+v, want a timeout", r)
	}
	_, err := b.ExecuteScript(t.Context(), b.who, ScriptRequest{Skill: "bounded", ScriptPath: "x.sh", Timeout: 2 * time.Second}, nil)
	if x, ok := errors.AsType[*Exception](err); !ok || x.Name != ValueError || x.Text != "timeout: 2s is above the skill's maximum, 1s" {
		t.Errorf("got %v", err)
	}
	// A script that timed out does not affect the next one.
	for range 3 {
		if r := b.script(ScriptRequest{Skill: "bounded", ScriptPath: "x.sh", Timeout: 100 * time.Millisecond}); !r.Timeout {
			t.Errorf("got %+v, want a timeout", r)
		}
	}
	if r := b.script(ScriptRequest{Skill: "free", ScriptPath: "x.sh"}); !r.Success {
		t.Errorf("got %+v", r)
	}
}

// When the script's end and its timeout coincide, either result is right, and it is
// complete.
func TestContractScriptAtTheEdgeOfItsTime(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, skillText{name: "pdf", files: map[string]string{"x.sh": "sleep 0.29; echo done\n"}})
	r := b.script(ScriptRequest{ScriptPath: "x.sh", Timeout: 300 * time.Millisecond})
	if whole := r.Success && r.Stdout == "done\n" && r.Stderr == ""; whole == r.Timeout {
		t.Errorf("neither a complete result nor a timeout: %+v", r)
	}
}

// execution_time_ms is the run time of the script, also after a timeout. The daemon measures
// from when it learns of the start. On a busy machine that is a little later, so the test
// wants half of the time.
func TestContractScriptExecutionTime(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, skillText{name: "pdf", files: map[string]string{"nap.sh": "sleep 1\n", "long.sh": "sleep 300\n"}})
	if r := b.script(ScriptRequest{ScriptPath: "nap.sh"}); r.ExecutionTimeMS < 500 {
		t.Errorf("a sleep of 1 s took %v ms", r.ExecutionTimeMS)
	}
	if r := b.script(ScriptRequest{ScriptPath: "long.sh", Timeout: time.Second}); r.ExecutionTimeMS < 500 {
		t.Errorf("a timeout of 1 s took %v ms", r.ExecutionTimeMS)
	}
}

// Files that a script writes next to itself are artifacts, and the skill does not change.
func TestContractScriptArtifacts(t *testing.T) {
	t.Parallel()
	b := newScripts(t, hosttest.Host(t))
	for range 2 {
		r := b.script(ScriptRequest{ScriptPath: "scripts/cwd.py"})
		if len(r.Artifacts) != 1 || r.Artifacts[0].Path != "note.txt" || b.artifact(r.ExecutionID, "note.txt") != "kept" {
			t.Errorf("artifacts %+v", r.Artifacts)
		}
	}
}

// The contract's thread pool: ten executions at the same time do not affect each other.
// Each prints its answer only when all of them run.
func TestContractScriptConcurrentExecutions(t *testing.T) {
	t.Parallel()
	const jobs = 10
	b := newBench(t, func(c *executor.Config) { c.MaxRunning = jobs },
		skillText{name: "pdf", files: map[string]string{
			"mine.py": "import json, os, sys, time\nme = json.load(sys.stdin)['me']\n" +
				"assert os.listdir('.').count('mine.txt') == 0\nopen('mine.txt', 'w').write(me)\nprint('ready', flush=True)\n" +
				"time.sleep(0.01)\nprint(open('mine.txt').read(), os.getpid() < 100)\n",
		}})
	all := make(chan struct{})
	var ready, done sync.WaitGroup
	ready.Add(jobs)
	go func() { ready.Wait(); close(all) }()
	results := make([]ScriptResult, jobs)
	errs := make([]error, jobs)
	for i := range jobs {
		done.Go(func() {
			var once sync.Once
			results[i], errs[i] = b.ExecuteScript(t.Context(), b.who, ScriptRequest{
				Skill: "pdf", ScriptPath: "mine.py", Arguments: fmt.Sprintf(`{"me": "job %d"}`, i),
			}, func(executor.Output) error {
				once.Do(func() { ready.Done(); <-all })
				return nil
			})
		})
	}
	done.Wait()
	for i, r := range results {
		if want := fmt.Sprintf("ready\njob %d True\n", i); errs[i] != nil || r.Stdout != want {
			t.Errorf("job %d: %v, %q %q, want %q", i, errs[i], r.Stdout, r.Stderr, want)
			continue
		}
		postConditions(t, r)
	}
}

// Every script that the skill lists runs by its listed path.
func TestContractScriptsThatAreDetected(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, skillText{name: "pdf", files: map[string]string{
		"scripts/a.py": "print('a')\n", "scripts/deep/b.sh": "echo b\n", "c.pl": "print \"c\\n\";\n", "README.md": "#\n",
	}})
	sk, err := b.skills.Resolve("pdf")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range sk.Scripts {
		got = append(got, s.Path+" "+b.script(ScriptRequest{ScriptPath: s.Path}).Stdout)
	}
	if want := []string{"c.pl c\n", "scripts/a.py a\n", "scripts/deep/b.sh b\n"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// allowed-tools does not restrict the skill's own scripts.
func TestContractScriptNeedsNoRule(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]string{"none": "", "Bash": "allowed-tools: Bash", "empty": "allowed-tools: ''", "Read": "allowed-tools: Read"} {
		b := newBench(t, nil, skillText{name: "pdf", frontMatter: rule, files: map[string]string{"x.sh": "echo ran\n"}})
		if r := b.script(ScriptRequest{ScriptPath: "x.sh"}); r.Stdout != "ran\n" {
			t.Errorf("%s: got %+v", name, r)
		}
	}
}

// The contract has no field for running out of memory. The result is a SIGKILL, and stderr
// has the reason.
func TestScriptOutOfMemory(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, skillText{name: "pdf", frontMatter: "max_memory: 64", files: map[string]string{"hungry.py": pdf.files["scripts/hungry.py"]}})
	r := b.script(ScriptRequest{ScriptPath: "hungry.py"})
	if r.ExitCode != -9 || r.Signal == nil || *r.Signal != "SIGKILL" || !strings.Contains(r.Stderr, "\nOut of memory: It needed more than its 64 MiB") {
		t.Errorf("got %+v", r)
	}
}

// A cancelled script has no result.
func TestScriptCancelled(t *testing.T) {
	t.Parallel()
	b := newScripts(t, hosttest.Host(t))
	type end struct {
		r   ScriptResult
		err error
	}
	ended, ready := make(chan end, 1), make(chan struct{})
	id := make(chan string, 1)
	go func() {
		r, err := b.ExecuteScript(t.Context(), b.who, ScriptRequest{Skill: "pdf", ScriptPath: "scripts/tick.sh"}, func(executor.Output) error {
			close(ready)
			return nil
		})
		ended <- end{r, err}
	}()
	<-ready
	list, _, err := b.x.List(t.Context(), b.who, executor.Filter{States: []executor.State{executor.Running}})
	if err != nil || len(list) != 1 {
		t.Fatalf("running: %v, %v", list, err)
	}
	id <- list[0].ID
	if _, err := b.x.Cancel(t.Context(), b.who, list[0].ID, "an operator", "enough", 0); err != nil {
		t.Fatal(err)
	}
	got := <-ended
	want := Exception{Name: OSError, Text: "Script did not run to its end. It was cancelled by an operator: enough."}
	if x, ok := errors.AsType[*Exception](got.err); !ok || *x != want || got.r.ExecutionID != <-id {
		t.Errorf("got %v, %+v\nwant %s: %s", got.err, got.r, want.Name, want.Text)
	}
	if lines := b.logs.With("level=INFO", "Script failed: tick.sh", "error=Script did not run to its end"); len(lines) != 1 {
		t.Errorf("log: %q", lines)
	}
	if lines := b.logs.With("AUDIT: Script execution", "script=scripts/tick.sh"); len(lines) != 1 {
		t.Errorf("audit: %q", lines)
	}
}

// Exceeding the limit of processor time is a timeout with that limit's length.
func TestScriptProcessorTime(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *executor.Config) { c.Bounds.Default.CPU = 200 * time.Millisecond },
		skillText{name: "pdf", frontMatter: "allowed-tools: Bash(python:*)", files: map[string]string{"spin.py": "while True: pass\n"}})
	r := b.script(ScriptRequest{ScriptPath: "spin.py"})
	if lines := b.logs.With("Script timeout: spin.py exceeded 0.2s"); !r.Timeout || r.Stderr != "\nTimeout" || len(lines) != 1 {
		t.Errorf("got %+v, log %q", r, lines)
	}
	if c := b.command(CommandRequest{Skill: "pdf", Command: "python spin.py"}); c.ExitCode != -1 || c.error() != "Execution timeout (0.2s)" {
		t.Errorf("got %+v, %s", c, c.error())
	}
}

// A sink that returns an error ends the script.
func TestScriptSinkGivesUp(t *testing.T) {
	t.Parallel()
	b := newScripts(t, hosttest.Host(t))
	gone := errors.New("gone")
	r, err := b.ExecuteScript(t.Context(), b.who, ScriptRequest{Skill: "pdf", ScriptPath: "scripts/tick.sh"}, func(executor.Output) error { return gone })
	if !errors.Is(err, gone) || r.ExecutionID == "" {
		t.Fatalf("got %v, %+v", err, r)
	}
	if o := b.outcome(r.ExecutionID); o.End != executor.Cancelled || o.Evidence.CancelledBy != byCaller {
		t.Errorf("outcome %+v", o)
	}
	if lines := b.logs.With("Script failed: tick.sh | exit_code=None", "error=gone"); len(lines) != 1 {
		t.Errorf("log: %q", lines)
	}
}

// An execution that waited for a slot in vain is not a timeout of the script.
func TestScriptWithoutASlot(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *executor.Config) { c.MaxRunning, c.QueueTimeout = 1, 50*time.Millisecond },
		skillText{name: "pdf", frontMatter: "allowed-tools: Bash(cat:*)", files: map[string]string{"hold.sh": "echo ready\nread -r x\nsleep 300\n"}})
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := b.ExecuteScript(ctx, b.who, ScriptRequest{Skill: "pdf", ScriptPath: "hold.sh"}, func(executor.Output) error {
			close(ready)
			return nil
		})
		ended <- err
	}()
	<-ready
	r, err := b.ExecuteScript(t.Context(), b.who, ScriptRequest{Skill: "pdf", ScriptPath: "hold.sh"}, nil)
	if !is[*NoSlotError](err) || !strings.Contains(err.Error(), "No slot became free in time") || r.Timeout || r.ExecutionID == "" {
		t.Errorf("script: got %v, %+v", err, r)
	}
	c, err := b.ExecuteCommand(t.Context(), b.who, CommandRequest{Skill: "pdf", Command: "cat hold.sh"}, nil)
	if !is[*NoSlotError](err) || c.ExecutionID == "" {
		t.Errorf("command: got %v, %+v", err, c)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the caller's own end", err)
	}
}

// A sandbox that cannot start is an OSError if the request is the cause, else an internal
// error.
func TestScriptSetupFailed(t *testing.T) {
	t.Parallel()
	of := func(step, text string) run {
		var r run
		r.id, r.End = "e1", executor.SetupFailed
		r.Evidence.SetupStep, r.Evidence.SetupError = step, text
		return r
	}
	for _, step := range []string{"exec", "directory", "memory"} {
		x, ok := errors.AsType[*Exception](of(step, "why").raised())
		if !ok || *x != (Exception{Name: OSError, Text: "why"}) {
			t.Errorf("%s: got %v", step, x)
		}
	}
	err := of("mounts", "internal error").raised()
	if is[*Exception](err) || err.Error() != `execution e1: setup failed at step "mounts"` {
		t.Errorf("got %v", err)
	}
	if _, err := (CommandResult{}).fill(of("mounts", "internal error")); err == nil || is[*Exception](err) {
		t.Errorf("command: got %v", err)
	}
}

// Errors about neither the script nor its arguments do not change.
func TestScriptOtherErrors(t *testing.T) {
	t.Parallel()
	b := newScripts(t, hosttest.Host(t))
	if _, err := b.ExecuteScript(t.Context(), b.who, ScriptRequest{Skill: "nope", ScriptPath: "x.py"}, nil); !errors.Is(err, skill.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	b.x.Drain(over, over)
	if _, err := b.ExecuteScript(t.Context(), b.who, ScriptRequest{Skill: "pdf", ScriptPath: "scripts/echo.py"}, nil); !errors.Is(err, executor.ErrDraining) {
		t.Errorf("got %v", err)
	}
	sk := &skill.Skill{Name: "pdf"}
	for _, err := range []error{io.ErrUnexpectedEOF, &executor.QuotaError{}} {
		if got := b.refuseScript(t.Context(), sk, ScriptRequest{}, err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
	unreadable := &snapshot.PathError{Path: "x.py", Reason: snapshot.ReasonRefused, Refused: &snapshot.Refused{Why: snapshot.Unreadable, Reason: "may not be read"}}
	if x := pathException(sk, "x.py", unreadable); *x != (Exception{Name: OSError, Text: "Permission denied: x.py may not be read"}) {
		t.Errorf("got %+v", x)
	}
	if x := Unserializable(errors.New("circular reference")); *x != (Exception{Name: ArgumentSerializationError, Text: "Cannot serialize arguments: circular reference"}) {
		t.Errorf("got %+v", x)
	}
}
