package executor

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/quantity"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// advise returns one or two sentences of advice on an outcome, or nothing if all is well. lost
// is the error that kept output from being stored; nil if nothing was lost so. m is the manifest of
// the skill, whose ceilings the advice names; zero if nothing ran. The first cause
// that fits wins: an end that was forced explains more than output that was dropped. It names
// limits by the contract's fields, because it is recorded; skillrun and the tools replace them by
// the words of their users (cmd/skillrun/fields.go, internal/toolview).
// A cancellation has no advice: the caller asked for it.
func advise(out Outcome, lost error, m manifest.Manifest) string {
	l := out.Limits
	switch out.End {
	case TimedOut:
		switch out.Evidence.Deadline {
		case CPUDeadline:
			return fmt.Sprintf("It used all of its %s of processor time; raise limits.cpu_time or let it do less.", l.CPU)
		case QueueDeadline:
			return "No slot became free in time and nothing ran; try again later or with a longer queue_timeout."
		}
		return fmt.Sprintf("It ran longer than %s%s or let it do less.", l.Wall, raise("limits.wall_time", "max_execution_time", l.Wall, m.MaxExecutionTime, time.Duration.String))
	case OOMKilled:
		if out.Evidence.OOMKills == 0 { // not the kernel's decision: sandbox/socket_memory.go
			return fmt.Sprintf("Its sockets held more than its %s of memory, or more than its share while the machine was short of memory for connections, in connections that it did not accept or messages that it did not read; let it accept and read them, or raise limits.memory_bytes.", quantity.Bytes(l.MemoryBytes))
		}
		switch out.Evidence.OOMScope {
		case TenantMemory:
			return "It was killed because all executions of its tenant together had used the memory that the tenant may have, not because of its own limit; run fewer at the same time, or ask the operator for more."
		case MachineMemory:
			return "It was killed because the machine ran out of memory, not because of its own limit; try again later, or tell the operator."
		}
		return fmt.Sprintf("It needed more than its %s of memory%s or let it work in smaller pieces. Files in /workspace, /tmp, HOME and /dev/shm count as memory.",
			quantity.Bytes(l.MemoryBytes), raise("limits.memory_bytes", "max_memory", l.MemoryBytes, m.MaxMemoryBytes, quantity.Bytes))
	case DaemonLost:
		return "The daemon died before this execution ended. If its program ran, it was killed with the daemon, and how far it came is not known. Run it again only if doing its work twice does no harm."
	case SetupFailed:
		switch out.Evidence.SetupStep {
		case stepExec, stepDirectory, stepMemory, stepGroup, stepNetwork:
			if out.Evidence.SetupError != internalSetupError {
				return "Nothing ran: " + out.Evidence.SetupError + "."
			}
		}
		return "Nothing ran: the sandbox could not be made; the daemon's log says why under this execution's ID."
	case Signaled:
		if out.Signal == "SIGXFSZ" {
			return fmt.Sprintf("It tried to write a file larger than its workspace, %s; raise limits.workspace_bytes, and limits.memory_bytes with it: the workspace counts as memory.", quantity.Bytes(l.WorkspaceBytes))
		}
		if out.Signal == "SIGSEGV" || out.Signal == "SIGBUS" || out.Signal == "SIGABRT" || out.Signal == "SIGILL" {
			return "It crashed with " + out.Signal + ": a bug in the program or in a native library that it uses."
		}
		return "It was ended by " + out.Signal + ". One of its own processes, the kernel or a caller's Signal request sent the signal."
	case Cancelled:
		return ""
	}
	switch {
	case out.Evidence.PidsOfTenant:
		return fmt.Sprintf("It was refused new processes or threads %d times, because all executions of its tenant together had as many as the tenant may have, not because of its own limit; run fewer at the same time, or ask the operator for more.", out.Evidence.PidsMax)
	case out.Evidence.PidsMax > 0:
		return fmt.Sprintf("It was refused new processes or threads %d times by its limit of %d, which counts processes and threads besides the program itself; raise limits.processes or start fewer.", out.Evidence.PidsMax, l.Processes)
	case lost != nil:
		return "The daemon could not store all of the output (its disk may be full), so some of it was dropped."
	case out.Stdout.Truncated() || out.Stderr.Truncated():
		return fmt.Sprintf("It printed more than %s to %s and the rest was dropped; write large results to a file, which comes back as an artifact, or raise limits.output_bytes.", quantity.Bytes(l.OutputBytes), truncatedStreams(out))
	case len(out.Refused) > 0:
		return "Some files that it left in /workspace were not kept; artifacts_refused lists them with the reasons."
	}
	return ""
}

