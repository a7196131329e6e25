package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// The examples of the published contracts of the three ScriptExecutors, run by a client
// against the real daemon. The tests of each result are in internal/toolview.

// The contract's basic example: a script, an object of arguments, a result.
func TestContractExecuteScript(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	d.addSkill("pdf-extractor", "version: 1.2.3", map[string]string{
		"scripts/extract.py": "import sys, json\na = json.load(sys.stdin)\nprint(a['file_path'], a['output_format'], a['n'])\n",
		"scripts/crash.py":   "import ctypes\nctypes.string_at(0)\n",
		"scripts/slow.py":    "import time\nprint('part', flush=True)\ntime.sleep(300)\n",
	})
	arguments, err := structpb.NewStruct(map[string]any{"file_path": "documents/sample.pdf", "output_format": "text", "n": 3})
	if err != nil {
		t.Fatal(err)
	}
	r, id, err := d.executeScript(&pb.ExecuteScriptRequest{Skill: "pdf-extractor", ScriptPath: "/skills/pdf-extractor/scripts/extract.py", Arguments: arguments})
	if err != nil || !r.GetSuccess() || r.GetStdout() != "documents/sample.pdf text 3\n" || r.GetScriptPath() != "scripts/extract.py" || r.Signal != nil || r.GetExecutionTimeMs() <= 0 {
		t.Errorf("got %v, %v", r, err)
	}
	if o := d.attach(id, 0).outcome; o.GetEnd() != pb.ExecutionEnd_EXECUTION_END_EXITED {
		t.Errorf("the execution in the header ended as %v", o)
	}
	// The contract's example of signals and timeouts.
	r, _, err = d.executeScript(&pb.ExecuteScriptRequest{Skill: "pdf-extractor", ScriptPath: "scripts/crash.py"})
	if err != nil || !r.GetSignaled() || r.GetSignal() != "SIGSEGV" || r.GetSignalNumber() != 11 || r.GetExitCode() != -11 || r.GetTimeout() {
		t.Errorf("got %v, %v", r, err)
	}
	r, _, err = d.executeScript(&pb.ExecuteScriptRequest{Skill: "pdf-extractor", ScriptPath: "scripts/slow.py", Timeout: durationpb.New(startsWithin)})
	if err != nil || !r.GetTimeout() || r.GetExitCode() != 124 || r.GetStdout() != "part\n" || r.GetStderr() != "\nTimeout" {
		t.Errorf("got %v, %v", r, err)
	}
}

