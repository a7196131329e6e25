package sandbox

import (
	"cmp"
	"time"

	"github.com/skillrun/skillrun/sandbox/internal/pid1"
)

// ScriptID is the user id and group id of the script inside a sandbox. Files that a mount or
// a workspace shows as the script's have these ids on disk.
const ScriptID = pid1.ScriptID

// rootID is the id of init inside a sandbox.
const rootID = 0

// plan returns the program of s as init takes it.
func plan(s Spec, deadline time.Duration) pid1.Plan {
	p := pid1.Plan{Deadline: deadline, Dir: cmp.Or(s.Dir, ".")}
	for _, step := range s.Program {
		to := pid1.Step{When: uint32(step.When)}
		for _, c := range step.Pipeline {
			to.Commands = append(to.Commands, planned(c, s.Env))
		}
		p.Steps = append(p.Steps, to)
	}
	return p
}

// planned returns one command. env are the variables of the whole program.
func planned(c Command, env []string) pid1.Command {
	to := pid1.Command{Args: c.Args, Env: environ(env, c.Env), PipeStderr: c.PipeStderr}
	for _, g := range c.Globs {
		to.Globs = append(to.Globs, pid1.Glob{Arg: uint32(g.Arg), Pattern: g.Pattern})
	}
	for _, r := range c.Redirects {
		text := r.Path
		if r.Kind == Text {
			text = r.Text
		}
		to.Redirects = append(to.Redirects, pid1.Redirect{FD: uint32(r.FD), Kind: uint32(r.Kind), From: uint32(r.From), Text: text})
	}
	return to
}
