package server

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress/budget"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// withInput is a request for a script that has n bytes to read.
func withInput(path string, n int) *pb.ExecuteRequest {
	m := script(path)
	m.Stdin = &pb.ExecuteRequest_StdinBytes{StdinBytes: make([]byte, n)}
	return m
}

func newBudget(t *testing.T, limit int64) *budget.Budget {
	t.Helper()
	b, err := budget.New(limit, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// waitFree returns when the budget counts no bytes. The client learns of a call's end before the
// daemon does.
func waitFree(t *testing.T, b *budget.Budget) {
	t.Helper()
	for late := time.After(time.Minute); b.Used() > 0; runtime.Gosched() {
		select {
		case <-late:
			t.Fatalf("%d bytes are still counted", b.Used())
		default:
		}
	}
}

// The memory of all requests together is bounded while their executions live, also if nothing
// listens to them. A refusal says so, and small calls are answered.
func TestRequestsTogetherAreBounded(t *testing.T) {
	d := startDaemon(t, func(_ *executor.Config, c *Config) { c.MaxMessageBytes, c.Budget = 1<<20, newBudget(t, 2<<20) })
	ctx, hangUp := context.WithCancel(t.Context())
	var ids []string
	for range 2 {
		m := withInput("scripts/forever.sh", 900<<10)
		m.OnDisconnect = pb.OnDisconnect_ON_DISCONNECT_CONTINUE
		s, err := d.runs.Execute(ctx, m)
		ids = append(ids, readUntil(t, s, err, "ready").id)
	}
	full := refusal{codes.Unavailable, "REQUESTS_FULL", ""}
	refusedNow := func(what string) {
		t.Helper()
		st := wantRefusal(t, d.execute(withInput("scripts/hello.sh", 900<<10)).err, full)
		if !slices.ContainsFunc(st.Details(), func(d any) bool { _, ok := d.(*errdetails.RetryInfo); return ok }) {
			t.Errorf("%s: no RetryInfo in %v", what, st.Details())
		}
		if _, err := pb.NewToolServiceClient(d.conn).ExecuteScript(t.Context(), &pb.ExecuteScriptRequest{Skill: "demo", ScriptPath: "scripts/hello.sh", ArgumentsJson: string(make([]byte, 900<<10))}); err == nil {
			t.Errorf("%s: a unary call got through", what)
		} else {
			wantRefusal(t, err, full)
		}
		wantExit(t, d.execute(script("scripts/hello.sh")), 3)
		wantExit(t, d.execute(withInput("scripts/hello.sh", 30<<10)), 3)
	}
	refusedNow("while they are followed")
	hangUp()
	refusedNow("while nobody listens")
	for _, id := range ids {
		if _, err := d.runs.CancelExecution(t.Context(), &pb.CancelExecutionRequest{ExecutionId: id}); err != nil {
			t.Fatal(err)
		}
	}
	waitFree(t, d.budget)
	wantExit(t, d.execute(withInput("scripts/hello.sh", 900<<10)), 3)
	waitFree(t, d.budget)
}

// The bytes of a request's files are free as soon as the files are on disk.
func TestStagedFilesAreNotHeld(t *testing.T) {
	d := startDaemon(t, func(_ *executor.Config, c *Config) { c.MaxMessageBytes, c.Budget = 1<<20, newBudget(t, 1<<20) })
	for range 3 {
		m := script("scripts/forever.sh")
		m.Files = []*pb.InputFile{{Path: "big", Source: &pb.InputFile_Content{Content: make([]byte, 1000<<10)}}}
		s, err := d.runs.Execute(t.Context(), m)
		readUntil(t, s, err, "ready")
	}
}

// A stream may bring more bytes than the budget has: the bytes that the program has read are
// free. At most four messages count at the same time, and one of these is still arriving.
func TestAStreamOfInputIsNotHeld(t *testing.T) {
	d := startDaemon(t, func(_ *executor.Config, c *Config) { c.MaxMessageBytes, c.Budget = 1<<20, newBudget(t, 4<<20) })
	s, err := d.runs.ExecuteInteractive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Start{Start: code("bash", "wc -c")}})
	for range 10 {
		if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Stdin{Stdin: make([]byte, 1000<<10)}}); err != nil {
			t.Fatal(err)
		}
	}
	s.CloseSend()
	r := readAll(t, s, nil)
	wantExit(t, r, 0)
	if r.stdout != "10240000\n" {
		t.Errorf("the program read %q", r.stdout)
	}
	waitFree(t, d.budget)
}

// A message that is refused in the middle of a stream ends its execution, which says so.
func TestARefusedMessageOfAStreamCancels(t *testing.T) {
	d := startDaemon(t, func(_ *executor.Config, c *Config) { c.MaxMessageBytes = 1 << 20 })
	s, err := d.runs.ExecuteInteractive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Start{Start: script("scripts/forever.sh")}})
	r := readUntil(t, s, nil, "ready")
	s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Stdin{Stdin: make([]byte, 1<<20)}})
	r.until(s, func(*transcript) bool { return false })
	if r.err != nil || r.outcome.GetEnd() != pb.ExecutionEnd_EXECUTION_END_CANCELLED || !strings.Contains(r.outcome.GetEvidence().GetCancelReason(), "larger than max") {
		t.Errorf("got %v, %v; want a cancellation that names the message", r.err, r.outcome)
	}
}

// Two bytes become a hundred in memory: a message has only so many fields.
func TestFieldsOfAMessageAreBounded(t *testing.T) {
	d := startIdle(t, nil)
	m := script("scripts/hello.sh")
	for range maxFields {
		m.Files = append(m.Files, &pb.InputFile{})
	}
	wantRefusal(t, d.execute(m).err, refusal{codes.InvalidArgument, "MALFORMED_MESSAGE", "request"})
	wantRefusal(t, func() error {
		_, err := d.runs.ListExecutions(t.Context(), &pb.ListExecutionsRequest{Labels: map[string]string{"a": "b"}, Ends: make([]pb.ExecutionEnd, 3), Skill: "x"})
		return err
	}(), refusal{codes.InvalidArgument, "INVALID_REQUEST", "ends"})
}

func TestCountFields(t *testing.T) {
	desc := (&pb.ExecuteInteractiveRequest{}).ProtoReflect().Descriptor()
	m := &pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Start{Start: &pb.ExecuteRequest{
		Skill: "a", Args: []string{"", ""}, Labels: map[string]string{"k": "v"},
		Files: []*pb.InputFile{{Path: "p"}, {}},
	}}}
	encoded, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	// start, skill, two args, labels with key and value, two files, a path
	if got, want := countFields(encoded, desc, 100), 100-10; got != want {
		t.Errorf("%d are left, want %d", got, want)
	}
	if got := countFields(encoded, desc, 9); got >= 0 {
		t.Errorf("%d are left of 9", got)
	}
	broken := protowire.AppendTag(nil, 1, protowire.BytesType)
	if got := countFields(append(broken, 200), desc, 100); got < 0 {
		t.Errorf("a broken message has %d fields left", got)
	}
}
