package server

import (
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill/manifest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// The executor uses words, and the contract uses numbers. A word that is missing in a map would
// go out as 0, which the contract calls UNSPECIFIED.
var endNumbers = map[executor.End]pb.ExecutionEnd{
	executor.Exited:      pb.ExecutionEnd_EXECUTION_END_EXITED,
	executor.Signaled:    pb.ExecutionEnd_EXECUTION_END_SIGNALED,
	executor.TimedOut:    pb.ExecutionEnd_EXECUTION_END_TIMED_OUT,
	executor.OOMKilled:   pb.ExecutionEnd_EXECUTION_END_OOM_KILLED,
	executor.Cancelled:   pb.ExecutionEnd_EXECUTION_END_CANCELLED,
	executor.DaemonLost:  pb.ExecutionEnd_EXECUTION_END_DAEMON_LOST,
	executor.SetupFailed: pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED,
}

var stateNumbers = map[executor.State]pb.ExecutionState{
	executor.Queued:  pb.ExecutionState_EXECUTION_STATE_QUEUED,
	executor.Running: pb.ExecutionState_EXECUTION_STATE_RUNNING,
	executor.Ended:   pb.ExecutionState_EXECUTION_STATE_ENDED,
}

var sourceNumbers = map[string]pb.SourceKind{
	permission.Script.String():  pb.SourceKind_SOURCE_KIND_SCRIPT,
	permission.Code.String():    pb.SourceKind_SOURCE_KIND_CODE,
	permission.Command.String(): pb.SourceKind_SOURCE_KIND_COMMAND,
}

var deadlineNumbers = map[executor.Deadline]pb.ExecutionDeadline{
	executor.WallDeadline:  pb.ExecutionDeadline_EXECUTION_DEADLINE_WALL,
	executor.CPUDeadline:   pb.ExecutionDeadline_EXECUTION_DEADLINE_CPU,
	executor.QueueDeadline: pb.ExecutionDeadline_EXECUTION_DEADLINE_QUEUE,
}

var oomScopeNumbers = map[executor.OOMScope]pb.OomScope{
	executor.OwnMemory:     pb.OomScope_OOM_SCOPE_EXECUTION,
	executor.TenantMemory:  pb.OomScope_OOM_SCOPE_TENANT,
	executor.MachineMemory: pb.OomScope_OOM_SCOPE_MACHINE,
}

var severityNumbers = map[manifest.Severity]pb.FindingSeverity{
	manifest.SeverityError:   pb.FindingSeverity_FINDING_SEVERITY_ERROR,
	manifest.SeverityWarning: pb.FindingSeverity_FINDING_SEVERITY_WARNING,
}

// The words of GetCapabilities; see Capabilities and Boundary.
var (
	cgroupNumbers = map[string]pb.CgroupVersion{
		"v1":     pb.CgroupVersion_CGROUP_VERSION_V1,
		"v2":     pb.CgroupVersion_CGROUP_VERSION_V2,
		"hybrid": pb.CgroupVersion_CGROUP_VERSION_HYBRID,
	}
	groupNumbers = map[string]pb.BoundaryGroup{
		"machine":    pb.BoundaryGroup_BOUNDARY_GROUP_MACHINE,
		"identity":   pb.BoundaryGroup_BOUNDARY_GROUP_IDENTITY,
		"namespaces": pb.BoundaryGroup_BOUNDARY_GROUP_NAMESPACES,
		"processes":  pb.BoundaryGroup_BOUNDARY_GROUP_PROCESSES,
		"files":      pb.BoundaryGroup_BOUNDARY_GROUP_FILES,
		"network":    pb.BoundaryGroup_BOUNDARY_GROUP_NETWORK,
		"kernel":     pb.BoundaryGroup_BOUNDARY_GROUP_KERNEL,
		"limits":     pb.BoundaryGroup_BOUNDARY_GROUP_LIMITS,
		"probe":      pb.BoundaryGroup_BOUNDARY_GROUP_PROBE,
	}
)

// For the filters of ListExecutions.
var endWords, stateWords = inverse(endNumbers), inverse(stateNumbers)

// inverse returns the map from values to keys. The values are different.
func inverse[K, V comparable](m map[K]V) map[V]K {
	out := make(map[V]K, len(m))
	for k, v := range m {
		out[v] = k
	}
	return out
}

// words looks the numbers of a filter up, each once: a message may repeat a number more often than a query of the
// record has room for. A number without a word is an error. UNSPECIFIED has no word, so a filter with it is refused,
// not ignored.
func words[N interface {
	comparable
	String() string
}, W comparable](field string, numbers []N, of map[N]W) ([]W, error) {
	var out []W
	for _, n := range numbers {
		w, ok := of[n]
		if !ok {
			return nil, invalid(field, "%v selects nothing", n)
		}
		if !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out, nil
}

// signals are the signals that a caller may send, as the contract lists them at SendSignal.
// Other signals have no use for a program that reads its input, and some (SIGSEGV) look like a
// crash that the script did not have.
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
