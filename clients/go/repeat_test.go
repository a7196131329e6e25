package skillrun

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/skillrun/skillrun/internal/eventtest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// once are the calls whose second answer can differ from the first one, or that would have an effect twice.
const once = `SignalExecution DeleteExecution CreateSession DeleteSession DeleteSkill PurgeTenant RunPythonScript ExecuteScript
	ExecuteCommand RunPython`

// Each call of the contract says whether it may be repeated.
func TestEveryCallIsRepeatableOrNot(t *testing.T) {
	not := map[string]bool{}
	for _, name := range strings.Fields(once) {
		not[name] = true
	}
	for _, file := range []protoreflect.FileDescriptor{pb.File_skillrun_v1_execution_proto, pb.File_skillrun_v1_session_proto, pb.File_skillrun_v1_skill_proto, pb.File_skillrun_v1_system_proto, pb.File_skillrun_v1_tool_proto} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				m := service.Methods().Get(j)
				if m.IsStreamingClient() || m.IsStreamingServer() {
					continue
				}
				full := "/" + string(service.FullName()) + "/" + string(m.Name())
				if repeatable[full] == not[string(m.Name())] {
					t.Errorf("%s must be either in repeatable or in once", full)
				}
			}
		}
	}
}

// If a daemon has received a call, it may have executed the call already. So the client repeats only repeatable calls.
func TestCallsAreRepeated(t *testing.T) {
	var calls atomic.Int32
	answer := func(first error) error {
		if calls.Add(1) == 1 {
			return first
		}
		return nil
	}
	for _, test := range []struct {
		name           string
		first          error
		cancel, signal int32 // how often each call comes
	}{
		{"broken", status.Error(codes.Unavailable, "the connection broke"), 2, 1},
		{"draining", refusal(codes.Unavailable, "DRAINING", "draining"), 2, 2},
		{"refused", refusal(codes.Unavailable, "AUDIT_UNAVAILABLE", "no"), 1, 1},
		{"internal", status.Error(codes.Internal, "no"), 1, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &fake{
				cancel: func(*pb.CancelExecutionRequest) (*pb.Execution, error) { return nil, answer(test.first) },
				signal: func(*pb.SignalExecutionRequest) (*pb.SignalExecutionResponse, error) {
					return &pb.SignalExecutionResponse{}, answer(test.first)
				},
			}
			c := f.dial(t)
			calls.Store(0)
			if _, err := c.Executions().CancelExecution(t.Context(), &pb.CancelExecutionRequest{}); calls.Load() != test.cancel || (err == nil) != (test.cancel == 2) {
				t.Errorf("CancelExecution: got %v after %d calls, want %d", err, calls.Load(), test.cancel)
			}
			calls.Store(0)
			if _, err := c.Executions().SignalExecution(t.Context(), &pb.SignalExecutionRequest{}); calls.Load() != test.signal || (err == nil) != (test.signal == 2) {
				t.Errorf("SignalExecution: got %v after %d calls, want %d", err, calls.Load(), test.signal)
			}
		})
	}
}

// Whoever answers for the daemon's name in DNS must not decide that gRPC repeats calls.
func TestDNSMakesNoCallRepeat(t *testing.T) {
	var executes, signals atomic.Int32
	f := &fake{
		execute: func(*pb.ExecuteRequest, eventtest.Server) error {
			executes.Add(1)
			return status.Error(codes.Unavailable, "the connection broke")
		},
		signal: func(*pb.SignalExecutionRequest) (*pb.SignalExecutionResponse, error) {
			signals.Add(1)
			return nil, status.Error(codes.Unavailable, "the connection broke")
		},
	}
	f.dial(t)
	dns := manual.NewBuilderWithScheme("dns")
	dns.BuildCallback = func(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) {
		dns.InitialState(resolver.State{
			Addresses: []resolver.Address{{Addr: f.address}},
			ServiceConfig: cc.ParseServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5,
				"initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`),
		})
	}
	c, err := Dial("dns:///daemon:7777", grpc.WithResolvers(dns), grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(address, "unix://"))
	}), WithPatience(Patience{}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.Script("demo", "x.py").Run(t.Context())
	if status.Code(err) != codes.Unavailable || executes.Load() != 1 {
		t.Errorf("Execute: got %v after %d calls, want 1", err, executes.Load())
	}
	_, err = c.Executions().SignalExecution(t.Context(), &pb.SignalExecutionRequest{})
	if status.Code(err) != codes.Unavailable || signals.Load() != 1 {
		t.Errorf("SignalExecution: got %v after %d calls, want 1", err, signals.Load())
	}
}

// A call that no daemon has received is sent later, whatever it does, and a stream begins later.
func TestUnreceivedCallsAreSentLater(t *testing.T) {
	for _, stream := range []bool{false, true} {
		var calls atomic.Int32
		f := &fake{signal: func(*pb.SignalExecutionRequest) (*pb.SignalExecutionResponse, error) {
			calls.Add(1)
			return &pb.SignalExecutionResponse{}, nil
		}}
		c := f.dial(t)
		c.patience.Unreached = true
		path := strings.TrimPrefix(f.address, "unix://")
		f.server.Stop()
		c.conn.WaitForStateChange(t.Context(), connectivity.Ready)
		c.patience.OnWait = func(error) {
			c.patience.OnWait = nil
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			f.serve(t, l)
		}
		if !stream {
			if _, err := c.Executions().SignalExecution(t.Context(), &pb.SignalExecutionRequest{}); err != nil || calls.Load() != 1 {
				t.Errorf("got %v after %d calls, want 1", err, calls.Load())
			}
			continue
		}
		s, err := c.Tools().CallTool(t.Context(), &pb.CallToolRequest{})
		if err == nil {
			_, err = s.Recv()
		}
		if status.Code(err) != codes.Unimplemented { // the fake's answer
			t.Errorf("CallTool: got %v", err)
		}
	}
}
