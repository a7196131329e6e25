package toolview

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// RunPythonTimeout is the default timeout of RunPython. The skill's and the daemon's
// limits lower it.
const RunPythonTimeout = 60 * time.Second

// runDirectory is the run directory inside a sandbox.
const runDirectory = skill.WorkspaceDir

// errorPrefix starts every text of RunPython that is a failure.
const errorPrefix = "Error: "

// The contract's texts.
const (
	textNothingToRun = errorPrefix + "provide either code or scriptPath."
	textOutside      = errorPrefix + "path must be under the run directory."
	textNoScript     = errorPrefix + "script file not found or not a .py file."
)

// A PythonCall is a call of RunPython.
type PythonCall struct {
	Code string
	// ScriptPath is a .py file in the run directory, from the skill, from Files or from the
	// session. It wins over Code. Blank: not set.
	ScriptPath string
	// WorkingDirectory is a directory in the run directory. Blank: the run directory.
	WorkingDirectory string
	// Timeout of zero means RunPythonTimeout.
	Timeout time.Duration
	// Skill names the skill whose folder is the run directory. Empty: an empty folder.
	Skill string
	// Args are sys.argv[1:].
	Args []string
	Inputs
	// KeepBytes bounds each stream in the result; the execution keeps more. Zero: no
	// bound beyond the execution's.
	KeepBytes int64
}

// A PythonResult is the result of RunPython: always one text.
type PythonResult struct {
	Text string
	Extras
}

// RunPython runs Python code or a file on the embedded CPython: the contract of the
// built-in tool of that name. Every outcome and every refusal of the request is text. An
// error means that the daemon failed.
func (v *View) RunPython(ctx context.Context, who permission.Principal, c PythonCall, sink Sink) (PythonResult, error) {
	if blank(c.Code) && blank(c.ScriptPath) {
		return PythonResult{Text: textNothingToRun}, nil
	}
	name := c.Skill
	if name == "" {
		name = BuiltInSkill
	}
	sk, err := v.skills.For(who.Tenant).Resolve(name)
	if err != nil {
		return pythonRefusal(err)
	}
	source, isFile, refusal := c.source(sk, v.inSession(who, c.Session))
	if refusal != "" {
		return PythonResult{Text: refusal}, nil
	}
	dir, ok := c.directory(sk)
	if !ok {
		return PythonResult{Text: textOutside}, nil
	}
	wall := c.Timeout
	if wall == 0 {
		t, err := v.x.Tenant(who)
		if err != nil {
			return PythonResult{}, err
		}
		// A default must not exceed a maximum, or the execution would be refused for a limit that the caller never
		// gave.
		wall = min(RunPythonTimeout, t.Bounds.Max.Wall)
		if own := sk.Manifest.MaxExecutionTime; own > 0 {
			wall = min(wall, own)
		}
	}
	by := newRunner(isFile)
	live := by.quiet(sink)
	r, err := v.run(ctx, executor.Request{
		Principal: who,
		Skill:     sk.Name + "@" + sk.Digest, // the version that was checked
		Source:    source,
		Dir:       dir,
		Args:      c.Args,
		Files:     c.Files,
		Resources: c.Resources,
		Session:   c.Session,
		Limits:    executor.Limits{Wall: wall},
		Python:    runtime.Embedded,
		Runner:    by.text(),
	}, 0, live.sink()) // keep everything: the runner's report comes last
	if err == nil {
		err = live.last()
	}
	if e, ok := errors.AsType[*executor.LimitError](err); ok {
		err = limitOfTool(e)
	}
	if err != nil {
		out, err := pythonRefusal(withDir(err, "workingDirectory"))
		out.ExecutionID = r.id
		return out, err
	}
	if err := r.raised(); err != nil && !refused(err) {
		return PythonResult{Extras: Extras{ExecutionID: r.id}}, err
	}
	return PythonResult{Text: pythonText(r, by, c.KeepBytes), Extras: r.extras()}, nil
}

// blank reports whether a text is empty or has only blanks. Models send such texts for an argument that
// they want to leave out.
func blank(s string) bool { return strings.TrimSpace(s) == "" }

// pythonRefusal returns the text for a refused request, or err itself.
func pythonRefusal(err error) (PythonResult, error) {
	if !refused(err) {
		return PythonResult{}, err
	}
	return PythonResult{Text: errorPrefix + err.Error()}, nil
}

