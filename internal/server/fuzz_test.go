package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/permission"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// fuzzedMethods are the methods that bytes are sent to, in an order that does not
// change: all but one that only ends with its caller.
func fuzzedMethods() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(accessTable)), func(m string) bool { return m == healthpb.Health_Watch_FullMethodName })
}

// alarm is a log that remembers what must not be in it.
type alarm struct {
	slog.Handler
	mu   sync.Mutex
	said []string
}

func (a *alarm) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }
func (a *alarm) WithAttrs([]slog.Attr) slog.Handler           { return a }
func (a *alarm) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(at slog.Attr) bool { line += " " + at.String(); return true })
	a.mu.Lock()
	defer a.mu.Unlock()
	a.said = append(a.said, line)
	return nil
}

// seedRequests are requests of each kind that the daemon gets in earnest.
func seedRequests(f *testing.F) map[string][]proto.Message {
	long := durationpb.New(time.Minute)
	execute := []proto.Message{
		script("scripts/hello.sh", "a", ""),
		&pb.ExecuteRequest{Skill: "demo", Source: &pb.ExecuteRequest_Command{Command: "cat a | grep 'b c' > d && ls"}, QueueTimeout: long},
		&pb.ExecuteRequest{
			Skill: "demo@sha256:" + strings.Repeat("0", 64), Source: &pb.ExecuteRequest_Code{Code: &pb.InlineCode{Text: "print()", Language: "python"}},
			Stdin: &pb.ExecuteRequest_JsonArguments{JsonArguments: `{"a": [1, 2.5, null, "\ud800"]}`}, WorkingDirectory: "a/b",
			Files: []*pb.InputFile{{Path: "a/b", Source: &pb.InputFile_Content{Content: []byte("x")}, Executable: true}},
			Env:   map[string]string{"A": "b"}, SecretEnv: map[string]string{"C": "d"}, Labels: map[string]string{"k": "v"},
			Limits:       &pb.ExecutionLimits{WallTime: long, CpuTime: long, MemoryBytes: 1 << 27, Processes: 5, MilliCpus: 100},
			NetworkRules: &pb.NetworkRules{Allow: []string{"public"}}, OnDisconnect: pb.OnDisconnect_ON_DISCONNECT_CONTINUE, IdempotencyKey: "key",
		},
	}
	data, err := os.ReadFile("../../cmd/skillrund/testdata/conformance.json")
	if err != nil {
		f.Fatal(err)
	}
	var conformance struct {
		Cases []struct {
			Ext, Body string
			Args      json.RawMessage
		}
	}
	if err := json.Unmarshal(data, &conformance); err != nil || len(conformance.Cases) == 0 {
		f.Fatalf("%d cases, %v", len(conformance.Cases), err)
	}
	for _, c := range conformance.Cases {
		if len(c.Body)+len(c.Args) < 4096 {
			execute = append(execute, &pb.ExecuteRequest{
				Skill: "demo", Source: &pb.ExecuteRequest_Code{Code: &pb.InlineCode{Text: c.Body, Language: map[string]string{"py": "python", "sh": "bash"}[c.Ext]}},
				Stdin: &pb.ExecuteRequest_JsonArguments{JsonArguments: string(c.Args)},
			})
		}
	}
	interactive := []proto.Message{
		&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Stdin{Stdin: []byte("x")}},
		&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_FileChunk{FileChunk: &pb.FileChunk{Path: "a", Data: []byte("x")}}},
		&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Start{Start: &pb.ExecuteRequest{
			Skill: "demo", Source: &pb.ExecuteRequest_Script{Script: "scripts/hello.sh"},
			Files: []*pb.InputFile{{Path: "a", Source: &pb.InputFile_Streamed{Streamed: &pb.StreamedFile{SizeBytes: 1, Sha256: strings.Repeat("0", 64)}}}},
		}}},
	}
	for _, m := range execute {
		interactive = append(interactive, &pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Start{Start: m.(*pb.ExecuteRequest)}})
	}
	return map[string][]proto.Message{
		pb.ExecutionService_Execute_FullMethodName:            execute,
		pb.ExecutionService_ExecuteInteractive_FullMethodName: interactive,
		pb.ExecutionService_ListExecutions_FullMethodName: {&pb.ListExecutionsRequest{
			Skill: "demo", States: []pb.ExecutionState{1}, Ends: []pb.ExecutionEnd{2}, Labels: map[string]string{"a": "b"}, PageSize: 3, PageToken: "x",
		}},
		pb.ExecutionService_CancelExecution_FullMethodName: {&pb.CancelExecutionRequest{ExecutionId: "x", Reason: "y", Grace: long}},
		pb.ExecutionService_GetArtifact_FullMethodName:     {&pb.GetArtifactRequest{ExecutionId: "x", Path: "a", OffsetBytes: 1}},
		pb.SkillService_ReadSkillFile_FullMethodName:       {&pb.ReadSkillFileRequest{Skill: "demo", Path: "SKILL.md"}},
		pb.SkillService_CheckCommand_FullMethodName:        {&pb.CheckCommandRequest{Skill: "demo", Command: "cat a | sh -c 'b'"}},
		pb.SkillService_ActivateSkill_FullMethodName:       {&pb.ActivateSkillRequest{Skill: "demo"}},
		pb.ToolService_CallTool_FullMethodName:             {&pb.CallToolRequest{Name: "ExecuteScript", ArgumentsJson: `{"skill": "demo"}`}},
		pb.ToolService_ExecuteScript_FullMethodName:        {&pb.ExecuteScriptRequest{Skill: "demo", ScriptPath: "scripts/hello.sh", ArgumentsJson: "{}"}},
		pb.ToolService_ExecuteCommand_FullMethodName:       {&pb.ExecuteCommandRequest{Skill: "demo", Command: "ls"}},
		pb.ToolService_ValidateScriptPath_FullMethodName:   {&pb.ValidateScriptPathRequest{Skill: "demo", ScriptPath: "../x"}},
		pb.SystemService_GetCapabilities_FullMethodName:    {&pb.GetCapabilitiesRequest{}},
		pb.SkillService_PrepareSkill_FullMethodName:        {&pb.PrepareSkillRequest{Skill: "demo"}},
		pb.ExecutionService_AttachExecution_FullMethodName: {&pb.AttachExecutionRequest{ExecutionId: "x", AfterSequence: 1}},
		pb.ExecutionService_DeleteExecution_FullMethodName: {&pb.DeleteExecutionRequest{ExecutionId: "x"}},
		pb.ExecutionService_ListArtifacts_FullMethodName:   {&pb.ListArtifactsRequest{ExecutionId: "x"}},
		pb.ExecutionService_SignalExecution_FullMethodName: {&pb.SignalExecutionRequest{ExecutionId: "x", Signal: "TERM"}},
		pb.ToolService_RunPythonScript_FullMethodName:      {&pb.RunPythonScriptRequest{}},
		pb.ToolService_RunPython_FullMethodName:            {&pb.RunPythonRequest{}},
		pb.SkillService_GetSkill_FullMethodName:            {&pb.GetSkillRequest{Skill: "demo"}},
		pb.SkillService_ListSkills_FullMethodName:          {&pb.ListSkillsRequest{}},
		pb.SkillService_DeleteSkill_FullMethodName:         {&pb.DeleteSkillRequest{Skill: "demo"}},
		pb.SkillService_ListSkillVersions_FullMethodName:   {&pb.ListSkillVersionsRequest{Skill: "demo", PageToken: "x"}},
		pb.SkillService_PushSkill_FullMethodName: {
			&pb.PushSkillRequest{Message: &pb.PushSkillRequest_Header{Header: &pb.PushSkillHeader{Name: "demo", SizeBytes: 1, Source: "https://a.example/x"}}},
			&pb.PushSkillRequest{Message: &pb.PushSkillRequest_Entry{Entry: &pb.PushSkillEntry{Path: "SKILL.md", SizeBytes: 1, Data: []byte("x")}}},
			&pb.PushSkillRequest{Message: &pb.PushSkillRequest_Data{Data: []byte("x")}},
		},
		pb.SessionService_PutSessionFile_FullMethodName: {
			&pb.PutSessionFileRequest{Message: &pb.PutSessionFileRequest_Header{Header: &pb.PutSessionFileHeader{SessionId: "x", Path: "../a", SizeBytes: 1, Sha256: strings.Repeat("0", 64)}}},
			&pb.PutSessionFileRequest{Message: &pb.PutSessionFileRequest_Data{Data: []byte("x")}},
		},
		pb.SkillService_ValidateSkill_FullMethodName:    {&pb.ValidateSkillRequest{}},
		pb.ToolService_ListTools_FullMethodName:         {&pb.ListToolsRequest{}},
		pb.ExecutionService_GetExecution_FullMethodName: {&pb.GetExecutionRequest{ExecutionId: "x"}},
		healthpb.Health_Check_FullMethodName:            {&healthpb.HealthCheckRequest{Service: "x"}},
	}
}

