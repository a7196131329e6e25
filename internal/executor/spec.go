package executor

import (
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/sandbox"
)

// skillkitVersion is what the published contract of skillkit's ScriptExecutor
// puts into SKILLKIT_VERSION.
const skillkitVersion = "0.3.0"

// basePath ends with the links of runtime.Set.Links.
const basePath = "/usr/local/bin:/usr/bin:/bin:/opt/skillrun/bin"

// newSpec says what the sandbox is made of. It is pure, and it takes an
// execution that has a grant: there is no other way to a Spec.
func newSpec(e *execution) sandbox.Spec {
	base := e.skill.BaseDir()
	spec := sandbox.Spec{
		ID:      e.id,
		Program: e.program(),
		Env:     e.environment(),
		Dir:     e.req.Dir,
		Mounts:  []sandbox.Mount{{Source: e.skill.Dir, Target: base, Owned: true}},
		Workspace: sandbox.Workspace{
			Lower:     e.workspace.Lower(),
			SizeBytes: e.limits.WorkspaceBytes,
			Files:     int64(e.limits.WorkspaceFiles),
		},
		Limits: sandbox.Limits{
			Wall: e.limits.Wall, CPU: e.limits.CPU, Grace: e.grace,
			MemoryBytes: e.limits.MemoryBytes, Processes: e.limits.Processes, OpenFiles: e.limits.OpenFiles,
			MilliCPUs: e.limits.MilliCPUs,
		},
		Network: sandbox.NetworkNone,
		Root:    e.invocation.Image.Name,
		Python:  e.python,
	}
	for _, m := range e.invocation.Mounts {
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: m.Source, Target: m.Target})
	}
	if e.grant.Network() {
		spec.Network = sandbox.NetworkHost
	}
	return spec
}

// environment is the whole environment of the program, sorted: a fixed base, the
// runtime's, then the request's, which was checked not to touch either.
func (e *execution) environment() []string {
	base := e.skill.BaseDir()
	env := []string{
		"PATH=" + strings.Join(append(slices.Clone(e.invocation.Path), basePath), ":"),
		"HOME=/home/skill",
		"USER=skill",
		"LOGNAME=skill",
		"LANG=C.UTF-8",
		"TMPDIR=/tmp",
		"TERM=dumb", // without one tput fails, and with it scripts that use set -e
		// The skill's folder is read-only, and a cache in the workspace would come
		// back as an artifact.
		"PYTHONDONTWRITEBYTECODE=1",
		// Python fills a block before it writes to a pipe, so what a script prints
		// would arrive only at its end, and not at all if it is killed.
		"PYTHONUNBUFFERED=1",
		"SKILL_NAME=" + e.skill.Name,
		"SKILL_VERSION=" + e.skill.EffectiveVersion(),
		"SKILL_BASE_DIR=" + base,
		"SKILL_DIR=" + base,
		"SCRIPTS_DIR=" + base + "/scripts",
		"SKILLKIT_VERSION=" + skillkitVersion,
	}
	env = append(env, e.invocation.Env...)
	for name, value := range e.req.Env {
		env = append(env, name+"="+value)
	}
	for name, value := range e.req.SecretEnv {
		env = append(env, name+"="+string(value))
	}
	slices.Sort(env)
	return env
}

// toProgram hands a plan that was checked to the sandbox, word for word. Patterns
// of file names are expanded there, by the command's own process.
func toProgram(plan permission.Plan) sandbox.Program {
	program := make(sandbox.Program, len(plan))
	for i, step := range plan {
		program[i].When = sandbox.When(step.When)
		for _, c := range step.Pipeline {
			command := sandbox.Command{Args: c.Args, Env: c.Env, PipeStderr: c.PipeStderr}
			for _, g := range c.Globs {
				command.Globs = append(command.Globs, sandbox.Glob{Arg: g.Arg, Pattern: g.Pattern})
			}
			for _, r := range c.Redirects {
				command.Redirects = append(command.Redirects, sandbox.Redirect{
					FD: r.FD, Kind: sandbox.RedirectKind(r.Kind), Path: r.Path, From: r.From, Text: r.Text,
				})
			}
			program[i].Pipeline = append(program[i].Pipeline, command)
		}
	}
	return program
}
