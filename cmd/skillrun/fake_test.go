package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/timestamppb"

	skillrun "github.com/skillrun/skillrun/clients/go"
	"github.com/skillrun/skillrun/internal/eventtest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// TestMain runs the client instead of the tests if the environment says so. Tests that need
// a client process start this binary.
func TestMain(m *testing.M) {
	if os.Getenv("SKILLRUN_TEST_CLIENT") != "" {
		main()
	}
	os.Unsetenv(addressVariable)
	os.Unsetenv(contextVariable)
	os.Setenv(contextFileVariable, "/nonexistent/contexts.yaml")
	os.Exit(m.Run())
}

type artifactServer = grpc.ServerStreamingServer[pb.GetArtifactResponse]

// fake is a daemon behind a real Unix socket. The test supplies its answers; for unary
// methods they are in answers, by name.
type fake struct {
	pb.UnimplementedExecutionServiceServer
	pb.UnimplementedSessionServiceServer
	pb.UnimplementedSkillServiceServer
	pb.UnimplementedSystemServiceServer
	pb.UnimplementedToolServiceServer

	execute     func(*pb.ExecuteRequest, eventtest.Server) error
	interactive func(eventtest.Interactive) error
	attach      func(*pb.AttachExecutionRequest, eventtest.Server) error
	artifact    func(*pb.GetArtifactRequest, artifactServer) error
	prepare     func(*pb.PrepareSkillRequest, grpc.ServerStreamingServer[pb.PrepareSkillResponse]) error
	push        func(*pb.PushSkillHeader) (*pb.PushSkillResponse, error)
	sessions    pb.SessionServiceServer // nil: none
	callTool    func(*pb.CallToolRequest, grpc.ServerStreamingServer[pb.CallToolResponse]) error
	// answers has func(*Request) (*Response, error) by method name. GetExecution, CancelExecution and
	// GetSkill return what their response has.
	answers map[string]any
	seen    func(context.Context) // gets the context of each unary call; may be nil
	refuse  error                 // the answer to every other unary call; nil: UNIMPLEMENTED

	address string
	mu      sync.Mutex
	conns   []net.Conn
	asked   []proto.Message // every unary request
}

func (f *fake) Execute(r *pb.ExecuteRequest, s grpc.ServerStreamingServer[pb.ExecuteResponse]) error {
	if f.execute == nil {
		return f.UnimplementedExecutionServiceServer.Execute(r, s)
	}
	return f.execute(r, eventtest.Execute(s))
}

func (f *fake) ExecuteInteractive(s grpc.BidiStreamingServer[pb.ExecuteInteractiveRequest, pb.ExecuteInteractiveResponse]) error {
	if f.interactive == nil {
		return f.UnimplementedExecutionServiceServer.ExecuteInteractive(s)
	}
	return f.interactive(eventtest.Interact(s))
}

func (f *fake) AttachExecution(r *pb.AttachExecutionRequest, s grpc.ServerStreamingServer[pb.AttachExecutionResponse]) error {
	if f.attach == nil {
		return f.UnimplementedExecutionServiceServer.AttachExecution(r, s)
	}
	return f.attach(r, eventtest.Attach(s))
}

func (f *fake) GetArtifact(r *pb.GetArtifactRequest, s artifactServer) error {
	if f.artifact == nil {
		return f.UnimplementedExecutionServiceServer.GetArtifact(r, s)
	}
	return f.artifact(r, s)
}

func answer[R, A proto.Message](f *fake, method string, r R) (A, error) {
	f.mu.Lock()
	f.asked = append(f.asked, r)
	f.mu.Unlock()
	if give, ok := f.answers[method].(func(R) (A, error)); ok {
		return give(r)
	}
	var none A
	if f.refuse != nil {
		return none, f.refuse
	}
	return none, status.Errorf(codes.Unimplemented, "method %s not implemented", method)
}

func (f *fake) GetExecution(_ context.Context, r *pb.GetExecutionRequest) (*pb.GetExecutionResponse, error) {
	e, err := answer[*pb.GetExecutionRequest, *pb.Execution](f, "GetExecution", r)
	return &pb.GetExecutionResponse{Execution: e}, err
}

