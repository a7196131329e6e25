package skillrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/skillrun/skillrun/internal/eventtest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

func TestRunPassesOutputOn(t *testing.T) {
	f := newRecord().started().stdout("one\n").stderr("two\n").stdout("thr\xffee").exit(0).serve()
	var stdout, stderr bytes.Buffer
	cmd := f.dial(t).Script("demo", "scripts/x.py")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := stdout.String(), "one\nthr\xffee"; got != want {
		t.Errorf("stdout: got %q, want %q", got, want)
	}
	if got, want := stderr.String(), "two\n"; got != want {
		t.Errorf("stderr: got %q, want %q", got, want)
	}
	if got, want := cmd.Execution.ID, "e1"; got != want {
		t.Errorf("ID: got %q, want %q", got, want)
	}
	if got, want := cmd.Execution.Header.GetSkill(), "demo"; got != want {
		t.Errorf("header: got %q, want %q", got, want)
	}
	if got, want := cmd.Execution.Outcome().GetEnd(), pb.ExecutionEnd_EXECUTION_END_EXITED; got != want {
		t.Errorf("end: got %v, want %v", got, want)
	}
}

func TestOutput(t *testing.T) {
	c := newRecord().stdout("out").stderr("err").exit(3).serve().dial(t)
	out, err := c.Code("demo", "", "x").Output(t.Context())
	var exit *ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("error: got %v, want an ExitError", err)
	}
	if got, want := string(out), "out"; got != want {
		t.Errorf("output: got %q, want %q", got, want)
	}
	if got, want := string(exit.Stderr), "err"; got != want {
		t.Errorf("stderr: got %q, want %q", got, want)
	}
	both, err := c.Code("demo", "", "x").CombinedOutput(t.Context())
	if got, want := string(both), "outerr"; got != want || err == nil {
		t.Errorf("combined: got %q, %v, want %q and an error", got, err, want)
	}
}

func TestOutputKeepsTheEndOfStderr(t *testing.T) {
	long := strings.Repeat("x", stderrBytes)
	c := newRecord().stderr("start").stderr(long[:stderrBytes-3]).stderr("end").exit(1).serve().dial(t)
	_, err := c.Script("demo", "x.py").Output(t.Context())
	var exit *ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("error: got %v, want an ExitError", err)
	}
	if got, want := string(exit.Stderr), long[:stderrBytes-3]+"end"; got != want {
		t.Errorf("stderr: got %d bytes that end in %q, want %d that end in %q", len(got), got[len(got)-5:], len(want), want[len(want)-5:])
	}
}

func TestEnds(t *testing.T) {
	tests := []struct {
		outcome *pb.ExecutionOutcome
		want    string // "" for success
		code    int
	}{
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_EXITED, ExitCode: proto.Int32(0)}, "", 0},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_EXITED, ExitCode: proto.Int32(124)}, "exit status 124", 124},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_EXITED}, "exited, but the daemon did not say with which exit code", -1},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_SIGNALED, ExitCode: proto.Int32(-11), Signal: "SIGSEGV"}, "signal: SIGSEGV", -11},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_TIMED_OUT, ExitCode: proto.Int32(124), TimedOut: true, Evidence: &pb.ExecutionEvidence{Deadline: pb.ExecutionDeadline_EXECUTION_DEADLINE_WALL}}, "timed out: wall time", 124},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_TIMED_OUT, TimedOut: true, Evidence: &pb.ExecutionEvidence{Deadline: pb.ExecutionDeadline_EXECUTION_DEADLINE_QUEUE}}, "timed out: waiting for a slot", -1},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_OOM_KILLED, ExitCode: proto.Int32(-9)}, "out of memory", -9},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_OOM_KILLED, ExitCode: proto.Int32(-9), Evidence: &pb.ExecutionEvidence{OomKillCount: 1, OomScope: pb.OomScope_OOM_SCOPE_EXECUTION}}, "out of memory", -9},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_OOM_KILLED, ExitCode: proto.Int32(-9), Evidence: &pb.ExecutionEvidence{OomKillCount: 1, OomScope: pb.OomScope_OOM_SCOPE_TENANT}}, "out of memory of the tenant", -9},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_OOM_KILLED, ExitCode: proto.Int32(-9), Evidence: &pb.ExecutionEvidence{OomKillCount: 1, OomScope: pb.OomScope_OOM_SCOPE_MACHINE}}, "out of memory of the machine", -9},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_CANCELLED, ExitCode: proto.Int32(-15), Evidence: &pb.ExecutionEvidence{CancelledBy: "ann", CancelReason: "enough"}}, "cancelled by ann: enough", -15},
		// A child ran out of memory, so the execution failed although the program exited
		// with 0.
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_OOM_KILLED, ExitCode: proto.Int32(0)}, "out of memory", 0},
	}
	for _, test := range tests {
		err := newRecord().outcome(test.outcome).serve().dial(t).Script("demo", "x.py").Run(t.Context())
		if test.want == "" {
			if err != nil {
				t.Errorf("%v: got %v, want success", test.outcome, err)
			}
			continue
		}
		exit, ok := err.(*ExitError)
		if !ok {
			t.Errorf("%v: got %v, want an ExitError", test.outcome, err)
			continue
		}
		if got := exit.Error(); got != test.want {
			t.Errorf("%v: got %q, want %q", test.outcome, got, test.want)
		}
		if got := exit.ExitCode(); got != test.code {
			t.Errorf("%v: got code %d, want %d", test.outcome, got, test.code)
		}
	}
}

