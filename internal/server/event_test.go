package server

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skillrun/skillrun/internal/executor"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

var (
	someLimits = executor.Limits{
		Wall: 1, CPU: 2, MemoryBytes: 3, Processes: 4, OutputBytes: 5, WorkspaceBytes: 6, WorkspaceFiles: 7, OpenFiles: 8, MilliCPUs: 9,
	}
	someLimitsMessage = &pb.ExecutionLimits{
		WallTime: durationpb.New(1), CpuTime: durationpb.New(2), MemoryBytes: 3, Processes: 4,
		OutputBytes: 5, WorkspaceBytes: 6, WorkspaceFiles: 7, OpenFiles: 8, MilliCpus: 9,
	}
)

// Each event becomes its message, every field of it, and bytes that are no text
// become text where the contract wants it.
func TestFromEvent(t *testing.T) {
	now := time.Unix(1_700_000_000, 5)
	code := -9
	outcome := &executor.Outcome{
		End: executor.Signaled, ExitCode: &code, Signal: "SIGKILL", TimedOut: true,
		Evidence: executor.Evidence{
			OOMKills: 1, OOMScope: executor.TenantMemory, PidsMax: 2, Deadline: executor.CPUDeadline, CancelledBy: "uid:\xff", CancelReason: "r\xff", SetupStep: "exec", SetupError: "e\xff",
		},
		Usage:  executor.Usage{UserCPU: 1, SystemCPU: 2, MemoryPeakBytes: 3, Wall: 4, Queue: 5, Setup: 6},
		Stdout: executor.Truncation{DeliveredBytes: 1, TotalBytes: 2}, Stderr: executor.Truncation{DeliveredBytes: 3, TotalBytes: 3},
		Artifacts: []executor.Artifact{{Path: "a\uFFFD", Raw: []byte("a\xff"), SizeBytes: 1, SHA256: "s", Executable: true}},
		Count:     7, Refused: []string{"l\xff"}, SkillDigest: "sha256:d", Limits: someLimits, Advice: "do\xff",
	}
	exit := int32(-9)
	outcomeMessage := &pb.ExecutionOutcome{
		End: pb.ExecutionEnd_EXECUTION_END_SIGNALED, ExitCode: &exit, Signal: "SIGKILL", TimedOut: true,
		Evidence: &pb.ExecutionEvidence{
			OomKillCount: 1, OomScope: pb.OomScope_OOM_SCOPE_TENANT, PidsMaxCount: 2, Deadline: pb.ExecutionDeadline_EXECUTION_DEADLINE_CPU, CancelledBy: "uid:\uFFFD", CancelReason: "r\uFFFD",
			SetupStep: "exec", SetupError: "e\uFFFD",
		},
		Usage: &pb.ExecutionUsage{
			CpuUser: durationpb.New(1), CpuSystem: durationpb.New(2), MemoryPeakBytes: 3,
			WallTime: durationpb.New(4), QueueTime: durationpb.New(5), SetupTime: durationpb.New(6),
		},
		Stdout:        &pb.OutputTruncation{Truncated: true, DeliveredBytes: 1, TotalBytes: 2},
		Stderr:        &pb.OutputTruncation{DeliveredBytes: 3, TotalBytes: 3},
		Artifacts:     []*pb.Artifact{{Path: "a\uFFFD", RawPath: []byte("a\xff"), SizeBytes: 1, Sha256: "s", Executable: true, Uri: "execution://e1/artifacts/a%FF"}},
		ArtifactCount: 7, ArtifactsRefused: []string{"l\uFFFD"}, SkillDigest: "sha256:d", Limits: someLimitsMessage, Advice: "do\uFFFD",
	}
	for _, c := range []struct {
		name string
		in   executor.Event
		want *pb.ExecutionEvent
	}{
		{
			"header",
			executor.Event{Header: &executor.Header{Skill: "s", SkillDigest: "sha256:d", Limits: someLimits, Network: &executor.Network{Allow: []string{"public"}, Deny: []string{"x.example"}}, Commands: [][]string{{"a", "\xff"}, {"b"}}}},
			&pb.ExecutionEvent{Event: &pb.ExecutionEvent_Header{Header: &pb.ExecutionHeader{
				Skill: "s", SkillDigest: "sha256:d", Limits: someLimitsMessage, NetworkRules: &pb.NetworkRules{Allow: []string{"public"}, Deny: []string{"x.example"}}, Deduplicated: true,
				Commands: []*pb.Argv{{Args: []string{"a", "\uFFFD"}}, {Args: []string{"b"}}},
			}}},
		},
		{
			"started",
			executor.Event{Started: &executor.Started{Queue: 1, Setup: 2}},
			&pb.ExecutionEvent{Event: &pb.ExecutionEvent_Started{Started: &pb.ExecutionStarted{QueueTime: durationpb.New(1), SetupTime: durationpb.New(2)}}},
		},
		{
			"output",
			executor.Event{Output: &executor.Output{Stream: executor.Stderr, Offset: 9, Data: []byte("\xff\x00")}},
			&pb.ExecutionEvent{Event: &pb.ExecutionEvent_Output{Output: &pb.OutputChunk{Stream: pb.OutputStream_OUTPUT_STREAM_STDERR, OffsetBytes: 9, Data: []byte("\xff\x00")}}},
		},
		{"outcome", executor.Event{Outcome: outcome}, &pb.ExecutionEvent{Event: &pb.ExecutionEvent_Outcome{Outcome: outcomeMessage}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.in.ID, c.in.Seq, c.in.Time = "e1", 3, now
			c.want.ExecutionId, c.want.Sequence, c.want.Time = "e1", 3, timestamppb.New(now)
			got := fromEvent(c.in, true)
			if !proto.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if _, err := proto.Marshal(got); err != nil {
				t.Error(err)
			}
		})
	}
}

