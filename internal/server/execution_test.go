package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/permission"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

func TestExecute(t *testing.T) {
	d := startDaemon(t, nil)
	m := script("scripts/hello.sh", "big", "world")
	m.Labels = map[string]string{"for": "test"}
	m.Limits = &pb.ExecutionLimits{WallTime: durationpb.New(20 * time.Second), OpenFiles: 99}
	r := d.execute(m)
	wantExit(t, r, 3)
	if r.stdout != "hello big world\n" || r.stderr != "nobody\n" {
		t.Errorf("stdout %q, stderr %q", r.stdout, r.stderr)
	}
	if !consecutive(r.sequences, 1) || r.raw[0].GetHeader() == nil || r.raw[1].GetStarted() == nil {
		t.Errorf("events out of order: %v", r.raw)
	}
	h := r.header
	if h.Skill != "demo" || !strings.HasPrefix(h.SkillDigest, "sha256:") || h.NetworkRules != nil || h.Deduplicated {
		t.Errorf("header %v", h)
	}
	if got := h.Commands[0].Args; got[len(got)-1] != "world" || !slices.Contains(got, "/workspace/scripts/hello.sh") {
		t.Errorf("commands %v", h.Commands)
	}
	if l := h.Limits; l.WallTime.AsDuration() != 20*time.Second || l.OpenFiles != 99 || l.MemoryBytes != 128<<20 || l.Processes == 0 ||
		l.OutputBytes == 0 || l.WorkspaceBytes == 0 || l.WorkspaceFiles == 0 {
		t.Errorf("limits %v", l)
	}
	o := r.outcome
	if o.SkillDigest != h.SkillDigest || !proto.Equal(o.Limits, h.Limits) || o.Stdout.DeliveredBytes != 16 || o.Stdout.TotalBytes != 16 || o.Stdout.Truncated {
		t.Errorf("outcome %v", o)
	}
	if o.Usage.WallTime.AsDuration() <= 0 || o.Usage.MemoryPeakBytes == 0 {
		t.Errorf("usage %v", o.Usage)
	}

	e, err := d.runs.GetExecution(t.Context(), &pb.GetExecutionRequest{ExecutionId: r.id})
	if err != nil {
		t.Fatal(err)
	}
	if e.State != pb.ExecutionState_EXECUTION_STATE_ENDED || e.Skill != "demo" || e.SourceKind != pb.SourceKind_SOURCE_KIND_SCRIPT || e.Script != "scripts/hello.sh" ||
		!maps.Equal(e.Labels, m.Labels) || e.Principal != fmt.Sprintf("uid:%d", os.Getuid()) || !proto.Equal(e.Outcome, o) ||
		e.LastSequence != r.sequences[len(r.sequences)-1] || e.EndTime.AsTime().Before(e.StartTime.AsTime()) || e.StartTime.AsTime().Before(e.CreateTime.AsTime()) {
		t.Errorf("execution %v", e)
	}
}

// Every source and every kind of standard input reaches the program.
func TestSourcesAndInput(t *testing.T) {
	d := startDaemon(t, nil)
	for _, c := range []struct {
		name   string
		edit   func(*pb.ExecuteRequest)
		stdout string
	}{
		{"code", func(m *pb.ExecuteRequest) {
			m.Source = &pb.ExecuteRequest_Code{Code: &pb.InlineCode{Text: `echo "$1 $APP_X $SECRET"; pwd`, Language: "bash"}}
			m.Args, m.Env, m.SecretEnv = []string{"a b"}, map[string]string{"APP_X": "x"}, map[string]string{"SECRET": "s"}
		}, "a b x s\n/workspace\n"},
		{"command", func(m *pb.ExecuteRequest) {
			m.Source = &pb.ExecuteRequest_Command{Command: "echo one && cat {baseDir}/references/REFERENCE.md"}
		}, "one\nA reference.\n"},
		{"stdin", func(m *pb.ExecuteRequest) {
			m.Stdin = &pb.ExecuteRequest_StdinBytes{StdinBytes: []byte("line\n")}
		}, "ready\ngot line\nend of input\n"},
		{"no stdin", func(*pb.ExecuteRequest) {}, "ready\nend of input\n"},
		{"JSON", func(m *pb.ExecuteRequest) {
			m.Source = &pb.ExecuteRequest_Code{Code: &pb.InlineCode{Text: "cat", Language: "sh"}}
			m.Stdin = &pb.ExecuteRequest_JsonArguments{JsonArguments: `{"a":[1,2.50]}`}
		}, `{"a": [1, 2.5]}`},
		{"files and directory", func(m *pb.ExecuteRequest) {
			m.Source = &pb.ExecuteRequest_Script{Script: "scripts/sums.sh"}
			m.Files = []*pb.InputFile{
				{Path: "in/a", Source: &pb.InputFile_Content{Content: []byte("abc")}, Executable: true},
				{Path: "in/b", Source: &pb.InputFile_Content{}},
			}
			m.WorkingDirectory, m.Args = "in", []string{"a", "b"}
		}, "3\n" + sum("abc") + "  -\nexecutable\n0\n" + sum("") + "  -\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := script("scripts/echo.sh")
			c.edit(m)
			r := d.execute(m)
			wantExit(t, r, 0)
			if r.stdout != c.stdout {
				t.Errorf("got %q (stderr %q), want %q", r.stdout, r.stderr, c.stdout)
			}
		})
	}
}

