package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// evil is a name that would clear the screen.
const evil = "evil\x1b[2J\u202e\n"

const evilShown = `evil\x1b[2J\u202e\n`

func ended(id string, code int32) *pb.Execution {
	return &pb.Execution{
		ExecutionId: id, State: pb.ExecutionState_EXECUTION_STATE_ENDED, Skill: evil, SkillDigest: demoDigest, SourceKind: pb.SourceKind_SOURCE_KIND_SCRIPT, Script: "scripts/x.py",
		Labels: map[string]string{"b": "2", "a": "1"}, Principal: "uid 0", LastSequence: 4,
		CreateTime: timestamppb.New(time.Unix(1_000_000_000, 0)),
		Limits:     &pb.ExecutionLimits{WallTime: durationpb.New(30 * time.Second), MemoryBytes: 512 << 20, Processes: 64, OutputBytes: 10 << 20, WorkspaceBytes: 256 << 20, WorkspaceFiles: 100, OpenFiles: 1024},
		Outcome: &pb.ExecutionOutcome{
			End: pb.ExecutionEnd_EXECUTION_END_EXITED, ExitCode: proto.Int32(code), Advice: "try\nharder", ArtifactCount: 1, ArtifactsRefused: []string{evil},
			Usage:    &pb.ExecutionUsage{WallTime: durationpb.New(1234 * time.Millisecond)},
			Stdout:   &pb.OutputTruncation{Truncated: true, DeliveredBytes: 1024, TotalBytes: 4096},
			Evidence: &pb.ExecutionEvidence{OomKillCount: 1, OomScope: pb.OomScope_OOM_SCOPE_TENANT, PidsMaxCount: 2},
		},
	}
}

func TestPs(t *testing.T) {
	var pages []*pb.ListExecutionsRequest
	f := answers("ListExecutions", func(r *pb.ListExecutionsRequest) (*pb.ListExecutionsResponse, error) {
		pages = append(pages, proto.CloneOf(r))
		if r.GetPageToken() == "" {
			return &pb.ListExecutionsResponse{Executions: []*pb.Execution{ended("e2", 3)}, NextPageToken: "p2"}, nil
		}
		return &pb.ListExecutionsResponse{Executions: []*pb.Execution{{ExecutionId: "e1", State: pb.ExecutionState_EXECUTION_STATE_QUEUED, QueuePosition: 4, Skill: "demo", SourceKind: pb.SourceKind_SOURCE_KIND_COMMAND}}}, nil
	})
	created := time.Unix(1_000_000_000, 0).Local().Format(time.DateTime)
	pad := strings.Repeat(" ", len(evilShown)-len("SKILL"))
	want := fmt.Sprintf(`ID  SKILL%s  SOURCE        STATE               CODE  TIME   CREATED
e2  %s  scripts/x.py  exited              3     1.23s  %s
e1  demo%s   command       queued, position 4  -     -      -
`, pad, evilShown, created, pad)
	if got := f.client(t, nil, "ps"); got != (result{0, want, ""}) {
		t.Errorf("got %+v\nwant %s", got, want)
	}
	if want := []pb.ExecutionState{pb.ExecutionState_EXECUTION_STATE_QUEUED, pb.ExecutionState_EXECUTION_STATE_RUNNING}; len(pages) != 2 || fmt.Sprint(pages[0].GetStates()) != fmt.Sprint(want) {
		t.Errorf("request: got %v, want two pages of %v", pages, want)
	}

	pages = nil
	got := f.client(t, nil, "ps", "--json", "--all", "-n", "1", "--skill", "demo", "--label", "k=v")
	e := &pb.Execution{}
	if err := protojson.Unmarshal([]byte(got.stdout), e); err != nil || !proto.Equal(e, ended("e2", 3)) {
		t.Errorf("json: got %+v, %v, want one execution", got, err)
	}
	if want := (&pb.ListExecutionsRequest{Skill: "demo", Labels: map[string]string{"k": "v"}, PageSize: 1}); len(pages) != 1 || !proto.Equal(pages[0], want) {
		t.Errorf("request: got %v, want %v", pages, want)
	}

	pages = nil
	f.client(t, nil, "ps", "--end", "timed-out", "--end", "OOM_KILLED")
	if want := (&pb.ListExecutionsRequest{Ends: []pb.ExecutionEnd{pb.ExecutionEnd_EXECUTION_END_TIMED_OUT, pb.ExecutionEnd_EXECUTION_END_OOM_KILLED}, Labels: map[string]string{}, PageSize: 100}); !proto.Equal(pages[0], want) {
		t.Errorf("request: got %v, want %v", pages[0], want)
	}
}

func TestPsColours(t *testing.T) {
	running := &pb.Execution{State: pb.ExecutionState_EXECUTION_STATE_RUNNING, StartTime: timestamppb.Now()}
	unset := &pb.Execution{Outcome: &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_EXITED}}
	tests := []struct {
		execution *pb.Execution
		want      cell
	}{
		{ended("e", 0), cell{"exited", green}},
		{ended("e", 1), cell{"exited", red}},
		{unset, cell{"exited", red}},
		{running, cell{"running", yellow}},
	}
	for _, test := range tests {
		if got := stateCell(test.execution); got != test.want {
			t.Errorf("%v: got %v, want %v", test.execution, got, test.want)
		}
	}
	if got := psRow(running)[5].text; got == "-" {
		t.Errorf("time of a running one: got %q, want a duration", got)
	}
}