// Every word of the executor has its number, and no two the same.
func TestNumbers(t *testing.T) {
	if got, want := len(endWords), len(pb.ExecutionEnd_name)-1; got != want {
		t.Errorf("%d ends, want %d", got, want)
	}
	if got, want := len(stateWords), len(pb.ExecutionState_name)-1; got != want {
		t.Errorf("%d states, want %d", got, want)
	}
	if got, want := len(inverse(deadlineNumbers)), len(pb.ExecutionDeadline_name)-1; got != want {
		t.Errorf("%d deadlines, want %d", got, want)
	}
	if got, want := len(inverse(oomScopeNumbers)), len(pb.OomScope_name)-1; got != want {
		t.Errorf("%d scopes of memory, want %d", got, want)
	}
	if got, want := len(inverse(severityNumbers)), len(pb.FindingSeverity_name)-1; got != want {
		t.Errorf("%d severities, want %d", got, want)
	}
	for word, n := range endNumbers {
		if got := strings.TrimPrefix(n.String(), "EXECUTION_END_"); got != string(word) {
			t.Errorf("%s is %s", word, n)
		}
	}
}

// A queued execution has no times but its creation, and no outcome; one without
// a program has no exit code.
func TestFromExecutionLeavesUnset(t *testing.T) {
	m := fromExecution(executor.Execution{ID: "e", State: executor.Queued, Created: time.Unix(1, 0)})
	if m.StartTime != nil || m.EndTime != nil || m.Outcome != nil || m.CreateTime == nil || m.State != pb.ExecutionState_EXECUTION_STATE_QUEUED {
		t.Errorf("got %v", m)
	}
	if m := fromOutcome("e", &executor.Outcome{End: executor.SetupFailed}); m.ExitCode != nil || m.Limits.CpuTime != nil {
		t.Errorf("got %v", m)
	}
}

// An outcome goes to a client in one message, however long the names in it are.
func TestOutcomeFitsIntoAMessage(t *testing.T) {
	o := &executor.Outcome{Count: executor.MaxListedArtifacts}
	name := strings.Repeat("n", 4095)
	for range executor.MaxListedArtifacts {
		o.Artifacts = append(o.Artifacts, executor.Artifact{Path: name, Raw: []byte(name), SHA256: sum("")})
	}
	for range 100 {
		o.Refused = append(o.Refused, name)
	}
	m := fromOutcome("e", o)
	if size := proto.Size(m); size > 4<<20 || len(m.Artifacts) == 0 || m.ArtifactCount != executor.MaxListedArtifacts {
		t.Errorf("%d bytes with %d of %d artifacts", size, len(m.Artifacts), m.ArtifactCount)
	}
}

func TestFittingPage(t *testing.T) {
	for _, c := range []struct{ entry, asked, want int }{
		{10, 100, 100},
		{maxAnswerBytes / 4, 100, 3},
		{maxAnswerBytes * 2, 100, 1}, // one is returned whatever its size
		{10, 1, 1},
	} {
		m, err := fittingPage(c.asked, func(size int) (*pb.ListSkillsResponse, error) {
			page := &pb.ListSkillsResponse{}
			for range size {
				page.Skills = append(page.Skills, &pb.SkillSummary{Description: strings.Repeat("x", c.entry)})
			}
			return page, nil
		})
		if err != nil || len(m.Skills) != c.want {
			t.Errorf("entries of %d bytes: got %d, %v; want %d", c.entry, len(m.Skills), err, c.want)
		}
	}
}
