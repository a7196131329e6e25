package survey

import (
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A Class says how an attempt ended, in words of the report.
type Class string

// Classes of skills and of command lines.
const (
	Loaded  Class = "loaded"
	Allowed Class = "allowed"

	NoRule       Class = "no rule of allowed-tools covers it"
	NotOwnScript Class = "not a script of the skill, which has no allowed-tools"
	ChangesDir   Class = "cd: the request has a field for the directory"
	NeedsShell   Class = "needs a shell: a loop, a variable, a substitution"
	OtherRefusal Class = "refused for another reason"
)

// Classes of scripts that were run with --help.
const (
	Ran            Class = "exited with 0"
	UsageError     Class = "usage: the script does not take --help"
	OwnError       Class = "its own error"
	NotAProgram    Class = "a module of a package: not run by its path"
	MissingPackage Class = "a package is missing"
	MissingProgram Class = "a program or interpreter is missing"
	NeedsNetwork   Class = "needs a network"
	TimedOut       Class = "timed out"
	// The rest are failures through skillrun: the script could run elsewhere.
	BadRequirement Class = "refused: a requirement that the skill declares is invalid"
	// A sandbox has the skill in /workspace, with one directory above it.
	AboveSkill Class = "needs directories above the skill's folder"
	Confined   Class = "the sandbox refused it"
	Ours       Class = "failed in the daemon"
)

// ThroughUs reports whether a script failed through skillrun, and not through itself or the machine.
func (c Class) ThroughUs() bool {
	return c == BadRequirement || c == AboveSkill || c == Confined || c == Ours
}

// classOfCommand classifies the daemon's decision.
func classOfCommand(sk *pb.Skill, d *pb.CheckCommandResponse) Class {
	switch {
	case d.GetAllowed():
		return Allowed
	case d.GetInstead() == "working_directory":
		return ChangesDir
	case d.GetInstead() == "code":
		return NeedsShell
	case d.GetMissingRule() != "" || strings.Contains(d.GetReason(), "is not covered"):
		if sk.GetHasAllowedTools() {
			return NoRule
		}
		return NotOwnScript
	}
	return OtherRefusal
}

// classOfRefusal classifies an execution that the daemon did not accept, by the reason of its error.
func classOfRefusal(reason string) Class {
	switch reason {
	case "PACKAGES_MISSING", "PYTHON_VERSION_UNSUITABLE", "VENV_UNUSABLE", "NO_PACKAGE_SOURCE":
		return MissingPackage
	case "INTERPRETER_MISSING", "SYSTEM_PACKAGES_MISSING", "UNKNOWN_EXTENSION":
		return MissingProgram
	case "REQUIREMENT_INVALID":
		return BadRequirement
	case "NETWORK_NOT_GRANTED":
		return NeedsNetwork
	}
	return Ours
}

// Texts of failures, of Python, node, ruby, perl, shells and programs in C. The first one that a
// script printed decides.
var texts = []struct {
	class Class
	text  *lazyregexp.Regexp
}{
	{NotAProgram, lazyregexp.New(`attempted relative import|No module named '(?:scripts|src|lib)\b`)},
	{UsageError, lazyregexp.New(`No such file or directory: '--help'`)},
	{AboveSkill, lazyregexp.New(`pathlib[\s\S]*raise IndexError`)}, // parents[3]
	{MissingPackage, lazyregexp.New(`ModuleNotFoundError|ImportError: |No module named|Cannot find (?:module|package)|cannot load such file|Can't locate \S+ in @INC|ERR_MODULE_NOT_FOUND|(?i)pip3? install|npm install`)},
	{NeedsNetwork, lazyregexp.New(`Temporary failure in name resolution|Name or service not known|Network is unreachable|ENETUNREACH|ENOTFOUND|EAI_AGAIN|getaddrinfo|Could not resolve host|[Uu]nable to access 'https?:|URLError|Failed to establish a new connection`)},
	{Confined, lazyregexp.New(`Read-only file system|Operation not permitted|EROFS|EPERM|Function not implemented|Resource temporarily unavailable|No space left on device|Disk quota exceeded`)},
	{MissingProgram, lazyregexp.New(`command not found|: not found|_execute_child[\s\S]*No such file or directory|spawn \S+ ENOENT|(?i)\b(?:is not installed|not found in PATH|is required but)\b`)},
	{Confined, lazyregexp.New(`Permission denied|EACCES`)},
	{UsageError, lazyregexp.New(`(?i)usage:|unrecognized arguments|unknown (?:option|argument|command|flag)|invalid (?:option|argument)|illegal option|unexpected argument|bad option`)},
}

// classOfOutcome classifies a run that did not exit with 0.
func classOfOutcome(o *pb.ExecutionOutcome, printed string) Class {
	switch o.GetEnd() {
	case pb.ExecutionEnd_EXECUTION_END_EXITED:
	case pb.ExecutionEnd_EXECUTION_END_TIMED_OUT:
		return TimedOut
	case pb.ExecutionEnd_EXECUTION_END_OOM_KILLED:
		return Confined
	case pb.ExecutionEnd_EXECUTION_END_SIGNALED:
		// The filter of system calls kills with SIGSYS (seccomp(2)).
		if o.GetSignal() == "SIGSYS" {
			return Confined
		}
		return OwnError
	default:
		return Ours
	}
	for _, t := range texts {
		if t.text.MatchString(printed) {
			return t.class
		}
	}
	if o.GetExitCode() == 2 { // of argparse, getopts and many others
		return UsageError
	}
	return OwnError
}