func TestShow(t *testing.T) {
	f := answers("GetExecution", func(r *pb.GetExecutionRequest) (*pb.Execution, error) {
		if r.GetExecutionId() != "e2" {
			return nil, refusal(codes.NotFound, "EXECUTION_NOT_FOUND", "execution nope: no such execution")
		}
		return ended("e2", 3), nil
	})
	got := f.client(t, nil, "show", "e2")
	for _, want := range []string{
		"id               e2\n", "state            exited\n", "skill            " + evilShown + "\n", "source           script scripts/x.py\n",
		"label            a=1\nlabel            b=2\n", "exit code        3\n", "stdout           1 KiB of 4 KiB, truncated\n",
		"limits           wall 30s, memory 512 MiB, 64 processes, output 10 MiB, workspace 256 MiB in 100 files, 1024 open files\n",
		"out of memory    1 kills, memory of the tenant\n", "processes        2 refused\n", `advice           try\nharder` + "\n",
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("got %s\nwant %q in it", got.stdout, want)
		}
	}
	if strings.ContainsAny(got.stdout, "\x1b\u202e") {
		t.Errorf("got an escape sequence: %q", got.stdout)
	}
	e := &pb.Execution{}
	if got := f.client(t, nil, "show", "--json", "e2"); protojson.Unmarshal([]byte(got.stdout), e) != nil || !proto.Equal(e, ended("e2", 3)) {
		t.Errorf("json: got %+v", got)
	}
	if got, want := f.client(t, nil, "show", "nope"), "skillrun: execution nope: no such execution (EXECUTION_NOT_FOUND; 'skillrun ps --all' lists what there is)\n"; got.code != 127 || got.stderr != want {
		t.Errorf("got %+v, want 127 and %q", got, want)
	}
}

func TestSessionText(t *testing.T) {
	const notSucceeded = pb.SessionUncommitted_SESSION_UNCOMMITTED_NOT_SUCCEEDED
	for _, test := range []struct {
		session *pb.SessionResult
		want    string
	}{
		{nil, ""},
		{&pb.SessionResult{SessionId: "s", BaseVersion: 2}, "s, version 2, unchanged"},
		{&pb.SessionResult{SessionId: "s", CommittedVersion: 1, FilesAdded: 3, FilesChanged: 2, FilesDeleted: 1}, "s, version 0, made version 1 (files: 3 added, 2 changed, 1 deleted)"},
		{&pb.SessionResult{SessionId: "s", BaseVersion: 2, Uncommitted: notSucceeded, Reason: "the program did not succeed"}, "s, version 2, no new version: the program did not succeed"},
		{&pb.SessionResult{SessionId: "s", Uncommitted: pb.SessionUncommitted_SESSION_UNCOMMITTED_UNKNOWN, Reason: "the disk failed"}, "s, version 0, perhaps a new version: the disk failed"},
	} {
		if got := sessionText(test.session); got != test.want {
			t.Errorf("%v: got %q, want %q", test.session, got, test.want)
		}
	}
}

func TestCancel(t *testing.T) {
	f := answers("CancelExecution", func(r *pb.CancelExecutionRequest) (*pb.Execution, error) {
		if r.GetExecutionId() == "nope" {
			return nil, refusal(codes.NotFound, "EXECUTION_NOT_FOUND", "no such execution")
		}
		if r.GetExecutionId() == "stuck" {
			return &pb.Execution{ExecutionId: "stuck", State: pb.ExecutionState_EXECUTION_STATE_RUNNING}, nil
		}
		return &pb.Execution{ExecutionId: r.GetExecutionId(), Outcome: &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_CANCELLED}}, nil
	})
	if got, want := f.client(t, nil, "cancel", "--grace", "5s", "--reason", "why", "e1", "e2"), (result{0, "e1 cancelled\ne2 cancelled\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if want := (&pb.CancelExecutionRequest{ExecutionId: "e1", Grace: durationpb.New(5 * time.Second), Reason: "why"}); !proto.Equal(f.asked[0], want) {
		t.Errorf("request: got %v, want %v", f.asked[0], want)
	}
	// The others are cancelled, and each error is told.
	got, want := f.client(t, nil, "cancel", "nope", "e1", "stuck", "e2"), result{125, "e1 cancelled\ne2 cancelled\n",
		"skillrun: cancel nope: no such execution (EXECUTION_NOT_FOUND; 'skillrun ps --all' lists what there is)\n" +
			"skillrun: cancel stuck: it has not ended ('skillrun show stuck' says how it stands)\n"}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := f.client(t, nil, "cancel", "nope", "e1"); got.code != 127 || got.stdout != "e1 cancelled\n" {
		t.Errorf("got %+v, want 127 and e1 cancelled", got)
	}
	// Without a daemon one error is enough.
	if got := f.client(t, nil, "--address", "unix:///nonexistent/s.sock", "--wait", "0", "cancel", "e1", "e2"); got.code != 125 || strings.Count(got.stderr, "skillrun: ") != 1 {
		t.Errorf("got %+v, want one error", got)
	}
	for _, flags := range [][]string{{}, {"--json"}} {
		got := f.client(t, nil, append([]string{"cancel", "stuck"}, flags...)...)
		if want := (result{125, "", "skillrun: cancel stuck: it has not ended ('skillrun show stuck' says how it stands)\n"}); got != want {
			t.Errorf("%q: got %+v, want %+v", flags, got, want)
		}
	}
	if got := f.client(t, nil, "cancel", "--grace", "-1s", "e1"); got.code != 125 || !strings.Contains(got.stderr, "--grace -1s: must not be less than 0") {
		t.Errorf("got %+v, want 125", got)
	}
	if got := f.client(t, nil, "cancel", "--json", "e1"); !strings.Contains(got.stdout, `"executionId":"e1"`) {
		t.Errorf("json: got %+v", got)
	}
}

