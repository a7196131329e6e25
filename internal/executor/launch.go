package executor

import (
	"slices"

	"github.com/skillrun/skillrun/internal/environment"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// Commands of uv, pipx and npx. Sandboxes don't have these programs. The packages that they would
// download are prepared before, and the daemon starts the program that they would start. So
// "uv run scripts/x.py a" runs as "python scripts/x.py a" in the prepared environment, if possible forked
// from a Python zygote. The rules of allowed-tools judge the line as it was written.

// A launching is a Launch with the program that starts.
type launching struct {
	manifest.Launch
	program string
}

// launched replaces each command of uv, pipx and npx in a plan by the command that it starts. It returns
// the new plan, and the requirements of the replaced commands. It is pure.
// The grant keeps the plan as it was written, since the rules judge that text. Everything that runs
// or is shown comes from planOf.
func launched(plan permission.Plan) (permission.Plan, []launching, error) {
	var launches []launching
	out := make(permission.Plan, len(plan))
	for i, step := range plan {
		out[i] = step
		out[i].Pipeline = slices.Clone(step.Pipeline)
		for j, c := range step.Pipeline {
			at := manifest.AfterWrappers(c.Args)
			l, ok, err := manifest.ParseLaunch(c.Args[at:])
			if err != nil {
				return nil, nil, &RequestError{"command", err.Error()}
			}
			if !ok {
				continue
			}
			c, ok = launch(c, at, l)
			if !ok {
				return nil, nil, &RequestError{"command", "a pattern of file names stands where an option or a program is read: write the names"}
			}
			out[i].Pipeline[j] = c
			launches = append(launches, launching{l, c.Args[at]})
		}
	}
	return out, launches, nil
}

// launch replaces the words of a command from at on by the command that a launch runs. It returns false
// if one of the words that the launch has read is a pattern.
// Patterns are named by the position of their word, so the positions move with the words.
func launch(c permission.SimpleCommand, at int, l manifest.Launch) (permission.SimpleCommand, bool) {
	shift := len(l.Program) - l.Rest
	c.Args = slices.Concat(c.Args[:at], l.Args(c.Args[at:]))
	c.Globs = slices.Clone(c.Globs)
	for i := range c.Globs {
		if c.Globs[i].Arg < at+l.Rest || c.Globs[i].Arg+shift == at {
			return c, false
		}
		c.Globs[i].Arg += shift
	}
	return c, true
}

// planOf returns the plan that runs for a grant of a command. newExecution has refused a grant
// whose plan can't be launched.
func planOf(grant permission.Grant) permission.Plan {
	plan, _, err := launched(grant.Plan())
	if err != nil {
		panic("a plan that can't run was accepted: " + err.Error())
	}
	return plan
}

// launchedUse adds the requirements of commands of uv, pipx and npx to a use.
func launchedUse(u *environment.Use, launches []launching) error {
	others := u.RunsPython // the line runs Python without a tool, too
	for _, l := range launches {
		if l.Node {
			if err := launchedNode(u, l.Launch); err != nil {
				return err
			}
			continue
		}
		u.RunsPython = true
		if l.Python != "" {
			if fits, known := runtime.Satisfies(u.Python.Version, l.Python); known && !fits {
				return &InterpreterError{Skill: u.Skill.Name, Script: "the command line", Want: l.Python, Python: u.Python.Version}
			}
		}
		for _, text := range l.With {
			r := declared(u.Skill.Requirements(), text)
			if r == nil {
				return undeclared(u.Skill, text)
			}
			u.With = append(u.With, r.Text)
		}
		if l.Tool == "" {
			continue
		}
		if r := declared(u.Skill.Requirements(), l.Tool); r != nil { // the skill's own environment has it
			u.With = append(u.With, r.Text)
			u.ToolPrograms = append(u.ToolPrograms, environment.ToolProgram{Requirement: *r, Program: l.program})
			continue
		}
		r := declared(u.Skill.Tools(), l.Tool)
		switch {
		case r == nil:
			return undeclared(u.Skill, l.Tool)
		case others || u.Tool != nil && u.Tool.Text != r.Text:
			return &RequestError{"command", "each tool has a separate environment: run it in a separate command line"}
		}
		u.Tool = r
		u.ToolPrograms = append(u.ToolPrograms, environment.ToolProgram{Requirement: *r, Program: l.program})
	}
	return nil
}

// launchedNode adds the package of a command of npx to a use.
func launchedNode(u *environment.Use, l manifest.Launch) error {
	tool := &environment.NodeTool{Text: l.Tool, Program: l.Program[0]}
	if u.NodeTool != nil && *u.NodeTool != *tool {
		return &RequestError{"command", "each tool has a separate environment: run it in a separate command line"}
	}
	u.RunsNode, u.NodeTool = true, tool
	return nil
}

// declared returns the requirement in a list that meets a requirement of a command line. It must have
// the same package, and the same versions if the command line names versions.
func declared(list []manifest.Requirement, text string) *manifest.Requirement {
	want, err := manifest.ParseRequirement(text)
	if err != nil {
		return nil
	}
	for _, r := range list {
		p, err := manifest.ParseRequirement(r.Text)
		if err != nil || r.System || manifest.NormalName(p.Name) != manifest.NormalName(want.Name) {
			continue
		}
		if want.Specifier == "" || want.Specifier == p.Specifier {
			return &r
		}
	}
	return nil
}

func undeclared(sk *skill.Skill, text string) error {
	return &PackagesError{Skill: sk.Name, Packages: []string{text}, Undeclared: true}
}