// The contract's example of error handling: an exception is a status with the exception's
// name and text.
func TestContractExecuteScriptRaises(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	d.addSkill("data-processor", "", map[string]string{"scripts/transform.py": "print(1)\n", "script.ps1": "1\n"})
	nan, err := structpb.NewStruct(map[string]any{"x": 1})
	if err != nil {
		t.Fatal(err)
	}
	nan.Fields["x"] = structpb.NewNumberValue(nanValue())
	for _, tt := range []struct {
		req     *pb.ExecuteScriptRequest
		code    codes.Code
		name    string
		message string
	}{
		{&pb.ExecuteScriptRequest{ScriptPath: "../../etc/passwd"}, codes.InvalidArgument, "PathSecurityError", "Script path escapes skill directory: ../../etc/passwd"},
		{&pb.ExecuteScriptRequest{ScriptPath: "scripts/no.py"}, codes.NotFound, "FileNotFoundError", "Script not found: /skills/data-processor/scripts/no.py"},
		{&pb.ExecuteScriptRequest{ScriptPath: "script.ps1"}, codes.FailedPrecondition, "InterpreterNotFoundError", "Interpreter 'powershell' not found in PATH for script.ps1"},
		{&pb.ExecuteScriptRequest{ScriptPath: "scripts/transform.py", ArgumentsJson: `{"a"`}, codes.InvalidArgument, "ArgumentSerializationError", "Cannot serialize arguments: the JSON text ends too early"},
		{&pb.ExecuteScriptRequest{ScriptPath: "scripts/transform.py", Arguments: nan}, codes.InvalidArgument, "ArgumentSerializationError", "Cannot serialize arguments: NaN, an infinite number, or a value that is not set"},
		{&pb.ExecuteScriptRequest{ScriptPath: "scripts/transform.py", Timeout: durationpb.New(0)}, codes.InvalidArgument, "ValueError", "Timeout must be above 0 and at most 600 seconds, got 0"},
		{&pb.ExecuteScriptRequest{ScriptPath: "scripts/transform.py", Timeout: durationpb.New(601 * time.Second)}, codes.InvalidArgument, "ValueError", "Timeout must be above 0 and at most 600 seconds, got 601"},
		{&pb.ExecuteScriptRequest{ScriptPath: "scripts/transform.py", MaxOutputSize: 1 << 63}, codes.InvalidArgument, "ValueError", "max_output_size must be at least 1 and at most 67108864 bytes, got 9223372036854775807"},
		{&pb.ExecuteScriptRequest{ScriptPath: "scripts/transform.py", Arguments: &structpb.Struct{}, ArgumentsJson: "{}"}, codes.InvalidArgument, "", "arguments_json: not together with arguments"},
		{&pb.ExecuteScriptRequest{Skill: "nope", ScriptPath: "x.py"}, codes.NotFound, "", `"nope": skill not found`},
	} {
		if tt.req.Skill == "" {
			tt.req.Skill = "data-processor"
		}
		_, id, err := d.executeScript(tt.req)
		if s := status.Convert(err); s.Code() != tt.code || s.Message() != tt.message || raised(err) != tt.name || id != "" {
			t.Errorf("got  %v %s %q, execution %q\nwant %v %s %q", s.Code(), raised(err), s.Message(), id, tt.code, tt.name, tt.message)
		}
	}
	for _, tt := range []struct {
		path    string
		code    codes.Code
		message string
	}{
		{"../../etc/passwd", codes.InvalidArgument, "Script path '../../etc/passwd' is outside skill directory"},
		{"scripts/nonexistent.py", codes.NotFound, "Script not found: scripts/nonexistent.py"},
		{"script.ps1", codes.InvalidArgument, "Script must be in scripts/ directory: script.ps1"},
	} {
		_, err := d.tools().ValidateScriptPath(t.Context(), &pb.ValidateScriptPathRequest{Skill: "data-processor", ScriptPath: tt.path})
		if s := status.Convert(err); s.Code() != tt.code || s.Message() != tt.message || raised(err) != "ValueError" {
			t.Errorf("got %v, want %v %s", err, tt.code, tt.message)
		}
	}
	r, err := d.tools().ValidateScriptPath(t.Context(), &pb.ValidateScriptPathRequest{Skill: "data-processor", ScriptPath: "scripts/transform.py"})
	if err != nil || r.Path != "/skills/data-processor/scripts/transform.py" {
		t.Errorf("got %v, %v", r, err)
	}
}

func nanValue() float64 { zero := 0.0; return zero / zero }

// A cancelled execution has no result, but its error names the execution.
func TestContractExecuteScriptCancelled(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	d.addSkill("slow", "", map[string]string{"x.sh": "sleep 300\n"})
	type end struct {
		id  string
		err error
	}
	ended := make(chan end, 1)
	go func() {
		_, id, err := d.executeScript(&pb.ExecuteScriptRequest{Skill: "slow", ScriptPath: "x.sh"})
		ended <- end{id, err}
	}()
	var id string
	for deadline := time.Now().Add(patience); id == "" && time.Now().Before(deadline); {
		list, err := d.runs.ListExecutions(t.Context(), &pb.ListExecutionsRequest{Skill: "slow", States: []pb.ExecutionState{pb.ExecutionState_EXECUTION_STATE_RUNNING}})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.GetExecutions() {
			id = e.GetExecutionId()
		}
	}
	if _, err := d.runs.CancelExecution(t.Context(), &pb.CancelExecutionRequest{ExecutionId: id, Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	got := <-ended
	if s := status.Convert(got.err); raised(got.err) != "OSError" || got.id != id || !strings.HasPrefix(s.Message(), "Script did not run to its end. It was cancelled by ") {
		t.Errorf("got %v of %q, want an OSError of %q", got.err, got.id, id)
	}
}

// The contract's example with a thread pool, on one connection.
func TestContractExecuteScriptConcurrently(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	d.addSkill("jobs", "", map[string]string{
		"x.py": "import sys, json, os\nme = json.load(sys.stdin)['me']\nopen('me', 'w').write(str(me))\nprint(open('me').read(), os.listdir('.').count('me'))\n",
	})
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			r, _, err := d.executeScript(&pb.ExecuteScriptRequest{Skill: "jobs", ScriptPath: "x.py", ArgumentsJson: fmt.Sprintf(`{"me": %d}`, i)})
			if want := fmt.Sprintf("%d 1\n", i); err != nil || r.GetStdout() != want {
				t.Errorf("got %v, %v; want %q", r, err, want)
			}
		})
	}
	all.Wait()
}

