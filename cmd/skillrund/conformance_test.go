package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// The contracts as data, tested with the real daemon. Each row of testdata/conformance.json
// has a script, its input and its expected end. internal/permission has the table of
// allowed-tools. An unknown field fails the test.

// A conformanceCase is a row of conformance.json.
type conformanceCase struct {
	ID      string            `json:"id"`
	Source  string            `json:"source"`
	Ext     string            `json:"ext"`
	Body    string            `json:"body"`
	Args    map[string]string `json:"args"`
	Timeout float64           `json:"timeout"`
	Limits  struct {
		MaxOutput uint64 `json:"max_output"`
	} `json:"limits"`
	Mode   *string           `json:"mode"`
	Path   *string           `json:"path"`
	Expect conformanceExpect `json:"expect"`
	Note   string            `json:"note"`
}

// A conformanceExpect has the expected results of a row. A nil field is not checked.
type conformanceExpect struct {
	Exit              *int32          `json:"exit"`
	Success           *bool           `json:"success"`
	TimedOut          *bool           `json:"timed_out"`
	Signal            json.RawMessage `json:"signal"` // null is checked, too
	SignalNumber      *int32          `json:"signal_number"`
	Stdout            *string         `json:"stdout"`
	Stderr            *string         `json:"stderr"`
	StdoutContains    string          `json:"stdout_contains"`
	StderrContains    string          `json:"stderr_contains"`
	StdoutLacks       []string        `json:"stdout_lacks"`
	StdoutLines       *int            `json:"stdout_lines"`
	StdoutPrefix      string          `json:"stdout_prefix"`
	StdoutPrefixBytes *int            `json:"stdout_prefix_bytes"`
	StdoutTruncated   *bool           `json:"stdout_truncated"`
	StderrTruncated   *bool           `json:"stderr_truncated"`
	MaxStdoutBytes    *int            `json:"max_stdout_bytes"`
	RawB64            *string         `json:"raw_b64"`
	LeftoverProcesses *int            `json:"leftover_processes"`
	WallMS            *[2]float64     `json:"wall_ms"`
	Repeat            int             `json:"repeat"`
	Error             string          `json:"error"`
	Message           *string         `json:"message"`
	MessageContains   oneOrMore       `json:"message_contains"`
}

// oneOrMore is a JSON string or a list of strings.
type oneOrMore []string

func (l *oneOrMore) UnmarshalJSON(data []byte) error {
	if data[0] == '[' {
		return json.Unmarshal(data, (*[]string)(l))
	}
	*l = []string{""}
	return json.Unmarshal(data, &(*l)[0])
}

