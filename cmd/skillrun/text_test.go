package main

import (
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

func TestEndText(t *testing.T) {
	tests := []struct {
		outcome *pb.ExecutionOutcome
		want    string
	}{
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_EXITED, ExitCode: proto.Int32(0)}, "exit status 0"},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_SIGNALED, ExitCode: proto.Int32(-6), Signal: "SIGABRT"}, "signal: SIGABRT"},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_TIMED_OUT, Evidence: &pb.ExecutionEvidence{Deadline: pb.ExecutionDeadline_EXECUTION_DEADLINE_CPU}}, "timed out: CPU time"},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_TIMED_OUT}, "timed out: deadline"},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_OOM_KILLED}, "out of memory"},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_CANCELLED, Evidence: &pb.ExecutionEvidence{CancelledBy: "drain"}}, "cancelled by drain"},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED, Evidence: &pb.ExecutionEvidence{SetupStep: "rootfs", SetupError: "no room"}}, "setup failed: rootfs: no room"},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_DAEMON_LOST}, "daemon lost: it died before the execution ended"},
	}
	for _, test := range tests {
		if got := endText(test.outcome); got != test.want {
			t.Errorf("%v: got %q, want %q", test.outcome, got, test.want)
		}
	}
}

func TestShortTime(t *testing.T) {
	tests := []struct {
		d    time.Duration
		want string
	}{
		{0, "0s"},
		{1234 * time.Nanosecond, "1µs"},
		{12_345 * time.Microsecond, "12.3ms"},
		{1_234_567 * time.Microsecond, "1.23s"},
		{61_500 * time.Millisecond, "1m2s"},
		{24 * time.Hour, "24h0m0s"},
	}
	for _, test := range tests {
		if got := shortTime(test.d); got != test.want {
			t.Errorf("%d: got %q, want %q", test.d, got, test.want)
		}
	}
	if got := durationText(nil) + timeText(nil); got != "--" {
		t.Errorf("unset: got %q, want dashes", got)
	}
}

func TestLimitsText(t *testing.T) {
	limits := &pb.ExecutionLimits{WallTime: durationpb.New(time.Second), CpuTime: durationpb.New(2 * time.Second), MemoryBytes: 3 << 20, Processes: 4, OutputBytes: 5, WorkspaceBytes: 6, WorkspaceFiles: 7, OpenFiles: 8, MilliCpus: 1500}
	if got, want := limitsText(limits), "wall 1s, CPU 2s, 1.5 CPUs, memory 3 MiB, 4 processes, output 5 B, workspace 6 B in 7 files, 8 open files"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestShort(t *testing.T) {
	if got, want := shortDigest(demoDigest), "sha256:001122334455"; got != want {
		t.Errorf("digest: got %q, want %q", got, want)
	}
	if got, want := shortDigest("odd"), "odd"; got != want {
		t.Errorf("odd digest: got %q, want %q", got, want)
	}
	if got, want := shorten("as it is"), "as it is"; got != want {
		t.Errorf("text: got %q, want %q", got, want)
	}
}

// TestOutcomeCodeIsNeverZero: whatever a program that did not succeed brings, a
// shell must not take it for success.
func TestOutcomeCodeIsNeverZero(t *testing.T) {
	for number := range pb.ExecutionEnd_name {
		for _, code := range []*int32{nil, proto.Int32(0), proto.Int32(-15), proto.Int32(3), proto.Int32(256), proto.Int32(512), proto.Int32(-128), proto.Int32(math.MaxInt32), proto.Int32(math.MinInt32)} {
			o := &pb.ExecutionOutcome{End: pb.ExecutionEnd(number), ExitCode: code}
			if got := outcomeCode(o); got <= 0 || got > 255 {
				t.Errorf("%v: got %d, want 1 to 255", o, got)
			}
		}
	}
}