// source returns the source to run: the code or the file. A file of the inputs or of the session, see
// inSession, is not part of the skill and so cannot be an execution's script. For it source returns code that is
// the file's path, with isFile set for the runner. refusal is the contract's text if the
// call is refused.
func (c PythonCall) source(sk *skill.Skill, inSession func(string) bool) (source permission.Source, isFile bool, refusal string) {
	if blank(c.ScriptPath) {
		return permission.Source{Kind: permission.Code, Code: c.Code}, false, ""
	}
	p, ok := beneathRunDirectory(c.ScriptPath)
	if !ok {
		return source, false, textOutside
	}
	// The order of the checks is the contract's: first outside, then the ending, then whether the file exists.
	_, err := sk.Lookup(p)
	if escapes(err) {
		return source, false, textOutside
	}
	if !strings.EqualFold(path.Ext(p), ".py") {
		return source, false, textNoScript
	}
	if err == nil {
		return permission.Source{Kind: permission.Script, Script: p}, false, ""
	}
	if slices.Contains(c.paths(), p) || inSession(p) {
		return permission.Source{Kind: permission.Code, Code: runDirectory + "/" + p}, true, ""
	}
	return source, false, textNoScript
}

// directory returns the program's directory, relative to the run directory. ok is false
// if it lies outside.
func (c PythonCall) directory(sk *skill.Skill) (string, bool) {
	if blank(c.WorkingDirectory) {
		return "", true
	}
	dir, ok := beneathRunDirectory(c.WorkingDirectory)
	if !ok {
		return "", false
	}
	if dir != "." {
		if _, err := sk.Lookup(dir); escapes(err) {
			return "", false
		}
	}
	return dir, true
}

// beneathRunDirectory returns a caller's path relative to the run directory. The path
// may be relative, or absolute in the run directory, without "..".
func beneathRunDirectory(p string) (string, bool) {
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return "", false
		}
	}
	p = path.Clean(p)
	if p == runDirectory {
		return ".", true
	}
	p = strings.TrimPrefix(p, runDirectory+"/")
	return p, !path.IsAbs(p)
}

// escapes reports whether err says that a path leads out of its skill.
func escapes(err error) bool {
	bad, ok := errors.AsType[*snapshot.PathError](err)
	return ok && bad.Reason == snapshot.ReasonEscapes
}

// pythonText converts an outcome to the contract's text, with up to keep bytes of each stream.
// 0: all. It removes the runner's report before it cuts stderr, because the report is at the end of
// stderr, and the program did not print it.
func pythonText(r run, by runner, keep int64) string {
	left, exception, raised := by.cut(r.stderr)
	// Otherwise the removed report would look like output that is missing.
	r.Outcome.Stderr.TotalBytes -= int64(len(r.stderr) - len(left))
	r.stderr, r.keep = left, keep
	r.stdout, r.stderr = r.keepMore(nil, r.stdout), r.keepMore(nil, r.stderr)
	traceback := text(r.keepMore(nil, exception.traceback))
	stdout, stderr := r.texts()
	switch {
	case r.End == executor.Exited && *r.ExitCode == 0:
		return printed(stdout, traceback+stderr) + r.cutNote()
	case r.End == executor.TimedOut && r.Evidence.Deadline == executor.WallDeadline:
		return fmt.Sprintf(errorPrefix+"Script timed out after %s seconds.", secondsText(r.Limits.Wall))
	case r.End == executor.Exited && raised:
		return joinPrinted(errorPrefix+exception.message+"\n"+traceback, stdout, stderr) + r.cutNote()
	case r.End == executor.Exited:
		return joinPrinted(fmt.Sprintf(errorPrefix+"Script exited with code %d.", *r.ExitCode), stdout, stderr) + r.cutNote()
	case r.End == executor.Signaled:
		return joinPrinted(fmt.Sprintf(errorPrefix+"Script was ended by %s.", r.Signal), stdout, traceback+stderr)
	}
	return joinPrinted(errorPrefix+r.why(), stdout, traceback+stderr)
}

// cutNote returns a line in brackets if output is missing, else "".
func (r run) cutNote() string {
	if !r.cut() {
		return ""
	}
	return "\n[" + r.cutText() + "]"
}

// printed returns a program's output in the contract's form.
func printed(stdout, stderr string) string { return "Stdout:\n" + stdout + "\nStderr:\n" + stderr }

// joinPrinted appends a program's output, if any, to the reason of its failure.
func joinPrinted(reason, stdout, stderr string) string {
	if stdout == "" && stderr == "" {
		return reason
	}
	return strings.TrimSuffix(reason, "\n") + "\n" + printed(stdout, stderr)
}
