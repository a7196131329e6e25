package toolview

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
)

// The examples of the document "Tool Contract: run_python_script" with their inputs and
// outputs. The timeout is shortened; TestContractRunPythonScriptDefaultTimeout checks the
// default.
func TestContractRunPythonScriptExamples(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil,
		skillText{name: "calculator", files: map[string]string{"data.txt": "as it was"}}.withVenv(t),
		skillText{name: "data_analysis"}.withVenv(t),
		skillText{name: "no_venv_skill"},
	)
	for _, tt := range []struct {
		name string
		call PythonScriptCall
		want string
	}{
		{"1 successful execution", PythonScriptCall{Skill: "calculator", Script: "result = 2 + 2\nprint(f'Result: {result}')"},
			`{"skill_name": "calculator", "stdout": "Result: 4\n", "stderr": "", "returncode": 0, "timed_out": false}`},
		{"2 syntax error", PythonScriptCall{Skill: "calculator", Script: "print(2 + )"},
			`{"skill_name": "calculator", "stdout": "", "stderr": "  File \"<string>\", line 1\n    print(2 + )\n              ^\nSyntaxError: invalid syntax\n", "returncode": 1, "timed_out": false}`},
		{"3 runtime error", PythonScriptCall{Skill: "calculator", Script: "x = 1 / 0"},
			`{"skill_name": "calculator", "stdout": "", "stderr": "Traceback (most recent call last):\n  File \"<string>\", line 1, in <module>\nZeroDivisionError: division by zero\n", "returncode": 1, "timed_out": false}`},
		{"4 timeout", PythonScriptCall{Skill: "calculator", Script: "import time\nwhile True:\n    time.sleep(1)", Timeout: time.Second},
			`{"skill_name": "calculator", "stdout": "", "stderr": "", "returncode": -1, "timed_out": true, "error": "Script execution exceeded timeout of 1 seconds"}`},
		{"5 skill without venv", PythonScriptCall{Skill: "no_venv_skill", Script: "print('hello')"},
			`{"error": "Skill 'no_venv_skill' does not have a venv. Cannot execute script."}`},
		{"6 invalid skill name", PythonScriptCall{Skill: "../../../etc", Script: "print('hello')"},
			`{"error": "Invalid skill name: '../../../etc'. Skill names must not contain '/', '\\', or '..'"}`},
		{"7 file operations", PythonScriptCall{Skill: "calculator", Script: "with open('output.txt', 'w') as f:\n    f.write('Result: 42')\nprint('File written')"},
			`{"skill_name": "calculator", "stdout": "File written\n", "stderr": "", "returncode": 0, "timed_out": false, "artifacts": [{"path": "output.txt", "size_bytes": 10, "uri": "execution://ID/artifacts/output.txt"}]}`},
		{"8 packages", PythonScriptCall{Skill: "data_analysis", Script: "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2, 3]})\nprint(df.sum())"},
			`{"skill_name": "data_analysis", "stdout": "a    6\ndtype: int64\n", "stderr": "", "returncode": 0, "timed_out": false}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := b.RunPythonScript(t.Context(), b.who, tt.call, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.ReplaceAll(tt.want, "//ID/", "//"+r.ExecutionID+"/")
			if got := string(r.JSON()); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if strings.HasPrefix(tt.name, "7") {
				if got := b.artifact(r.ExecutionID, "output.txt"); got != "Result: 42" {
					t.Errorf("output.txt is %q", got)
				}
				after, err := b.RunPythonScript(t.Context(), b.who, PythonScriptCall{Skill: "calculator", Script: "import os\nprint(os.path.exists('output.txt'), open('data.txt').read())"}, nil)
				if err != nil || after.Stdout != "False as it was\n" {
					t.Errorf("the skill afterwards: %q, %v", after.Stdout+after.Stderr, err)
				}
			}
		})
	}
}

// Every row of the contract's table of errors, and ends that the table does not have.
func TestContractRunPythonScriptErrors(t *testing.T) {
	t.Parallel()
	broken := skillText{name: "broken", files: map[string]string{"venv/pyvenv.cfg": "version = 2.7.18\n", "venv/bin/python": "-> /usr/bin/python2"}}
	headless := skillText{name: "headless", files: map[string]string{"venv/pyvenv.cfg": "version = 3.11.2\n"}}
	b := newBench(t, nil, broken, headless,
		skillText{name: "calc"}.withVenv(t),
		skillText{name: "online", frontMatter: "network_access: true"}.withVenv(t),
		skillText{name: "hasty", frontMatter: "max_execution_time: 2"}.withVenv(t),
	)
	deny := newBench(t, func(c *executor.Config) { c.Policy.NoCode = true }, skillText{name: "calc"}.withVenv(t))
	for _, tt := range []struct {
		name string
		on   *bench
		call PythonScriptCall
		want string
	}{
		{"slash in the name", b, PythonScriptCall{Skill: "a/b", Script: "1"}, `{"error": "Invalid skill name: 'a/b'. Skill names must not contain '/', '\\', or '..'"}`},
		{"backslash in the name", b, PythonScriptCall{Skill: `a\b`, Script: "1"}, `{"error": "Invalid skill name: 'a\\b'. Skill names must not contain '/', '\\', or '..'"}`},
		{"dots in the name", b, PythonScriptCall{Skill: "..", Script: "1"}, `{"error": "Invalid skill name: '..'. Skill names must not contain '/', '\\', or '..'"}`},
		{"no name", b, PythonScriptCall{Script: "1"}, `{"error": "Invalid skill name: ''. Skill names must not be empty"}`},
		{"skill not found", b, PythonScriptCall{Skill: "nobody", Script: "1"}, `{"error": "Skill 'nobody' not found in skills folder"}`},
		{"interpreter not found", b, PythonScriptCall{Skill: "broken", Script: "1"}, `{"error": "Python interpreter not found in venv for skill 'broken'"}`},
		{"no interpreter in the venv", b, PythonScriptCall{Skill: "headless", Script: "1"}, `{"error": "Python interpreter not found in venv for skill 'headless'"}`},
		{"permission denied", deny, PythonScriptCall{Skill: "calc", Script: "1"}, `{"error": "Permission denied executing script in skill 'calc'"}`},
		{"timeout keeps what was printed", b, PythonScriptCall{Skill: "calc", Script: "import sys\nprint('out')\nprint('err', file=sys.stderr)\nimport time\ntime.sleep(600)", Timeout: 6500 * time.Millisecond},
			`{"skill_name": "calc", "stdout": "out\n", "stderr": "err\n", "returncode": -1, "timed_out": true, "error": "Script execution exceeded timeout of 6.5 seconds"}`},
		{"the skill's own timeout", b, PythonScriptCall{Skill: "hasty", Script: "while True: pass"},
			`{"skill_name": "hasty", "stdout": "", "stderr": "", "returncode": -1, "timed_out": true, "error": "Script execution exceeded timeout of 2 seconds"}`},
		{"above the skill's own timeout", b, PythonScriptCall{Skill: "hasty", Script: "1", Timeout: 3 * time.Second},
			`{"error": "Error executing script: timeout: 3s is above the skill's maximum, 2s"}`},
		{"NUL", b, PythonScriptCall{Skill: "calc", Script: "a\x00b"}, `{"error": "Error executing script: code: contains a NUL"}`},
		{"network", b, PythonScriptCall{Skill: "online", Script: "1"},
			`{"error": "Error executing script: network for skill 'online' refused: ...`}, // the policy's reason
		{"exit code", b, PythonScriptCall{Skill: "calc", Script: "import sys\nsys.exit(3)"},
			`{"skill_name": "calc", "stdout": "", "stderr": "", "returncode": 3, "timed_out": false}`},
		{"124 is no timeout", b, PythonScriptCall{Skill: "calc", Script: "import sys\nsys.exit(124)"},
			`{"skill_name": "calc", "stdout": "", "stderr": "", "returncode": 124, "timed_out": false}`},
		{"signal", b, PythonScriptCall{Skill: "calc", Script: "import os\nos.kill(os.getpid(), 9)"},
			`{"skill_name": "calc", "stdout": "", "stderr": "", "returncode": -9, "timed_out": false}`},
		{"empty script", b, PythonScriptCall{Skill: "calc"}, `{"error": "Error executing script: script is required: give Python code"}`},
		{"as json.dumps prints", b, PythonScriptCall{Skill: "calc", Script: `print("é\u2028😀\x7f\"\\/<&>\t")`},
			`{"skill_name": "calc", "stdout": "\u00e9\u2028\ud83d\ude00\u007f\"\\/<&>\t\n", "stderr": "", "returncode": 0, "timed_out": false}`},
		{"invalid UTF-8", b, PythonScriptCall{Skill: "calc", Script: `import sys; sys.stdout.buffer.write(b"a\xff\xfe\r\n")`},
			`{"skill_name": "calc", "stdout": "a\ufffd\ufffd\r\n", "stderr": "", "returncode": 0, "timed_out": false}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := tt.on.RunPythonScript(t.Context(), tt.on.who, tt.call, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := string(r.JSON())
			if want, rest := strings.CutSuffix(tt.want, "..."); rest && strings.HasPrefix(got, want) {
				return
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if r.Ran != (r.ExecutionID != "") {
				t.Errorf("execution %q, though ran is %t", r.ExecutionID, r.Ran)
			}
		})
	}
}

// The default is the daemon's 30 s. The test reads the limits of the execution, because
// waiting for the timeout would take that long.
func TestContractRunPythonScriptDefaultTimeout(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, skillText{name: "calc"}.withVenv(t))
	r, err := b.RunPythonScript(t.Context(), b.who, PythonScriptCall{Skill: "calc", Script: "1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.outcome(r.ExecutionID).Limits.Wall; got != 30*time.Second {
		t.Errorf("got %s, want 30s", got)
	}
	late := newPythonScriptResult("calc", run{Outcome: executor.Outcome{
		End: executor.TimedOut, Evidence: executor.Evidence{Deadline: executor.WallDeadline}, Limits: executor.Limits{Wall: 30 * time.Second},
	}})
	if want := "Script execution exceeded timeout of 30 seconds"; late.Error != want || !late.TimedOut || late.Returncode != -1 {
		t.Errorf("got %+v, want %q", late, want)
	}
}

// Ends without a place in the contract get its fields and a sentence.
func TestRunPythonScriptSaysWhatTheContractDoesNotKnow(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *executor.Config) { c.Bounds.Default.OutputBytes = 10 },
		skillText{name: "calc"}.withVenv(t), skillText{name: "small", frontMatter: "max_memory: 64"}.withVenv(t))
	t.Run("output cut", func(t *testing.T) {
		r, err := b.RunPythonScript(t.Context(), b.who, PythonScriptCall{Skill: "calc", Script: "print('x' * 100)"}, nil)
		if err != nil || !r.Ran || r.Stdout != "xxxxxxxxxx" || r.Returncode != 0 || !strings.Contains(r.Error, "10 bytes") {
			t.Errorf("got %+v, %v", r, err)
		}
	})
	t.Run("out of memory", func(t *testing.T) {
		r, err := b.RunPythonScript(t.Context(), b.who, PythonScriptCall{Skill: "small", Script: "x = bytearray(256 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1"}, nil)
		if err != nil || !r.Ran || r.Returncode != -9 || r.TimedOut || !strings.Contains(r.Error, "max_memory") {
			t.Errorf("got %+v, %v", r, err)
		}
	})
	for _, tt := range []struct {
		name    string
		outcome executor.Outcome
		want    string
	}{
		{"no slot", executor.Outcome{End: executor.TimedOut, Evidence: executor.Evidence{Deadline: executor.QueueDeadline}, Advice: "No slot."},
			`{"error": "Error executing script: No slot."}`},
		{"no sandbox", executor.Outcome{End: executor.SetupFailed, Advice: "Nothing ran."}, `{"error": "Error executing script: Nothing ran."}`},
		{"daemon lost", executor.Outcome{End: executor.DaemonLost}, `{"error": "Error executing script: It ended as DAEMON_LOST."}`},
		{"processor time", executor.Outcome{End: executor.TimedOut, Evidence: executor.Evidence{Deadline: executor.CPUDeadline}, Advice: "CPU."},
			`{"skill_name": "calc", "stdout": "", "stderr": "", "returncode": -1, "timed_out": true, "error": "CPU."}`},
		{"cancelled", executor.Outcome{End: executor.Cancelled, ExitCode: new(int), Evidence: executor.Evidence{CancelledBy: "uid:0", CancelReason: "enough"}},
			`{"skill_name": "calc", "stdout": "", "stderr": "", "returncode": 0, "timed_out": false, "error": "It was cancelled by uid:0: enough."}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(newPythonScriptResult("calc", run{Outcome: tt.outcome}).JSON()); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// A full queue and a draining daemon are errors, not results, because another attempt may
// succeed.
func TestRefusalsOfTheDaemonAreErrors(t *testing.T) {
	t.Parallel()
	b := newIdleBench(t, nil, skillText{name: "calc"}.withVenv(t))
	b.x.Drain(t.Context(), t.Context())
	if r, err := b.RunPythonScript(t.Context(), b.who, PythonScriptCall{Skill: "calc", Script: "1"}, nil); !errors.Is(err, executor.ErrDraining) {
		t.Errorf("run_python_script: got %+v, %v", r, err)
	}
	if r, err := b.RunPython(t.Context(), b.who, PythonCall{Code: "1"}, nil); !errors.Is(err, executor.ErrDraining) {
		t.Errorf("RunPython: got %+v, %v", r, err)
	}
	arguments := map[string]string{"run_python_script": `{"skill_name": "calc", "script": "1"}`, "RunPython": `{"code": "1"}`}
	for name, text := range arguments {
		if r, err := b.Call(t.Context(), ToolCall{Who: b.who, Tool: name, Arguments: json.RawMessage(text)}); !errors.Is(err, executor.ErrDraining) {
			t.Errorf("%s: got %+v, %v", name, r, err)
		}
	}
}

// The execution is cancelled if its caller goes away or if a sink fails.
func TestCancelledCallCancelsItsExecution(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, skillText{name: "calc"}.withVenv(t))
	const script = "print('ready', flush=True)\nwhile True: pass"
	for _, tt := range []struct {
		name string
		sink func(cancel func()) Sink
	}{
		{"caller gone", func(cancel func()) Sink { return func(executor.Output) error { cancel(); return nil } }},
		{"sink fails", func(func()) Sink { return func(executor.Output) error { return errors.New("full") } }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, err := b.RunPythonScript(ctx, b.who, PythonScriptCall{Skill: "calc", Script: script}, tt.sink(cancel))
			if err == nil || r.ExecutionID == "" {
				t.Fatalf("got %+v, %v; want an error that names the execution", r, err)
			}
			if got := b.outcome(r.ExecutionID); got.End != executor.Cancelled || got.Evidence.CancelledBy != byCaller {
				t.Errorf("ended as %s by %q", got.End, got.Evidence.CancelledBy)
			}
		})
	}
}