// Each bad request is refused before a header, by code, reason and field, and
// nothing of it is recorded.
func TestRefusals(t *testing.T) {
	d := startIdle(t, nil)
	file := func(path string) []*pb.InputFile {
		return []*pb.InputFile{{Path: path, Source: &pb.InputFile_Content{Content: []byte("x")}}}
	}
	command := func(line string) func(*pb.ExecuteRequest) {
		return func(m *pb.ExecuteRequest) { m.Source = &pb.ExecuteRequest_Command{Command: line} }
	}
	path := func(p string) func(*pb.ExecuteRequest) {
		return func(m *pb.ExecuteRequest) { m.Source = &pb.ExecuteRequest_Script{Script: p} }
	}
	wall := func(d time.Duration) func(*pb.ExecuteRequest) {
		return func(m *pb.ExecuteRequest) { m.Limits = &pb.ExecutionLimits{WallTime: durationpb.New(d)} }
	}
	for _, c := range []struct {
		name string
		edit func(*pb.ExecuteRequest)
		want refusal
	}{
		{"unknown skill", func(m *pb.ExecuteRequest) { m.Skill = "nope" }, refusal{codes.NotFound, "SKILL_NOT_FOUND", ""}},
		{"slash in the name", func(m *pb.ExecuteRequest) { m.Skill = "a/b" }, refusal{codes.InvalidArgument, "INVALID_SKILL_NAME", "skill"}},
		{"climbing name", func(m *pb.ExecuteRequest) { m.Skill = ".." }, refusal{codes.InvalidArgument, "INVALID_SKILL_NAME", "skill"}},
		{"long name", func(m *pb.ExecuteRequest) { m.Skill = strings.Repeat("a", 1<<20) }, refusal{codes.InvalidArgument, "INVALID_SKILL_NAME", "skill"}},
		{"look-alike name", func(m *pb.ExecuteRequest) { m.Skill = "dem\u043e" }, refusal{codes.NotFound, "SKILL_NOT_FOUND", ""}},
		{"bad pin", func(m *pb.ExecuteRequest) { m.Skill = "demo@sha256:12" }, refusal{codes.InvalidArgument, "INVALID_SKILL_DIGEST", "skill"}},
		{"other digest", func(m *pb.ExecuteRequest) { m.Skill = "demo@sha256:" + strings.Repeat("0", 64) }, refusal{codes.FailedPrecondition, "DIGEST_MISMATCH", ""}},
		{"no source", func(m *pb.ExecuteRequest) { m.Source = nil }, refusal{codes.InvalidArgument, "INVALID_REQUEST", "source"}},
		{"missing script", path("scripts/nope.py"), refusal{codes.NotFound, "SKILL_FILE_NOT_FOUND", ""}},
		{"directory", path("scripts"), refusal{codes.InvalidArgument, "SKILL_PATH_IS_DIRECTORY", "script"}},
		{"outside", path("../plain/SKILL.md"), refusal{codes.InvalidArgument, "SKILL_PATH_ESCAPES", "script"}},
		{"unknown extension", path("scripts/odd.xyz"), refusal{codes.FailedPrecondition, "UNKNOWN_EXTENSION", ""}},
		{"command without a rule", command("rm -rf /"), refusal{codes.PermissionDenied, "COMMAND_NOT_ALLOWED", ""}},
		{"command in a shell", command("echo $(id)"), refusal{codes.PermissionDenied, "COMMAND_NOT_ALLOWED", ""}},
		{"network that is not asked for", func(m *pb.ExecuteRequest) { m.NetworkRules = &pb.NetworkRules{} }, refusal{codes.FailedPrecondition, "NETWORK_NOT_GRANTED", ""}},
		{"network that is not granted", func(m *pb.ExecuteRequest) { m.Skill, m.Source = "plain", code("sh", ":").Source }, refusal{codes.FailedPrecondition, "NETWORK_NOT_GRANTED", ""}},
		{"rules that are none", func(m *pb.ExecuteRequest) {
			m.Skill, m.Source, m.NetworkRules = "plain", code("sh", ":").Source, &pb.NetworkRules{Allow: []string{"public"}, Deny: []string{"*"}}
		}, refusal{codes.FailedPrecondition, "NETWORK_NOT_GRANTED", ""}},
		{"too many rules", func(m *pb.ExecuteRequest) { m.NetworkRules = &pb.NetworkRules{Allow: make([]string, 101)} }, refusal{codes.InvalidArgument, "INVALID_REQUEST", "network_rules.allow"}},
		{"a long rule", func(m *pb.ExecuteRequest) {
			m.NetworkRules = &pb.NetworkRules{Deny: []string{strings.Repeat("a", 301)}}
		}, refusal{codes.InvalidArgument, "INVALID_REQUEST", "network_rules.deny[0]"}},
		{"environment", func(m *pb.ExecuteRequest) { m.Env = map[string]string{"LD_PRELOAD": "x"} }, refusal{codes.InvalidArgument, "ENV_NOT_ALLOWED", "env"}},
		{"secret environment", func(m *pb.ExecuteRequest) { m.SecretEnv = map[string]string{"PATH": "x"} }, refusal{codes.InvalidArgument, "ENV_NOT_ALLOWED", "secret_env"}},
		{"wall time zero", wall(0), refusal{codes.InvalidArgument, "INVALID_REQUEST", "limits.wall_time"}},
		{"wall time negative", wall(-time.Second), refusal{codes.InvalidArgument, "INVALID_REQUEST", "limits.wall_time"}},
		{"wall time above the daemon's", wall(601 * time.Second), refusal{codes.InvalidArgument, "LIMIT_TOO_LARGE", "limits.wall_time"}},
		{"wall time above the skill's", wall(61 * time.Second), refusal{codes.InvalidArgument, "LIMIT_TOO_LARGE", "limits.wall_time"}},
		{"memory above what there is", func(m *pb.ExecuteRequest) { m.Limits = &pb.ExecutionLimits{MemoryBytes: 1<<64 - 1} }, refusal{codes.InvalidArgument, "LIMIT_TOO_LARGE", "limits.memory_bytes"}},
		{"memory below what can start", func(m *pb.ExecuteRequest) { m.Limits = &pb.ExecutionLimits{MemoryBytes: 1} }, refusal{codes.InvalidArgument, "LIMIT_TOO_SMALL", "limits.memory_bytes"}},
		{"absolute input", func(m *pb.ExecuteRequest) { m.Files = file("/etc/x") }, refusal{codes.InvalidArgument, "INVALID_INPUT_FILE", "files"}},
		{"climbing input", func(m *pb.ExecuteRequest) { m.Files = file("../x") }, refusal{codes.InvalidArgument, "INVALID_INPUT_FILE", "files"}},
		{"duplicate input", func(m *pb.ExecuteRequest) { m.Files = append(file("x"), file("x")...) }, refusal{codes.InvalidArgument, "INVALID_INPUT_FILE", "files"}},
		{"input where the skill has a file", func(m *pb.ExecuteRequest) { m.Files = file("SKILL.md") }, refusal{codes.InvalidArgument, "INVALID_INPUT_FILE", "files"}},
		{"streamed input", func(m *pb.ExecuteRequest) { m.Files = []*pb.InputFile{announce("x", "x")} }, refusal{codes.InvalidArgument, "INVALID_REQUEST", "files[0].streamed"}},
		{"arguments that are no object", func(m *pb.ExecuteRequest) {
			m.Stdin = &pb.ExecuteRequest_JsonArguments{JsonArguments: "[]"}
		}, refusal{codes.InvalidArgument, "INVALID_ARGUMENTS", "json_arguments"}},
		{"arguments too large", func(m *pb.ExecuteRequest) {
			m.Stdin = &pb.ExecuteRequest_JsonArguments{JsonArguments: `{"a":"` + strings.Repeat("x", executor.MaxArgumentBytes) + `"}`}
		}, refusal{codes.InvalidArgument, "ARGUMENTS_TOO_LARGE", "json_arguments"}},
		{"NUL in an argument", func(m *pb.ExecuteRequest) { m.Args = []string{"a", "b\x00"} }, refusal{codes.InvalidArgument, "INVALID_REQUEST", "args[1]"}},
		{"idempotency key", func(m *pb.ExecuteRequest) { m.IdempotencyKey = "a b" }, refusal{codes.InvalidArgument, "INVALID_REQUEST", "idempotency_key"}},
		{"queue timeout", func(m *pb.ExecuteRequest) { m.QueueTimeout = durationpb.New(-1) }, refusal{codes.InvalidArgument, "INVALID_REQUEST", "queue_timeout"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := script("scripts/hello.sh")
			c.edit(m)
			r := d.execute(m)
			if len(r.raw) > 0 {
				t.Fatalf("accepted: %v", r.raw)
			}
			wantRefusal(t, r.err, c.want)
		})
	}
	list, err := d.runs.ListExecutions(t.Context(), &pb.ListExecutionsRequest{})
	if err != nil || len(list.Executions) > 0 {
		t.Errorf("got %v, %v; want no execution recorded", list, err)
	}
	if lines := d.logs.With("level=ERROR"); len(lines) > 0 {
		t.Errorf("refusals are not errors of the daemon: %v", lines)
	}
}