func readStrict(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func TestConformanceScripts(t *testing.T) {
	t.Parallel()
	var data struct {
		About string            `json:"about"`
		Cases []conformanceCase `json:"cases"`
	}
	readStrict(t, "testdata/conformance.json", &data)
	if len(data.Cases) < 50 {
		t.Fatalf("%d cases", len(data.Cases))
	}
	for i := range data.Cases {
		data.Cases[i].patientDeadline()
	}
	dir := newDir(t)
	requests := make([]*pb.ExecuteScriptRequest, len(data.Cases))
	for i, c := range data.Cases {
		requests[i] = c.write(t, dir, fmt.Sprintf("case-%d", i))
	}
	d := startDaemonIn(t, dir, "")
	for i, c := range data.Cases {
		t.Run(c.ID, func(t *testing.T) {
			d.t = t
			for range max(c.Expect.Repeat, 1) {
				c.run(d, requests[i])
			}
		})
	}
	d.t = t
	d.wantNothingLeft()
}

// patientDeadline prolongs the deadline of a row that prints something before its deadline:
// on a busy machine an interpreter may take longer than a second to start.
func (c *conformanceCase) patientDeadline() {
	if e := c.Expect; e.TimedOut == nil || !*e.TimedOut || e.Stdout == nil || *e.Stdout == "" {
		return
	}
	late := startsWithin.Seconds() / c.Timeout
	c.Timeout *= late
	if c.Expect.WallMS != nil {
		c.Expect.WallMS[0] *= late
	}
}

// write writes the skill of a row and returns the request that runs the row.
func (c conformanceCase) write(t *testing.T, dir, name string) *pb.ExecuteScriptRequest {
	t.Helper()
	script := "scripts/x"
	if c.Ext != "" {
		script += "." + c.Ext
	}
	files := map[string]string{script: c.Body}
	req := &pb.ExecuteScriptRequest{
		ScriptPath: script, MaxOutputSize: c.Limits.MaxOutput,
		Timeout: durationpb.New(time.Duration(c.Timeout * float64(time.Second))), ArgumentsJson: c.arguments(t),
	}
	var link, target string
	if c.Path != nil {
		req.ScriptPath = *c.Path
		var isLink bool
		if link, target, isLink = strings.Cut(*c.Path, " -> "); isLink {
			req.ScriptPath = link
			if !strings.Contains(target, "/") && target != filepath.Base(link) {
				files["scripts/"+target] = c.Body
			}
		}
		if strings.HasPrefix(*c.Path, "../my-skill-evil/") { // another skill whose name begins with this skill's name
			name = "my-skill"
			writeSkill(t, dir, "my-skill-evil", "", map[string]string{"x.py": c.Body})
		}
	}
	req.Skill = name
	writeSkill(t, dir, name, "", files)
	root := filepath.Join(dir, "skills", name)
	if target != "" {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(target, "../../") { // the link's target exists
			if err := os.WriteFile(filepath.Join(root, "scripts", target), []byte(c.Body), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if c.Mode != nil {
		mode, err := strconv.ParseUint(*c.Mode, 8, 32)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Chmod(filepath.Join(root, script), uint32(mode)); err != nil {
			t.Fatal(err)
		}
	}
	return req
}

// arguments returns the JSON of a row's arguments. It replaces placeholders in <...>.
func (c conformanceCase) arguments(t *testing.T) string {
	t.Helper()
	args := map[string]string{}
	for key, value := range c.Args {
		switch value {
		case "<5000000 bytes of y>":
			value = strings.Repeat("y", 5_000_000)
		case "<pad to the byte limit>":
			value = strings.Repeat("p", 10_000_000-len(`{"x": ""}`))
		case "<11 MiB>":
			value = strings.Repeat("z", 11<<20)
		default:
			if strings.HasPrefix(value, "<") {
				t.Fatalf("argument %s: unknown placeholder %s", key, value)
			}
		}
		args[key] = value
	}
	text, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// run runs a row and checks every expectation.
func (c conformanceCase) run(d *running, req *pb.ExecuteScriptRequest) {
	t, want := d.t, c.Expect
	t.Helper()
	r, id, err := d.executeScript(req)
	if want.Error != "" {
		c.wantError(t, req, err, id)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	check(t, "exit_code", r.GetExitCode(), want.Exit)
	check(t, "success", r.GetSuccess(), want.Success)
	check(t, "timeout", r.GetTimeout(), want.TimedOut)
	check(t, "stdout", r.GetStdout(), want.Stdout)
	check(t, "stderr", r.GetStderr(), want.Stderr)
	check(t, "stdout_truncated", r.GetStdoutTruncated(), want.StdoutTruncated)
	check(t, "stderr_truncated", r.GetStderrTruncated(), want.StderrTruncated)
	if want.Signal != nil {
		got, err := json.Marshal(r.Signal)
		if err != nil || string(got) != string(want.Signal) {
			t.Errorf("signal %s, want %s (%v)", got, want.Signal, err)
		}
	}
	if want.SignalNumber != nil && (r.SignalNumber == nil || *r.SignalNumber != *want.SignalNumber) {
		t.Errorf("signal_number %v, want %d", r.SignalNumber, *want.SignalNumber)
	}
	if !strings.Contains(r.GetStdout(), want.StdoutContains) || !strings.Contains(r.GetStderr(), want.StderrContains) {
		t.Errorf("stdout %q, stderr %q; want %q, %q in them", tail(r.GetStdout(), 200), tail(r.GetStderr(), 200), want.StdoutContains, want.StderrContains)
	}
	for _, lacks := range want.StdoutLacks {
		if strings.Contains(r.GetStdout(), lacks) {
			t.Errorf("stdout has %q: %q", lacks, r.GetStdout())
		}
	}
	if want.StdoutLines != nil && strings.Count(r.GetStdout(), "\n") != *want.StdoutLines {
		t.Errorf("stdout %q, want %d lines", r.GetStdout(), *want.StdoutLines)
	}
	kept, _, _ := strings.Cut(r.GetStdout(), "\n[... OUTPUT TRUNCATED")
	if want.StdoutPrefix != "" && kept != want.StdoutPrefix {
		t.Errorf("stdout before the marker %q, want %q", tail(kept, 200), want.StdoutPrefix)
	}
	if want.StdoutPrefixBytes != nil && len(kept) != *want.StdoutPrefixBytes {
		t.Errorf("%d bytes before the marker, want %d", len(kept), *want.StdoutPrefixBytes)
	}
	if want.MaxStdoutBytes != nil && len(r.GetStdout()) > *want.MaxStdoutBytes {
		t.Errorf("stdout has %d bytes, want at most %d", len(r.GetStdout()), *want.MaxStdoutBytes)
	}
	c.wantEvidence(d, r, id)
	// The contract promises this for every result.
	if !utf8.ValidString(r.GetStdout()) || !utf8.ValidString(r.GetStderr()) || r.GetExecutionTimeMs() <= 0 || id == "" {
		t.Errorf("no result of the contract: %v, execution %q", r, id)
	}
}

// wantEvidence checks the expectations that are not about the result itself.
func (c conformanceCase) wantEvidence(d *running, r *pb.ExecuteScriptResponse, id string) {
	t, want := d.t, c.Expect
	t.Helper()
	if want.LeftoverProcesses != nil {
		if left := d.processes(id); len(left) != *want.LeftoverProcesses {
			t.Errorf("processes %v are left, want %d", left, *want.LeftoverProcesses)
		}
	}
	if want.RawB64 != nil {
		if got := base64.StdEncoding.EncodeToString(d.attach(id, 0).stdout.Bytes()); got != *want.RawB64 {
			t.Errorf("the bytes are %s, want %s", got, *want.RawB64)
		}
	}
	// The test measures no time, because a loaded machine would make it fail. The daemon's
	// measurement shows that the script did not end early. The end and the deadline in the
	// outcome show that it did not end late.
	if want.WallMS != nil {
		if r.GetExecutionTimeMs() < want.WallMS[0] {
			t.Errorf("execution_time_ms %v, want at least %v", r.GetExecutionTimeMs(), want.WallMS[0])
		}
		o := d.attach(id, 0).outcome
		wantEnd, wantDeadline := pb.ExecutionEnd_EXECUTION_END_EXITED, pb.ExecutionDeadline_EXECUTION_DEADLINE_UNSPECIFIED
		if r.GetTimeout() {
			wantEnd, wantDeadline = pb.ExecutionEnd_EXECUTION_END_TIMED_OUT, pb.ExecutionDeadline_EXECUTION_DEADLINE_WALL
		}
		if o.GetEnd() != wantEnd || o.GetEvidence().GetDeadline() != wantDeadline ||
			o.GetLimits().GetWallTime().AsDuration().Seconds() != c.Timeout {
			t.Errorf("outcome %v, want %v by %v of %vs", o, wantEnd, wantDeadline, c.Timeout)
		}
	}
}

// wantError checks that a request got the error of its row and that nothing was executed.
func (c conformanceCase) wantError(t testing.TB, req *pb.ExecuteScriptRequest, err error, id string) {
	t.Helper()
	s := status.Convert(err)
	if name := raised(err); name != c.Expect.Error || id != "" {
		t.Errorf("raised %q (%v), execution %q; want %s", name, err, id, c.Expect.Error)
	}
	if c.Expect.Message != nil {
		n := len(`{"x": ""}`) + 11<<20
		want := strings.NewReplacer("{n}", strconv.Itoa(n), "{file}", filepath.Base(req.ScriptPath)).Replace(*c.Expect.Message)
		if s.Message() != want {
			t.Errorf("message %q, want %q", s.Message(), want)
		}
	}
	for _, part := range c.Expect.MessageContains {
		if !strings.Contains(s.Message(), part) {
			t.Errorf("message %q, want %q in it", s.Message(), part)
		}
	}
}

func check[T comparable](t testing.TB, field string, got T, want *T) {
	t.Helper()
	if want != nil && got != *want {
		t.Errorf("%s %.300v, want %.300v", field, fmt.Sprintf("%#v", got), fmt.Sprintf("%#v", *want))
	}
}

// raised returns the name of the exception in a status.
func raised(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.Metadata["error"]
		}
	}
	return ""
}

// tools returns a client of the published contracts.
func (d *running) tools() pb.ToolServiceClient { return pb.NewToolServiceClient(d.conn) }

// executeScript returns the result and the id of its execution, "" for none.
func (d *running) executeScript(req *pb.ExecuteScriptRequest) (*pb.ExecuteScriptResponse, string, error) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 2*patience)
	defer cancel()
	var header metadata.MD
	r, err := d.tools().ExecuteScript(ctx, req, grpc.Header(&header))
	return r, executionOf(header), err
}

func (d *running) executeCommand(req *pb.ExecuteCommandRequest) (*pb.ExecuteCommandResponse, string, error) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 2*patience)
	defer cancel()
	var header metadata.MD
	r, err := d.tools().ExecuteCommand(ctx, req, grpc.Header(&header))
	return r, executionOf(header), err
}

