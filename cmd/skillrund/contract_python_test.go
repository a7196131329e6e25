package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// addVenv adds a virtual environment of this machine's Python to a skill, with the files
// that `python3 -m venv --system-site-packages` makes.
func addVenv(t testing.TB, dir, skill string) {
	t.Helper()
	version, err := exec.Command("/usr/bin/python3", "-c", "import platform; print(platform.python_version())").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "skills", skill, "venv")
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	config := "home = /usr/bin\ninclude-system-site-packages = true\nversion = " + string(version)
	if err := os.WriteFile(filepath.Join(root, "pyvenv.cfg"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr/bin/python3", filepath.Join(root, "bin/python")); err != nil {
		t.Fatal(err)
	}
}

// A toolCall has everything that a call of a function tool streamed.
type toolCall struct {
	stdout, stderr string
	result         *pb.ToolResult
}

// callTool calls a function tool as a platform does with a model's answer.
func (d *running) callTool(name, arguments string) toolCall {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	stream, err := d.tools().CallTool(ctx, &pb.CallToolRequest{Name: name, ArgumentsJson: arguments})
	if err != nil {
		d.t.Fatal(err)
	}
	r, err := readTool(stream)
	if err != nil {
		d.t.Fatalf("%s %s: %v", name, arguments, err)
	}
	return r
}

func readTool(stream grpc.ServerStreamingClient[pb.CallToolResponse]) (toolCall, error) {
	var r toolCall
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return r, err
		}
		switch o := m.GetOutput(); {
		case o == nil:
			r.result = m.GetResult()
		case o.Stream == pb.OutputStream_OUTPUT_STREAM_STDOUT:
			r.stdout += string(o.Data)
		default:
			r.stderr += string(o.Data)
		}
	}
}