// The daemon's log has the entries that the contract promises, and the arguments as the
// configuration says.
func TestContractAuditLog(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "audited", "", map[string]string{"scripts/x.sh": "cat\necho bad >&2\nexit 3\n"})
	d := startDaemonIn(t, dir, "log: {arguments: hash}\n")
	if _, _, err := d.executeScript(&pb.ExecuteScriptRequest{Skill: "audited", ScriptPath: "scripts/x.sh", ArgumentsJson: `{"password": "hunter2"}`}); err != nil {
		t.Fatal(err)
	}
	log := d.log.String()
	for _, want := range []string{
		`level=INFO msg="Script failed: x\.sh \| exit_code=3 \| time=[0-9.]+ms \| error=bad\\n" execution=`,
		`level=INFO msg="AUDIT: Script execution - timestamp=\S+, skill=audited, script=scripts/x\.sh, args=hmac-sha256:[0-9a-f]{64}, exit_code=3, execution_time_ms=[0-9.]+, signal=None, stdout_truncated=False, stderr_truncated=False" execution=`,
	} {
		if n := len(regexp.MustCompile(want).FindAllString(log, -1)); n != 1 {
			t.Errorf("%d lines like %s", n, want)
		}
	}
	if strings.Contains(log, "level=ERROR") {
		t.Errorf("the failure of a tenant's script is an error of the daemon:\n%s", log)
	}
	if strings.Contains(log, "hunter2") {
		t.Error("the arguments are in the log")
	}
}

// CheckCommand answers like is_command_allowed of the guide and of the specification, in all
// of their tables and examples.
func TestContractIsCommandAllowed(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	for _, tt := range []struct {
		tools   string
		allowed []string
		refused []string
	}{
		// The specification's examples.
		{"Bash(python:*),Bash(git status:*),Read", []string{"python scripts/test.py", "git status"}, []string{"git commit", "rm -rf /"}},
		{"Bash(python:*) Bash(git:*)", []string{"python scripts/test.py", "git status"}, []string{"rm -rf /", "curl http://evil.com"}},
		{"Bash(git:*),Bash(jq:*),Read,Write", []string{"git log", "jq ."}, []string{"python x.py"}},
		// The guide's table of patterns.
		{"Bash(python:*)", []string{"python script.py", "python -m module"}, []string{"bash", "python3 x.py", "pythonista"}},
		{"Bash(git status:*)", []string{"git status", "git status --short"}, []string{"git", "git log"}},
		{"Bash(git:*)", []string{"git status", "git commit", "git push"}, []string{"gitk"}},
		{"Read", nil, []string{"cat x", "ls"}},
		{"Write", nil, []string{"tee x"}},
		{"Execute", nil, []string{"scripts/x.sh"}},
		// The guide's examples.
		{"Bash(git status:*),Bash(git log:*)", []string{"git log --oneline --since='1 week ago'", "git log --follow -- path/to/file"}, []string{"git push"}},
		{"Bash(python:*),Bash(git:*),Read,Write,Execute", []string{"python x.py", "git push"}, []string{"jq ."}},
		// An exact rule.
		{"Bash(python)", []string{"python"}, []string{"python x.py"}},
		{"Read,Write,Bash,Glob,Grep,Edit", []string{"ls -l"}, []string{"ls $(id)"}},
	} {
		for want, list := range map[bool][]string{true: tt.allowed, false: tt.refused} {
			for _, line := range list {
				r, err := d.skills.CheckCommand(t.Context(), &pb.CheckCommandRequest{AllowedTools: tt.tools, Command: line})
				if err != nil || r.GetAllowed() != want {
					t.Errorf("%s by %s: %v, %v; want %t", line, tt.tools, r, err, want)
				}
			}
		}
	}
}