func TestDaemonErrors(t *testing.T) {
	tests := []struct {
		outcome *pb.ExecutionOutcome
		want    string
	}{
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED, Evidence: &pb.ExecutionEvidence{SetupStep: "cgroup", SetupError: "no space left"}}, "execution e1: setup failed: cgroup: no space left"},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_DAEMON_LOST}, "execution e1: daemon lost: it died before the execution ended"},
	}
	for _, test := range tests {
		err := newRecord().outcome(test.outcome).serve().dial(t).Script("demo", "x.py").Run(t.Context())
		lost, ok := err.(*DaemonError)
		if !ok || lost.Error() != test.want {
			t.Errorf("got %v, want a DaemonError %q", err, test.want)
		}
	}
}

func TestRefusalKeepsItsStatus(t *testing.T) {
	tries := 0
	f := &fake{execute: func(*pb.ExecuteRequest, eventtest.Server) error {
		tries++
		return refusal(codes.Unavailable, "SATURATED", "no")
	}}
	cmd := f.dial(t).Script("demo", "x.py")
	cmd.IdempotencyKey = "k" // not sent again in spite of the key, because the daemon has answered
	err := cmd.Run(t.Context())
	if got, want := status.Code(err), codes.Unavailable; got != want {
		t.Errorf("code: got %v, want %v", got, want)
	}
	if got, want := Reason(err), "SATURATED"; got != want {
		t.Errorf("reason: got %q, want %q", got, want)
	}
	if cmd.Execution != nil || tries != 1 {
		t.Errorf("got execution %v after %d tries, want none after 1", cmd.Execution, tries)
	}
	if exit := (*ExitError)(nil); errors.As(err, &exit) {
		t.Errorf("got %v, want no ExitError", err)
	}
	if got := Reason(nil) + Reason(errors.New("x")) + Reason(status.Error(codes.NotFound, "x")); got != "" {
		t.Errorf("reason of others: got %q, want none", got)
	}
}

// Only the daemon's answer says that nothing has started.
func TestMayHaveStarted(t *testing.T) {
	for _, test := range []struct {
		answer error
		want   bool
	}{
		{status.Error(codes.Unavailable, "the connection broke"), true},
		{status.Error(codes.Internal, "the stream broke"), true},
		{status.Error(codes.ResourceExhausted, "grpc: received message larger than max (9 vs. 8)"), false},
		{status.Error(codes.PermissionDenied, "no"), false},
		{refusal(codes.Unavailable, "SATURATED", "no"), false},
		{refusal(codes.Unavailable, "DRAINING", "draining"), false},
	} {
		f := &fake{execute: func(*pb.ExecuteRequest, eventtest.Server) error { return test.answer }}
		c := f.dial(t)
		c.patience.Patience = Patience{}
		err := c.Script("demo", "x.py").Run(t.Context())
		if status.Code(err) != status.Code(test.answer) || MayHaveStarted(err) != test.want {
			t.Errorf("%v: got %v, %v, want %v", test.answer, MayHaveStarted(err), err, test.want)
		}
	}
	c, err := Dial("unix:///nonexistent/s.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Script("demo", "x.py").Run(t.Context()); err == nil || MayHaveStarted(err) {
		t.Errorf("without a daemon: got %v", err)
	}
}

