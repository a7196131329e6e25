package executor

import (
	"slices"
	"strconv"
	"strings"

	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/sandbox"
)

// skillkitVersion is the value of SKILLKIT_VERSION in the published contract of skillkit's
// ScriptExecutor.
const skillkitVersion = "0.3.0"

// basePath is the end of every PATH. Its own last directory has the links of runtime.Set.Links,
// so a program of the machine comes before a link with its name.
const basePath = "/usr/local/bin:/usr/bin:/bin:/opt/skillrun/bin"

// newSpec derives the sandbox's Spec, without its network (openNetwork). It is pure. Skill, source and
// command plan come only from the grant. It panics on a grant that approves nothing: only a bug can pass one.
//
// Deadlines, memory and counts become the sandbox's limits; the limit of output stays here,
// with the sinks.
func newSpec(grant permission.Grant, s settings) sandbox.Spec {
	if !grant.Valid() {
		panic("newSpec: the grant of execution " + s.id + " approves nothing")
	}
	sk := grant.Skill()
	spec := sandbox.Spec{
		ID:      s.id,
		Program: programOf(grant, s),
		Env:     environmentOf(grant, s),
		Dir:     s.dir,
		Mounts:  []sandbox.Mount{{Source: s.skillDir, Target: sk.BaseDir(), Owned: true}},
		Workspace: sandbox.Workspace{
			Lower:     lowerLayers(s, sk.Dir),
			SizeBytes: s.limits.WorkspaceBytes,
			Files:     int64(s.limits.WorkspaceFiles),
		},
		Limits: sandbox.Limits{
			Wall: s.limits.Wall, CPU: s.limits.CPU, Grace: s.grace,
			MemoryBytes: s.limits.MemoryBytes, Processes: s.limits.Processes, OpenFiles: s.limits.OpenFiles,
			MilliCPUs: s.limits.MilliCPUs,
		},
		Root:   s.invocation.Image.Name,
		Python: s.python,
		Caller: callerOf(grant.Principal()),
		Group:  s.group,
	}
	if s.trusted != "" {
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: s.trusted, Target: trustedDir})
	}
	for _, m := range s.invocation.Mounts {
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: m.Source, Target: m.Target})
	}
	return spec
}

// lowerLayers returns the lower layers of the workspace: the inputs, then the skill's folder with
// its compiled files. The workspace itself compares a program's files with the snapshot.
func lowerLayers(s settings, snapshot string) []string {
	lower := slices.Clone(s.workspace.Lower())
	if i := slices.Index(lower, snapshot); i >= 0 {
		lower[i] = s.skillDir
	}
	return lower
}

// callerOf returns a different text for each principal, for package sandbox, which has no principals.
// The quotes keep different pairs of names different.
func callerOf(who permission.Principal) string {
	return strconv.Quote(who.Tenant) + " " + strconv.Quote(who.Name)
}

// programOf returns the program for the sandbox's init: the checked plan of a command, or
// the invocation of a script or code.
func programOf(grant permission.Grant, s settings) sandbox.Program {
	if grant.Source().Kind == permission.Command {
		return toProgram(planOf(grant))
	}
	args := slices.Concat(s.invocation.Args, s.args)
	if s.runner != "" {
		// "python script args" becomes "python -c runner script args". The runner's
		// sys.argv[1:] is then script and args.
		args = slices.Insert(args, 1, "-c", s.runner)
	}
	return sandbox.Program{{Pipeline: []sandbox.Command{{Args: args}}}}
}

// quickRetries make npm and pip give up soon if the network refuses. By default npm makes three attempts in about 70 s,
// and pip six attempts in about 14 s. With these variables npm needs 3 s, and pip makes three attempts in about 2 s.
var quickRetries = []string{
	"npm_config_fetch_retry_mintimeout=500", // ms
	"npm_config_fetch_retry_maxtimeout=1000",
	"PIP_RETRIES=2",
}

// environmentOf returns the whole environment of the program, sorted: a fixed base, the
// runtime's, then the request's, which was checked not to touch either. The variables of a trace and of
// the trusted authorities give way to the request's.
func environmentOf(grant permission.Grant, s settings) []string {
	sk := grant.Skill()
	base := sk.BaseDir()
	env := []string{
		"PATH=" + strings.Join(append(slices.Clone(s.invocation.Path), basePath), ":"),
		"HOME=/home/skill",
		"USER=skill",
		"LOGNAME=skill",
		"LANG=C.UTF-8",
		"TMPDIR=/tmp",
		"TERM=dumb", // without one tput fails, and with it scripts that use set -e
		// The skill's folder is read-only, and a cache in the workspace would come
		// back as an artifact.
		"PYTHONDONTWRITEBYTECODE=1",
		"SKILL_NAME=" + sk.BareName(),
		"SKILL_VERSION=" + sk.EffectiveVersion(),
		"SKILL_BASE_DIR=" + base,
		"SKILL_DIR=" + base,
		"SCRIPTS_DIR=" + base + "/scripts",
		"SKILLKIT_VERSION=" + skillkitVersion,
	}
	if !s.setsBuffering() {
		// Python fills a block before it writes to a pipe. Without this, output would
		// arrive only at the program's end, and a killed program's not at all.
		env = append(env, permission.Unbuffered+"=1")
	}
	if grant.Network() == nil {
		// npm would wait 70 s between three attempts, longer than most executions have.
		env = append(env, "npm_config_fetch_retries=0")
	} else {
		env = append(env, quickRetries...)
	}
	env = append(env, s.invocation.Env...)
	add := func(name, value string) {
		if name == permission.Unbuffered && value != "1" {
			return // like an unset variable, so that a Python zygote can still serve the program
		}
		env = append(env, name+"="+value)
	}
	for name, value := range s.env {
		add(name, value)
	}
	for name, value := range s.secretEnv {
		add(name, string(value))
	}
	unlessSet := func(name, value string) {
		_, open := s.env[name]
		if _, secret := s.secretEnv[name]; !open && !secret {
			add(name, value)
		}
	}
	for name, value := range s.trace {
		unlessSet(name, value)
	}
	if s.trusted != "" {
		for _, name := range trustVariables {
			unlessSet(name, trustedDir+"/"+trustedFile)
		}
	}
	slices.Sort(env)
	return env
}

// setsBuffering reports whether the request says how a Python buffers its output.
func (s settings) setsBuffering() bool {
	_, open := s.env[permission.Unbuffered]
	_, secret := s.secretEnv[permission.Unbuffered]
	return open || secret
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