// allowed-tools may be separated by commas or blanks, quoted, or absent.
func TestContractParseAllowedTools(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	cases := []struct {
		field string
		want  []string
	}{
		{`allowed-tools: Bash(git:*) Bash(python:*) Read Write`, []string{"Bash(git:*)", "Bash(python:*)", "Read", "Write"}},
		{`allowed-tools: "Bash(git:*),Bash(jq:*),Read,Write"`, []string{"Bash(git:*)", "Bash(jq:*)", "Read", "Write"}},
		{`allowed-tools: Bash(git status:*), Read Bash(git diff:*)`, []string{"Bash(git status:*)", "Read", "Bash(git diff:*)"}},
		{`allowed-tools: [Bash(git:*), Read]`, []string{"Bash(git:*)", "Read"}},
		{`allowed-tools: '"Read,Write"'`, []string{"Read", "Write"}},
		{`allowed-tools: ""`, nil},
		{``, nil},
	}
	for i, c := range cases {
		d.addSkill(fmt.Sprintf("tools-%d", i), c.field, nil)
	}
	for i, c := range cases {
		sk, err := d.skills.GetSkill(t.Context(), &pb.GetSkillRequest{Skill: fmt.Sprintf("tools-%d", i)})
		if err != nil || !slices.Equal(sk.GetAllowedTools(), c.want) {
			t.Errorf("%s: got %q, %v; want %q", c.field, sk.GetAllowedTools(), err, c.want)
		}
	}
}

// The specification's integration tests, and its adapter for an agent's Bash tool: activate
// a skill, then run the commands of its instructions.
func TestContractActivateThenExecute(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	d.addSkill("data-analysis-2", "allowed-tools: Bash(python:*) Read Write\nmax_execution_time: 60\nmodel: claude-opus-4-20250514", map[string]string{
		"scripts/analyze.py": "#!/usr/bin/env python3\nimport sys\nprint(\"Analysis complete\")\nsys.exit(0)\n",
		"scripts/fail.py":    "import sys\nprint('why', file=sys.stderr)\nsys.exit(1)\n",
	})
	d.addSkill("git-analyzer-2", "allowed-tools: Bash(git:*),Read\nmax_execution_time: 120\nnetwork_access: false", nil)

	a, err := d.skills.ActivateSkill(t.Context(), &pb.ActivateSkillRequest{Skill: "data-analysis-2"})
	if err != nil {
		t.Fatal(err)
	}
	// The instructions of the test's skill contain {baseDir}.
	if !strings.Contains(a.Instructions, "Run /skills/data-analysis-2/scripts.") || strings.Contains(a.Instructions, "{baseDir}") {
		t.Errorf("instructions %q", a.Instructions)
	}
	k := a.GetContext().GetConstraints()
	if !a.GetContext().GetScriptExecutor() || a.GetContext().GetBaseDir() != "/skills/data-analysis-2" || k.GetMaxExecutionTime() != 60 ||
		k.MaxMemory != nil || k.GetNetworkAccess() || k.GetWorkingDirectory() != "/workspace" {
		t.Errorf("context %v", a.GetContext())
	}
	if len(a.Messages) != 3 || a.Messages[0].IsMeta || !a.Messages[1].IsMeta || a.Messages[2].Type != "command_permissions" {
		t.Fatalf("messages %v", a.Messages)
	}
	var permissions struct {
		Type         string   `json:"type"`
		AllowedTools []string `json:"allowedTools"`
		Model        *string  `json:"model"`
	}
	if err := json.Unmarshal([]byte(a.Messages[2].Content), &permissions); err != nil {
		t.Fatal(err)
	}
	if permissions.Type != "command_permissions" || !slices.Equal(permissions.AllowedTools, []string{"Bash(python:*)", "Read", "Write"}) ||
		permissions.Model == nil || *permissions.Model != "claude-opus-4-20250514" {
		t.Errorf("permissions %s", a.Messages[2].Content)
	}

	// bash_execute of the specification's adapter.
	bash := func(skill, line string) string {
		t.Helper()
		r, _, err := d.executeCommand(&pb.ExecuteCommandRequest{Skill: skill, Command: line})
		if err != nil {
			t.Fatal(err)
		}
		if !r.GetSuccess() {
			return fmt.Sprintf("Error: %s\n%s", r.GetError(), r.GetStderr())
		}
		return r.GetStdout()
	}
	for line, want := range map[string]string{
		"python scripts/analyze.py --input test.csv":           "Analysis complete\n",
		"python {baseDir}/scripts/analyze.py --input test.csv": "Analysis complete\n",
		"python scripts/fail.py":                               "Error: Command failed with exit code 1\nwhy\n",
		"rm -rf /":                                             "Error: Command not allowed by skill permissions: rm -rf /\n'rm' is not covered by any rule: allowed are Bash(python:*)\nMissing rule: Bash(rm:*) (only the author of the skill can add it to allowed-tools)\n",
	} {
		if got := bash("data-analysis-2", line); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}

	// The guide's third example has no scripts folder. Its context has no executor, but its
	// commands run.
	a, err = d.skills.ActivateSkill(t.Context(), &pb.ActivateSkillRequest{Skill: "git-analyzer-2"})
	if err != nil || a.GetContext().GetScriptExecutor() || a.GetContext().GetConstraints() != nil || !strings.Contains(a.Messages[2].Content, `"allowedTools":["Bash(git:*)","Read"],"model":null`) {
		t.Errorf("got %v, %v", a, err)
	}
	if got := bash("git-analyzer-2", "git --version"); !strings.HasPrefix(got, "git version ") {
		t.Errorf("got %q", got)
	}
}