// Each of the tries may have started the program, not only the last one.
func TestMayHaveStartedInAnyTry(t *testing.T) {
	for _, test := range []struct {
		name     string
		gone     bool // the first call breaks the stream, and then no daemon is there; false: the daemon drains
		patience Patience
		cancel   bool // ctx ends during the pause after the second try
	}{
		{"the daemon is gone until patience ends", true, Patience{}, false},
		{"the daemon is gone until ctx ends", true, DefaultPatience, true},
		{"the daemon drains until ctx ends", false, DefaultPatience, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &fake{}
			f.execute = func(_ *pb.ExecuteRequest, s eventtest.Server) error {
				if !test.gone {
					return refusal(codes.Unavailable, "DRAINING", "draining")
				}
				go f.server.Stop()
				<-s.Context().Done()
				return s.Context().Err()
			}
			c := f.dial(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c.patience.Patience, c.patience.first, c.patience.most = test.patience, time.Hour, time.Hour
			if test.cancel {
				c.patience.OnWait = func(error) { cancel() }
			}
			cmd := c.Script("demo", "x.py")
			cmd.IdempotencyKey = "key"
			if err := cmd.Run(ctx); err == nil || MayHaveStarted(err) != test.gone {
				t.Errorf("got %v, %v, want %v", MayHaveStarted(err), err, test.gone)
			}
		})
	}
}

func TestRequestHasWhatTheCommandSays(t *testing.T) {
	var got *pb.ExecuteRequest
	done := newRecord().exit(0)
	f := &fake{execute: func(r *pb.ExecuteRequest, s eventtest.Server) error {
		got = r
		return done.send(s, 0, 0)
	}}
	cmd := f.dial(t).Script("demo", "scripts/x.py", "a", "b c")
	cmd.Stdin = strings.NewReader("in")
	cmd.Env = map[string]string{"A": "1"}
	cmd.SecretEnv = map[string]string{"B": "2"}
	cmd.Dir = "sub"
	cmd.Files = []File{{Path: "in.csv", Content: []byte("x,y"), Executable: true}, {Path: "r", URI: "skill://s/p"}}
	cmd.Limits = Limits{WallTime: -time.Second, MemoryBytes: 1, Processes: 2, OutputBytes: 3, WorkspaceBytes: 4, WorkspaceFiles: 5, OpenFiles: 6, MilliCPUs: 7}
	cmd.Network = NoNetwork()
	cmd.Labels = map[string]string{"k": "v"}
	cmd.IdempotencyKey = "key"
	cmd.OnDisconnect = pb.OnDisconnect_ON_DISCONNECT_CONTINUE
	cmd.QueueTimeout = time.Second
	if err := cmd.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := &pb.ExecuteRequest{
		Skill:            "demo",
		Source:           &pb.ExecuteRequest_Script{Script: "scripts/x.py"},
		Args:             []string{"a", "b c"},
		Stdin:            &pb.ExecuteRequest_StdinBytes{StdinBytes: []byte("in")},
		Env:              map[string]string{"A": "1"},
		SecretEnv:        map[string]string{"B": "2"},
		WorkingDirectory: "sub",
		Files:            []*pb.InputFile{{Path: "in.csv", Source: &pb.InputFile_Content{Content: []byte("x,y")}, Executable: true}, {Path: "r", Source: &pb.InputFile_Uri{Uri: "skill://s/p"}}},
		Limits:           &pb.ExecutionLimits{WallTime: durationpb.New(-time.Second), MemoryBytes: 1, Processes: 2, OutputBytes: 3, WorkspaceBytes: 4, WorkspaceFiles: 5, OpenFiles: 6, MilliCpus: 7},
		NetworkRules:     &pb.NetworkRules{Allow: []string{"none"}},
		Labels:           map[string]string{"k": "v"},
		IdempotencyKey:   "key",
		OnDisconnect:     pb.OnDisconnect_ON_DISCONNECT_CONTINUE,
		QueueTimeout:     durationpb.New(time.Second),
	}
	if !proto.Equal(got, want) {
		t.Errorf("request: got %v\nwant %v", got, want)
	}
}

