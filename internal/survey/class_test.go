package survey

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

func TestClassOfCommand(t *testing.T) {
	listed, unlisted := &pb.Skill{HasAllowedTools: true}, &pb.Skill{}
	for _, c := range []struct {
		sk   *pb.Skill
		d    *pb.CheckCommandResponse
		want Class
	}{
		{listed, &pb.CheckCommandResponse{Allowed: proto.Bool(true)}, Allowed},
		{listed, &pb.CheckCommandResponse{MissingRule: "Bash(ls:*)"}, NoRule},
		{unlisted, &pb.CheckCommandResponse{MissingRule: "Bash(ls:*)"}, NotOwnScript},
		{unlisted, &pb.CheckCommandResponse{Reason: "'ls' is not covered: no rule"}, NotOwnScript},
		{listed, &pb.CheckCommandResponse{Instead: "working_directory", MissingRule: "Bash(cd:*)"}, ChangesDir},
		{listed, &pb.CheckCommandResponse{Instead: "code"}, NeedsShell},
		{listed, &pb.CheckCommandResponse{Reason: "the redirect to /etc/x"}, OtherRefusal},
	} {
		if got := classOfCommand(c.sk, c.d); got != c.want {
			t.Errorf("%v: %q, want %q", c.d, got, c.want)
		}
	}
}

func TestClassOfOutcome(t *testing.T) {
	exited := func(code int32) *pb.ExecutionOutcome {
		return &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_EXITED, ExitCode: &code}
	}
	for _, c := range []struct {
		outcome *pb.ExecutionOutcome
		printed string
		want    Class
	}{
		{exited(1), "Traceback (most recent call last):\nModuleNotFoundError: No module named 'pypdf'\n", MissingPackage},
		{exited(1), "Error: Cannot find module 'docx'\nRequire stack:\n", MissingPackage},
		{exited(1), "ImportError: attempted relative import with no known parent package", NotAProgram},
		{exited(1), "ModuleNotFoundError: No module named 'scripts'", NotAProgram},
		{exited(1), "FileNotFoundError: [Errno 2] No such file or directory: '--help'", UsageError},
		{exited(1), "in _execute_child\n  raise\nFileNotFoundError: [Errno 2] No such file or directory: 'soffice'", MissingProgram},
		{exited(1), "FileNotFoundError: [Errno 2] No such file or directory: 'data.json'", OwnError},
		{exited(1), "File \"/usr/lib/python3.11/pathlib.py\", line 446, in __getitem__\n  raise IndexError(idx)\nIndexError: 3", AboveSkill},
		{exited(127), "x.sh: line 1: jq: command not found", MissingProgram},
		{exited(1), "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>", NeedsNetwork},
		{exited(1), "touch: cannot touch '/usr/x': Read-only file system", Confined},
		{exited(1), "PermissionError: [Errno 13] Permission denied: '/root'", Confined},
		{exited(2), "error: the following arguments are required: file", UsageError},
		{exited(1), "Usage: x FILE", UsageError},
		{exited(1), "ValueError: bad", OwnError},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_TIMED_OUT}, "usage: x", TimedOut},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_OOM_KILLED}, "", Confined},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_SIGNALED, Signal: "SIGSYS"}, "", Confined},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_SIGNALED, Signal: "SIGSEGV"}, "", OwnError},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED}, "", Ours},
		{&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_DAEMON_LOST}, "", Ours},
	} {
		if got := classOfOutcome(c.outcome, c.printed); got != c.want {
			t.Errorf("%v %q: %q, want %q", c.outcome, c.printed, got, c.want)
		}
	}
}

func TestClassOfRefusal(t *testing.T) {
	for reason, want := range map[string]Class{
		"PACKAGES_MISSING": MissingPackage, "INTERPRETER_MISSING": MissingProgram, "NETWORK_NOT_GRANTED": NeedsNetwork, "SATURATED": Ours, "REQUIREMENT_INVALID": BadRequirement, "": Ours,
	} {
		if got := classOfRefusal(reason); got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
}