func TestSignal(t *testing.T) {
	f := answers("SignalExecution", func(*pb.SignalExecutionRequest) (*pb.SignalExecutionResponse, error) {
		return &pb.SignalExecutionResponse{}, nil
	})
	for name, want := range map[string]string{"usr1": "SIGUSR1", "SIGTERM": "SIGTERM", "sigint": "SIGINT"} {
		if got := f.client(t, nil, "signal", "e1", name); got != (result{}) {
			t.Errorf("got %+v", got)
		}
		if want := (&pb.SignalExecutionRequest{ExecutionId: "e1", Signal: want}); !proto.Equal(f.asked[len(f.asked)-1], want) {
			t.Errorf("%s: got %v, want %v", name, f.asked[len(f.asked)-1], want)
		}
	}
}

func TestArtifacts(t *testing.T) {
	f := (&fake{}).withArtifacts(map[string]string{"a.txt": "aaaa", "b/" + evil: "b"})
	got := f.client(t, nil, "artifacts", "e1")
	if got.code != 0 || !strings.Contains(got.stdout, "a.txt") || !strings.Contains(got.stdout, "b/"+evilShown) || !strings.Contains(got.stdout, "4 B") || strings.Contains(got.stdout, "\x1b") {
		t.Errorf("got %+v", got)
	}
	if got := f.client(t, nil, "artifacts", "--json", "e1", "a.txt"); strings.Count(got.stdout, "\n") != 1 || !strings.Contains(got.stdout, `"path":"a.txt"`) {
		t.Errorf("json: got %+v", got)
	}
	tricky := "\u009b31m\u202e\x7f\U000e0041"
	f = (&fake{}).withArtifacts(map[string]string{tricky: "x"})
	if got := f.client(t, nil, "artifacts", "--json", "e1"); strings.ContainsAny(got.stdout, tricky[:2]+"\u202e\x7f\U000e0041") || !strings.Contains(got.stdout, `"path":"\u009b31m\u202e\u007f\udb40\udc41"`) {
		t.Errorf("json of an odd name: got %+q", got.stdout)
	}
	f = (&fake{}).withArtifacts(map[string]string{"a.txt": "aaaa"})
	dir := t.TempDir()
	if got := f.client(t, nil, "-v", "artifacts", "-o", dir, "e1", "a.txt"); got != (result{0, "", "skillrun: execution e1: saved a.txt\n"}) {
		t.Errorf("got %+v", got)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 || entries[0].Name() != "a.txt" {
		t.Errorf("saved: got %v, want a.txt", entries)
	}
	if got := f.client(t, nil, "artifacts", "-o", dir, "e1", "c.txt"); got.code != 127 || !strings.Contains(got.stderr, "no such artifact: c.txt") {
		t.Errorf("got %+v, want 127", got)
	}
}

func TestSkills(t *testing.T) {
	f := answers("ListSkills", func(r *pb.ListSkillsRequest) (*pb.ListSkillsResponse, error) {
		if r.GetPageToken() == "" {
			return &pb.ListSkillsResponse{Skills: []*pb.SkillSummary{{Name: "a", Description: evil, Digest: demoDigest, McpUnlisted: "its name"}}, NextPageToken: "2"}, nil
		}
		return &pb.ListSkillsResponse{Skills: []*pb.SkillSummary{{Name: "b", Description: strings.Repeat("é", 200), Digest: demoDigest}}}, nil
	})
	want := "NAME  DIGEST               DESCRIPTION\na     sha256:001122334455  " + evilShown + "\nb     sha256:001122334455  " + strings.Repeat("é", 99) + "…\n"
	if got := f.client(t, nil, "skills"); got != (result{0, want, "1 of 2 not listed over MCP (skillrun validate says why): a\n"}) {
		t.Errorf("got %+v\nwant %s", got, want)
	}
	if got := f.client(t, nil, "skills", "--json", "--all"); strings.Count(got.stdout, "\n") != 2 || !strings.Contains(got.stdout, demoDigest) || !strings.Contains(got.stdout, `"mcpUnlisted":"its name"`) || got.stderr != "" {
		t.Errorf("json: got %+v", got)
	}
	if got := f.asked[len(f.asked)-1].(*pb.ListSkillsRequest); !got.GetIncludeHidden() {
		t.Errorf("request: got %v, want the hidden ones too", got)
	}
	// Shells ask the hidden command __complete.
	if got := f.client(t, nil, "__complete", "run", ""); !strings.HasPrefix(got.stdout, "a\t"+evilShown+"\nb\té") {
		t.Errorf("completion: got %+v", got)
	}
}

func TestSkillDetail(t *testing.T) {
	skill := &pb.Skill{
		Name: "demo", Description: "does", Digest: demoDigest, Version: "1.2.3", Author: "ann", License: "MIT", HasAllowedTools: true,
		AllowedTools: []string{"Bash(git:*)", "Read"}, MaxExecutionTime: durationpb.New(time.Minute), MaxMemoryBytes: 1 << 20,
		Scripts: []*pb.SkillScript{{Path: "scripts/x.py", Language: "python", Description: "first\nsecond"}}, FileCount: 3, SizeBytes: 2048,
		Refused:  []*pb.RefusedEntry{{Path: "bin/su", Reason: "setuid"}},
		Warnings: []*pb.Finding{{Severity: pb.FindingSeverity_FINDING_SEVERITY_WARNING, File: "SKILL.md", Line: 2, Rule: "name-grammar", Message: "odd name"}},
	}
	f := answers("GetSkill", func(*pb.GetSkillRequest) (*pb.Skill, error) { return skill, nil })
	want := `name           demo
description    does
digest         ` + demoDigest + `
version        1.2.3
author         ann
license        MIT
allowed tools  Bash(git:*), Read
time           1m0s
memory         1 MiB
network        false
files          3, 2 KiB
script         scripts/x.py (python): first
refused        bin/su: setuid
warning        SKILL.md:2: warning: odd name [name-grammar]
`
	if got := f.client(t, nil, "skills", "demo"); got != (result{0, want, ""}) {
		t.Errorf("got %+v\nwant %s", got, want)
	}
	skill.HasAllowedTools = false
	if got := f.client(t, nil, "skills", "demo"); !strings.Contains(got.stdout, "none: without_allowed_tools of the daemon's configuration decides") {
		t.Errorf("got %+v", got)
	}
	if got := f.client(t, nil, "skills", "--json", "demo"); !strings.Contains(got.stdout, `"hasAllowedTools":false`) {
		t.Errorf("json: got %+v", got)
	}
}

func TestActivate(t *testing.T) {
	f := answers("ActivateSkill", func(*pb.ActivateSkillRequest) (*pb.ActivateSkillResponse, error) {
		return &pb.ActivateSkillResponse{Name: "demo", Digest: demoDigest, Instructions: "# Demo\n\x1b[1mrun /skills/demo/x", BaseDir: "/skills/demo", AllowedTools: []string{"Read"}}, nil
	})
	if got, want := f.client(t, nil, "activate", "demo"), (result{0, "# Demo\n\x1b[1mrun /skills/demo/x\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := f.client(t, nil, "-v", "activate", "demo"); !strings.Contains(got.stderr, "in /skills/demo\n") || !strings.Contains(got.stderr, "allowed tools: Read\n") {
		t.Errorf("got %+v", got)
	}
	if got := f.client(t, nil, "-v", "activate", "demo"); !strings.Contains(got.stderr, "context: no script executor") {
		t.Errorf("got %+v", got)
	}
	seconds, megabytes := int32(300), int32(512)
	f = answers("ActivateSkill", func(*pb.ActivateSkillRequest) (*pb.ActivateSkillResponse, error) {
		return &pb.ActivateSkillResponse{Name: "demo", Context: &pb.ActivationContext{BaseDir: "/skills/demo", ScriptExecutor: true, Constraints: &pb.ExecutionConstraints{
			MaxExecutionTime: &seconds, MaxMemory: &megabytes, NetworkAccess: new(false), WorkingDirectory: new("/workspace"),
		}}}, nil
	})
	want := "context: script executor in /skills/demo, max_execution_time 300 s, max_memory 512 MB, network_access false, working_directory /workspace\n"
	if got := f.client(t, nil, "-v", "activate", "demo"); !strings.Contains(got.stderr, want) {
		t.Errorf("got %+v, want %s", got, want)
	}
	if got := f.client(t, nil, "activate", "--json", "demo"); !strings.Contains(got.stdout, `"baseDir":"/skills/demo"`) {
		t.Errorf("json: got %+v", got)
	}
}

func TestValidateThere(t *testing.T) {
	r := &pb.ValidateSkillResponse{Valid: proto.Bool(true)}
	f := answers("ValidateSkill", func(*pb.ValidateSkillRequest) (*pb.ValidateSkillResponse, error) { return r, nil })
	if got, want := f.client(t, nil, "validate", "demo"), (result{0, "demo: valid\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	r = &pb.ValidateSkillResponse{Findings: []*pb.Finding{
		{Severity: pb.FindingSeverity_FINDING_SEVERITY_ERROR, File: "SKILL.md", Line: 3, Rule: "name", Message: evil},
		{Severity: pb.FindingSeverity_FINDING_SEVERITY_WARNING, Rule: "r", Message: "m"},
	}}
	if got, want := f.client(t, nil, "validate", "demo"), (result{1, "demo/SKILL.md:3: error: " + evilShown + " [name]\ndemo: warning: m [r]\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := f.client(t, nil, "validate", "--json", "demo"); got.code != 1 || !strings.Contains(got.stdout, `"valid":false`) {
		t.Errorf("json: got %+v", got)
	}
}

// TestValidateHere validates folders without any daemon.
func TestValidateHere(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write := func(name, text string) {
		t.Helper()
		if err := os.Mkdir(name, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(name, "SKILL.md"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("good", "---\nname: good\ndescription: Adds numbers. Use it when numbers must be added.\n---\n# Good\n\nRun it.\n")
	if err := os.Mkdir("empty", 0o755); err != nil {
		t.Fatal(err)
	}
	write("bad", "---\nname: Bad Name\n---\n# Bad\n")
	tests := []struct {
		arg  string
		code int
		want string
	}{
		{"good", 0, "good: valid\n"},
		{"./good", 0, "./good: valid\n"},
		{filepath.Join(dir, "good") + "/", 0, "valid\n"},
		{"bad", 1, "bad/SKILL.md:2: error: "},
		{"./bad/", 1, "./bad/SKILL.md:2: error: "},
		{"./empty", 1, "./empty/SKILL.md: error: "},
		{"./nowhere", 127, ""},
		{"./good/SKILL.md", 127, ""},
	}
	for _, test := range tests {
		f := &fake{address: "unix:///nonexistent"}
		got := f.client(t, nil, "validate", test.arg)
		if got.code != test.code || !strings.Contains(got.stdout, test.want) {
			t.Errorf("%s: got %+v, want code %d and %q", test.arg, got, test.code, test.want)
		}
	}
	var r struct {
		Skill    string
		Valid    *bool
		Findings []struct{ File, Severity, Rule string }
	}
	got := (&fake{address: "unix:///nonexistent"}).client(t, nil, "validate", "--json", "bad")
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || r.Skill != "bad" || r.Valid == nil || *r.Valid || len(r.Findings) == 0 || r.Findings[0].Rule == "" {
		t.Errorf("json: got %+v, %v", got, err)
	}
	// A signal comes while the findings of the first folder are written. The second one is not checked.
	ctx, end := context.WithCancelCause(t.Context())
	stdout := writerFunc(func(p []byte) (int, error) {
		end(&interrupt{syscall.SIGTERM})
		return len(p), nil
	})
	if code := run(ctx, []string{"validate", "good", "empty"}, nil, stdout, io.Discard); code != codeTerminated {
		t.Errorf("interrupted: got code %d, want %d", code, codeTerminated)
	}
}

// writerFunc is an io.Writer.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestCheckHere(t *testing.T) {
	tests := []struct {
		args    []string
		allowed bool
		rule    string
	}{
		{[]string{"--allowed-tools", "Bash(git status:*)", "--command", "git status -s"}, true, "Bash(git status:*)"},
		{[]string{"--allowed-tools", "Bash(git status:*), Read", "--command", "git status; rm -rf /"}, false, ""},
		{[]string{"--allowed-tools", "", "--command", "ls"}, false, ""},
		{[]string{"--allowed-tools", "Bash(git:*)", "--", "git", "log", "a; b"}, true, "Bash(git:*)"},
		{[]string{"--allowed-tools", "Bash(bash {baseDir}/x.sh:*)", "--command", "bash /skills/demo/x.sh a"}, true, "Bash(bash {baseDir}/x.sh:*)"},
		{[]string{"--allowed-tools", "Bash(bash {baseDir}/x.sh)", "--base-dir", "/skills/other", "--", "bash", "{baseDir}/x.sh"}, true, "Bash(bash {baseDir}/x.sh)"},
	}
	for _, test := range tests {
		f := &fake{address: "unix:///nonexistent"} // no daemon is needed
		got := f.client(t, nil, append([]string{"check", "--json"}, test.args...)...)
		var d struct {
			Allowed      *bool
			Reason, Rule *string
		}
		if err := json.Unmarshal([]byte(got.stdout), &d); err != nil || d.Allowed == nil || d.Reason == nil || d.Rule == nil {
			t.Errorf("%q: got %+v, %v, want all three fields", test.args, got, err)
			continue
		}
		if got.code != 0 || *d.Allowed != test.allowed || *d.Rule != test.rule || *d.Reason == "" {
			t.Errorf("%q: got %+v, want %v by %q", test.args, got, test.allowed, test.rule)
		}
		want := map[bool]int{true: 0, false: 126}[test.allowed]
		if got := f.client(t, nil, append([]string{"check"}, test.args...)...); got.code != want || !strings.Contains(got.stdout, "allowed  "+*d.Reason) {
			t.Errorf("%q: got %+v, want code %d and the reason", test.args, got, want)
		}
	}
}

func TestCheckThere(t *testing.T) {
	f := answers("CheckCommand", func(r *pb.CheckCommandRequest) (*pb.CheckCommandResponse, error) {
		return &pb.CheckCommandResponse{Allowed: proto.Bool(r.GetCommand() == "git 'a b'"), Reason: "because", Rule: "r"}, nil
	})
	if got, want := f.client(t, nil, "check", "demo", "--", "git", "a b"), (result{0, "allowed  because\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := f.client(t, nil, "check", "demo", "--json", "--command", "rm <x>"), (result{0, `{"allowed":false,"reason":"because","rule":"r"}` + "\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// --no-wait prints the state, because the execution has not ended yet.
func TestCancelWithoutWait(t *testing.T) {
	f := answers("CancelExecution", func(r *pb.CancelExecutionRequest) (*pb.Execution, error) {
		e := &pb.Execution{ExecutionId: r.GetExecutionId(), State: pb.ExecutionState_EXECUTION_STATE_RUNNING}
		if !r.GetReturnImmediately() {
			e.State, e.Outcome = pb.ExecutionState_EXECUTION_STATE_ENDED, &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_CANCELLED}
		}
		return e, nil
	})
	if got, want := f.client(t, nil, "cancel", "--no-wait", "e1", "e2"), (result{0, "e1 running\ne2 running\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := f.client(t, nil, "cancel", "e1"), (result{0, "e1 cancelled\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestDelete(t *testing.T) {
	f := answers("DeleteExecution", func(r *pb.DeleteExecutionRequest) (*pb.DeleteExecutionResponse, error) {
		if r.GetExecutionId() == "live" {
			return nil, refusal(codes.FailedPrecondition, "NOT_ENDED", "the execution has not ended; cancel it, then delete it")
		}
		return &pb.DeleteExecutionResponse{}, nil
	})
	want := result{126, "e1 deleted\ne2 deleted\n", "skillrun: delete live: the execution has not ended; cancel it, then delete it (NOT_ENDED)\n"}
	if got := f.client(t, nil, "delete", "e1", "live", "e2"); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// ps asks for a principal's executions and for the order.
func TestPsFilters(t *testing.T) {
	var asked *pb.ListExecutionsRequest
	f := answers("ListExecutions", func(r *pb.ListExecutionsRequest) (*pb.ListExecutionsResponse, error) {
		asked = r
		return &pb.ListExecutionsResponse{}, nil
	})
	if got := f.client(t, nil, "ps", "--all", "--principal", "uid:7", "--oldest"); got.code != 0 {
		t.Fatalf("got %+v", got)
	}
	if asked.GetPrincipal() != "uid:7" || asked.GetOrder() != pb.ExecutionOrder_EXECUTION_ORDER_OLDEST_FIRST {
		t.Errorf("asked for %v", asked)
	}
}

// show prints the request, and until when the execution is kept.
func TestShowRequest(t *testing.T) {
	f := answers("GetExecution", func(*pb.GetExecutionRequest) (*pb.Execution, error) {
		return &pb.Execution{
			ExecutionId: "e1", State: pb.ExecutionState_EXECUTION_STATE_ENDED, SourceKind: pb.SourceKind_SOURCE_KIND_CODE,
			ExpireTime: timestamppb.New(time.Unix(1, 0)), Request: &pb.RequestSummary{
				Language: "bash", Args: []string{"a b", "c"}, WorkingDirectory: "sub", EnvNames: []string{"A"}, SecretEnvNames: []string{"TOKEN"},
				FilePaths: []string{"in.csv"}, Truncated: true,
			},
		}, nil
	})
	got := f.client(t, nil, "show", "e1")
	for _, want := range []string{"language    bash\n", "arguments   'a b' c\n", "directory   sub\n", "variables   A TOKEN\n", "files       in.csv\n", "kept until  ", "too long for the record"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("got %s\nwant %q in it", got.stdout, want)
		}
	}
}

func TestDoctor(t *testing.T) {
	r := &pb.GetCapabilitiesResponse{
		Version: "v1", Kernel: "6.18", CgroupVersion: pb.CgroupVersion_CGROUP_VERSION_HYBRID, Network: pb.NetworkMode_NETWORK_MODE_NONE, MaxRunning: 4, Running: 1, MaxMessageBytes: 16 << 20,
		Boundaries: []*pb.Boundary{
			{Name: "user namespace", Group: pb.BoundaryGroup_BOUNDARY_GROUP_MACHINE, Found: proto.Bool(true), Why: "ids", Detail: "yes"},
			{Name: "swap", Group: pb.BoundaryGroup_BOUNDARY_GROUP_MACHINE, Found: proto.Bool(false), Allowed: new(true), Why: "the limit", Detail: "swapoff -a"},
			{Name: "memory limit", Group: pb.BoundaryGroup_BOUNDARY_GROUP_LIMITS, Found: proto.Bool(false), Why: "memory", Detail: "boot with cgroup_enable=memory"},
		},
		Runtimes: []*pb.Runtime{{Language: "python", Version: "3.11.2", Path: "/usr/bin/python3"}},
	}
	f := answers("GetCapabilities", func(*pb.GetCapabilitiesRequest) (*pb.GetCapabilitiesResponse, error) { return r, nil })
	got := f.client(t, nil, "doctor")
	for _, want := range []string{
		"user namespace  found    machine  ids          yes\n", "swap            allowed  machine  the limit    swapoff -a\n",
		"memory limit    MISSING  limits   memory       boot with cgroup_enable=memory\n",
		"python   3.11.2   /usr/bin/python3\n", "1 of 4 running", "6.18, cgroup hybrid",
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("got %s\nwant %q in it", got.stdout, want)
		}
	}
	if got.code != 1 || !strings.HasPrefix(got.stderr, "skillrun: missing: swap, memory limit\nskillrun: the daemon runs nothing") {
		t.Errorf("got %d, %q, want 1 and what is missing", got.code, got.stderr)
	}
	if got := f.client(t, nil, "doctor", "--json"); got.code != 1 || !strings.Contains(got.stdout, `"found":false`) {
		t.Errorf("json: got %+v", got)
	}
	r.Runtimes = append(r.Runtimes, &pb.Runtime{Language: "bash", Version: "5.2", Path: "/bin/bash", Image: "tools"})
	r.Images = []*pb.Image{{Name: "tools", Source: "registry/tools@sha256:0", Runtimes: []string{"bash", "sh"}}}
	got = f.client(t, nil, "doctor")
	for _, want := range []string{"python   3.11.2   /usr/bin/python3  -\n", "bash     5.2      /bin/bash         tools\n", "tools  bash, sh  registry/tools@sha256:0\n"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("got %s\nwant %q in it", got.stdout, want)
		}
	}
	r.Boundaries = r.Boundaries[:2]
	if got := f.client(t, nil, "doctor"); got.code != 1 || got.stderr != "skillrun: missing: swap\n" {
		t.Errorf("one missing that is allowed to be: got %+v", got)
	}
	r.Boundaries = r.Boundaries[:1]
	r.State = pb.DaemonState_DAEMON_STATE_DRAINING
	if got := f.client(t, nil, "doctor"); got.code != 0 || got.stderr != "" || !strings.Contains(got.stdout, "draining") || strings.Contains(got.stdout, "NOT LOADED") {
		t.Errorf("nothing missing: got %+v", got)
	}
	r.SkillProblems = []*pb.SkillProblem{{Folder: "/srv/skills/x", Reason: "Missing required file: SKILL.md"}, {Folder: "/srv/skills/y", Reason: "line 2: name: missing", KeptSkill: "y"}}
	got = f.client(t, nil, "doctor")
	for _, want := range []string{"/srv/skills/x  Missing required file: SKILL.md  -\n", "/srv/skills/y  line 2: name: missing            y\n"} {
		if got.code != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("got %+v\nwant %q in it", got, want)
		}
	}
}

// Doctor says how the daemon is, and why.
func TestDoctorShowsTheState(t *testing.T) {
	swap, ids := &pb.Boundary{Name: "swap", Found: proto.Bool(false), Allowed: new(true)}, &pb.Boundary{Name: "ids", Found: proto.Bool(false)}
	bad := []*pb.TenantProblem{{Tenant: "acme", File: "/t/acme.yaml"}, {Tenant: "b", File: "/t/b.yaml"}}
	for _, tt := range []struct {
		r    *pb.GetCapabilitiesResponse
		want string
	}{
		{&pb.GetCapabilitiesResponse{State: pb.DaemonState_DAEMON_STATE_READY}, "ready"},
		{&pb.GetCapabilitiesResponse{State: pb.DaemonState_DAEMON_STATE_DRAINING}, "draining: it takes no more executions, and stops after its running ones"},
		{&pb.GetCapabilitiesResponse{State: pb.DaemonState_DAEMON_STATE_DEGRADED, Boundaries: []*pb.Boundary{swap}}, "degraded: boundary swap is missing"},
		{&pb.GetCapabilitiesResponse{State: pb.DaemonState_DAEMON_STATE_DEGRADED, TenantProblems: bad}, "degraded: mistake in /t/acme.yaml and in 1 more"},
		{&pb.GetCapabilitiesResponse{State: pb.DaemonState_DAEMON_STATE_NOT_READY, Boundaries: []*pb.Boundary{swap, ids}}, "live, but not ready: boundary ids is missing"},
		{&pb.GetCapabilitiesResponse{State: pb.DaemonState_DAEMON_STATE_NOT_READY, AuditProblem: "full"}, "live, but not ready: the audit log cannot be written"},
	} {
		f := answers("GetCapabilities", func(*pb.GetCapabilitiesRequest) (*pb.GetCapabilitiesResponse, error) { return tt.r, nil })
		if got := f.client(t, nil, "doctor"); !regexp.MustCompile("(?m)^state +" + tt.want + "$").MatchString(got.stdout) {
			t.Errorf("got %s\nwant %s", got.stdout, tt.want)
		}
	}
}

func TestDoctorShowsTenantsWithMistakes(t *testing.T) {
	f := answers("GetCapabilities", func(*pb.GetCapabilitiesRequest) (*pb.GetCapabilitiesResponse, error) {
		return &pb.GetCapabilitiesResponse{State: pb.DaemonState_DAEMON_STATE_DEGRADED, TenantProblems: []*pb.TenantProblem{
			{Tenant: "acme", File: "/t/acme.yaml", Reason: "config /t/acme.yaml: line 1: skills: x", Kept: true},
			{Tenant: "new", File: "/t/new.yaml", Reason: "no"}, {File: "/t", Reason: "gone", Kept: true},
		}}, nil
	})
	got := f.client(t, nil, "doctor")
	for _, want := range []string{
		"degraded", "acme       its former version  config /t/acme.yaml: line 1: skills: x\n", "new        nothing             no\n", "all of /t  its former version  gone\n",
	} {
		if got.code != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("got %+v\nwant %q in it", got, want)
		}
	}
}

// Doctor shows warnings about the configuration, which are no reason for another exit code.
func TestDoctorShowsWarnings(t *testing.T) {
	f := answers("GetCapabilities", func(*pb.GetCapabilitiesRequest) (*pb.GetCapabilitiesResponse, error) {
		return &pb.GetCapabilitiesResponse{State: pb.DaemonState_DAEMON_STATE_READY, ConfigurationWarnings: []*pb.ConfigurationWarning{
			{File: "/c.yaml", Reason: "the credential a is missing"}, {Tenant: evil, File: "/t/acme.yaml", Reason: "line 3: policy.network.allow: allows nothing"},
		}}, nil
	})
	got := f.client(t, nil, "doctor")
	for tenant, row := range map[string]string{
		"-": "/c.yaml       the credential a is missing\n", evilShown: "/t/acme.yaml  line 3: policy.network.allow: allows nothing\n",
	} {
		if got.code != 0 || !strings.Contains(got.stdout, "\n"+tenant+" ") || !strings.Contains(got.stdout, row) {
			t.Errorf("got %+v\nwant %s %q in it", got, tenant, row)
		}
	}
}

func TestTenants(t *testing.T) {
	acme := &pb.Tenant{Name: "acme", Weight: 2, Quotas: []*pb.Quota{
		{Key: "running", Limit: 8, Used: 8}, {Key: "queued", Limit: 100}, {Key: "memory", Limit: 1 << 30, Used: 512 << 20},
		{Key: "cpus", Used: 1500}, {Key: "starts_per_second", Limit: 10, Used: 3}, {Key: "calls_per_second", Limit: 200, Used: 9}, {Key: "streams", Limit: 20, Used: 1},
		{Key: "state_bytes", Limit: 2 << 30, Used: 3 << 20}, {Key: "sessions", Limit: 40, Used: 7}, {Key: "session_bytes", Limit: 4 << 30, Used: 5 << 20},
		{Key: "skill_bytes", Limit: 1 << 30, Used: 6 << 20}, {Key: "skill_versions", Limit: 10, Used: 3},
	}}
	f := answers("ListTenants", func(m *pb.ListTenantsRequest) (*pb.ListTenantsResponse, error) {
		if m.PageToken == "" {
			return &pb.ListTenantsResponse{Tenants: []*pb.Tenant{acme}, NextPageToken: "acme"}, nil
		}
		return &pb.ListTenantsResponse{Tenants: []*pb.Tenant{{Name: "globex", Weight: 1}}}, nil
	})
	want := "TENANT  WEIGHT  RUNNING  QUEUED  MEMORY         CPUS   STARTS  CALLS  STREAMS  STATE        SESSIONS  SESSION BYTES  SKILL BYTES  VERSIONS\n" +
		"acme    2       8/8      0/100   512 MiB/1 GiB  1.5/-  3/10    9/200  1/20     3 MiB/2 GiB  7/40      5 MiB/4 GiB    6 MiB/1 GiB  3/10\n" +
		"globex  1       -        -       -              -      -       -      -        -            -         -              -            -\n"
	if got := f.client(t, nil, "tenants"); got != (result{0, want, ""}) {
		t.Errorf("got %+v\nwant %s", got, want)
	}
	if got := f.client(t, nil, "tenants", "--json"); got.code != 0 || strings.Count(got.stdout, "\n") != 2 || !strings.Contains(got.stdout, `"name":"acme"`) {
		t.Errorf("got %+v", got)
	}
	f = answers("GetBudget", func(*pb.GetBudgetRequest) (*pb.GetBudgetResponse, error) {
		return &pb.GetBudgetResponse{Tenant: acme}, nil
	})
	if got := f.client(t, nil, "budget"); got.code != 0 || !strings.Contains(got.stdout, "acme    2       8/8      0/100   512 MiB/1 GiB  1.5/-  3/10    9/200  1/20     3 MiB/2 GiB  7/40      5 MiB/4 GiB    6 MiB/1 GiB  3/10\n") {
		t.Errorf("got %+v", got)
	}
}

func TestTenantsPurge(t *testing.T) {
	calls := 0
	f := answers("PurgeTenant", func(m *pb.PurgeTenantRequest) (*pb.PurgeTenantResponse, error) {
		calls++
		if m.Tenant == "Bad N" {
			detail := &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "tenant"}}}
			return nil, refusal(codes.InvalidArgument, "INVALID_REQUEST", `tenant: "Bad N" is not a name of a tenant`, detail)
		}
		if m.Tenant == "idle" {
			return &pb.PurgeTenantResponse{Sessions: 1, SessionBytes: 2048}, nil
		}
		if m.Tenant != "acme" {
			return &pb.PurgeTenantResponse{}, nil
		}
		return &pb.PurgeTenantResponse{Executions: 3, ExecutionBytes: 2048, SkillVersions: 1, SkillBytes: 4096, Environments: 2, EnvironmentBytes: 1 << 20, Sessions: 4, SessionBytes: 8192}, nil
	})
	if got := f.client(t, strings.NewReader("acme\n"), "tenants", "purge", "acme"); got.code != codeFailed || calls != 0 || !strings.Contains(got.stderr, "add --yes") {
		t.Errorf("without --yes: got %+v after %d calls", got, calls)
	}
	want := "acme: 3 execution(s) with 2 KiB, 1 version(s) of skills with 4 KiB, 2 environment(s) with 1 MiB and 4 session(s) with 8 KiB removed\n"
	if got := f.client(t, nil, "tenants", "purge", "acme", "--yes"); got != (result{0, want, ""}) {
		t.Errorf("got %+v\nwant %s", got, want)
	}
	// A tenant with sessions and nothing else had data.
	if got := f.client(t, nil, "tenants", "purge", "idle", "--yes"); !strings.HasSuffix(got.stdout, "and 1 session(s) with 2 KiB removed\n") {
		t.Errorf("got %+v", got)
	}
	if got := f.client(t, nil, "tenants", "purge", "Bad N", "--yes"); got.stderr != "skillrun: NAME: \"Bad N\" is not a name of a tenant (INVALID_REQUEST)\n" {
		t.Errorf("got %+v", got)
	}
	if got := f.client(t, nil, "tenants", "purge", "amce", "--yes"); got != (result{0, "the daemon had no data of tenant amce\n", ""}) {
		t.Errorf("got %+v", got)
	}
	if got := f.client(t, nil, "tenants", "purge", "acme", "--yes", "--json"); got.code != 0 || !strings.Contains(got.stdout, `"executions":"3"`) {
		t.Errorf("got %+v", got)
	}
	for answer, want := range map[string]error{"acme\n": nil, " acme": nil, "yes\n": errNotPurged, "": errNotPurged} {
		asked := &strings.Builder{}
		a := &app{stderr: asked}
		if err := a.confirmPurge(strings.NewReader(answer), "acme"); err != want || !strings.Contains(asked.String(), "all data of tenant acme") {
			t.Errorf("%q: got %v, want %v; asked %q", answer, err, want, asked)
		}
	}
}

func TestVersion(t *testing.T) {
	f := answers("GetCapabilities", func(*pb.GetCapabilitiesRequest) (*pb.GetCapabilitiesResponse, error) {
		return &pb.GetCapabilitiesResponse{Version: "v1"}, nil
	})
	if got, want := f.client(t, nil, "version"), (result{0, "client unknown\ndaemon v1\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	nobody := &fake{address: "unix:///nonexistent"}
	if got, want := nobody.client(t, nil, "version"), (result{0, "client unknown\ndaemon not reachable\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := nobody.client(t, nil, "--version"), (result{0, "skillrun unknown\n", ""}); got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if got, want := nobody.client(t, nil, "version", "--json"), (result{0, `{"client":"unknown","daemon":""}` + "\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestCompletionAndHelp(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if got := (&fake{}).client(t, nil, "completion", shell); got.code != 0 || !strings.Contains(got.stdout, "skillrun") {
			t.Errorf("%s: got code %d and %d bytes", shell, got.code, len(got.stdout))
		}
	}
	if got := (&fake{}).client(t, nil); got.code != 0 || !strings.Contains(got.stdout, "Exit codes") {
		t.Errorf("no arguments: got %+v, want the help", got)
	}
}
