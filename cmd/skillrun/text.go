package main

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// endText says how an execution ended.
func endText(o *pb.ExecutionOutcome) string {
	switch o.GetEnd() {
	case pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED:
		return "setup failed: " + o.GetEvidence().GetSetupStep() + ": " + outcomeWords(o, o.GetEvidence().GetSetupError())
	case pb.ExecutionEnd_EXECUTION_END_DAEMON_LOST:
		return "daemon lost: it died before the execution ended"
	}
	return (&skillrun.ExitError{Outcome: o}).Error()
}

// outcomeWords writes the daemon's words about an outcome in the words of the command line.
func outcomeWords(o *pb.ExecutionOutcome, text string) string {
	if o.GetEvidence().GetSetupStep() == "directory" { // the working directory could not be entered
		text = strings.Replace(text, "working directory ", "--dir ", 1)
	}
	return userWords(text)
}

// endWord is the end in a table.
func endWord(end pb.ExecutionEnd) string { return word(endPrefix, end.String()) }

// endPrefix begins the name of each ExecutionEnd.
const endPrefix = "EXECUTION_END_"

// sourceWord is the kind of program in a table.
func sourceWord(kind pb.SourceKind) string { return word("SOURCE_KIND_", kind.String()) }

// word turns an enum's name into a word: EXECUTION_END_TIMED_OUT -> "timed out".
func word(prefix, name string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, prefix), "_", " "))
}

// usageText is the execution's use of resources, on one line. CPU is user and system time together; queue
// and setup are the times before the program's start.
func usageText(u *pb.ExecutionUsage) string {
	return fmt.Sprintf("wall %s, CPU %s, memory %s, queue %s, setup %s",
		durationText(u.GetWallTime()), shortTime(u.GetCpuUser().AsDuration()+u.GetCpuSystem().AsDuration()),
		bytesText(u.GetMemoryPeakBytes()), durationText(u.GetQueueTime()), durationText(u.GetSetupTime()))
}

// limitsText is the effective limits, on one line. A limit that is not set (CPU time, processors)
// is left out.
func limitsText(l *pb.ExecutionLimits) string {
	parts := []string{"wall " + durationText(l.GetWallTime())}
	if l.GetCpuTime() != nil {
		parts = append(parts, "CPU "+durationText(l.GetCpuTime()))
	}
	if n := l.GetMilliCpus(); n > 0 {
		parts = append(parts, cpus(n).String()+" CPUs")
	}
	parts = append(parts,
		"memory "+bytesText(l.GetMemoryBytes()),
		fmt.Sprintf("%d processes", l.GetProcesses()),
		"output "+bytesText(l.GetOutputBytes()),
		fmt.Sprintf("workspace %s in %d files", bytesText(l.GetWorkspaceBytes()), l.GetWorkspaceFiles()),
		fmt.Sprintf("%d open files", l.GetOpenFiles()))
	return strings.Join(parts, ", ")
}

// durationText returns "-" for a duration that the message does not have.
func durationText(d *durationpb.Duration) string {
	if d == nil {
		return "-"
	}
	return shortTime(d.AsDuration())
}

// shortTime rounds a duration to three or four digits.
func shortTime(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Minute:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// timeText is a time in this machine's time zone, in seconds; "-" if it is unset.
func timeText(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().Local().Format(time.DateTime)
}
