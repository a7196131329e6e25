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

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// fake is a daemon on a real Unix socket whose answers come from a test. A function that is
// nil answers UNIMPLEMENTED.
type fake struct {
	pb.UnimplementedExecutionServiceServer
	execute     func(*pb.ExecuteRequest, grpc.ServerStreamingServer[pb.ExecutionEvent]) error
	interactive func(grpc.BidiStreamingServer[pb.ExecuteInteractiveRequest, pb.ExecutionEvent]) error
	attach      func(*pb.AttachRequest, grpc.ServerStreamingServer[pb.ExecutionEvent]) error
	get         func(*pb.GetRequest) (*pb.Execution, error)
	cancel      func(*pb.CancelRequest) (*pb.Execution, error)
	signal      func(*pb.SignalRequest) (*pb.SignalResponse, error)
	list        func(*pb.ListArtifactsRequest) (*pb.ListArtifactsResponse, error)
	artifact    func(*pb.GetArtifactRequest, grpc.ServerStreamingServer[pb.GetArtifactResponse]) error

	limit   int // maximum size of a message; 0: gRPC's default
	address string
	mu      sync.Mutex
	conns   []net.Conn
}

func (f *fake) Execute(r *pb.ExecuteRequest, s grpc.ServerStreamingServer[pb.ExecutionEvent]) error {
	if f.execute == nil {
		return f.UnimplementedExecutionServiceServer.Execute(r, s)
	}
	return f.execute(r, s)
}

func (f *fake) ExecuteInteractive(s grpc.BidiStreamingServer[pb.ExecuteInteractiveRequest, pb.ExecutionEvent]) error {
	if f.interactive == nil {
		return f.UnimplementedExecutionServiceServer.ExecuteInteractive(s)
	}
	return f.interactive(s)
}

func (f *fake) Attach(r *pb.AttachRequest, s grpc.ServerStreamingServer[pb.ExecutionEvent]) error {
	if f.attach == nil {
		return f.UnimplementedExecutionServiceServer.Attach(r, s)
	}
	return f.attach(r, s)
}

func (f *fake) Get(ctx context.Context, r *pb.GetRequest) (*pb.Execution, error) {
	if f.get == nil {
		return f.UnimplementedExecutionServiceServer.Get(ctx, r)
	}
	return f.get(r)
}

func (f *fake) Cancel(ctx context.Context, r *pb.CancelRequest) (*pb.Execution, error) {
	if f.cancel == nil {
		return f.UnimplementedExecutionServiceServer.Cancel(ctx, r)
	}
	return f.cancel(r)
}

func (f *fake) Signal(ctx context.Context, r *pb.SignalRequest) (*pb.SignalResponse, error) {
	if f.signal == nil {
		return f.UnimplementedExecutionServiceServer.Signal(ctx, r)
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
	var options []grpc.ServerOption
	if f.limit > 0 {
		options = append(options, grpc.MaxRecvMsgSize(f.limit))
	}
	s := grpc.NewServer(options...)
	pb.RegisterExecutionServiceServer(s, f)
	go s.Serve(cuttable{l, f})
	t.Cleanup(s.Stop)
	c, err := Dial(f.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.patience.first, c.patience.most = time.Millisecond, time.Millisecond
	return c
}

// record holds the stored events of one execution.
type record struct {
	events []*pb.ExecutionEvent
	at     map[pb.Stream]uint64
}

// newRecord returns a record with a header.
func newRecord() *record {
	r := &record{at: map[pb.Stream]uint64{}}
	return r.add(&pb.ExecutionEvent{Event: &pb.ExecutionEvent_Header{Header: &pb.Header{Skill: "demo"}}})
}

func (r *record) add(event *pb.ExecutionEvent) *record {
	event.ExecutionId = "e1"
	event.Sequence = uint64(len(r.events) + 1)
	r.events = append(r.events, event)
	return r
}

func (r *record) started() *record {
	return r.add(&pb.ExecutionEvent{Event: &pb.ExecutionEvent_Started{Started: &pb.Started{}}})
}

func (r *record) output(stream pb.Stream, data string) *record {
	output := &pb.Output{Stream: stream, OffsetBytes: r.at[stream], Data: []byte(data)}
	r.at[stream] += uint64(len(data))
	return r.add(&pb.ExecutionEvent{Event: &pb.ExecutionEvent_Output{Output: output}})
}

func (r *record) stdout(data string) *record { return r.output(pb.Stream_STREAM_STDOUT, data) }
func (r *record) stderr(data string) *record { return r.output(pb.Stream_STREAM_STDERR, data) }

func (r *record) outcome(o *pb.Outcome) *record {
	return r.add(&pb.ExecutionEvent{Event: &pb.ExecutionEvent_Outcome{Outcome: o}})
}

func (r *record) exit(code int32) *record {
	return r.outcome(&pb.Outcome{End: pb.End_END_EXITED, ExitCode: proto.Int32(code)})
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

// serve answers Execute and Attach with the record.
func (r *record) serve() *fake {
	return &fake{
		execute: func(_ *pb.ExecuteRequest, s grpc.ServerStreamingServer[pb.ExecutionEvent]) error {
			return r.send(s, 0, 0)
		},
		attach: func(a *pb.AttachRequest, s grpc.ServerStreamingServer[pb.ExecutionEvent]) error {
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