func code(language, text string) *pb.ExecuteRequest {
	return &pb.ExecuteRequest{Skill: "demo", Source: &pb.ExecuteRequest_Code{Code: &pb.InlineCode{Text: text, Language: language}}}
}

// What does not fit into a message is refused unread, and the connection lives.
func TestMessageTooLarge(t *testing.T) {
	d := startDaemon(t, func(_ *executor.Config, c *Config) { c.MaxMessageBytes = 1 << 20 })
	m := script("scripts/hello.sh")
	m.Stdin = &pb.ExecuteRequest_StdinBytes{StdinBytes: make([]byte, 1<<20)}
	st := wantRefusal(t, d.execute(m).err, refusal{codes.ResourceExhausted, "MESSAGE_TOO_LARGE", ""})
	if want := fmt.Sprintf("grpc: received message larger than max (%d vs. 1048576)", proto.Size(m)); st.Message() != want {
		t.Errorf("got %q, want %q", st.Message(), want)
	}
	m.Stdin = &pb.ExecuteRequest_StdinBytes{StdinBytes: make([]byte, 1<<19)}
	wantExit(t, d.execute(m), 3)
}

func TestIdempotencyKey(t *testing.T) {
	d := startDaemon(t, nil)
	m := script("scripts/hello.sh")
	m.IdempotencyKey = "key-1"
	first, again := d.execute(m), d.execute(m)
	if first.id != again.id || first.header.Deduplicated || !again.header.Deduplicated {
		t.Errorf("first %s %v, again %s %v", first.id, first.header.Deduplicated, again.id, again.header.Deduplicated)
	}
	if d.ended(first.id).header.Deduplicated {
		t.Error("the mark is on another stream too")
	}
	m.Args = []string{"other"}
	wantRefusal(t, d.execute(m).err, refusal{codes.AlreadyExists, "IDEMPOTENCY_KEY_REUSED", ""})
}