func (f *fake) ListExecutions(_ context.Context, r *pb.ListExecutionsRequest) (*pb.ListExecutionsResponse, error) {
	return answer[*pb.ListExecutionsRequest, *pb.ListExecutionsResponse](f, "ListExecutions", r)
}

func (f *fake) CancelExecution(_ context.Context, r *pb.CancelExecutionRequest) (*pb.CancelExecutionResponse, error) {
	e, err := answer[*pb.CancelExecutionRequest, *pb.Execution](f, "CancelExecution", r)
	return &pb.CancelExecutionResponse{Execution: e}, err
}

func (f *fake) SignalExecution(_ context.Context, r *pb.SignalExecutionRequest) (*pb.SignalExecutionResponse, error) {
	return answer[*pb.SignalExecutionRequest, *pb.SignalExecutionResponse](f, "SignalExecution", r)
}

func (f *fake) DeleteExecution(_ context.Context, r *pb.DeleteExecutionRequest) (*pb.DeleteExecutionResponse, error) {
	return answer[*pb.DeleteExecutionRequest, *pb.DeleteExecutionResponse](f, "DeleteExecution", r)
}

func (f *fake) ListArtifacts(_ context.Context, r *pb.ListArtifactsRequest) (*pb.ListArtifactsResponse, error) {
	return answer[*pb.ListArtifactsRequest, *pb.ListArtifactsResponse](f, "ListArtifacts", r)
}

func (f *fake) CreateSession(_ context.Context, r *pb.CreateSessionRequest) (*pb.CreateSessionResponse, error) {
	return answer[*pb.CreateSessionRequest, *pb.CreateSessionResponse](f, "CreateSession", r)
}

func (f *fake) UpdateSession(_ context.Context, r *pb.UpdateSessionRequest) (*pb.UpdateSessionResponse, error) {
	return answer[*pb.UpdateSessionRequest, *pb.UpdateSessionResponse](f, "UpdateSession", r)
}

func (f *fake) ListSessions(_ context.Context, r *pb.ListSessionsRequest) (*pb.ListSessionsResponse, error) {
	return answer[*pb.ListSessionsRequest, *pb.ListSessionsResponse](f, "ListSessions", r)
}

func (f *fake) ListSessionVersions(_ context.Context, r *pb.ListSessionVersionsRequest) (*pb.ListSessionVersionsResponse, error) {
	return answer[*pb.ListSessionVersionsRequest, *pb.ListSessionVersionsResponse](f, "ListSessionVersions", r)
}

func (f *fake) ListSkills(_ context.Context, r *pb.ListSkillsRequest) (*pb.ListSkillsResponse, error) {
	return answer[*pb.ListSkillsRequest, *pb.ListSkillsResponse](f, "ListSkills", r)
}

func (f *fake) GetSkill(_ context.Context, r *pb.GetSkillRequest) (*pb.GetSkillResponse, error) {
	s, err := answer[*pb.GetSkillRequest, *pb.Skill](f, "GetSkill", r)
	return &pb.GetSkillResponse{Skill: s}, err
}

func (f *fake) ActivateSkill(_ context.Context, r *pb.ActivateSkillRequest) (*pb.ActivateSkillResponse, error) {
	return answer[*pb.ActivateSkillRequest, *pb.ActivateSkillResponse](f, "ActivateSkill", r)
}

func (f *fake) CheckCommand(_ context.Context, r *pb.CheckCommandRequest) (*pb.CheckCommandResponse, error) {
	return answer[*pb.CheckCommandRequest, *pb.CheckCommandResponse](f, "CheckCommand", r)
}

func (f *fake) PrepareSkill(r *pb.PrepareSkillRequest, s grpc.ServerStreamingServer[pb.PrepareSkillResponse]) error {
	if f.prepare == nil {
		return f.UnimplementedSkillServiceServer.PrepareSkill(r, s)
	}
	return f.prepare(r, s)
}

func (f *fake) PushSkill(s grpc.ClientStreamingServer[pb.PushSkillRequest, pb.PushSkillResponse]) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	answer, err := f.push(first.GetHeader())
	if err != nil {
		return err
	}
	return s.SendAndClose(answer)
}

func (f *fake) ListTools(_ context.Context, r *pb.ListToolsRequest) (*pb.ListToolsResponse, error) {
	return answer[*pb.ListToolsRequest, *pb.ListToolsResponse](f, "ListTools", r)
}

