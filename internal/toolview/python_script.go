package toolview

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// A PythonScriptCall is a call of run_python_script.
type PythonScriptCall struct {
	Skill  string
	Script string   // Python code
	Args   []string // sys.argv[1:]
	Inputs
	// Timeout of zero means the skill's max_execution_time, else the daemon's default.
	Timeout time.Duration
	// KeepBytes bounds each stream in the result; the execution keeps more. Zero: no
	// bound beyond the execution's.
	KeepBytes int64
}

// A PythonScriptResult is the result of run_python_script: the end of a program, or
// Error alone.
type PythonScriptResult struct {
	// Ran reports whether a program ran. If not, only Error and ExecutionID are set.
	Ran            bool
	SkillName      string
	Stdout, Stderr string
	Returncode     int // -N for signal N, -1 if TimedOut
	TimedOut       bool
	// Error is empty if the program exited, or a signal ended it, and its output is
	// complete.
	Error string
	// Success reports that the program exited with 0, whether or not its output is
	// complete.
	Success bool

	Extras
}

// JSON returns the contract's object as Python's json.dumps prints it, with artifacts and warnings if
// there are any.
func (r PythonScriptResult) JSON() []byte {
	if !r.Ran {
		return dumps(struct {
			Error string `json:"error"`
		}{r.Error})
	}
	return dumps(struct {
		SkillName  string `json:"skill_name"`
		Stdout     string `json:"stdout"`
		Stderr     string `json:"stderr"`
		Returncode int    `json:"returncode"`
		TimedOut   bool   `json:"timed_out"`
		Error      string `json:"error,omitempty"`
		toolExtras
	}{r.SkillName, r.Stdout, r.Stderr, r.Returncode, r.TimedOut, r.Error, r.Extras.list()})
}

// RunPythonScript runs Python code in a skill's virtual environment: the contract of
// run_python_script. Every refusal of the request is a result, also a refusal that is not in the
// contract's table of errors. An error means that the daemon failed; if an execution was
// accepted, the result has its ID.
func (v *View) RunPythonScript(ctx context.Context, who permission.Principal, c PythonScriptCall, sink Sink) (PythonScriptResult, error) {
	if c.Script == "" {
		return PythonScriptResult{Error: "Error executing script: script is required: give Python code"}, nil
	}
	sk, err := v.skills.For(who.Tenant).Resolve(c.Skill)
	if err != nil {
		return pythonScriptRefusal(c.Skill, err)
	}
	if !runtime.HasVenv(sk) && !v.x.Prepared(who, sk) {
		return PythonScriptResult{Error: fmt.Sprintf("Skill '%s' does not have a venv. Cannot execute script.", c.Skill)}, nil
	}
	r, err := v.run(ctx, executor.Request{
		Principal: who,
		Skill:     sk.Name + "@" + sk.Digest, // the version that was checked
		Source:    permission.Source{Kind: permission.Code, Code: c.Script},
		Args:      c.Args,
		Files:     c.Files,
		Resources: c.Resources,
		Session:   c.Session,
		Limits:    executor.Limits{Wall: c.Timeout},
	}, c.KeepBytes, sink)
	if e, ok := errors.AsType[*executor.LimitError](err); ok {
		err = limitOfTool(e)
	}
	if err != nil {
		out, err := pythonScriptRefusal(c.Skill, err)
		out.ExecutionID = r.id
		return out, err
	}
	if err := r.raised(); err != nil && !refused(err) {
		return PythonScriptResult{Extras: Extras{ExecutionID: r.id}}, err
	}
	return newPythonScriptResult(c.Skill, r), nil
}

// pythonScriptRefusal returns the result that the contract's table of errors has for
// err, or err itself.
func pythonScriptRefusal(name string, err error) (PythonScriptResult, error) {
	result := func(format string, args ...any) (PythonScriptResult, error) {
		return PythonScriptResult{Error: fmt.Sprintf(format, args...)}, nil
	}
	switch {
	case is[*manifest.InvalidNameError](err):
		return result("%s", err)
	case errors.Is(err, skill.ErrNotFound):
		return result("Skill '%s' not found in skills folder", name)
	case is[*executor.VenvError](err):
		return result("Python interpreter not found in venv for skill '%s'", name)
	case is[*permission.Denied](err):
		return result("Permission denied executing script in skill '%s'", name)
	case refused(err):
		return result("Error executing script: %s", err)
	}
	return PythonScriptResult{}, err
}

// newPythonScriptResult converts an outcome to the contract's result. The contract's error is for
// ends that returncode does not tell: a limit, a cancel, missing output.
func newPythonScriptResult(name string, r run) PythonScriptResult {
	out := PythonScriptResult{Ran: true, SkillName: name, Extras: r.extras()}
	out.Stdout, out.Stderr = r.texts()
	out.Success = r.End == executor.Exited && *r.ExitCode == 0
	if r.ExitCode != nil {
		out.Returncode = *r.ExitCode
	}
	switch {
	case r.End == executor.TimedOut && r.Evidence.Deadline == executor.WallDeadline:
		out.TimedOut, out.Returncode = true, -1
		out.Error = fmt.Sprintf("Script execution exceeded timeout of %s seconds", secondsText(r.Limits.Wall))
	case r.End == executor.TimedOut && r.Evidence.Deadline == executor.CPUDeadline:
		out.TimedOut, out.Returncode, out.Error = true, -1, r.why()
	// These ends need no error: returncode and the streams say everything.
	case r.End == executor.Exited && !r.cut(), r.End == executor.Signaled && !r.cut():
	case r.ExitCode == nil || r.End == executor.TimedOut: // no program ran
		out = PythonScriptResult{Error: "Error executing script: " + r.why(), Extras: Extras{ExecutionID: r.id}}
	default:
		out.Error = r.why()
	}
	return out
}

// secondsText prints a duration in seconds without trailing zeros.
func secondsText(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
}
