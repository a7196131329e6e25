package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/toolview"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

func (d *daemon) tools() pb.ToolServiceClient { return pb.NewToolServiceClient(d.conn) }

// ListTools returns the table's definitions, as text for a platform and as an equal message.
func TestListTools(t *testing.T) {
	d := startIdle(t, nil)
	got, err := d.tools().ListTools(t.Context(), &pb.ListToolsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := toolview.New(toolview.Config{}).Tools()
	if len(got.Tools) != len(want) {
		t.Fatalf("%d tools, want %d", len(got.Tools), len(want))
	}
	for i, tool := range got.Tools {
		if tool.Name != want[i].Name || tool.Description != want[i].Description || tool.DefinitionJson != string(want[i].Definition()) {
			t.Errorf("got %v, want %+v", tool, want[i])
		}
		if !strings.HasPrefix(tool.DefinitionJson, `{"type": "function", "function": {"name": "`+tool.Name+`", "description": "`) {
			t.Errorf("definition %s", tool.DefinitionJson)
		}
		var definition struct {
			Function struct{ Parameters any }
		}
		if err := json.Unmarshal([]byte(tool.DefinitionJson), &definition); err != nil {
			t.Fatal(err)
		}
		inText, _ := json.Marshal(definition.Function.Parameters)
		asMessage, _ := json.Marshal(tool.Parameters.AsMap())
		if string(inText) != string(asMessage) {
			t.Errorf("parameters %s, want %s", asMessage, inText)
		}
	}
}

// A callTranscript collects the stream of a tool's call.
type callTranscript struct {
	stdout, stderr string
	result         *pb.ToolResult
	err            error // io.EOF is nil
}

func (d *daemon) callTool(name, arguments string) callTranscript {
	d.t.Helper()
	stream, err := d.tools().CallTool(d.t.Context(), &pb.CallToolRequest{Name: name, ArgumentsJson: arguments})
	if err != nil {
		d.t.Fatal(err)
	}
	var r callTranscript
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return r
		}
		if err != nil {
			r.err = err
			return r
		}
		if r.result != nil {
			d.t.Errorf("after the result: %v", m)
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

// Output comes first, then one result that names its execution and its files.
func TestCallTool(t *testing.T) {
	d := startDaemon(t, nil)
	r := d.callTool("run_skill_script", `{"skill": "demo", "script_path": "scripts/hello.sh"}`)
	if r.err != nil || r.stdout != "hello \n" || r.stderr != "nobody\n" || !r.result.GetIsError() {
		t.Fatalf("got %+v", r)
	}
	object := r.result.Structured.AsMap()
	if object["exit_code"] != 3.0 || object["stdout"] != "hello \n" || !strings.HasPrefix(r.result.Content, `{"exit_code": 3, "stdout": "hello \n", "stderr": "nobody\n", `) {
		t.Errorf("got %v", r.result)
	}
	if e := d.ended(r.result.ExecutionId); e.stdout != r.stdout {
		t.Errorf("execution %s printed %q", r.result.ExecutionId, e.stdout)
	}
	r = d.callTool("run_skill_script", `{"skill": "demo", "script_path": "scripts/files.sh"}`)
	if r.err != nil || r.result.GetIsError() || len(r.result.GetArtifacts()) != 4 || r.result.Artifacts[0].Path != "out/a.txt" {
		t.Errorf("got %+v", r)
	}
	r = d.callTool("list_skills", "")
	if r.err != nil || r.result.GetExecutionId() != "" || !strings.Contains(r.result.GetContent(), `{"name": "demo", "description": "What the tests of the server run."}`) {
		t.Errorf("got %+v", r)
	}
}

func TestCallToolRefuses(t *testing.T) {
	d := startIdle(t, nil)
	for _, tt := range []struct {
		name, arguments string
		want            refusal
		message         string
	}{
		{"rm", "{}", refusal{codes.NotFound, "UNKNOWN_TOOL", ""}, `there is no tool "rm"; the tools are list_skills, `},
		{"bash", `{"skill": "demo"}`, refusal{codes.InvalidArgument, "INVALID_TOOL_ARGUMENTS", "arguments_json"}, "bash: command: is required: "},
		{"bash", `{`, refusal{codes.InvalidArgument, "INVALID_TOOL_ARGUMENTS", "arguments_json"}, "bash: the arguments are not valid JSON; "},
	} {
		r := d.callTool(tt.name, tt.arguments)
		if st := wantRefusal(t, r.err, tt.want); !strings.HasPrefix(st.Message(), tt.message) {
			t.Errorf("got %q, want %q", st.Message(), tt.message)
		}
	}
	d.x.Drain(t.Context(), t.Context())
	wantRefusal(t, d.callTool("run_skill_script", `{"skill": "demo", "script_path": "scripts/hello.sh"}`).err, refusal{codes.Unavailable, "DRAINING", ""})
}

// A model's caller who hangs up ends the program.
func TestCancelledCallToolCancels(t *testing.T) {
	d := startDaemon(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := d.tools().CallTool(ctx, &pb.CallToolRequest{Name: "run_skill_script", ArgumentsJson: `{"skill": "demo", "script_path": "scripts/forever.sh"}`})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); err != nil || string(m.GetOutput().GetData()) != "ready\n" {
		t.Fatalf("got %v, %v", m, err)
	}
	list, err := d.runs.ListExecutions(t.Context(), &pb.ListExecutionsRequest{})
	if err != nil || len(list.Executions) != 1 {
		t.Fatalf("got %v, %v", list, err)
	}
	cancel()
	got := d.ended(list.Executions[0].ExecutionId).outcome
	if got.End != pb.ExecutionEnd_EXECUTION_END_CANCELLED || got.Evidence.CancelledBy != "disconnect" {
		t.Errorf("ended as %v", got)
	}
}

// The typed calls set the fields that their contract's object has, and no others.
func TestTypedPythonCalls(t *testing.T) {
	d := startIdle(t, nil)
	var header metadata.MD
	r, err := d.tools().RunPythonScript(t.Context(), &pb.RunPythonScriptRequest{SkillName: "../x", Script: new("1")}, grpc.Header(&header))
	message := `Invalid skill name: '../x'. Skill names must not contain '/', '\', or '..'`
	if err != nil || !proto.Equal(r, &pb.RunPythonScriptResponse{Error: &message}) || len(header.Get(executionHeader)) > 0 {
		t.Errorf("got %v, %v, header %v", r, err, header)
	}
	p, err := d.tools().RunPython(t.Context(), &pb.RunPythonRequest{})
	if err != nil || p.GetText() != "Error: provide either code or scriptPath." {
		t.Errorf("got %v, %v", p, err)
	}
	want := refusal{codes.InvalidArgument, "INVALID_REQUEST", "timeout"}
	_, err = d.tools().RunPythonScript(t.Context(), &pb.RunPythonScriptRequest{SkillName: "demo", Script: new("1"), Timeout: durationpb.New(0)})
	wantRefusal(t, err, want)
	_, err = d.tools().RunPython(t.Context(), &pb.RunPythonRequest{Code: "1", Timeout: durationpb.New(-1)})
	wantRefusal(t, err, want)
	_, err = d.tools().RunPython(t.Context(), &pb.RunPythonRequest{Code: "1", Files: []*pb.InputFile{{Path: "x"}}})
	wantRefusal(t, err, refusal{codes.InvalidArgument, "INVALID_REQUEST", "files[0]"})
}

func TestFromPythonScriptResult(t *testing.T) {
	name, out, none, code, yes, no, late := "calc", "a\n", "", int32(-1), true, false, "too late"
	for _, tt := range []struct {
		result toolview.PythonScriptResult
		want   *pb.RunPythonScriptResponse
	}{
		{toolview.PythonScriptResult{Error: late}, &pb.RunPythonScriptResponse{Error: &late}},
		{
			toolview.PythonScriptResult{Ran: true, SkillName: name, Stdout: out, Returncode: -1},
			&pb.RunPythonScriptResponse{SkillName: &name, Stdout: &out, Stderr: &none, Returncode: &code, TimedOut: &no},
		},
		{
			toolview.PythonScriptResult{Ran: true, SkillName: name, Stdout: out, Returncode: -1, TimedOut: true, Error: late},
			&pb.RunPythonScriptResponse{SkillName: &name, Stdout: &out, Stderr: &none, Returncode: &code, TimedOut: &yes, Error: &late},
		},
	} {
		if got := fromPythonScriptResult(tt.result); !proto.Equal(got, tt.want) {
			t.Errorf("got %v, want %v", got, tt.want)
		}
	}
}

// A field that the contract requires is in the JSON even if it is zero.
func TestZeroValuesAreInJSON(t *testing.T) {
	for want, m := range map[string]proto.Message{
		`{"exit_code":0,"stdout":"","stderr":"","execution_time_ms":0,"script_path":"","timeout":false,"stdout_truncated":false,"stderr_truncated":false,"success":false,"signaled":false}`: fromScriptResult(toolview.ScriptResult{}),
		`{"success":false,"exit_code":0,"stdout":"","stderr":"","execution_time":0,"command":""}`:                                                                                           fromCommandResult(toolview.CommandResult{}),
	} {
		encoded, err := protojson.Marshal(m)
		var got, wanted any
		if err != nil || json.Unmarshal(encoded, &got) != nil || json.Unmarshal([]byte(want), &wanted) != nil || !reflect.DeepEqual(got, wanted) {
			t.Errorf("got %s, %v, want %s", encoded, err, want)
		}
	}
}

// A message stays small enough for a client that takes the usual 4 MiB: first the
// object goes, then files.
func TestToolResultFits(t *testing.T) {
	object := json.RawMessage(`{"stdout": "` + strings.Repeat("x", 2<<20) + `"}`)
	files := make([]executor.Artifact, 1000)
	for i := range files {
		files[i].Path = strings.Repeat("p", 1000)
	}
	m, err := fromToolResult(toolview.Result{Content: string(object), Structured: object, Extras: toolview.Extras{Artifacts: files}})
	if err != nil || m.Structured != nil || len(m.Content) != len(object) || len(m.Artifacts) == 0 || proto.Size(m) > 4<<20 {
		t.Errorf("%d bytes, object %t, %d files, %v", proto.Size(m), m.Structured != nil, len(m.Artifacts), err)
	}
	if m, err = fromToolResult(toolview.Result{Content: "a", Structured: json.RawMessage(`{"a": [1]}`)}); err != nil || m.Structured.AsMap()["a"] == nil {
		t.Errorf("got %v, %v", m, err)
	}
	if _, err := fromToolResult(toolview.Result{Structured: json.RawMessage(`[]`)}); err == nil {
		t.Error("no error for what is no object")
	}
}

// A reader calls the tools that run nothing, and no others.
func TestToolsOfARole(t *testing.T) {
	d := startIdle(t, func(_ *executor.Config, c *Config) { c.Identify = as(identity.Read) })
	if r := d.callTool("list_skills", ""); r.err != nil || r.result.GetIsError() {
		t.Errorf("list_skills: %+v", r)
	}
	for _, name := range []string{"bash", "run_skill_script", "run_python_script", "run_python", "rm"} {
		wantRefusal(t, d.callTool(name, `{"skill": "demo"}`).err, refusal{codes.PermissionDenied, "ROLE_REQUIRED", ""})
	}
}
