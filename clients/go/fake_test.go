package skillrun

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/skillrun/skillrun/internal/eventtest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// fake is a daemon on a real Unix socket whose answers come from a test. A function that is
// nil answers UNIMPLEMENTED.
type fake struct {
	pb.UnimplementedExecutionServiceServer
	execute     func(*pb.ExecuteRequest, eventtest.Server) error
	interactive func(eventtest.Interactive) error
	attach      func(*pb.AttachExecutionRequest, eventtest.Server) error
	get         func(*pb.GetExecutionRequest) (*pb.Execution, error)
	cancel      func(*pb.CancelExecutionRequest) (*pb.Execution, error)
	signal      func(*pb.SignalExecutionRequest) (*pb.SignalExecutionResponse, error)
	list        func(*pb.ListArtifactsRequest) (*pb.ListArtifactsResponse, error)
	artifact    func(*pb.GetArtifactRequest, grpc.ServerStreamingServer[pb.GetArtifactResponse]) error

	sessions *fakeSessions // nil: none

	limit   int // maximum size of a message; 0: gRPC's default
	address string
	server  *grpc.Server
	mu      sync.Mutex
	conns   []net.Conn
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

func (f *fake) GetExecution(ctx context.Context, r *pb.GetExecutionRequest) (*pb.GetExecutionResponse, error) {
	if f.get == nil {
		return f.UnimplementedExecutionServiceServer.GetExecution(ctx, r)
	}
	e, err := f.get(r)
	return &pb.GetExecutionResponse{Execution: e}, err
}

func (f *fake) CancelExecution(ctx context.Context, r *pb.CancelExecutionRequest) (*pb.CancelExecutionResponse, error) {
	if f.cancel == nil {
		return f.UnimplementedExecutionServiceServer.CancelExecution(ctx, r)
	}
	e, err := f.cancel(r)
	return &pb.CancelExecutionResponse{Execution: e}, err
}

func (f *fake) SignalExecution(ctx context.Context, r *pb.SignalExecutionRequest) (*pb.SignalExecutionResponse, error) {
	if f.signal == nil {
		return f.UnimplementedExecutionServiceServer.SignalExecution(ctx, r)
	}
	return f.signal(r)
}

func (f *fake) ListArtifacts(ctx context.Context, r *pb.ListArtifactsRequest) (*pb.ListArtifactsResponse, error) {
	if f.list == nil {
		return f.UnimplementedExecutionServiceServer.ListArtifacts(ctx, r)
	}
	return f.list(r)
}

func (f *fake) GetArtifact(r *pb.GetArtifactRequest, s grpc.ServerStreamingServer[pb.GetArtifactResponse]) error {
	if f.artifact == nil {
		return f.UnimplementedExecutionServiceServer.GetArtifact(r, s)
	}
	return f.artifact(r, s)
}

// cuttable is a listener that remembers its connections, so that a test can close them.
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

// cut closes every connection, like a crash or a lost network.
func (f *fake) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range f.conns {
		conn.Close()
	}
	f.conns = nil
}

// dial serves f and returns a client with very short pauses between tries.
func (f *fake) dial(t testing.TB) *Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "fake") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	f.address = "unix://" + l.Addr().String()
	f.serve(t, l)
	c, err := Dial(f.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.patience.first, c.patience.most = time.Millisecond, time.Millisecond
	return c
}

// impatient is dial with a client that repeats a broken call once.
func (f *fake) impatient(t testing.TB) *Client {
	t.Helper()
	c := f.dial(t)
	c.patience.Patience = Patience{}
	return c
}

// serve answers calls on l. It may be called again after f.server.Stop.
func (f *fake) serve(t testing.TB, l net.Listener) {
	var options []grpc.ServerOption
	if f.limit > 0 {
		options = append(options, grpc.MaxRecvMsgSize(f.limit))
	}
	s := grpc.NewServer(options...)
	f.server = s
	pb.RegisterExecutionServiceServer(s, f)
	if f.sessions != nil {
		pb.RegisterSessionServiceServer(s, f.sessions)
	}
	go s.Serve(cuttable{l, f})
	t.Cleanup(s.Stop)
}

// record holds the stored events of one execution.
type record struct {
	events []*pb.ExecutionEvent
	at     map[pb.OutputStream]uint64
}

// newRecord returns a record with a header.
func newRecord() *record {
	r := &record{at: map[pb.OutputStream]uint64{}}
	return r.add(&pb.ExecutionEvent{Event: &pb.ExecutionEvent_Header{Header: &pb.ExecutionHeader{Skill: "demo"}}})
}

func (r *record) add(event *pb.ExecutionEvent) *record {
	event.ExecutionId = "e1"
	event.Sequence = uint64(len(r.events) + 1)
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

// send sends the events after one sequence number up to another one (0: all).
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

// serve answers Execute and AttachExecution with the record.
func (r *record) serve() *fake {
	return &fake{
		execute: func(_ *pb.ExecuteRequest, s eventtest.Server) error {
			return r.send(s, 0, 0)
		},
		attach: func(a *pb.AttachExecutionRequest, s eventtest.Server) error {
			return r.send(s, a.GetAfterSequence(), 0)
		},
	}
}

// refusal returns an error status like the daemon's.
func refusal(code codes.Code, reason, message string) error {
	st, err := status.New(code, message).WithDetails(&errdetails.ErrorInfo{Domain: Domain, Reason: reason})
	if err != nil {
		return err
	}
	return st.Err()
}