func (f *fake) CallTool(r *pb.CallToolRequest, s grpc.ServerStreamingServer[pb.CallToolResponse]) error {
	if f.callTool == nil {
		return f.UnimplementedToolServiceServer.CallTool(r, s)
	}
	return f.callTool(r, s)
}

func (f *fake) ValidateSkill(_ context.Context, r *pb.ValidateSkillRequest) (*pb.ValidateSkillResponse, error) {
	return answer[*pb.ValidateSkillRequest, *pb.ValidateSkillResponse](f, "ValidateSkill", r)
}

func (f *fake) ListTenants(_ context.Context, r *pb.ListTenantsRequest) (*pb.ListTenantsResponse, error) {
	return answer[*pb.ListTenantsRequest, *pb.ListTenantsResponse](f, "ListTenants", r)
}

func (f *fake) PurgeTenant(_ context.Context, r *pb.PurgeTenantRequest) (*pb.PurgeTenantResponse, error) {
	return answer[*pb.PurgeTenantRequest, *pb.PurgeTenantResponse](f, "PurgeTenant", r)
}

func (f *fake) GetBudget(_ context.Context, r *pb.GetBudgetRequest) (*pb.GetBudgetResponse, error) {
	return answer[*pb.GetBudgetRequest, *pb.GetBudgetResponse](f, "GetBudget", r)
}

func (f *fake) GetCapabilities(_ context.Context, r *pb.GetCapabilitiesRequest) (*pb.GetCapabilitiesResponse, error) {
	return answer[*pb.GetCapabilitiesRequest, *pb.GetCapabilitiesResponse](f, "GetCapabilities", r)
}

// answers makes a fake with one unary answer.
func answers[R, A proto.Message](method string, give func(R) (A, error)) *fake {
	return &fake{answers: map[string]any{method: give}}
}

// cuttable remembers connections, so that a test can cut them under a stream.
type cuttable struct {
	net.Listener
	f *fake
}

func (l cuttable) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.f.mu.Lock()
		l.f.conns = append(l.f.conns, conn)
		l.f.mu.Unlock()
	}
	return conn, err
}

// cut closes every connection, as a crash or a lost network would.
func (f *fake) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range f.conns {
		conn.Close()
	}
	f.conns = nil
}

// serve listens on a socket of the network ("unix" or "tcp").
func (f *fake) serve(t testing.TB, network string) {
	t.Helper()
	at := "127.0.0.1:0"
	if network == "unix" {
		dir, err := os.MkdirTemp("", "fake") // t.TempDir can be too long for a socket
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		at = filepath.Join(dir, "s")
	}
	l, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	f.address = l.Addr().String()
	if network == "unix" {
		f.address = "unix://" + f.address
	}
	s := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if f.seen != nil {
			f.seen(ctx)
		}
		return handle(ctx, r)
	}))
	pb.RegisterExecutionServiceServer(s, f)
	pb.RegisterSkillServiceServer(s, f)
	pb.RegisterSystemServiceServer(s, f)
	pb.RegisterToolServiceServer(s, f)
	if f.sessions != nil {
		pb.RegisterSessionServiceServer(s, f.sessions)
	} else {
		pb.RegisterSessionServiceServer(s, f)
	}
	go s.Serve(cuttable{l, f})
	t.Cleanup(s.Stop)
}

// result is what one call of the client did.
type result struct {
	code           int
	stdout, stderr string
}

// client runs the client against f.
func (f *fake) client(t testing.TB, stdin io.Reader, args ...string) result {
	t.Helper()
	if f.address == "" {
		f.serve(t, "unix")
	}
	first := []string{"--address", f.address}
	if strings.HasPrefix(f.address, "unix:///no") { // no daemon will come; a later --wait replaces this one
		first = append(first, "--wait", "0")
	}
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), append(first, args...), stdin, &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// record is the stored events of one execution.
type record struct {
	events []*pb.ExecutionEvent
	at     map[pb.OutputStream]uint64
}

const demoDigest = "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

func newRecord() *record {
	r := &record{at: map[pb.OutputStream]uint64{}}
	return r.add(&pb.ExecutionEvent{Event: &pb.ExecutionEvent_Header{Header: &pb.ExecutionHeader{
		Skill: "demo", SkillDigest: demoDigest, Commands: []*pb.Argv{{Args: []string{"python3", "/skills/demo/x.py", "a b"}}},
	}}})
}

