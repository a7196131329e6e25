package executor

import (
	"fmt"
	"strings"
)

// advise says, in one sentence, what a caller can do about an outcome; nothing
// if all is well. lost is why output was not kept, if it is not its limit.
func advise(out Outcome, lost error) string {
	l := out.Limits
	switch out.End {
	case TimedOut:
		switch out.Evidence.Deadline {
		case CPUDeadline:
			return fmt.Sprintf("It used its %s of processor time; give it more with limits.cpu_time or let it do less.", l.CPU)
		case QueueDeadline:
			return "No slot became free in time and nothing ran; try again later or with a longer queue_timeout."
		}
		return fmt.Sprintf("It ran longer than %s; raise limits.wall_time (the skill's max_execution_time is its ceiling) or let it do less.", l.Wall)
	case OOMKilled:
		return fmt.Sprintf("It needed more than its %s of memory; raise limits.memory_bytes (the skill's max_memory is its ceiling) or let it work in smaller pieces. Files in /workspace and /tmp count.", size(l.MemoryBytes))
	case DaemonLost:
		return "The daemon died while it ran, so how it ended is not known; it was killed with the daemon. Run it again only if doing its work twice does no harm."
	case SetupFailed:
		switch out.Evidence.SetupStep {
		case stepExec, stepDirectory, stepMemory:
			return "Nothing ran: " + out.Evidence.SetupError + "."
		}
		return "Nothing ran: the sandbox could not be made; the daemon's log says why under this execution's ID."
	case Signaled:
		if out.Signal == "SIGXFSZ" {
			return fmt.Sprintf("It tried to write a file larger than its workspace may be, %s; raise limits.workspace_bytes (and limits.memory_bytes, which the workspace counts towards).", size(l.WorkspaceBytes))
		}
		if out.Signal == "SIGSEGV" || out.Signal == "SIGBUS" || out.Signal == "SIGABRT" || out.Signal == "SIGILL" {
			return "It crashed with " + out.Signal + ": a bug in the program or in a native library that it uses."
		}
		return "It was ended by " + out.Signal + ", which one of its own processes sent or the kernel raised."
	case Cancelled:
		return ""
	}
	switch {
	case out.Evidence.PidsMax > 0:
		return fmt.Sprintf("It was refused new processes or threads %d times by its limit of %d; raise limits.processes or start fewer.", out.Evidence.PidsMax, l.Processes)
	case lost != nil:
		return "The daemon could not store all of the output (its disk may be full), so some of it was dropped."
	case out.Stdout.Truncated() || out.Stderr.Truncated():
		return fmt.Sprintf("It printed more than %s to %s and the rest was dropped; write large results to a file, which comes back as an artifact, or raise limits.output_bytes.", size(l.OutputBytes), truncatedStreams(out))
	case len(out.Refused) > 0:
		return "Some of what it left in /workspace is not kept; artifacts_refused says what and why."
	}
	return ""
}

// adviseOn says what can be done about a failure that the program itself named in
// its last words. It is a guess, and only made of words that the kernel's errors
// give.
func adviseOn(stderr string, l Limits) string {
	switch {
	case strings.Contains(stderr, "Read-only file system"):
		return "It seems to write where it may not: the skill's own folder is read-only; write to the working directory or to /tmp instead, or run the script as a command (python scripts/x.py), whose folder is in the workspace."
	case strings.Contains(stderr, "No space left on device"), strings.Contains(stderr, "File too large"):
		return fmt.Sprintf("It seems to have filled its workspace, HOME or /tmp: each holds %s, and the workspace %d files; raise limits.workspace_bytes or limits.workspace_files.", size(l.WorkspaceBytes), l.WorkspaceFiles)
	case strings.Contains(stderr, "Temporary failure in name resolution"), strings.Contains(stderr, "Network is unreachable"):
		return "It seems to need a network, which it does not have: the skill must ask for it (network_access: true) and the daemon grant it."
	}
	return ""
}

func truncatedStreams(out Outcome) string {
	var names []string
	if out.Stdout.Truncated() {
		names = append(names, "stdout")
	}
	if out.Stderr.Truncated() {
		names = append(names, "stderr")
	}
	return strings.Join(names, " and ")
}

// size prints bytes in the largest binary unit that keeps it whole.
func size(n int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB"}
	i := 0
	for n >= 1024 && n%1024 == 0 && i < len(units)-1 {
		n /= 1024
		i++
	}
	return fmt.Sprintf("%d %s", n, units[i])
}