// FuzzRequest sends bytes as a request of each method, and for a stream of them once
// more, to a real server that has no slot for executions: they wait, and end. Whatever
// comes, the answer is never that something is wrong with the server, and it logs no
// error.
func FuzzRequest(f *testing.F) {
	log := &alarm{}
	d := startIdle(f, func(x *executor.Config, c *Config) {
		x.MaxRunning, x.MaxQueued, x.QueueTimeout = 0, 1000, time.Millisecond
		x.Log, c.Log = slog.New(log), slog.New(log)
		c.MaxMessageBytes = 1 << 20
		c.Identify = func(identity.Credentials) (identity.Identity, error) {
			return identity.Identity{Principal: permission.Principal{Tenant: identity.DefaultTenant, Name: "fuzz"}, Role: identity.Operator}, nil
		}
	})
	methods := fuzzedMethods()
	seeds := seedRequests(f)
	for i, method := range methods {
		f.Add(uint8(i), []byte{})
		f.Add(uint8(i), []byte("\x0a\x04demo\x12\xff"))
		for _, m := range seeds[method] {
			data, err := proto.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(i), data)
		}
	}
	// Valid requests are accepted.
	for method, m := range map[string]proto.Message{
		pb.ExecutionService_Execute_FullMethodName:            seeds[pb.ExecutionService_Execute_FullMethodName][0],
		pb.ExecutionService_ExecuteInteractive_FullMethodName: &pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Start{Start: script("scripts/hello.sh")}},
		pb.SkillService_ListSkills_FullMethodName:             &pb.ListSkillsRequest{},
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		if code, message := d.send(f, method, data); code != codes.OK {
			f.Fatalf("%s: got %s %q", method, code, message)
		}
	}
	f.Fuzz(func(t *testing.T, method uint8, data []byte) {
		name := methods[int(method)%len(methods)]
		code, message := d.send(t, name, data)
		if code == codes.Internal || code == codes.Unknown || code == codes.DeadlineExceeded {
			t.Errorf("%s: %s %q", name, code, message)
		}
		log.mu.Lock()
		defer log.mu.Unlock()
		if len(log.said) > 0 {
			t.Errorf("%s: the log says %q", name, log.said)
			log.said = nil
		}
	})
}