func (r *record) add(event *pb.ExecutionEvent) *record {
	event.ExecutionId = "e1"
	event.Sequence = uint64(len(r.events) + 1)
	event.Time = &timestamppb.Timestamp{Seconds: 1}
	r.events = append(r.events, event)
	return r
}

func (r *record) started() *record {
	return r.add(&pb.ExecutionEvent{Event: &pb.ExecutionEvent_Started{Started: &pb.ExecutionStarted{}}})
}

func (r *record) output(stream pb.OutputStream, data string) *record {
	output := &pb.OutputChunk{Stream: stream, OffsetBytes: r.at[stream], Data: []byte(data)}
	r.at[stream] += uint64(len(data))
	return r.add(&pb.ExecutionEvent{Event: &pb.ExecutionEvent_Output{Output: output}})
}

func (r *record) stdout(data string) *record {
	return r.output(pb.OutputStream_OUTPUT_STREAM_STDOUT, data)
}
func (r *record) stderr(data string) *record {
	return r.output(pb.OutputStream_OUTPUT_STREAM_STDERR, data)
}

func (r *record) outcome(o *pb.ExecutionOutcome) *record {
	return r.add(&pb.ExecutionEvent{Event: &pb.ExecutionEvent_Outcome{Outcome: o}})
}

func (r *record) exit(code int32) *record {
	return r.outcome(&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_EXITED, ExitCode: proto.Int32(code)})
}

// send sends the events after one sequence and up to another (0: all).
func (r *record) send(s interface {
	Send(*pb.ExecutionEvent) error
}, after, upTo uint64) error {
	if upTo == 0 {
		upTo = uint64(len(r.events))
	}
	for _, event := range r.events[after:upTo] {
		if err := s.Send(event); err != nil {
			return err
		}
	}
	return nil
}

// fake answers Execute and AttachExecution with the record.
func (r *record) fake() *fake {
	return &fake{
		execute: func(_ *pb.ExecuteRequest, s eventtest.Server) error { return r.send(s, 0, 0) },
		attach: func(a *pb.AttachExecutionRequest, s eventtest.Server) error {
			return r.send(s, a.GetAfterSequence(), 0)
		},
	}
}

// refusal is a status as the daemon makes it.
func refusal(code codes.Code, reason, message string, details ...protoadapt.MessageV1) error {
	info := &errdetails.ErrorInfo{Domain: skillrun.Domain, Reason: reason}
	for _, d := range details {
		if given, ok := d.(*errdetails.ErrorInfo); ok {
			info.Metadata = given.GetMetadata()
		}
	}
	all := []protoadapt.MessageV1{info}
	for _, d := range details {
		if _, ok := d.(*errdetails.ErrorInfo); !ok {
			all = append(all, d)
		}
	}
	st, err := status.New(code, message).WithDetails(all...)
	if err != nil {
		return err
	}
	return st.Err()
}

// counted answers Get with an outcome that has n artifacts.
func counted(n int) func(*pb.GetExecutionRequest) (*pb.Execution, error) {
	return func(*pb.GetExecutionRequest) (*pb.Execution, error) {
		return &pb.Execution{Outcome: &pb.ExecutionOutcome{ArtifactCount: uint64(n)}}, nil
	}
}

// withArtifacts gives a fake that has files to fetch.
func (f *fake) withArtifacts(files map[string]string) *fake {
	f.answers = map[string]any{"GetExecution": counted(len(files)), "ListArtifacts": func(*pb.ListArtifactsRequest) (*pb.ListArtifactsResponse, error) {
		r := &pb.ListArtifactsResponse{}
		for _, path := range sortedKeys(files) {
			sum := sha256.Sum256([]byte(files[path]))
			r.Artifacts = append(r.Artifacts, &pb.Artifact{Path: path, SizeBytes: uint64(len(files[path])), Sha256: hex.EncodeToString(sum[:])})
		}
		return r, nil
	}}
	f.artifact = func(r *pb.GetArtifactRequest, s artifactServer) error {
		return s.Send(&pb.GetArtifactResponse{OffsetBytes: r.GetOffsetBytes(), Data: []byte(files[r.GetPath()])[r.GetOffsetBytes():]})
	}
	return f
}
