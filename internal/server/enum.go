package server

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/skill/manifest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// The executor uses words, and the contract uses numbers. A word that is missing in a map would
// go out as 0, which the contract calls UNSPECIFIED.
var endNumbers = map[executor.End]pb.End{
	executor.Exited:      pb.End_END_EXITED,
	executor.Signaled:    pb.End_END_SIGNALED,
	executor.TimedOut:    pb.End_END_TIMED_OUT,
	executor.OOMKilled:   pb.End_END_OOM_KILLED,
	executor.Cancelled:   pb.End_END_CANCELLED,
	executor.DaemonLost:  pb.End_END_DAEMON_LOST,
	executor.SetupFailed: pb.End_END_SETUP_FAILED,
}

var stateNumbers = map[executor.State]pb.State{
	executor.Queued:  pb.State_STATE_QUEUED,
	executor.Running: pb.State_STATE_RUNNING,
	executor.Ended:   pb.State_STATE_ENDED,
}

var deadlineNumbers = map[executor.Deadline]pb.Deadline{
	executor.WallDeadline:  pb.Deadline_DEADLINE_WALL,
	executor.CPUDeadline:   pb.Deadline_DEADLINE_CPU,
	executor.QueueDeadline: pb.Deadline_DEADLINE_QUEUE,
}

var severityNumbers = map[manifest.Severity]pb.Severity{
	manifest.SeverityError:   pb.Severity_SEVERITY_ERROR,
	manifest.SeverityWarning: pb.Severity_SEVERITY_WARNING,
}

// For the filters of List.
var endWords, stateWords = inverse(endNumbers), inverse(stateNumbers)

// inverse returns the map from values to keys. The values are different.
func inverse[K, V comparable](m map[K]V) map[V]K {
	out := make(map[V]K, len(m))
	for k, v := range m {
		out[v] = k
	}
	return out
}

// words looks the numbers of a filter up. A number without a word is an error.
func words[N interface {
	comparable
	String() string
}, W any](field string, numbers []N, of map[N]W) ([]W, error) {
	var out []W
	for _, n := range numbers {
		w, ok := of[n]
		if !ok {
			return nil, invalid(field, "%v selects nothing", n)
		}
		out = append(out, w)
	}
	return out, nil
}

// signals are the signals that a caller may send, as the contract lists them at SendSignal.
var signals = []syscall.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGKILL,
	unix.SIGUSR1, unix.SIGUSR2, unix.SIGCONT, unix.SIGSTOP, unix.SIGWINCH,
}

// newSignal looks up a name such as "SIGUSR1". The error lists the names that are accepted.
func newSignal(name string) (syscall.Signal, error) {
	for _, sig := range signals {
		if unix.SignalName(sig) == name {
			return sig, nil
		}
	}
	return 0, invalid("signal", "%q is not a signal that can be sent; choose one of %s", clip(name, maxStatusField), signalNames())
}

// signalNames is the list for an error, in the order of signals.
func signalNames() string {
	var names []string
	for _, sig := range signals {
		names = append(names, unix.SignalName(sig))
	}
	return strings.Join(names, ", ")
}
