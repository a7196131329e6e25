package survey

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/status"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// maxOutput is the number of bytes that a tail keeps. The end matters, because a traceback ends with its
// reason.
const maxOutput = 4 << 10

// A tail keeps the last bytes that are written to it.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	if over := len(*t) - maxOutput; over > 0 {
		*t = append((*t)[:0], (*t)[over:]...)
	}
	return len(p), nil
}

// help runs a script with --help, without network and input. So the run has no effect outside of its sandbox, whatever
// the script does with --help. A failure of the script is a Line; an error means that ctx has ended.
func (s *survey) help(ctx context.Context, sk *pb.Skill, script string) (Line, error) {
	timeout := s.Timeout
	if most := sk.GetMaxExecutionTime(); most != nil { // a request for more is refused
		timeout = min(timeout, most.AsDuration())
	}
	var stdout, stderr tail
	cmd := s.Client.Script(sk.GetName(), script, "--help")
	cmd.Stdout, cmd.Stderr, cmd.Network, cmd.Limits.WallTime = &stdout, &stderr, skillrun.NoNetwork(), timeout
	line := Line{Kind: KindScript, Skill: sk.GetName(), Subject: script}
	err := cmd.Run(ctx)
	if ctx.Err() != nil {
		return line, context.Cause(ctx)
	}
	printed := string(stderr)
	if strings.TrimSpace(printed) == "" { // some scripts print their errors on standard output
		printed = string(stdout)
	}
	var exit *skillrun.ExitError
	switch {
	case err == nil:
		line.Class = Ran
	case errors.As(err, &exit):
		line.Class, line.Detail = classOfOutcome(exit.Outcome, printed), lastLines(printed)
		// An exit with a code needs no advice: the script's own text is the detail.
		if exit.Outcome.GetEnd() != pb.ExecutionEnd_EXECUTION_END_EXITED {
			line.Detail = strings.TrimSpace(exit.Outcome.GetAdvice() + "\n" + line.Detail)
		}
	default:
		line.Class, line.Detail = classOfRefusal(skillrun.Reason(err)), status.Convert(err).Message()
	}
	return line, nil
}

// lastLines returns the last three lines of a text, for a report.
func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "\n")
}
