package toolview

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill"
)

// A CommandRequest is a call of the Agent Skills ScriptExecutor.execute.
type CommandRequest struct {
	// Skill is a name, or name@sha256:digest.
	Skill string
	// Command is one line. {baseDir} in it is the skill's folder.
	Command string
	// WorkingDir is relative to the skill, or absolute beneath its folder in a
	// sandbox. Empty: the skill.
	WorkingDir string
	// Env is added to the environment.
	Env map[string]string
	// Timeout zero: the skill's max_execution_time, else the daemon's default.
	Timeout time.Duration
	// KeepBytes bounds what the result has of each stream; the execution keeps more.
	// Zero: all that it keeps.
	KeepBytes int64
}

// A CommandResult is the ExecutionResult of the Agent Skills guide.
type CommandResult struct {
	Success       bool    `json:"success"` // ExitCode is 0
	ExitCode      int     `json:"exit_code"`
	Stdout        string  `json:"stdout"`
	Stderr        string  `json:"stderr"`
	ExecutionTime float   `json:"execution_time"` // seconds
	Command       string  `json:"command"`        // as it was asked for
	Error         *string `json:"error"`          // nil: it succeeded

	ExecutionID string              `json:"-"` // empty: nothing ran
	Artifacts   []executor.Artifact `json:"-"`
	Truncated   bool                `json:"-"` // it printed more than was kept
}

// didNotEnd is the exit code of a command that was not allowed, could not start, or
// did not end by itself.
const didNotEnd = -1

// ExecuteCommand runs a command line that the skill's allowed-tools cover: the
// ScriptExecutor.execute of the Agent Skills guide and specification. A command that
// is not allowed, can't start or fails is a result. An error says that the request
// is wrong in itself, that the skill is not there, that the daemon has no room, or
// that it broke. The result of an error names the execution, if there is one.
func (v *View) ExecuteCommand(ctx context.Context, who permission.Principal, req CommandRequest, sink Sink) (CommandResult, error) {
	sk, err := v.skills.Resolve(req.Skill)
	if err != nil {
		return CommandResult{}, err
	}
	none := CommandResult{ExitCode: didNotEnd, Command: req.Command}
	dir, ok := commandDir(sk, req.WorkingDir)
	if !ok {
		return none.because("Execution error: working directory '%s' is outside skill directory", req.WorkingDir), nil
	}
	r, err := v.run(ctx, executor.Request{
		Principal: who,
		Skill:     sk.Name + "@" + sk.Digest, // what was looked at
		Source:    permission.Source{Kind: permission.Command, Command: req.Command},
		Dir:       dir,
		Env:       req.Env,
		Limits:    executor.Limits{Wall: req.Timeout},
	}, req.KeepBytes, sink)
	if denied, ok := errors.AsType[*permission.Denied](err); ok {
		return none.because("%s", denied.Message()), nil
	}
	err = withDir(err, "working_dir")
	if e, ok := errors.AsType[*executor.LimitError](err); ok {
		err = limitOfTool(e)
	}
	none.ExecutionID = r.id
	if err != nil {
		return none, err
	}
	return none.fill(r)
}

// fill turns an outcome into the contract's fields.
func (c CommandResult) fill(r run) (CommandResult, error) {
	c.Stdout, c.Stderr, c.Artifacts = text(r.stdout), text(r.stderr), r.Artifacts
	c.Truncated = r.cut()
	c.ExecutionTime = float(r.Usage.Wall.Seconds())
	switch r.End {
	case executor.TimedOut:
		if r.Evidence.Deadline == executor.QueueDeadline {
			return c, &NoSlotError{Advice: r.why()}
		}
		return c.because("Execution timeout (%ss)", secondsText(r.timeLimit())), nil
	case executor.Cancelled:
		return c.because("Execution error: %s", r.why()), nil
	case executor.SetupFailed:
		err := r.setupError()
		if x, ok := errors.AsType[*Exception](err); ok {
			return c.because("Execution error: %s", x.Text), nil
		}
		return c, err
	}
	c.ExitCode = *r.ExitCode
	c.Success = c.ExitCode == 0
	switch {
	case r.End == executor.OOMKilled:
		return c.because("Execution error: %s", r.why()), nil
	case !c.Success:
		return c.because("Command failed with exit code %d", c.ExitCode), nil
	}
	return c, nil
}

// because is the result with an error.
func (c CommandResult) because(format string, args ...any) CommandResult {
	why := fmt.Sprintf(format, args...)
	c.Error = &why
	return c
}

// workspaceDir is the skill's folder as a program may write to it: where commands
// start.
const workspaceDir = "/workspace"

// commandDir is a working directory relative to the workspace. False: it is outside
// of the skill.
func commandDir(sk *skill.Skill, dir string) (string, bool) {
	dir = sk.Within(sk.Expand(dir))
	if rest, ok := strings.CutPrefix(dir, workspaceDir); ok && (rest == "" || rest[0] == '/') {
		dir = strings.TrimLeft(rest, "/")
	}
	dir = path.Clean(dir)
	if path.IsAbs(dir) || dir == ".." || strings.HasPrefix(dir, "../") {
		return "", false
	}
	return dir, true
}
