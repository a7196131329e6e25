package server

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/executor/executortest"
	"github.com/skillrun/skillrun/internal/hosttest"
	"github.com/skillrun/skillrun/internal/toolview"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
	"github.com/skillrun/skillrun/sandbox"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// A daemon is a server on a Unix socket, with all that is beneath it, and a
// client of it.
type daemon struct {
	*Server
	t      testing.TB
	dir    string
	socket string
	logs   *executortest.Logs
	conn   *grpc.ClientConn
	health healthpb.HealthClient
	runs   executionClient
	about  skillClient
	system pb.SystemServiceClient
}

// startDaemon starts a daemon that runs the skills in testdata in real sandboxes, which needs
// root. edit may change the configuration; nil changes nothing.
func startDaemon(t *testing.T, edit func(*executor.Config, *Config)) *daemon {
	t.Helper()
	return startOn(t, hosttest.Host(t), edit)
}

// startIdle is startDaemon for tests in which no program starts. They need no root.
func startIdle(t testing.TB, edit func(*executor.Config, *Config)) *daemon {
	t.Helper()
	return startOn(t, nil, edit)
}

// startOn starts a daemon whose sandboxes are on a host; a nil one makes none.
func startOn(t testing.TB, host *sandbox.Host, edit func(*executor.Config, *Config)) *daemon {
	t.Helper()
	dir := t.TempDir()
	var sc Config
	b := executortest.New(t, executortest.Config{
		Dir: dir, Skills: []string{"testdata/skills"}, Runtimes: hosttest.Runtimes(t), Host: host,
		Edit: func(xc *executor.Config) {
			xc.Grace, xc.CancelGrace = time.Second, time.Second
			sc = Config{
				Skills: xc.Skills, StagingDir: filepath.Join(dir, "uploads"), Log: xc.Log,
				Capabilities: func() Capabilities { return Capabilities{} },
			}
			if edit != nil {
				edit(xc, &sc)
			}
		},
	})
	sc.Executor = b.Executor
	sc.Tools = toolview.New(toolview.Config{Executor: b.Executor, Skills: b.Skills, Log: b.Logs.Logger()})
	s, err := New(sc)
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{Server: s, t: t, dir: dir, socket: filepath.Join(dir, "s"), logs: b.Logs}
	l, err := net.Listen("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	d.conn = d.serve(l, "unix://"+d.socket)
	d.health, d.runs = healthpb.NewHealthClient(d.conn), executionClient{pb.NewExecutionServiceClient(d.conn)}
	d.about, d.system = skillClient{pb.NewSkillServiceClient(d.conn)}, pb.NewSystemServiceClient(d.conn)
	return d
}

// serve serves on l until the test ends, and returns a connection to target.
func (d *daemon) serve(l net.Listener, target string, opts ...grpc.DialOption) *grpc.ClientConn {
	d.t.Helper()
	done := make(chan error, 1)
	go func() { done <- d.Serve(l) }()
	conn, err := grpc.NewClient(target, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		// In the order of a daemon that is in a hurry: everything is cancelled.
		over, cancel := context.WithCancel(context.Background())
		cancel()
		d.x.Drain(over, over)
		conn.Close()
		d.Stop(context.Background()) // hangs if anything leaks
		if err := <-done; err != nil {
			d.t.Errorf("Serve: %v", err)
		}
	})
	return conn
}

// script is a request for a script of the demo skill.
func script(path string, args ...string) *pb.ExecuteRequest {
	return &pb.ExecuteRequest{Skill: "demo", Source: &pb.ExecuteRequest_Script{Script: path}, Args: args}
}

// A transcript collects the events of a stream.
type transcript struct {
	id             string
	header         *pb.ExecutionHeader
	started        bool
	stdout, stderr string
	outcome        *pb.ExecutionOutcome
	sequences      []uint64
	raw            []*pb.ExecutionEvent // without keepalives and positions
	positions      []uint32             // in the queue
	keepalives     []*pb.ExecutionEvent
	err            error // io.EOF is nil
}

