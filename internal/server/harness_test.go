package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/record"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/skilltest"
	"github.com/skillrun/skillrun/internal/toolview"
	"github.com/skillrun/skillrun/internal/workspace"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
	"github.com/skillrun/skillrun/sandbox"
)

// TestMain runs the tests as a daemon runs.
func TestMain(m *testing.M) {
	if os.Geteuid() == 0 {
		if err := sandbox.Isolate(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	if shared.host != nil {
		if err := shared.host.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

// shared is what every daemon of these tests may have in common.
var shared struct {
	once sync.Once
	dir  string
	host *sandbox.Host
	err  error
}

// openHost opens the host of the sandboxes.
func openHost(t *testing.T) *sandbox.Host {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("makes real sandboxes, which needs root")
	}
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "server-test-"); shared.err != nil {
			return
		}
		shared.host, shared.err = sandbox.Open(context.Background(), sandbox.Config{StateDir: filepath.Join(shared.dir, "sandbox")})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.host
}

// findRuntimes finds the machine's interpreters, once for all daemons.
var findRuntimes = sync.OnceValues(func() (*runtime.Set, error) {
	return runtime.Discover(context.Background(), runtime.Config{Rootfs: "/"})
})

// A daemon is a server on a Unix socket, with all that is beneath it, and a
// client of it.
type daemon struct {
	*Server
	t      testing.TB
	dir    string
	socket string
	logs   *logs
	conn   *grpc.ClientConn
	health healthpb.HealthClient
	runs   pb.ExecutionServiceClient
	about  pb.SkillServiceClient
	system pb.SystemServiceClient
}

// startDaemon starts a daemon that runs the skills in testdata in real sandboxes, which needs
// root. edit may change the configuration; nil changes nothing.
func startDaemon(t *testing.T, edit func(*executor.Config, *Config)) *daemon {
	t.Helper()
	return startOn(t, openHost(t), edit)
}

// startIdle is startDaemon for tests in which no program starts. They need no root.
func startIdle(t testing.TB, edit func(*executor.Config, *Config)) *daemon {
	t.Helper()
	return startOn(t, nil, edit)
}

// startOn starts a daemon whose sandboxes are on a host; a nil one makes none.
func startOn(t testing.TB, host *sandbox.Host, edit func(*executor.Config, *Config)) *daemon {
	t.Helper()
	runtimes, err := findRuntimes()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ctx := t.Context()
	logs := &logs{}
	log := logs.logger()
	store, err := record.Open(record.Config{Dir: filepath.Join(dir, "record"), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	skills, err := skill.OpenRegistry(ctx, skill.RegistryConfig{Roots: []string{"testdata/skills"}, Dir: filepath.Join(dir, "snapshots"), Owner: skilltest.Owner(), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { skills.Close() })
	xc := executor.Config{
		Skills: skills, Runtimes: runtimes, Record: store, Host: host, Bounds: executor.StandardBounds(),
		StagingDir: filepath.Join(dir, "staging"), Owner: workspace.Owner(skilltest.Owner()), KeyFile: filepath.Join(dir, "request.key"),
		MaxRunning: 4, MaxQueued: 4, QueueTimeout: time.Minute, Grace: time.Second, CancelGrace: time.Second,
		Keep: workspace.CollectLimits{Files: 1000, FileBytes: 64 << 20, TotalBytes: 64 << 20}, Log: log,
	}
	sc := Config{
		Skills: skills, StagingDir: filepath.Join(dir, "uploads"), Log: log,
		Capabilities: func() Capabilities { return Capabilities{} },
	}
	if edit != nil {
		edit(&xc, &sc)
	}
	if sc.Executor, err = executor.New(ctx, xc); err != nil {
		t.Fatal(err)
	}
	sc.Policy = xc.Policy
	sc.Tools = toolview.New(toolview.Config{Executor: sc.Executor, Skills: skills, Log: log})
	s, err := New(sc)
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{Server: s, t: t, dir: dir, socket: filepath.Join(dir, "s"), logs: logs}
	l, err := net.Listen("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	d.conn = d.serve(l, "unix://"+d.socket)
	d.health, d.runs = healthpb.NewHealthClient(d.conn), pb.NewExecutionServiceClient(d.conn)
	d.about, d.system = pb.NewSkillServiceClient(d.conn), pb.NewSystemServiceClient(d.conn)
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
		d.x.Drain(over)
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

// events is what both calls that execute, and Attach, return.
type events interface {
	Recv() (*pb.ExecutionEvent, error)
}

// A transcript collects the events of a stream.
type transcript struct {
	id             string
	header         *pb.Header
	started        bool
	stdout, stderr string
	outcome        *pb.Outcome
	sequences      []uint64
	raw            []*pb.ExecutionEvent // without keepalives
	keepalives     []*pb.ExecutionEvent
	err            error // io.EOF is nil
}

func (r *transcript) add(e *pb.ExecutionEvent) {
	r.id = e.ExecutionId
	if e.GetKeepalive() != nil {
		r.keepalives = append(r.keepalives, e)
		return
	}
	r.sequences, r.raw = append(r.sequences, e.Sequence), append(r.raw, e)
	switch e := e.Event.(type) {
	case *pb.ExecutionEvent_Header:
		r.header = e.Header
	case *pb.ExecutionEvent_Started:
		r.started = true
	case *pb.ExecutionEvent_Output:
		if e.Output.Stream == pb.Stream_STREAM_STDOUT {
			r.stdout += string(e.Output.Data)
		} else {
			r.stderr += string(e.Output.Data)
		}
	case *pb.ExecutionEvent_Outcome:
		r.outcome = e.Outcome
	}
}

// until reads on until done says so, or the stream ends.
func (r *transcript) until(s events, done func(*transcript) bool) {
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
func readAll(t testing.TB, s events, err error) *transcript {
	t.Helper()
	r := &transcript{}
	if err != nil {
		t.Fatal(err)
	}
	r.until(s, func(*transcript) bool { return false })
	return r
}

// readUntil reads until stdout has some text.
func readUntil(t testing.TB, s events, err error, stdout string) *transcript {
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
	s, err := d.runs.Attach(d.t.Context(), &pb.AttachRequest{ExecutionId: id})
	r := readAll(d.t, s, err)
	if r.outcome == nil {
		d.t.Fatalf("execution %s: no outcome: %v", id, r.err)
	}
	return r
}

// wantOK fails the test unless a program ran and exited with code.
func wantExit(t testing.TB, r *transcript, code int32) {
	t.Helper()
	if r.err != nil || r.outcome.GetEnd() != pb.End_END_EXITED || r.outcome.GetExitCode() != code {
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

// logs collects a daemon's log.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// with returns the lines that contain every one of parts.
func (l *logs) with(parts ...string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(strings.Split(l.buf.String(), "\n"), func(line string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) })
	})
}