// A stream that only joined an execution does not cancel it when it breaks.
func TestDuplicateLeavesItRunning(t *testing.T) {
	d := startDaemon(t, nil)
	m := script("scripts/forever.sh")
	m.IdempotencyKey = "key-1"
	s, err := d.runs.Execute(t.Context(), m)
	first := readUntil(t, s, err, "ready")
	ctx, cancel := context.WithCancel(t.Context())
	s2, err := d.runs.Execute(ctx, m)
	again := readUntil(t, s2, err, "ready")
	if again.id != first.id {
		t.Fatalf("got %s, want %s", again.id, first.id)
	}
	cancel()
	again.until(s2, func(*transcript) bool { return false })
	// Its end must be the one that comes now.
	if _, err := d.runs.CancelExecution(t.Context(), &pb.CancelExecutionRequest{ExecutionId: first.id, Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	if got := d.ended(first.id).outcome.Evidence.CancelReason; got != "enough" {
		t.Errorf("cancelled for %q", got)
	}
}

func TestDisconnect(t *testing.T) {
	d := startDaemon(t, nil)
	for _, c := range []struct {
		policy pb.OnDisconnect
		cancel bool
	}{
		{pb.OnDisconnect_ON_DISCONNECT_UNSPECIFIED, true},
		{pb.OnDisconnect_ON_DISCONNECT_CANCEL, true},
		{pb.OnDisconnect_ON_DISCONNECT_CONTINUE, false},
	} {
		t.Run(c.policy.String(), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			m := script("scripts/signals.sh")
			m.OnDisconnect = c.policy
			s, err := d.runs.Execute(ctx, m)
			r := readUntil(t, s, err, "ready")
			cancel()
			r.until(s, func(*transcript) bool { return false })
			if got := status.Code(r.err); got != codes.Canceled {
				t.Errorf("broken stream: %v", r.err)
			}
			if c.cancel {
				o := d.ended(r.id).outcome
				if o.End != pb.ExecutionEnd_EXECUTION_END_CANCELLED || o.Evidence.CancelledBy != "disconnect" {
					t.Errorf("got %v", o)
				}
				return
			}
			// It answers, so it lives. Then it exits.
			if _, err := d.runs.SignalExecution(t.Context(), &pb.SignalExecutionRequest{ExecutionId: r.id, Signal: "SIGUSR1"}); err != nil {
				t.Fatal(err)
			}
			after := d.ended(r.id)
			wantExit(t, after, 0)
			if after.stdout != "ready\ngot USR1\n" {
				t.Errorf("got %q", after.stdout)
			}
		})
	}
}

// A reader that stops reading delays neither the program nor another reader. When it reads
// again, it gets everything.
func TestSlowReader(t *testing.T) {
	d := startDaemon(t, nil)
	const size = 5 << 20
	s, err := d.runs.Execute(t.Context(), script("scripts/lots.sh", fmt.Sprint(size)))
	if err != nil {
		t.Fatal(err)
	}
	slow := &transcript{}
	slow.until(s, func(r *transcript) bool { return r.header != nil })
	quick := d.ended(slow.id) // while the slow one reads nothing
	wantExit(t, quick, 0)
	if len(quick.stdout) != size || quick.outcome.Stdout.TotalBytes != size {
		t.Errorf("got %d bytes", len(quick.stdout))
	}
	slow.until(s, func(*transcript) bool { return false })
	wantExit(t, slow, 0)
	if slow.stdout != quick.stdout {
		t.Errorf("the slow reader got %d other bytes", len(slow.stdout))
	}
	for _, e := range quick.raw {
		if n := proto.Size(e); n > 4<<20 {
			t.Errorf("event %d has %d bytes: more than clients take", e.Sequence, n)
		}
	}
}

// AttachExecution gives the same events from any point, during and after the run, to a
// client on another connection.
func TestAttach(t *testing.T) {
	d := startDaemon(t, nil)
	s, err := d.runs.ExecuteInteractive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	send(t, s, start(script("scripts/echo.sh")))
	first := readUntil(t, s, nil, "ready")
	attached, err := d.runs.AttachExecution(t.Context(), &pb.AttachExecutionRequest{ExecutionId: first.id, AfterSequence: 1})
	during := readUntil(t, attached, err, "ready")
	past, err := d.runs.AttachExecution(t.Context(), &pb.AttachExecutionRequest{ExecutionId: first.id, AfterSequence: 1 << 40})
	wantRefusal(t, readAll(t, past, err).err, refusal{codes.OutOfRange, "OFFSET_PAST_END", "after_sequence"})
	send(t, s, stdinMessage("x\n"))
	during.until(attached, func(r *transcript) bool { return strings.Contains(r.stdout, "got x") })
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	first.until(s, func(*transcript) bool { return false })
	wantExit(t, first, 0)
	during.until(attached, func(*transcript) bool { return false })
	wantExit(t, during, 0)
	if !consecutive(during.sequences, 2) {
		t.Errorf("during: sequences %v, want them from 2", during.sequences)
	}
	for after := range len(first.raw) + 1 {
		attached, err := d.runs.AttachExecution(t.Context(), &pb.AttachExecutionRequest{ExecutionId: first.id, AfterSequence: uint64(after)})
		r := readAll(t, attached, err)
		if r.err != nil || !slices.EqualFunc(r.raw, first.raw[after:], func(a, b *pb.ExecutionEvent) bool { return proto.Equal(a, b) }) {
			t.Errorf("after %d: got %v, %v; want the same events", after, r.sequences, r.err)
		}
	}
	attached, err = d.runs.AttachExecution(t.Context(), &pb.AttachExecutionRequest{ExecutionId: first.id, AfterSequence: uint64(len(first.raw)) + 1})
	wantRefusal(t, readAll(t, attached, err).err, refusal{codes.OutOfRange, "OFFSET_PAST_END", "after_sequence"})
	attached, err = d.runs.AttachExecution(t.Context(), &pb.AttachExecutionRequest{ExecutionId: "nope"})
	wantRefusal(t, readAll(t, attached, err).err, refusal{codes.NotFound, "EXECUTION_NOT_FOUND", ""})
}

// A silent stream sends keepalives at the configured interval, each with the last sequence
// number.
func TestKeepalive(t *testing.T) {
	d := startDaemon(t, func(_ *executor.Config, c *Config) { c.KeepaliveInterval = 20 * time.Millisecond })
	s, err := d.runs.Execute(t.Context(), script("scripts/forever.sh"))
	r := readUntil(t, s, err, "ready")
	before := len(r.keepalives) // in the queue, say
	r.until(s, func(r *transcript) bool { return len(r.keepalives) >= before+3 })
	if r.err != nil {
		t.Fatal(r.err)
	}
	last := r.keepalives[len(r.keepalives)-1]
	if last.ExecutionId != r.id || last.Sequence != r.sequences[len(r.sequences)-1] || last.GetKeepalive().State != pb.ExecutionState_EXECUTION_STATE_RUNNING {
		t.Errorf("got %v after %v", last, r.sequences)
	}
	if _, err := d.runs.CancelExecution(t.Context(), &pb.CancelExecutionRequest{ExecutionId: r.id}); err != nil {
		t.Fatal(err)
	}
	r.until(s, func(*transcript) bool { return false })
	if r.outcome.GetEnd() != pb.ExecutionEnd_EXECUTION_END_CANCELLED || !consecutive(r.sequences, 1) {
		t.Errorf("got %v, sequences %v", r.outcome, r.sequences)
	}
}

func TestCancel(t *testing.T) {
	d := startDaemon(t, nil)
	m := script("scripts/forever.sh")
	m.OnDisconnect = pb.OnDisconnect_ON_DISCONNECT_CONTINUE
	s, err := d.runs.Execute(t.Context(), m)
	id := readUntil(t, s, err, "ready").id
	for _, c := range []struct {
		name  string
		m     *pb.CancelExecutionRequest
		field string
	}{
		{"negative grace", &pb.CancelExecutionRequest{Grace: durationpb.New(-1)}, "grace"},
		{"long grace", &pb.CancelExecutionRequest{Grace: durationpb.New(maxGrace + 1)}, "grace"},
		{"broken grace", &pb.CancelExecutionRequest{Grace: &durationpb.Duration{Seconds: 1, Nanos: -1}}, "grace"},
		{"long reason", &pb.CancelExecutionRequest{Reason: strings.Repeat("é", maxReason+1)}, "reason"},
	} {
		c.m.ExecutionId = id
		_, err := d.runs.CancelExecution(t.Context(), c.m)
		wantRefusal(t, err, refusal{codes.InvalidArgument, "INVALID_REQUEST", c.field})
	}
	e, err := d.runs.CancelExecution(t.Context(), &pb.CancelExecutionRequest{ExecutionId: id, Grace: durationpb.New(maxGrace), Reason: strings.Repeat("é", maxReason)})
	if err != nil {
		t.Fatal(err)
	}
	if o := e.Outcome; e.State != pb.ExecutionState_EXECUTION_STATE_ENDED || o.End != pb.ExecutionEnd_EXECUTION_END_CANCELLED || o.Evidence.CancelledBy != e.Principal || o.Evidence.CancelReason != strings.Repeat("é", maxReason) {
		t.Errorf("got %v", e)
	}
	again, err := d.runs.CancelExecution(t.Context(), &pb.CancelExecutionRequest{ExecutionId: id, Reason: "again"})
	if err != nil || !proto.Equal(again, e) {
		t.Errorf("cancelled again: got %v, %v; want it unchanged", again, err)
	}
	_, err = d.runs.CancelExecution(t.Context(), &pb.CancelExecutionRequest{ExecutionId: "nope"})
	wantRefusal(t, err, refusal{codes.NotFound, "EXECUTION_NOT_FOUND", ""})
}

// With return_immediately the answer does not wait for the program, which ignores SIGTERM for the
// whole grace.
func TestCancelAnswersAtOnce(t *testing.T) {
	d := startDaemon(t, nil)
	s, err := d.runs.Execute(t.Context(), &pb.ExecuteRequest{Skill: "demo", Source: &pb.ExecuteRequest_Code{
		Code: &pb.InlineCode{Text: "trap '' TERM; echo ready; while :; do sleep 0.05; done", Language: "sh"},
	}})
	id := readUntil(t, s, err, "ready").id
	e, err := d.runs.CancelExecution(t.Context(), &pb.CancelExecutionRequest{
		ExecutionId: id, Grace: durationpb.New(maxGrace), Reason: "enough", ReturnImmediately: true,
	})
	if err != nil || e.State != pb.ExecutionState_EXECUTION_STATE_RUNNING || e.Outcome != nil {
		t.Fatalf("got %v, %v; want an execution that still runs", e, err)
	}
	// The shortest grace holds, so this ends it.
	e, err = d.runs.CancelExecution(t.Context(), &pb.CancelExecutionRequest{ExecutionId: id, Grace: durationpb.New(0), Reason: "now"})
	if err != nil || e.Outcome.GetEnd() != pb.ExecutionEnd_EXECUTION_END_CANCELLED || e.Outcome.GetEvidence().GetCancelReason() != "enough" {
		t.Errorf("got %v, %v; want it cancelled by the first call", e, err)
	}
}

// A deleted execution is gone from every call, and its key is free again.
func TestDelete(t *testing.T) {
	d := startDaemon(t, nil)
	m := script("scripts/files.sh")
	m.IdempotencyKey = "once"
	r := d.execute(m)
	running, err := d.runs.Execute(t.Context(), script("scripts/forever.sh"))
	live := readUntil(t, running, err, "ready").id
	_, err = d.runs.DeleteExecution(t.Context(), &pb.DeleteExecutionRequest{ExecutionId: live})
	wantRefusal(t, err, refusal{codes.FailedPrecondition, "NOT_ENDED", ""})
	for _, id := range []string{"nope", ""} {
		_, err = d.runs.DeleteExecution(t.Context(), &pb.DeleteExecutionRequest{ExecutionId: id})
		wantRefusal(t, err, refusal{codes.NotFound, "EXECUTION_NOT_FOUND", ""})
	}
	if _, err := d.runs.DeleteExecution(t.Context(), &pb.DeleteExecutionRequest{ExecutionId: r.id}); err != nil {
		t.Fatal(err)
	}
	gone := refusal{codes.NotFound, "EXECUTION_NOT_FOUND", ""}
	_, err = d.runs.GetExecution(t.Context(), &pb.GetExecutionRequest{ExecutionId: r.id})
	wantRefusal(t, err, gone)
	attached, err := d.runs.AttachExecution(t.Context(), &pb.AttachExecutionRequest{ExecutionId: r.id})
	wantRefusal(t, readAll(t, attached, err).err, gone)
	_, err = d.runs.ListArtifacts(t.Context(), &pb.ListArtifactsRequest{ExecutionId: r.id})
	wantRefusal(t, err, gone)
	_, err = d.runs.DeleteExecution(t.Context(), &pb.DeleteExecutionRequest{ExecutionId: r.id})
	wantRefusal(t, err, gone)
	if again := d.execute(m); again.id == r.id || again.header.Deduplicated {
		t.Errorf("the key of a deleted execution is not free: got %v", again.header)
	}
}

// GetExecution returns a summary of the request, but never the content of code, input and environment.
func TestRequestIsRecorded(t *testing.T) {
	d := startDaemon(t, nil)
	m := script("scripts/hello.sh", "one", "two \xe2\x82\xac")
	m.Env, m.SecretEnv = map[string]string{"B": "hidden", "A": "hidden"}, map[string]string{"C": "hidden"}
	m.Files = []*pb.InputFile{{Path: "in/b", Source: &pb.InputFile_Content{Content: []byte("hidden")}}, {Path: "a", Source: &pb.InputFile_Content{}}}
	m.Stdin, m.WorkingDirectory = &pb.ExecuteRequest_StdinBytes{StdinBytes: []byte("hidden")}, "scripts"
	r := d.execute(m)
	wantExit(t, r, 3)
	e, err := d.runs.GetExecution(t.Context(), &pb.GetExecutionRequest{ExecutionId: r.id})
	if err != nil {
		t.Fatal(err)
	}
	want := &pb.RequestSummary{
		Args: []string{"one", "two \xe2\x82\xac"}, WorkingDirectory: "scripts", EnvNames: []string{"A", "B"}, SecretEnvNames: []string{"C"}, FilePaths: []string{"a", "in/b"},
	}
	if !proto.Equal(e.Request, want) || strings.Contains(e.String(), "hidden") {
		t.Errorf("got %v, want %v", e.Request, want)
	}
	r = d.execute(&pb.ExecuteRequest{Skill: "demo", Source: &pb.ExecuteRequest_Code{Code: &pb.InlineCode{Text: "exit 0 # hidden", Language: "sh"}}, Args: slices.Repeat([]string{strings.Repeat("x", 1000)}, 20)})
	if e, err = d.runs.GetExecution(t.Context(), &pb.GetExecutionRequest{ExecutionId: r.id}); err != nil {
		t.Fatal(err)
	}
	if got := e.Request; got.Language != "sh" || !got.Truncated || len(got.Args) != 16 || strings.Contains(e.String(), "hidden") {
		t.Errorf("got %v, want the first 16 KiB of the arguments", got)
	}
}

func TestSignal(t *testing.T) {
	d := startDaemon(t, nil)
	s, err := d.runs.Execute(t.Context(), script("scripts/signals.sh"))
	r := readUntil(t, s, err, "ready")
	signal := func(id, name string) error {
		_, err := d.runs.SignalExecution(t.Context(), &pb.SignalExecutionRequest{ExecutionId: id, Signal: name})
		return err
	}
	for _, name := range []string{"", "USR1", "SIGSEGV", "10", "sigusr1"} {
		wantRefusal(t, signal(r.id, name), refusal{codes.InvalidArgument, "INVALID_REQUEST", "signal"})
	}
	wantRefusal(t, signal("nope", "SIGUSR1"), refusal{codes.NotFound, "EXECUTION_NOT_FOUND", ""})
	if err := signal(r.id, "SIGUSR1"); err != nil {
		t.Fatal(err)
	}
	r.until(s, func(*transcript) bool { return false })
	wantExit(t, r, 0)
	if r.stdout != "ready\ngot USR1\n" {
		t.Errorf("got %q", r.stdout)
	}
	wantRefusal(t, signal(r.id, "SIGUSR1"), refusal{codes.FailedPrecondition, "NOT_RUNNING", ""})
}

func TestSaturated(t *testing.T) {
	d := startDaemon(t, func(c *executor.Config, _ *Config) { c.MaxRunning, c.MaxQueued = 1, 1 })
	s, err := d.runs.Execute(t.Context(), script("scripts/forever.sh"))
	readUntil(t, s, err, "ready")
	queued, err := d.runs.Execute(t.Context(), script("scripts/hello.sh"))
	if err != nil {
		t.Fatal(err)
	}
	waiting := &transcript{}
	waiting.until(queued, func(r *transcript) bool { return r.header != nil })
	e, err := d.runs.GetExecution(t.Context(), &pb.GetExecutionRequest{ExecutionId: waiting.id})
	if err != nil || e.State != pb.ExecutionState_EXECUTION_STATE_QUEUED || e.StartTime != nil || e.EndTime != nil || e.Outcome != nil {
		t.Errorf("queued: got %v, %v", e, err)
	}
	_, err = d.runs.SignalExecution(t.Context(), &pb.SignalExecutionRequest{ExecutionId: waiting.id, Signal: "SIGTERM"})
	wantRefusal(t, err, refusal{codes.FailedPrecondition, "NOT_RUNNING", ""})
	wantRefusal(t, d.execute(script("scripts/hello.sh")).err, refusal{codes.ResourceExhausted, "SATURATED", ""})
	can, err := d.system.GetCapabilities(t.Context(), &pb.GetCapabilitiesRequest{})
	if err != nil || can.Running != 1 || can.Queued != 1 || can.Draining {
		t.Errorf("capabilities: %v, %v", can, err)
	}
}

func TestDraining(t *testing.T) {
	d := startIdle(t, nil)
	d.x.Drain(t.Context(), t.Context())
	wantRefusal(t, d.execute(script("scripts/hello.sh")).err, refusal{codes.Unavailable, "DRAINING", ""})
	can, err := d.system.GetCapabilities(t.Context(), &pb.GetCapabilitiesRequest{})
	if err != nil || !can.Draining {
		t.Errorf("capabilities: %v, %v", can, err)
	}
}

func TestList(t *testing.T) {
	d := startDaemon(t, nil)
	var ids []string
	for i := range 5 {
		m := script("scripts/hello.sh")
		m.Labels = map[string]string{"i": fmt.Sprint(i), "all": "yes"}
		ids = append(ids, d.execute(m).id)
	}
	s, err := d.runs.Execute(t.Context(), script("scripts/forever.sh"))
	ids = append(ids, readUntil(t, s, err, "ready").id)
	slices.Reverse(ids) // newest first

	list := func(m *pb.ListExecutionsRequest) ([]string, *pb.ListExecutionsResponse) {
		t.Helper()
		page, err := d.runs.ListExecutions(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range page.Executions {
			got = append(got, e.ExecutionId)
		}
		return got, page
	}
	_, first := list(&pb.ListExecutionsRequest{PageSize: 1})
	principal := first.Executions[0].Principal
	oldest := slices.Clone(ids)
	slices.Reverse(oldest)
	for _, c := range []struct {
		name string
		m    *pb.ListExecutionsRequest
		want []string
	}{
		{"all", &pb.ListExecutionsRequest{}, ids},
		{"skill", &pb.ListExecutionsRequest{Skill: "plain"}, nil},
		{"running", &pb.ListExecutionsRequest{States: []pb.ExecutionState{pb.ExecutionState_EXECUTION_STATE_RUNNING, pb.ExecutionState_EXECUTION_STATE_QUEUED}}, ids[:1]},
		{"ends", &pb.ListExecutionsRequest{Ends: []pb.ExecutionEnd{pb.ExecutionEnd_EXECUTION_END_EXITED}}, ids[1:]},
		{"other ends", &pb.ListExecutionsRequest{Ends: []pb.ExecutionEnd{pb.ExecutionEnd_EXECUTION_END_OOM_KILLED}}, nil},
		{"labels", &pb.ListExecutionsRequest{Labels: map[string]string{"i": "3", "all": "yes"}}, ids[2:3]},
		{"repeated values", &pb.ListExecutionsRequest{
			// More values than SQLite binds in a query (32,766).
			States: slices.Repeat([]pb.ExecutionState{pb.ExecutionState_EXECUTION_STATE_ENDED}, 40_000),
			Ends:   slices.Repeat([]pb.ExecutionEnd{pb.ExecutionEnd_EXECUTION_END_EXITED}, 40_000),
		}, ids[1:]},
		{"labels together", &pb.ListExecutionsRequest{Labels: map[string]string{"i": "3", "all": "no"}}, nil},
		{"later", &pb.ListExecutionsRequest{CreatedAfter: timestamppb.New(time.Now().Add(time.Hour))}, nil},
		{"before later", &pb.ListExecutionsRequest{CreatedBefore: timestamppb.New(time.Now().Add(time.Hour))}, ids},
		{"earlier", &pb.ListExecutionsRequest{CreatedBefore: timestamppb.New(time.Now().Add(-time.Hour))}, nil},
		{"principal", &pb.ListExecutionsRequest{Principal: principal}, ids},
		{"other principal", &pb.ListExecutionsRequest{Principal: "nobody"}, nil},
		{"oldest first", &pb.ListExecutionsRequest{Order: pb.ExecutionOrder_EXECUTION_ORDER_OLDEST_FIRST}, oldest},
		{"newest first", &pb.ListExecutionsRequest{Order: pb.ExecutionOrder_EXECUTION_ORDER_NEWEST_FIRST}, ids},
		{"a page that is too large is clamped", &pb.ListExecutionsRequest{PageSize: math.MaxUint32}, ids},
	} {
		if got, _ := list(c.m); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	var paged []string
	m := &pb.ListExecutionsRequest{PageSize: 4}
	for {
		got, page := list(m)
		paged = append(paged, got...)
		if page.NextPageToken == "" {
			break
		}
		m.PageToken = page.NextPageToken
	}
	if !slices.Equal(paged, ids) {
		t.Errorf("pages: got %v, want %v", paged, ids)
	}
	// A token belongs to its order.
	_, page := list(&pb.ListExecutionsRequest{PageSize: 4})
	_, err = d.runs.ListExecutions(t.Context(), &pb.ListExecutionsRequest{PageToken: page.NextPageToken, Order: pb.ExecutionOrder_EXECUTION_ORDER_OLDEST_FIRST})
	wantRefusal(t, err, refusal{codes.InvalidArgument, "INVALID_REQUEST", "page_token"})
	tooMany := map[string]string{}
	for i := range executor.MaxLabels + 1 {
		tooMany[fmt.Sprint(i)] = ""
	}
	for _, c := range []struct {
		m     *pb.ListExecutionsRequest
		field string
	}{
		{&pb.ListExecutionsRequest{Labels: tooMany}, "labels"},
		{&pb.ListExecutionsRequest{Order: 99}, "order"},
		{&pb.ListExecutionsRequest{CreatedBefore: &timestamppb.Timestamp{Nanos: -1}}, "created_before"},
		{&pb.ListExecutionsRequest{PageToken: "x"}, "page_token"},
		{&pb.ListExecutionsRequest{States: []pb.ExecutionState{99}}, "states"},
		{&pb.ListExecutionsRequest{States: []pb.ExecutionState{pb.ExecutionState_EXECUTION_STATE_UNSPECIFIED}}, "states"},
		{&pb.ListExecutionsRequest{Ends: []pb.ExecutionEnd{99}}, "ends"},
		{&pb.ListExecutionsRequest{CreatedAfter: &timestamppb.Timestamp{Nanos: -1}}, "created_after"},
	} {
		_, err := d.runs.ListExecutions(t.Context(), c.m)
		wantRefusal(t, err, refusal{codes.InvalidArgument, "INVALID_REQUEST", c.field})
	}
}

func TestArtifacts(t *testing.T) {
	d := startDaemon(t, nil)
	r := d.execute(script("scripts/files.sh"))
	wantExit(t, r, 0)
	if r.outcome.ArtifactCount != 4 || len(r.outcome.Artifacts) != 4 {
		t.Fatalf("outcome has %v", r.outcome.Artifacts)
	}
	var listed []*pb.Artifact
	m := &pb.ListArtifactsRequest{ExecutionId: r.id, PageSize: 3}
	for {
		page, err := d.runs.ListArtifacts(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, page.Artifacts...)
		if m.PageToken = page.NextPageToken; m.PageToken == "" {
			break
		}
	}
	if !slices.EqualFunc(listed, r.outcome.Artifacts, func(a, b *pb.Artifact) bool { return proto.Equal(a, b) }) {
		t.Errorf("listed %v, outcome has %v", listed, r.outcome.Artifacts)
	}
	if got, want := listed[3].Path, "out/\uFFFD.txt"; got != want || string(listed[3].RawPath) != "out/\xff.txt" {
		t.Errorf("got %q %q, want %q with its raw path", got, listed[3].RawPath, want)
	}
	for _, a := range listed {
		for _, offset := range []uint64{0, 1, chunkBytes, a.SizeBytes} {
			if offset > a.SizeBytes {
				continue
			}
			got, chunks := d.artifact(r.id, a, offset)
			if uint64(len(got)) != a.SizeBytes-offset {
				t.Errorf("%s from %d: %d bytes", a.Path, offset, len(got))
			}
			if digest := sha256.Sum256(got); offset == 0 && hex.EncodeToString(digest[:]) != a.Sha256 {
				t.Errorf("%s: not what was announced", a.Path)
			}
			for i, c := range chunks {
				if (i == 0) != proto.Equal(c.Artifact, a) || len(c.Data) > chunkBytes {
					t.Errorf("%s: chunk %d of %d bytes has %v", a.Path, i, len(c.Data), c.Artifact)
				}
			}
		}
	}
	for _, c := range []struct {
		name string
		m    *pb.GetArtifactRequest
		want refusal
	}{
		{"past the end", &pb.GetArtifactRequest{Path: "out/a.txt", OffsetBytes: 6}, refusal{codes.OutOfRange, "OFFSET_PAST_END", "offset_bytes"}},
		{"far past the end", &pb.GetArtifactRequest{Path: "out/a.txt", OffsetBytes: 1<<64 - 1}, refusal{codes.OutOfRange, "OFFSET_PAST_END", "offset_bytes"}},
		{"not there", &pb.GetArtifactRequest{Path: "nope"}, refusal{codes.NotFound, "ARTIFACT_NOT_FOUND", ""}},
		{"climbing", &pb.GetArtifactRequest{Path: "../../../etc/passwd"}, refusal{codes.NotFound, "ARTIFACT_NOT_FOUND", ""}},
		{"no path", &pb.GetArtifactRequest{}, refusal{codes.InvalidArgument, "INVALID_REQUEST", "path"}},
		{"no such execution", &pb.GetArtifactRequest{ExecutionId: "nope", Path: "out/a.txt"}, refusal{codes.NotFound, "EXECUTION_NOT_FOUND", ""}},
	} {
		if c.m.ExecutionId == "" {
			c.m.ExecutionId = r.id
		}
		s, err := d.runs.GetArtifact(t.Context(), c.m)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Recv()
		wantRefusal(t, err, c.want)
	}
	_, err := d.runs.ListArtifacts(t.Context(), &pb.ListArtifactsRequest{ExecutionId: "nope"})
	wantRefusal(t, err, refusal{codes.NotFound, "EXECUTION_NOT_FOUND", ""})
	_, err = d.runs.ListArtifacts(t.Context(), &pb.ListArtifactsRequest{ExecutionId: r.id, PageToken: "x"})
	wantRefusal(t, err, refusal{codes.InvalidArgument, "INVALID_REQUEST", "page_token"})
}

// artifact fetches an artifact as a client does.
func (d *daemon) artifact(id string, a *pb.Artifact, offset uint64) ([]byte, []*pb.GetArtifactResponse) {
	d.t.Helper()
	s, err := d.runs.GetArtifact(d.t.Context(), &pb.GetArtifactRequest{ExecutionId: id, Path: a.Path, RawPath: a.RawPath, OffsetBytes: offset})
	if err != nil {
		d.t.Fatal(err)
	}
	var got bytes.Buffer
	var chunks []*pb.GetArtifactResponse
	for {
		c, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return got.Bytes(), chunks
		}
		if err != nil {
			d.t.Fatal(err)
		}
		if c.OffsetBytes != offset+uint64(got.Len()) {
			d.t.Errorf("chunk at %d, want %d", c.OffsetBytes, offset+uint64(got.Len()))
		}
		got.Write(c.Data)
		chunks = append(chunks, c)
	}
}

// Another tenant's execution does not exist.
func TestTenants(t *testing.T) {
	tenant := make(chan string, 1)
	d := startDaemon(t, func(_ *executor.Config, c *Config) {
		c.Identify = func(identity.Credentials) (identity.Identity, error) {
			name := <-tenant
			tenant <- name
			return identity.Identity{Principal: permission.Principal{Tenant: name, Name: "who"}, Role: identity.Admin}, nil
		}
	})
	tenant <- "a"
	r := d.execute(script("scripts/files.sh"))
	wantExit(t, r, 0)
	ctx := t.Context()
	page, err := d.about.ListSkills(ctx, &pb.ListSkillsRequest{IncludeHidden: true, PageSize: 1})
	if err != nil || page.NextPageToken == "" {
		t.Fatalf("got %v, %v; want a token", page, err)
	}
	<-tenant
	tenant <- "b"
	_, err = d.about.ListSkills(ctx, &pb.ListSkillsRequest{IncludeHidden: true, PageToken: page.NextPageToken})
	wantRefusal(t, err, refusal{codes.InvalidArgument, "INVALID_REQUEST", "page_token"})
	notFound := refusal{codes.NotFound, "EXECUTION_NOT_FOUND", ""}
	_, err = d.runs.GetExecution(ctx, &pb.GetExecutionRequest{ExecutionId: r.id})
	wantRefusal(t, err, notFound)
	_, err = d.runs.CancelExecution(ctx, &pb.CancelExecutionRequest{ExecutionId: r.id})
	wantRefusal(t, err, notFound)
	_, err = d.runs.SignalExecution(ctx, &pb.SignalExecutionRequest{ExecutionId: r.id, Signal: "SIGTERM"})
	wantRefusal(t, err, notFound)
	_, err = d.runs.ListArtifacts(ctx, &pb.ListArtifactsRequest{ExecutionId: r.id})
	wantRefusal(t, err, notFound)
	attached, err := d.runs.AttachExecution(ctx, &pb.AttachExecutionRequest{ExecutionId: r.id})
	wantRefusal(t, readAll(t, attached, err).err, notFound)
	file, err := d.runs.GetArtifact(ctx, &pb.GetArtifactRequest{ExecutionId: r.id, Path: "out/a.txt"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.Recv()
	wantRefusal(t, err, notFound)
	list, err := d.runs.ListExecutions(ctx, &pb.ListExecutionsRequest{})
	if err != nil || len(list.Executions) > 0 {
		t.Errorf("got %v, %v; want nothing of another tenant", list, err)
	}
}

// An internal error names the execution and not the cause. The log has the cause once.
func TestUnreadableOutput(t *testing.T) {
	d := startDaemon(t, nil)
	for _, c := range []struct {
		name    string
		spoil   func(spool string) error
		want    refusal
		message string // and "ID"
	}{
		{"cut", func(spool string) error { return os.Truncate(spool, 20) },
			refusal{codes.DataLoss, "OUTPUT_DAMAGED", ""}, "execution ID: its stored data is damaged"},
		{"no file", func(spool string) error { return errors.Join(os.Remove(spool), os.Mkdir(spool, 0o700)) },
			refusal{codes.DataLoss, "OUTPUT_DAMAGED", ""}, "execution ID: its stored data is damaged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := d.execute(script("scripts/lots.sh", "200000")) // shorter output has no spool
			wantExit(t, r, 0)
			spools, err := filepath.Glob(filepath.Join(d.dir, "record", "*", r.id))
			if err != nil || len(spools) == 0 {
				t.Fatalf("no spool of %s: %v", r.id, err)
			}
			for _, spool := range spools {
				if err := c.spoil(spool); err != nil {
					t.Fatal(err)
				}
			}
			s, err := d.runs.AttachExecution(t.Context(), &pb.AttachExecutionRequest{ExecutionId: r.id})
			st := wantRefusal(t, readAll(t, s, err).err, c.want)
			if got, want := st.Message(), strings.Replace(c.message, "ID", r.id, 1); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if lines := d.logs.With("ERROR", r.id, "err="); len(lines) != 1 {
				t.Errorf("%d lines of the log say why, want 1: %v", len(lines), lines)
			}
		})
	}
}