// pythonScriptJSON returns the fields that are set in a response, as JSON by name.
func pythonScriptJSON(t testing.TB, r *pb.RunPythonScriptResponse) string {
	t.Helper()
	object := map[string]any{}
	r.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		object[f.JSONName()] = v.Interface()
		return true
	})
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The contract's eight examples, with their tool calls and their tool results: once by the
// typed call, and once by the function tool, as a model calls it.
func TestContractRunPythonScript(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	for _, name := range []string{"calc", "data_analysis"} {
		writeSkill(t, dir, name, "", map[string]string{"data.txt": "as it was"})
		addVenv(t, dir, name)
	}
	writeSkill(t, dir, "no_venv_skill", "", nil)
	// The shipped skill calculator has no venv, so this test calls the example's skill calc.
	named := func(s string) string { return strings.ReplaceAll(s, "calculator", "calc") }
	d := startDaemonIn(t, dir, "")
	for _, tt := range []struct{ name, arguments, want string }{
		{"1 successful execution", `{"skill_name": "calculator", "script": "result = 2 + 2\nprint(f'Result: {result}')"}`,
			`{"skill_name": "calculator", "stdout": "Result: 4\n", "stderr": "", "returncode": 0, "timed_out": false}`},
		{"2 syntax error", `{"skill_name": "calculator", "script": "print(2 + )"}`,
			`{"skill_name": "calculator", "stdout": "", "stderr": "  File \"<string>\", line 1\n    print(2 + )\n              ^\nSyntaxError: invalid syntax\n", "returncode": 1, "timed_out": false}`},
		{"3 runtime error", `{"skill_name": "calculator", "script": "x = 1 / 0"}`,
			`{"skill_name": "calculator", "stdout": "", "stderr": "Traceback (most recent call last):\n  File \"<string>\", line 1, in <module>\nZeroDivisionError: division by zero\n", "returncode": 1, "timed_out": false}`},
		{"4 timeout", `{"skill_name": "calculator", "script": "import time\nwhile True:\n    time.sleep(1)"}`,
			`{"skill_name": "calculator", "stdout": "", "stderr": "", "returncode": -1, "timed_out": true, "error": "Script execution exceeded timeout of 30 seconds"}`},
		{"5 skill without venv", `{"skill_name": "no_venv_skill", "script": "print('hello')"}`,
			`{"error": "Skill 'no_venv_skill' does not have a venv. Cannot execute script."}`},
		{"6 invalid skill name", `{"skill_name": "../../../etc", "script": "print('hello')"}`,
			`{"error": "Invalid skill name: '../../../etc'. Skill names must not contain '/', '\\', or '..'"}`},
		{"7 file operations", `{"skill_name": "calculator", "script": "with open('output.txt', 'w') as f:\n    f.write('Result: 42')\nprint('File written')"}`,
			`{"skill_name": "calculator", "stdout": "File written\n", "stderr": "", "returncode": 0, "timed_out": false, "artifacts": [{"path": "output.txt", "size_bytes": 10, "uri": "execution://ID/artifacts/output.txt"}]}`},
		{"8 packages", `{"skill_name": "data_analysis", "script": "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2, 3]})\nprint(df.sum())"}`,
			`{"skill_name": "data_analysis", "stdout": "a    6\ndtype: int64\n", "stderr": "", "returncode": 0, "timed_out": false}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			arguments, want := named(tt.arguments), named(tt.want)
			r := d.callTool("run_python_script", arguments)
			want = strings.ReplaceAll(want, "execution://ID/", "execution://"+r.result.GetExecutionId()+"/")
			if r.result.GetContent() != want {
				t.Errorf("content\n%s\nwant\n%s", r.result.GetContent(), want)
			}
			var object any
			if err := json.Unmarshal([]byte(want), &object); err != nil {
				t.Fatal(err)
			}
			wanted, _ := json.Marshal(object)
			if got, _ := json.Marshal(r.result.GetStructured().AsMap()); string(got) != string(wanted) {
				t.Errorf("structured %s, want %s", got, wanted)
			}

			var call struct {
				SkillName string `json:"skill_name"`
				Script    string
			}
			if err := json.Unmarshal([]byte(arguments), &call); err != nil {
				t.Fatal(err)
			}
			var header metadata.MD
			typed, err := d.tools().RunPythonScript(t.Context(), &pb.RunPythonScriptRequest{SkillName: call.SkillName, Script: &call.Script}, grpc.Header(&header))
			if err != nil {
				t.Fatal(err)
			}
			// The typed call has the artifacts as messages.
			for _, a := range typed.Artifacts {
				if a.Path != "output.txt" || a.SizeBytes != 10 || a.Uri != "execution://"+executionOf(header)+"/artifacts/output.txt" {
					t.Errorf("typed artifact %v", a)
				}
			}
			fields := object.(map[string]any)
			if listed, _ := fields["artifacts"].([]any); len(listed) != len(typed.Artifacts) {
				t.Errorf("typed %d artifacts, want %d", len(typed.Artifacts), len(listed))
			}
			delete(fields, "artifacts")
			typed.Artifacts = nil
			wanted, _ = json.Marshal(fields)
			if got := pythonScriptJSON(t, typed); got != string(wanted) {
				t.Errorf("typed %s, want %s", got, wanted)
			}
			if ran := typed.SkillName != nil; ran != (executionOf(header) != "") || ran != (r.result.ExecutionId != "") {
				t.Errorf("ran %t, header %v, execution %q", ran, header, r.result.ExecutionId)
			}
		})
	}
	t.Run("output.txt is an artifact and the skill is as it was", func(t *testing.T) {
		var header metadata.MD
		_, err := d.tools().RunPythonScript(t.Context(), &pb.RunPythonScriptRequest{
			SkillName: "calc", Script: new("open('output.txt', 'w').write('Result: 42')\nopen('data.txt', 'a').write('!')"),
		}, grpc.Header(&header))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(d.artifact(executionOf(header), "output.txt")); got != "Result: 42" {
			t.Errorf("output.txt is %q", got)
		}
		r := d.callTool("run_python_script", `{"skill_name": "calc", "script": "import os\nprint(os.path.exists('output.txt'), open('data.txt').read(), os.getcwd())"}`)
		if r.stdout != "False as it was /workspace\n" {
			t.Errorf("afterwards: %q %q", r.stdout, r.stderr)
		}
	})
}

// RunPython with the real daemon: without a skill and with one, on RunPython's Python, with
// files of the request.
func TestContractRunPython(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "demo", "", map[string]string{"scripts/a.py": "print('a')", "data.txt": "x"})
	writeSkill(t, dir, "run-python", "", map[string]string{"mine.txt": "x"})
	writeSkill(t, dir, "quiet", "disable-model-invocation: true", map[string]string{"scripts/a.py": "print('quiet')"})
	d := startDaemonIn(t, dir, "")
	file := func(path, text string) []*pb.InputFile {
		return []*pb.InputFile{{Path: path, Source: &pb.InputFile_Content{Content: []byte(text)}}}
	}
	for _, tt := range []struct {
		name string
		call *pb.RunPythonRequest
		want string // only the beginning if it ends in "..."
	}{
		{"code", &pb.RunPythonRequest{Code: "import sys\nprint(sys.prefix, sys.version_info[:2])\nprint('e', file=sys.stderr)"}, "Stdout:\n/opt/python (3, 14)\n\nStderr:\ne\n"},
		{"neither", &pb.RunPythonRequest{}, "Error: provide either code or scriptPath."},
		{"scriptPath wins", &pb.RunPythonRequest{Skill: "demo", Code: "print('code')", ScriptPath: "scripts/a.py"}, "Stdout:\na\n\nStderr:\n"},
		{"file of the request", &pb.RunPythonRequest{Skill: "demo", ScriptPath: "b.py", Files: file("b.py", "print(open('data.txt').read())")}, "Stdout:\nx\n\nStderr:\n"},
		{"workingDirectory", &pb.RunPythonRequest{Skill: "demo", Code: "import os\nprint(os.getcwd())", WorkingDirectory: "scripts"}, "Stdout:\n/workspace/scripts\n\nStderr:\n"},
		{"a folder of its own", &pb.RunPythonRequest{Code: "import os\nprint(os.listdir())"}, "Stdout:\n['SKILL.md']\n\nStderr:\n"},
		{"a skill of the same name", &pb.RunPythonRequest{Skill: "run-python", Code: "import os\nprint(sorted(os.listdir()))"}, "Stdout:\n['SKILL.md', 'mine.txt']\n\nStderr:\n"},
		{"outside", &pb.RunPythonRequest{Skill: "demo", ScriptPath: "../x.py"}, "Error: path must be under the run directory."},
		{"outside, absolute", &pb.RunPythonRequest{Code: "1", WorkingDirectory: "/etc"}, "Error: path must be under the run directory."},
		{"not a .py file", &pb.RunPythonRequest{Skill: "demo", ScriptPath: "data.txt"}, "Error: script file not found or not a .py file."},
		{"exception", &pb.RunPythonRequest{Code: "print('kept')\nx = 1 / 0"}, "Error: division by zero\nTraceback (most recent call last):\n  File \"<string>\", line 2, in <module>\n..."},
		{"timeout", &pb.RunPythonRequest{Code: "while True: pass", Timeout: durationpb.New(500 * time.Millisecond)}, "Error: Script timed out after 0.5 seconds."},
		{"hidden skill by name", &pb.RunPythonRequest{Skill: "quiet", ScriptPath: "scripts/a.py"}, "Stdout:\nquiet\n\nStderr:\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var header metadata.MD
			r, err := d.tools().RunPython(t.Context(), tt.call, grpc.Header(&header))
			if err != nil {
				t.Fatal(err)
			}
			if want, open := strings.CutSuffix(tt.want, "..."); r.GetText() != tt.want && !(open && strings.HasPrefix(r.GetText(), want)) {
				t.Errorf("got\n%s\nwant\n%s", r.GetText(), tt.want)
			}
			if strings.HasPrefix(tt.want, "Stdout:") && executionOf(header) == "" {
				t.Errorf("header %v names no execution", header)
			}
		})
	}
}

// Lists for models omit a skill with disable-model-invocation, but calls by name reach it.
// ListSkills lists it with IncludeHidden. No list has the skill that RunPython uses.
func TestHiddenSkillsAreCallable(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "quiet", "disable-model-invocation: true", map[string]string{"scripts/a.py": "print('quiet')"})
	writeSkill(t, dir, "loud", "", nil)
	d := startDaemonIn(t, dir, "")
	listed := d.callTool("list_skills", "").result.GetContent()
	if strings.Contains(listed, "quiet") || strings.Contains(listed, "run-python") || !strings.Contains(listed, `{"name": "loud", `) {
		t.Errorf("list_skills: %s", listed)
	}
	for _, hidden := range []bool{false, true} {
		var names []string
		list, err := d.skills.ListSkills(t.Context(), &pb.ListSkillsRequest{IncludeHidden: hidden})
		if err != nil {
			t.Fatal(err)
		}
		for _, sk := range list.Skills {
			names = append(names, sk.Name)
		}
		all := strings.Join(names, " ")
		if strings.Contains(all, "quiet") != hidden || strings.Contains(all, "run-python") || !strings.Contains(all, "loud") {
			t.Errorf("ListSkills, hidden %t: %s", hidden, all)
		}
	}
	if r := d.callTool("run_skill_script", `{"skill": "quiet", "script_path": "scripts/a.py"}`); r.stdout != "quiet\n" || r.result.GetIsError() {
		t.Errorf("got %+v", r)
	}
	if r := d.callTool("activate_skill", `{"skill": "quiet"}`); r.result.GetIsError() || !strings.Contains(r.result.GetContent(), "Run /skills/quiet/scripts.") {
		t.Errorf("got %+v", r)
	}
}

// A client that stops reading a tool's output does not stop the script. When it reads again,
// it gets all of the output.
func TestCallToolReaderThatStops(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, "")
	const size = 4 << 20
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	stream, err := d.tools().CallTool(ctx, &pb.CallToolRequest{Name: "RunPython", ArgumentsJson: `{"code": "import sys\nfor i in range(4096):\n    sys.stdout.write('x' * 1024)\nsys.stderr.write('end')"}`})
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	list, err := d.runs.ListExecutions(ctx, &pb.ListExecutionsRequest{})
	if err != nil || len(list.Executions) != 1 {
		t.Fatalf("got %v, %v", list, err)
	}
	id := list.Executions[0].ExecutionId
	attached, err := d.runs.AttachExecution(ctx, &pb.AttachExecutionRequest{ExecutionId: id})
	if err != nil {
		t.Fatal(err)
	}
	quick, err := collect(t, attached, 0, nil) // this reader reaches the end while the other one reads nothing
	if err != nil {
		t.Fatal(err)
	}
	quick.wantExit(t, 0)
	rest, err := readTool(stream)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(first.GetOutput().GetData()) + len(rest.stdout); got != size || quick.stdout.Len() != size || rest.stderr != "end" {
		t.Errorf("the slow reader got %d, the quick one %d, want %d", got, quick.stdout.Len(), size)
	}
	if rest.result.GetExecutionId() != id || !strings.Contains(rest.result.GetContent(), "It printed more than 262144 bytes") {
		t.Errorf("result of %s: %.300s", rest.result.GetExecutionId(), rest.result.GetContent())
	}
}

// Cancelling a tool call ends its program, with every kind of call.
func TestCancelledToolCallsEndTheirPrograms(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "calc", "", nil)
	addVenv(t, dir, "calc")
	d := startDaemonIn(t, dir, "")
	const forever = "import time\nprint('ready')\nwhile True: time.sleep(1)"
	for name, call := range map[string]func(context.Context) error{
		"RunPython": func(ctx context.Context) error {
			_, err := d.tools().RunPython(ctx, &pb.RunPythonRequest{Code: forever})
			return err
		},
		"RunPythonScript": func(ctx context.Context) error {
			_, err := d.tools().RunPythonScript(ctx, &pb.RunPythonScriptRequest{SkillName: "calc", Script: new(forever)})
			return err
		},
		"CallTool": func(ctx context.Context) error {
			stream, err := d.tools().CallTool(ctx, &pb.CallToolRequest{Name: "RunPython", ArgumentsJson: `{"code": "print('ready')\nwhile True: pass"}`})
			if err != nil {
				return err
			}
			_, err = readTool(stream)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- call(ctx) }()
			id := d.runningExecution()
			attached, err := d.runs.AttachExecution(t.Context(), &pb.AttachExecutionRequest{ExecutionId: id})
			if err != nil {
				t.Fatal(err)
			}
			// The test cancels the call only after the program has printed something.
			r, err := collect(t, attached, 0, func(e *pb.ExecutionEvent) {
				if strings.Contains(string(e.GetOutput().GetData()), "ready") {
					cancel()
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if r.outcome.GetEnd() != pb.ExecutionEnd_EXECUTION_END_CANCELLED || r.outcome.GetEvidence().GetCancelledBy() != "disconnect" {
				t.Errorf("ended as %v", r.outcome)
			}
			if err := <-done; err == nil {
				t.Error("the cancelled call succeeded")
			}
		})
	}
}

// runningExecution waits until the daemon lists one execution that has not ended, and
// returns its id.
func (d *running) runningExecution() string {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	for {
		list, err := d.runs.ListExecutions(ctx, &pb.ListExecutionsRequest{States: []pb.ExecutionState{pb.ExecutionState_EXECUTION_STATE_QUEUED, pb.ExecutionState_EXECUTION_STATE_RUNNING}})
		if err != nil {
			d.t.Fatal(err)
		}
		if len(list.Executions) == 1 {
			return list.Executions[0].ExecutionId
		}
	}
}

// writeWheel writes a wheel with one module, which pip can install.
func writeWheel(t testing.TB, dir, name, module string) {
	t.Helper()
	info := name + "-1.0.dist-info/"
	files := [][2]string{
		{name + ".py", module},
		{info + "METADATA", "Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", name + ".py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
	}
	var wheel bytes.Buffer
	z := zip.NewWriter(&wheel)
	for _, file := range files {
		w, err := z.Create(file[0])
		if err == nil {
			_, err = io.WriteString(w, file[1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+"-1.0-py3-none-any.whl"), wheel.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A prepared environment counts as the skill's venv.
func TestContractRunPythonScriptInAPreparedEnvironment(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "greets", "python_packages: [greeter]", nil)
	writeSkill(t, dir, "lacks", "python_packages: [no-such-package]", nil)
	addVenv(t, dir, "lacks")
	writeWheel(t, filepath.Join(dir, "wheels"), "greeter", "word = 'hello'\n")
	d := startDaemonIn(t, dir, "environments: {wheels: wheels}\n")
	const call = `{"skill_name": "greets", "script": "import greeter\nprint(greeter.word)"}`
	before := d.callTool("run_python_script", call)
	if want := `{"error": "Skill 'greets' does not have a venv. Cannot execute script."}`; before.result.GetContent() != want {
		t.Errorf("before: %s, want %s", before.result.GetContent(), want)
	}
	lacks := d.callTool("run_python_script", `{"skill_name": "lacks", "script": "1"}`).result.GetContent()
	if want := `{"error": "Error executing script: skill 'lacks' needs Python packages that are not installed `; !strings.HasPrefix(lacks, want) || !strings.Contains(lacks, "Run: skillrun prepare lacks") {
		t.Errorf("without its packages: %s, want %s", lacks, want)
	}
	// RunPython does not use the skill's packages, so missing ones do not matter.
	if r, err := d.tools().RunPython(t.Context(), &pb.RunPythonRequest{Skill: "lacks", Code: "print(1)"}); err != nil || r.GetText() != "Stdout:\n1\n\nStderr:\n" {
		t.Errorf("RunPython: %v, %v", r, err)
	}
	stream, err := d.skills.PrepareSkill(t.Context(), &pb.PrepareSkillRequest{Skill: "greets"})
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("prepare: %v", err)
		}
	}
	after := d.callTool("run_python_script", call)
	if want := `{"skill_name": "greets", "stdout": "hello\n", "stderr": "", "returncode": 0, "timed_out": false}`; after.result.GetContent() != want {
		t.Errorf("after: %s, want %s", after.result.GetContent(), want)
	}
}
