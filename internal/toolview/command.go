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
	// Command is one line. {baseDir} stands for the skill's folder.
	Command string
	// WorkingDir is relative to the skill, or absolute beneath the skill's folder in a
	// sandbox. Empty: the skill's folder.
	WorkingDir string
	// Env is added to the environment.
	Env map[string]string
	Inputs
	// Timeout of zero means the skill's max_execution_time, else the daemon's default.
	Timeout time.Duration
	// KeepBytes bounds each stream in the result; the execution keeps more. Zero: no
	// bound beyond the execution's.
	KeepBytes int64
}

// A CommandResult is the ExecutionResult of the Agent Skills guide.
type CommandResult struct {
	Success       bool    `json:"success"` // ExitCode is 0
	ExitCode      int     `json:"exit_code"`
	Stdout        string  `json:"stdout"`
	Stderr        string  `json:"stderr"`
	ExecutionTime float   `json:"execution_time"` // seconds
	Command       string  `json:"command"`        // as requested
	Error         *string `json:"error"`          // nil on success

	// Of a refused command.
	Reason      string `json:"reason,omitempty"`       // one sentence
	MissingRule string `json:"missing_rule,omitempty"` // empty: no rule would help
	Instead     string `json:"instead,omitempty"`      // see permission.Instead

	// The contract's object does not have the fields below.
	Extras    `json:"-"`
	Truncated bool `json:"-"` // output is missing
}

// didNotEnd is the exit code of a command that was refused, could not start, or was
// ended by the daemon.
const didNotEnd = -1

// ExecuteCommand runs a command line that the skill's allowed-tools cover:
// ScriptExecutor.execute of the Agent Skills guide and specification. A command that is
// refused, can't start or fails is a result. An error means that the request is
// malformed, the skill does not exist, the daemon has no room, or the daemon failed. The
// result that comes with an error has the ID of the execution, if one was accepted.
func (v *View) ExecuteCommand(ctx context.Context, who permission.Principal, req CommandRequest, sink Sink) (CommandResult, error) {
	sk, err := v.skills.For(who.Tenant).Resolve(req.Skill)
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
		Skill:     sk.Name + "@" + sk.Digest, // the version that was checked
		Source:    permission.Source{Kind: permission.Command, Command: req.Command},
		Dir:       dir,
		Env:       req.Env,
		Files:     req.Files,
		Resources: req.Resources,
		Session:   req.Session,
		Limits:    executor.Limits{Wall: req.Timeout},
	}, req.KeepBytes, sink)
	if denied, ok := errors.AsType[*permission.Denied](err); ok {
		return none.denied(denied), nil
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
	c.Stdout, c.Stderr = r.texts()
	c.Extras = r.extras()
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
	// Every other end has an exit code, except DAEMON_LOST. No caller gets that end here, because the
	// connections end with the daemon.
	c.ExitCode = *r.ExitCode
	c.Success = c.ExitCode == 0
	switch {
	case r.End == executor.OOMKilled && c.Success:
		// The kernel killed another process. In the contract only the exit code decides about success,
		// and a success has no error.
		c.Stderr += "\nOut of memory: " + r.why()
	case r.End == executor.OOMKilled:
		return c.because("Execution error: %s", r.why()), nil
	case !c.Success:
		return c.because("Command failed with exit code %d", c.ExitCode), nil
	}
	return c, nil
}

// denied returns the result of a refused command: the published sentence, then a line with the reason
// and a line with the remedy.
func (c CommandResult) denied(d *permission.Denied) CommandResult {
	a := answerOf(false, d.Reason, d.Rule, d.Instead)
	c.Reason, c.MissingRule, c.Instead = a.Reason, a.MissingRule, a.Instead
	return c.because("%s\n%s", d.Message(), a.text())
}

// because returns the result with an error text. In the contract a result with an error text has
// success false.
func (c CommandResult) because(format string, args ...any) CommandResult {
	why := fmt.Sprintf(format, args...)
	c.Error = &why
	return c
}

// commandDir returns a working directory relative to the workspace. ok is false if it
// lies outside of the skill. It judges the path's text only. The sandbox enters the directory
// beneath a descriptor, so a link that leads out does not help.
func commandDir(sk *skill.Skill, dir string) (string, bool) {
	dir = sk.Within(sk.Expand(dir))
	// WORKSPACE/x is x. Without the check of the next byte, WORKSPACEx would be, too.
	if rest, ok := strings.CutPrefix(dir, skill.WorkspaceDir); ok && (rest == "" || rest[0] == '/') {
		dir = strings.TrimLeft(rest, "/")
	}
	dir = path.Clean(dir)
	if path.IsAbs(dir) || dir == ".." || strings.HasPrefix(dir, "../") {
		return "", false
	}
	return dir, true
}