func TestSources(t *testing.T) {
	c := (&fake{}).dial(t)
	code := c.Code("demo", "bash", "echo", "a")
	code.JSONArguments = `{"a":1}`
	tests := []struct {
		cmd  *Cmd
		want *pb.ExecuteRequest
	}{
		{code, &pb.ExecuteRequest{Skill: "demo", Source: &pb.ExecuteRequest_Code{Code: &pb.InlineCode{Text: "echo", Language: "bash"}}, Args: []string{"a"}, Stdin: &pb.ExecuteRequest_JsonArguments{JsonArguments: `{"a":1}`}}},
		{c.Command("demo", "git log"), &pb.ExecuteRequest{Skill: "demo", Source: &pb.ExecuteRequest_Command{Command: "git log"}}},
	}
	for _, test := range tests {
		call, err := test.cmd.call(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(call.request, test.want) {
			t.Errorf("request: got %v, want %v", call.request, test.want)
		}
	}
}

func TestCommandIsUsedOnce(t *testing.T) {
	c := newRecord().exit(0).serve().dial(t)
	cmd := c.Script("demo", "x.py")
	if err := cmd.Wait(); err == nil {
		t.Error("Wait before Start: got nil, want an error")
	}
	if err := cmd.Signal(t.Context(), "SIGINT"); err == nil {
		t.Error("Signal before Start: got nil, want an error")
	}
	if err := cmd.Cancel(t.Context()); err == nil {
		t.Error("Cancel before Start: got nil, want an error")
	}
	if err := cmd.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Run(t.Context()); err == nil {
		t.Error("second Run: got nil, want an error")
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("Wait again: got %v, want nil", err)
	}
	if err := (&Cmd{Skill: "demo"}).Run(t.Context()); err == nil {
		t.Error("a Cmd that no client made: got nil, want an error")
	}
	set := c.Script("demo", "x.py")
	set.Stdout = &bytes.Buffer{}
	if _, err := set.Output(t.Context()); err == nil {
		t.Error("Output with Stdout set: got nil, want an error")
	}
	if _, err := set.CombinedOutput(t.Context()); err == nil {
		t.Error("CombinedOutput with Stdout set: got nil, want an error")
	}
}

type brokenWriter struct{ writes int }

func (w *brokenWriter) Write([]byte) (int, error) {
	w.writes++
	return 0, errors.New("disk full")
}

func TestWriterErrorIsReported(t *testing.T) {
	var stderr bytes.Buffer
	w := &brokenWriter{}
	cmd := newRecord().stdout("a").stdout("b").stderr("c").exit(0).serve().dial(t).Script("demo", "x.py")
	cmd.Stdout, cmd.Stderr = w, &stderr
	err := cmd.Run(t.Context())
	if got, want := fmt.Sprint(err), "stdout: disk full"; got != want {
		t.Errorf("error: got %q, want %q", got, want)
	}
	if w.writes != 1 || stderr.String() != "c" {
		t.Errorf("got %d writes and stderr %q, want 1 and %q", w.writes, stderr.String(), "c")
	}
	failed := newRecord().stdout("a").exit(2).serve().dial(t).Script("demo", "x.py")
	failed.Stdout = w
	if err, ok := failed.Run(t.Context()).(*ExitError); !ok {
		t.Errorf("a program that fails too: got %v, want an ExitError", err)
	}
}

func TestSignalAndCancel(t *testing.T) {
	ended := make(chan struct{})
	r := newRecord().started().outcome(&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_CANCELLED, ExitCode: proto.Int32(-15)})
	f := &fake{
		execute: func(_ *pb.ExecuteRequest, s eventtest.Server) error {
			if err := r.send(s, 0, 2); err != nil {
				return err
			}
			<-ended
			return r.send(s, 2, 0)
		},
	}
	var signal *pb.SignalExecutionRequest
	f.signal = func(r *pb.SignalExecutionRequest) (*pb.SignalExecutionResponse, error) {
		signal = r
		return &pb.SignalExecutionResponse{}, nil
	}
	var cancel *pb.CancelExecutionRequest
	f.cancel = func(r *pb.CancelExecutionRequest) (*pb.Execution, error) {
		cancel = r
		close(ended)
		return &pb.Execution{}, nil
	}
	cmd := f.dial(t).Script("demo", "x.py")
	if err := cmd.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Signal(t.Context(), "SIGUSR1"); err != nil {
		t.Fatal(err)
	}
	if want := (&pb.SignalExecutionRequest{ExecutionId: "e1", Signal: "SIGUSR1"}); !proto.Equal(signal, want) {
		t.Errorf("signal: got %v, want %v", signal, want)
	}
	if err := cmd.Execution.Cancel(t.Context(), time.Second, "why"); err != nil {
		t.Fatal(err)
	}
	if want := (&pb.CancelExecutionRequest{ExecutionId: "e1", Grace: durationpb.New(time.Second), Reason: "why"}); !proto.Equal(cancel, want) {
		t.Errorf("cancel: got %v, want %v", cancel, want)
	}
	if err, ok := cmd.Wait().(*ExitError); !ok {
		t.Errorf("Wait: got %v, want an ExitError", err)
	}
}