// guideSkill is the SKILL.md of the guide.
const guideSkill = `---
name: my-skill
description: Description of what this skill does
version: 1.0.0
allowed-tools: "Bash(python:*),Bash(jq:*),Read,Write"
max_execution_time: 300
max_memory: 512
network_access: false
python_packages:
  - pandas>=2.0.0
  - numpy>=1.24.0
system_packages: []
---

# Skill Instructions

Use the scripts in {baseDir}/scripts/ to perform tasks:

## Available Scripts

### process.py
Process data files:
` + "```bash\npython {baseDir}/scripts/process.py input.csv --output output.csv\n```" + `
`

// The guide's example of a SKILL.md: every field is read, and the instructions are resolved.
func TestContractGuideSkill(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "my-skill", "", map[string]string{"scripts/process.py": "print(1)\n"})
	if err := os.WriteFile(filepath.Join(dir, "skills/my-skill/SKILL.md"), []byte(guideSkill), 0o644); err != nil {
		t.Fatal(err)
	}
	d := startDaemonIn(t, dir, "")
	sk, err := d.skills.GetSkill(t.Context(), &pb.GetSkillRequest{Skill: "my-skill"})
	if err != nil || sk.Version != "1.0.0" || !slices.Equal(sk.AllowedTools, []string{"Bash(python:*)", "Bash(jq:*)", "Read", "Write"}) ||
		sk.MaxExecutionTime.AsDuration() != 300*time.Second || sk.MaxMemoryBytes != 512<<20 || sk.NetworkAccess ||
		!slices.Equal(sk.PythonPackages, []string{"pandas>=2.0.0", "numpy>=1.24.0"}) || len(sk.SystemPackages) != 0 {
		t.Errorf("got %v, %v", sk, err)
	}
	a, err := d.skills.ActivateSkill(t.Context(), &pb.ActivateSkillRequest{Skill: "my-skill"})
	if err != nil || !strings.Contains(a.Instructions, "python /skills/my-skill/scripts/process.py input.csv --output output.csv") {
		t.Errorf("got %v, %v", a, err)
	}
	// A list has the metadata only, and activation adds the instructions. The text of a
	// script is never sent; it is read in the sandbox.
	list, err := d.skills.ListSkills(t.Context(), &pb.ListSkillsRequest{})
	if err != nil || !slices.ContainsFunc(list.Skills, func(s *pb.SkillSummary) bool {
		return s.Name == "my-skill" && s.Description == "Description of what this skill does"
	}) || strings.Contains(a.String(), "print(1)") {
		t.Errorf("got %v, %v", list, err)
	}
}

// skillrun activate prints the text that an agent adds to its context.
func TestContractActivateByTheClient(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	out, err := d.cli("-v", "activate", "calculator").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "context: script executor in /skills/calculator, max_execution_time ") {
		t.Errorf("got %s, %v", out, err)
	}
}
