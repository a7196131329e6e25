package skillrun

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/skillrun/skillrun/internal/eventtest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// waited returns how long p waits in all, if each try fails with the next cause. The last one repeats.
func (p patience) waited(ctx context.Context, causes ...error) time.Duration {
	var t tries
	for began := time.Now(); ; {
		if !p.wait(ctx, &t, causes[0]) {
			return time.Since(began)
		}
		if len(causes) > 1 {
			causes = causes[1:]
		}
	}
}

func TestPatienceIsBounded(t *testing.T) {
	gone, draining := status.Error(codes.Unavailable, "gone"), refusal(codes.Unavailable, "DRAINING", "draining")
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			name   string
			p      Patience
			causes []error
			want   time.Duration
		}{
			{"no answer", DefaultPatience, []error{gone}, 15 * time.Second},
			{"draining", DefaultPatience, []error{draining}, time.Minute},
			// The first try is at 0 s, the second one too, and the third one 40 to 50 ms later.
			{"draining, then gone", Patience{Absent: time.Hour, Draining: 2 * time.Hour}, []error{draining, gone}, time.Hour},
			{"absent is the minimum", Patience{Absent: time.Minute}, []error{draining}, time.Minute},
			{"none", Patience{}, []error{gone}, 0},
		} {
			if got := newPatience([]grpc.DialOption{WithPatience(test.p)}).waited(t.Context(), test.causes...); got != test.want {
				t.Errorf("%s: got %v, want %v", test.name, got, test.want)
			}
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if got := newPatience(nil).waited(ended, gone); got != 0 {
			t.Errorf("an ended context: waited for %v", got)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if got := newPatience(nil).waited(ctx, gone); got != time.Second {
			t.Errorf("a context that ends: got %v, want 1 s", got)
		}
	})
}

// A daemon that drains has started nothing, so the request goes to the next daemon without a key, too.
func TestDrainingIsWaitedFor(t *testing.T) {
	var requests atomic.Int32
	f := &fake{execute: func(_ *pb.ExecuteRequest, s eventtest.Server) error {
		if requests.Add(1) < 4 {
			return refusal(codes.Unavailable, "DRAINING", "draining")
		}
		return newRecord().stdout("ok").exit(0).send(s, 0, 0)
	}}
	c := f.dial(t)
	var reasons []string
	c.patience.OnWait = func(err error) { reasons = append(reasons, Reason(err)) }
	out, err := c.Script("demo", "x.py").Output(t.Context())
	if err != nil || string(out) != "ok" || requests.Load() != 4 {
		t.Errorf("got %q, %v after %d requests, want \"ok\" after 4", out, err, requests.Load())
	}
	if got, want := strings.Join(reasons, " "), "DRAINING DRAINING"; got != want {
		t.Errorf("OnWait: got %s, want %s", got, want)
	}
}

// A request that no daemon has received is sent later, with input that is streamed, too.
func TestAbsentDaemonIsWaitedFor(t *testing.T) {
	for _, reached := range []bool{false, true} {
		f := &fake{interactive: func(s eventtest.Interactive) error {
			r := newRecord()
			start, err := s.Recv()
			if err != nil || start.GetStart() == nil {
				return errors.New("no start")
			}
			r.send(s, 0, 1)
			m, err := s.Recv()
			if err != nil {
				return err
			}
			return r.stdout("got "+string(m.GetStdin())).exit(0).send(s, 1, 0)
		}}
		c := f.dial(t)
		if reached {
			_, err := c.executions.GetExecution(t.Context(), &pb.GetExecutionRequest{})
			if status.Code(err) != codes.Unimplemented {
				t.Fatal(err)
			}
			// gRPC can answer a call before the connection's state says that it is ready.
			for at := c.conn.GetState(); at != connectivity.Ready; at = c.conn.GetState() {
				c.conn.WaitForStateChange(t.Context(), at)
			}
		}
		c.patience.Unreached = !reached
		path := strings.TrimPrefix(f.address, "unix://")
		f.server.Stop()
		c.conn.WaitForStateChange(t.Context(), connectivity.Ready) // a stream on the old connection would break
		c.patience.OnWait = func(error) {
			c.patience.OnWait = nil
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			f.serve(t, l)
		}
		cmd := c.Script("demo", "x.py")
		cmd.Stdin = struct{ *strings.Reader }{strings.NewReader("input")}
		out, err := cmd.Output(t.Context())
		if got, want := string(out), "got input"; got != want || err != nil {
			t.Errorf("reached before: %v: got %q, %v, want %q", reached, got, err, want)
		}
	}
}

// Some errors of a connection do not go away.
func TestErrorsThatStay(t *testing.T) {
	for text, want := range map[string]bool{
		`connection error: desc = "transport: Error while dialing: dial unix /s: connect: no such file or directory"`:                true,
		`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`:               true,
		`connection error: desc = "error reading server preface: EOF"`:                                                               true,
		`connection error: desc = "transport: Error while dialing: dial unix /s: connect: permission denied"`:                        false,
		`dns: A record lookup error: lookup nowhere.invalid: no such host`:                                                           false,
		`connection error: desc = "transport: authentication handshake failed: tls: failed to verify certificate: x509: certificate`: false,
	} {
		if got := absent(status.Error(codes.Unavailable, text)); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

// The list of artifacts is read again while the daemon is away.
func TestArtifactsWaitForTheDaemon(t *testing.T) {
	content := []byte("x")
	var asked atomic.Int32
	f := &fake{
		get: func(*pb.GetExecutionRequest) (*pb.Execution, error) {
			if asked.Add(1) == 1 {
				return nil, status.Error(codes.Unavailable, "the connection broke")
			}
			return &pb.Execution{Outcome: &pb.ExecutionOutcome{ArtifactCount: 1}}, nil
		},
		list: func(*pb.ListArtifactsRequest) (*pb.ListArtifactsResponse, error) {
			if asked.Add(1) == 3 {
				return nil, status.Error(codes.Unavailable, "the connection broke")
			}
			return &pb.ListArtifactsResponse{Artifacts: []*pb.Artifact{{Path: "a", SizeBytes: uint64(len(content))}}}, nil
		},
	}
	var paths bytes.Buffer
	for a, err := range f.dial(t).Artifacts(t.Context(), "e1") {
		if err != nil {
			t.Fatal(err)
		}
		paths.WriteString(a.GetPath())
	}
	if got := paths.String(); got != "a" || asked.Load() != 4 {
		t.Errorf("got %q after %d calls, want a after 4", got, asked.Load())
	}
}