// send makes one call and returns how it ended. It cancels an execution that the call started.
func (d *daemon) send(t testing.TB, method string, data []byte) (codes.Code, string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := d.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, grpc.ForceCodec(echoCodec{}))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := stream.SendMsg(raw(data)); err != nil || !d.bidirectional[method] {
			break // the server may have answered already
		}
	}
	stream.CloseSend()
	for {
		var answer raw
		if err := stream.RecvMsg(&answer); errors.Is(err, io.EOF) {
			return codes.OK, ""
		} else if err != nil {
			return status.Code(err), status.Convert(err).Message()
		}
		var m pb.ExecuteResponse // on the wire, the same as an ExecuteInteractiveResponse
		if (method == pb.ExecutionService_Execute_FullMethodName || method == pb.ExecutionService_ExecuteInteractive_FullMethodName) &&
			proto.Unmarshal(answer, &m) == nil && m.GetEvent().GetHeader() != nil {
			who := permission.Principal{Tenant: identity.DefaultTenant, Name: "fuzz"}
			if _, err := d.x.Cancel(ctx, who, m.GetEvent().GetExecutionId(), "fuzz", "", 0); err != nil {
				t.Errorf("cancel: %v", err)
			}
		}
	}
}

// echoCodec passes bytes on, in both directions.
type echoCodec struct{ rawCodec }

func (echoCodec) Unmarshal(data []byte, v any) error {
	*v.(*raw) = slices.Clone(data)
	return nil
}