func TestEndOfContextCancels(t *testing.T) {
	cancelled := make(chan *pb.CancelExecutionRequest, 1)
	r := newRecord().started().stdout("last words").outcome(&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_CANCELLED, ExitCode: proto.Int32(-15)})
	f := &fake{
		execute: func(_ *pb.ExecuteRequest, s eventtest.Server) error {
			if err := r.send(s, 0, 2); err != nil {
				return err
			}
			<-cancelled
			return r.send(s, 2, 0)
		},
		cancel: func(r *pb.CancelExecutionRequest) (*pb.Execution, error) {
			if got, want := r.GetReason(), "enough"; got != want {
				t.Errorf("reason: got %q, want %q", got, want)
			}
			cancelled <- r
			return &pb.Execution{}, nil
		},
	}
	var stdout bytes.Buffer
	cmd := f.dial(t).Script("demo", "x.py")
	cmd.Stdout = &stdout
	ctx, end := context.WithCancelCause(t.Context())
	if err := cmd.Start(ctx); err != nil {
		t.Fatal(err)
	}
	end(errors.New("enough"))
	err := cmd.Wait()
	exit := (*ExitError)(nil)
	if !errors.Is(err, context.Canceled) || !errors.As(err, &exit) {
		t.Errorf("got %v, want context.Canceled and an ExitError", err)
	}
	if got, want := stdout.String(), "last words"; got != want {
		t.Errorf("stdout: got %q, want %q", got, want)
	}
}

func TestEndOfContextWithoutDaemon(t *testing.T) {
	// Cancel answers UNIMPLEMENTED, but Wait must return.
	f := &fake{execute: func(_ *pb.ExecuteRequest, s eventtest.Server) error {
		if err := newRecord().send(s, 0, 0); err != nil {
			return err
		}
		<-s.Context().Done()
		return s.Context().Err()
	}}
	ctx, end := context.WithCancel(t.Context())
	cmd := f.dial(t).Script("demo", "x.py")
	if err := cmd.Start(ctx); err != nil {
		t.Fatal(err)
	}
	end()
	if err := cmd.Wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if got := cmd.Execution.Outcome(); got != nil {
		t.Errorf("outcome: got %v, want none", got)
	}
}

func TestEndOfContextBeforeTheHeader(t *testing.T) {
	asked := make(chan struct{})
	f := &fake{execute: func(_ *pb.ExecuteRequest, s eventtest.Server) error {
		close(asked)
		<-s.Context().Done()
		return s.Context().Err()
	}}
	ctx, end := context.WithCancel(t.Context())
	go func() {
		<-asked
		end()
	}()
	if err := f.dial(t).Script("demo", "x.py").Run(ctx); !errors.Is(err, context.Canceled) || !MayHaveStarted(err) {
		t.Errorf("got %v, want context.Canceled, and that the program may have started", err)
	}
}

func TestDetachLeavesItRunning(t *testing.T) {
	left := make(chan struct{})
	f := &fake{
		execute: func(_ *pb.ExecuteRequest, s eventtest.Server) error {
			if err := newRecord().send(s, 0, 0); err != nil {
				return err
			}
			<-s.Context().Done()
			close(left)
			return nil
		},
		cancel: func(*pb.CancelExecutionRequest) (*pb.Execution, error) {
			t.Error("the execution was cancelled")
			return &pb.Execution{}, nil
		},
	}
	ctx, end := context.WithCancel(t.Context())
	cmd := f.dial(t).Script("demo", "x.py")
	if err := cmd.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Execution.Detach(ctx); err != nil {
		t.Fatal(err)
	}
	end()
	<-left
	if err := cmd.Wait(); !errors.Is(err, errDetached) {
		t.Errorf("Wait: got %v, want %v", err, errDetached)
	}
}

func TestDialAddresses(t *testing.T) {
	tests := []struct{ address, want string }{
		{"", DefaultAddress},
		{"unix:///run/x.sock", "unix:///run/x.sock"},
		{"unix:x.sock", "unix:x.sock"},
		{"/run/x.sock", "unix:///run/x.sock"},
		{"localhost:7777", "dns:///localhost:7777"},
		{"tcp://[::1]:7777", "dns:///[::1]:7777"},
		{"dns:///host:1", "dns:///host:1"},
		{"localhost", ""},
		{"run/x.sock", ""},
		{"http://host", ""},
		{"https://host:1", ""},
		{"host:1/path", ""},
	}
	for _, test := range tests {
		got, err := dialTarget(test.address)
		if got != test.want || (err != nil) != (test.want == "") {
			t.Errorf("%q: got %q, %v, want %q", test.address, got, err, test.want)
		}
	}
	if _, err := Dial("nonsense"); err == nil {
		t.Error("Dial: got nil, want an error")
	}
}