func executionOf(header metadata.MD) string {
	return strings.Join(header.Get("skillrun-execution-id"), " ")
}

// This tests the test: processes finds the processes of a script while the script runs.
func TestConformanceFindsProcesses(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := d.runs.Execute(ctx, shell("calculator", "sleep 3600 & echo ready; wait"))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	r, err := collect(t, s, 0, func(e *pb.ExecutionEvent) {
		if e.GetOutput() == nil {
			return
		}
		seen = len(d.processes(e.ExecutionId))
		if _, err := d.runs.CancelExecution(ctx, &pb.CancelExecutionRequest{ExecutionId: e.ExecutionId}); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 2 { // bash and sleep, and the sandbox's init
		t.Errorf("%d processes while it ran, want at least 2", seen)
	}
	if left := d.processes(r.id); len(left) != 0 {
		t.Errorf("processes %v are left", left)
	}
}

func TestConformanceAllowedTools(t *testing.T) {
	t.Parallel()
	var data struct {
		About string `json:"about"`
		Cases []struct {
			Tools string `json:"tools"`
			Cmd   string `json:"cmd"`
			Allow bool   `json:"allow"`
			Note  string `json:"note"`
		} `json:"cases"`
	}
	readStrict(t, "../../internal/permission/testdata/allowed_tools.json", &data)
	if len(data.Cases) < 80 {
		t.Fatalf("%d cases", len(data.Cases))
	}
	dir := newDir(t)
	skills := map[string]string{} // rules -> skill
	for _, c := range data.Cases {
		if skills[c.Tools] != "" {
			continue
		}
		name := fmt.Sprintf("rules-%d", len(skills))
		skills[c.Tools] = name
		if strings.Contains(c.Tools, "/skills/demo/") {
			name, skills[c.Tools] = "demo", "demo"
		}
		rules, err := json.Marshal(c.Tools) // JSON is valid YAML
		if err != nil {
			t.Fatal(err)
		}
		writeSkill(t, dir, name, "allowed-tools: "+string(rules), map[string]string{"scripts/x.sh": "echo ran\n"})
	}
	d := startDaemonIn(t, dir, "")
	for i, c := range data.Cases {
		t.Run(fmt.Sprintf("%02d %.60q", i, c.Cmd), func(t *testing.T) {
			d.t = t
			checked, err := d.skills.CheckCommand(t.Context(), &pb.CheckCommandRequest{Skill: skills[c.Tools], Command: c.Cmd})
			if err != nil || checked.GetAllowed() != c.Allow {
				t.Errorf("%s by %s: %v, %v; want allowed %t (%s)", c.Cmd, c.Tools, checked, err, c.Allow, c.Note)
			}
			r, id, err := d.executeCommand(&pb.ExecuteCommandRequest{Skill: skills[c.Tools], Command: c.Cmd})
			if err != nil {
				t.Fatal(err)
			}
			if r.GetCommand() != c.Cmd || r.GetSuccess() != (r.GetExitCode() == 0) {
				t.Errorf("got %v", r)
			}
			if c.Allow {
				if id == "" || strings.Contains(r.GetError(), "not allowed") {
					t.Errorf("execution %q, error %q; want it to run (%s)", id, r.GetError(), c.Note)
				}
				return
			}
			want := "Command not allowed by skill permissions: " + c.Cmd
			first := strings.TrimSuffix(r.GetError(), strings.TrimPrefix(r.GetError(), want+"\n")) // of a command of several lines, too
			if id != "" || first != want+"\n" || r.GetReason() == "" || r.GetExitCode() != -1 || r.GetExecutionTime() != 0 || r.GetStdout()+r.GetStderr() != "" {
				t.Errorf("execution %q, %v\nwant the error %q (%s)", id, r, want, c.Note)
			}
		})
	}
}