// raise continues a sentence about a limit: what to raise. key is the field of SKILL.md with the skill's ceiling,
// most; zero: the skill has none. A request above that ceiling would be refused.
func raise[T ~int64](field, key string, limit, most T, text func(T) string) string {
	switch {
	case most == 0:
		return "; raise " + field
	case limit < most:
		return fmt.Sprintf("; raise %s (%s in the skill's SKILL.md allows %s)", field, key, text(most))
	}
	return fmt.Sprintf(", and %s in the skill's SKILL.md allows no more; raise it there", key)
}

// Messages of the kernel's errors, strerror(3). In English: the sandbox's LANG is C.UTF-8, and a
// script that sets another locale gets no advice.
const (
	textReadOnly    = "Read-only file system"
	textNoSpace     = "No space left on device"
	textTooLarge    = "File too large"
	textUnreachable = "Network is unreachable"
	textNoName      = "Temporary failure in name resolution" // of getaddrinfo(3)
	textNoNameNode  = "EAI_AGAIN"                            // the same in Node.js and npm
	textOtherDevice = "ross-device link"                     // EXDEV: "Invalid cross-device link"; of Node.js "cross-device link not permitted"
)

// adviseOn says what can be done about a failure that the end of stderr names. It is a guess:
// the program may print a kernel's message for another reason. So it serves only a program that
// failed and for which advise found nothing. network and session say whether the execution has one.
// stderr is only the end of the output, which a run keeps for this; the error that ended a program
// is there.
func adviseOn(stderr string, l Limits, network, session bool) string {
	switch {
	case strings.Contains(stderr, textReadOnly):
		return adviseReadOnly(stderr)
	case strings.Contains(stderr, textNoSpace), strings.Contains(stderr, textTooLarge):
		text := fmt.Sprintf("It seems to have filled /workspace, HOME or /tmp: each holds %s, and /workspace holds %d files; raise limits.workspace_bytes or limits.workspace_files. /dev/shm is smaller and can't be raised.", quantity.Bytes(l.WorkspaceBytes), l.WorkspaceFiles)
		if session {
			text += " The session's max_bytes and max_files are bounds, too; only a new session can have larger ones."
		}
		return text
	case strings.Contains(stderr, textOtherDevice):
		return "It seems to have renamed a directory that the session, the inputs or the skill brought into /workspace, or a file from one of /workspace, HOME and /tmp to another. The sandbox can't do that, so copy instead: mv and Python's shutil.move do, also in place of os.rename and git mv; in Node.js, use fs.cpSync and fs.rmSync."
	case strings.Contains(stderr, textUnreachable), strings.Contains(stderr, textNoName), strings.Contains(stderr, textNoNameNode):
		if network {
			return "This machine's network or its name resolution seems to have failed; try again later."
		}
		return "It seems to need a network, and it has none: the skill must ask for one (network_access: true in its SKILL.md) or be named in the daemon's network.skills, and the daemon must grant it."
	}
	return ""
}

// absolutePath finds a path in a message such as "touch: cannot touch '/usr/x': ..." or
// "open /usr/x: ...".
var absolutePath = lazyregexp.New(`(?:^|[\s'"\x60(=])(/[^\s'"\x60:,;)]+)`)

// adviseReadOnly names the read-only path, if the line with the error has one, and the
// directories that the program can write to.
func adviseReadOnly(stderr string) string {
	at := readOnlyPath(stderr)
	const writable = "It can write to /workspace, to HOME (/home/skill) and to TMPDIR (/tmp)."
	switch {
	case strings.HasPrefix(at, "/skills/"):
		return "It tried to write to " + at + ": the snapshot of a skill is read-only. " + writable + " /workspace has the same files as the skill: name the file by a path relative to the working directory or to the script, and run python scripts/x.py instead of python {baseDir}/scripts/x.py."
	case at != "":
		return "It tried to write to " + at + ", which is read-only in the sandbox. " + writable
	}
	return "It tried to write to a read-only part of the sandbox. " + writable
}

// maxAdvisedPath is the longest path, in bytes, that advice names.
const maxAdvisedPath = 255

// readOnlyPath returns the path of the last such error: the path after the kernel's message,
// as Python prints it, else the last path before the message, as a shell prints it. The program chooses the text, so
// a path that is long, or has blanks of other scripts or characters that a terminal obeys, does not become part of a
// sentence of the daemon.
func readOnlyPath(stderr string) (at string) {
	for line := range strings.Lines(stderr) {
		before, after, ok := strings.Cut(line, textReadOnly)
		if !ok {
			continue
		}
		if found := absolutePath.FindStringSubmatch(after); found != nil {
			at = found[1]
		} else if found := absolutePath.FindAllStringSubmatch(before, -1); found != nil {
			at = found[len(found)-1][1]
		}
	}
	if len(at) > maxAdvisedPath || !utf8.ValidString(at) || strings.ContainsFunc(at, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return ""
	}
	return at
}

// truncatedStreams names the streams that lost output: "stdout", "stderr", or "stdout and
// stderr".
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