func (r *transcript) add(e *pb.ExecutionEvent) {
	r.id = e.ExecutionId
	if e.GetKeepalive() != nil {
		r.keepalives = append(r.keepalives, e)
		return
	}
	if q := e.GetQueued(); q != nil {
		r.positions = append(r.positions, q.Position)
		return
	}
	r.sequences, r.raw = append(r.sequences, e.Sequence), append(r.raw, e)
	switch e := e.Event.(type) {
	case *pb.ExecutionEvent_Header:
		r.header = e.Header
	case *pb.ExecutionEvent_Started:
		r.started = true
	case *pb.ExecutionEvent_Output:
		if e.Output.Stream == pb.OutputStream_OUTPUT_STREAM_STDOUT {
			r.stdout += string(e.Output.Data)
		} else {
			r.stderr += string(e.Output.Data)
		}
	case *pb.ExecutionEvent_Outcome:
		r.outcome = e.Outcome
	}
}

// until reads on until done says so, or the stream ends.
func (r *transcript) until(s eventStream, done func(*transcript) bool) {
	for !done(r) {
		e, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			r.err = err
			return
		}
		r.add(e)
	}
}

// readAll reads a stream to its end.
func readAll(t testing.TB, s eventStream, err error) *transcript {
	t.Helper()
	r := &transcript{}
	if err != nil {
		t.Fatal(err)
	}
	r.until(s, func(*transcript) bool { return false })
	return r
}

// readUntil reads until stdout has some text.
func readUntil(t testing.TB, s eventStream, err error, stdout string) *transcript {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	r := &transcript{}
	r.until(s, func(r *transcript) bool { return strings.Contains(r.stdout, stdout) })
	if !strings.Contains(r.stdout, stdout) {
		t.Fatalf("stream ended without %q: %+v", stdout, r)
	}
	return r
}

// execute runs a request to its end.
func (d *daemon) execute(m *pb.ExecuteRequest) *transcript {
	d.t.Helper()
	s, err := d.runs.Execute(d.t.Context(), m)
	return readAll(d.t, s, err)
}

// ended reads an execution to its end, from another stream.
func (d *daemon) ended(id string) *transcript {
	d.t.Helper()
	s, err := d.runs.AttachExecution(d.t.Context(), &pb.AttachExecutionRequest{ExecutionId: id})
	r := readAll(d.t, s, err)
	if r.outcome == nil {
		d.t.Fatalf("execution %s: no outcome: %v", id, r.err)
	}
	return r
}

// wantOK fails the test unless a program ran and exited with code.
func wantExit(t testing.TB, r *transcript, code int32) {
	t.Helper()
	if r.err != nil || r.outcome.GetEnd() != pb.ExecutionEnd_EXECUTION_END_EXITED || r.outcome.GetExitCode() != code {
		t.Fatalf("got error %v, outcome %v; want exit code %d", r.err, r.outcome, code)
	}
}

// refusal has the parts of a status that tests compare.
type refusal struct {
	code   codes.Code
	reason string
	field  string
}

// refused takes a status apart. Each status of this package has an ErrorInfo.
func refused(t testing.TB, err error) (refusal, *status.Status) {
	t.Helper()
	st, ok := status.FromError(err)
	if err == nil || !ok {
		t.Fatalf("got %v, want a status", err)
	}
	got := refusal{code: st.Code()}
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			got.reason = d.Reason
			if d.Domain != "skillrun" {
				t.Errorf("domain %q", d.Domain)
			}
		case *errdetails.BadRequest:
			got.field = d.FieldViolations[0].Field
		}
	}
	return got, st
}

func wantRefusal(t testing.TB, err error, want refusal) *status.Status {
	t.Helper()
	got, st := refused(t, err)
	if got != want {
		t.Errorf("got %+v (%v), want %+v", got, st.Message(), want)
	}
	return st
}

// consecutive reports whether a stream missed or repeated nothing.
func consecutive(sequences []uint64, first uint64) bool {
	for i, s := range sequences {
		if s != first+uint64(i) {
			return false
		}
	}
	return len(sequences) > 0
}
