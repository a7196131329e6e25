package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/environment"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// The packages that a skill declares, seen from an execution: which packages it needs
// (use), the lease that keeps them on disk (acquire), and the build on request (Prepare). Package
// environment decides whether they are installed. An execution never builds or installs packages.

// acquire leases the packages that the skill needs for a new execution. Its error names the missing
// packages. asked is the Python that the request names. The lease keeps the environment on disk; forget
// releases it. acquire may also replace the skill's folder by a copy with compiled files. A variable of
// the lease replaces the invocation's variable of the same name.
// PATH is the reason for the order of the lists: the programs of an environment come before the
// programs of the invocation, so a script finds the versions that its skill declares.
func (x *Executor) acquire(e *execution, asked runtime.Python) error {
	if x.Environments == nil {
		return nil
	}
	u := e.use(asked)
	u.Node = x.node()
	if e.grant.Source().Kind == permission.Command {
		_, launches, err := launched(e.grant.Plan())
		if err == nil {
			err = launchedUse(&u, launches)
		}
		if err != nil {
			return err
		}
	}
	lease, err := x.Environments.Acquire(u)
	if err != nil {
		return err
	}
	e.lease = lease
	e.skillDir = x.Environments.SkillDir(u, lease)
	e.enterVenv(lease)
	inv := &e.invocation
	// A name that occurs twice in an environment has no defined value (environ(7)), so the old one
	// goes. The clone is needed because runtimes share the list.
	inv.Env = slices.DeleteFunc(slices.Clone(inv.Env), func(old string) bool {
		name, _, _ := strings.Cut(old, "=")
		return slices.ContainsFunc(lease.Env, func(v string) bool { return strings.HasPrefix(v, name+"=") })
	})
	inv.Env = append(inv.Env, lease.Env...)
	inv.Path = slices.Concat(lease.Path, inv.Path)
	inv.Mounts = slices.Concat(inv.Mounts, lease.Mounts)
	return nil
}

// enterVenv starts the execution's Python by its name in the lease's virtual environment. A
// Python finds its packages and sys.prefix by that path.
// Python finds a virtual environment by the path by which it was started (PEP 405: pyvenv.cfg next
// to the program or above it), not by a variable.
func (e *execution) enterVenv(lease *environment.Lease) {
	if lease.Venv == "" {
		return
	}
	inv := &e.invocation
	python := "python3"
	switch {
	case e.grant.Source().Kind == permission.Command:
		python = planArgs(planOf(e.grant))[0][0] // found on PATH
	case inv.Language == "python" && inv.Args[0] == inv.Python.Path:
		inv.Args = append([]string{lease.Venv + "/bin/" + python}, inv.Args[1:]...)
	default:
		return // it may start a Python, and finds it on PATH
	}
	if e.python == nil {
		return
	}
	if !slices.Contains(lease.Pythons, python) {
		e.python = nil // no Python zygote has this Python and PATH
		return
	}
	e.python.Venv, e.python.Base = lease.Venv, inv.Python.Path
}

// warnings returns the sentences for the header.
func (e *execution) warnings() []string {
	if e.lease == nil {
		return e.sessionWarnings
	}
	return slices.Concat(e.lease.Warnings, e.sessionWarnings)
}

// use returns the packages that an execution needs. A request that names a Python gets that
// Python without packages, because the skill's packages are for the skill's Python.
func (e *execution) use(asked runtime.Python) environment.Use {
	sk, source := e.grant.Skill(), e.grant.Source()
	u := environment.Use{
		Tenant: e.grant.Principal().Tenant, Skill: sk, Python: e.invocation.Python, Image: e.invocation.Image,
		PythonRoot: embeddedRoot(e.invocation), RunsPython: e.invocation.Language == "python" && asked == "",
		Venv: e.invocation.Venv, RunsNode: e.invocation.Language == "node",
	}
	switch source.Kind {
	case permission.Script:
		u.Scripts = scriptsAt(sk, source.Script)
	case permission.Command:
		for _, args := range planArgs(planOf(e.grant)) {
			u.RunsNode = u.RunsNode || runsNode(sk, args)
			args, ok := pythonArgs(sk, args)
			if !ok {
				continue
			}
			u.RunsPython = true
			for _, arg := range args {
				u.Scripts = append(u.Scripts, scriptsAt(sk, inSkill(sk, arg))...)
			}
		}
	}
	return u
}

// embeddedRoot returns the directory of an invocation's embedded CPython on the host.
// "": the invocation has no embedded CPython.
func embeddedRoot(inv runtime.Invocation) string {
	for _, m := range inv.Mounts {
		if m.Target == runtime.EmbeddedDir {
			return m.Source
		}
	}
	return ""
}

// isPython reports whether a program has the name of a Python: python, python3, python3.12. It is a
// heuristic for the check of packages. It grants nothing: package permission has decided before.
func isPython(program string) bool { return strings.HasPrefix(path.Base(program), "python") }

// wrappers are programs that start the program in their arguments.
var wrappers = []string{"env", "timeout", "nice", "nohup", "setsid", "stdbuf", "time", "ionice", "xargs"}

// isNode is isPython for Node.js.
func isNode(program string) bool {
	base := path.Base(program)
	return base == "node" || base == "nodejs"
}

// pythonArgs finds the Python program that a command starts and returns the arguments from
// there on.
func pythonArgs(sk *skill.Skill, args []string) ([]string, bool) {
	return programArgs(sk, args, isPython, []string{".py"})
}

// runsNode reports whether a command starts a Node program.
func runsNode(sk *skill.Skill, args []string) bool {
	_, ok := programArgs(sk, args, isNode, []string{".js", ".mjs", ".cjs", ".ts", ".mts", ".cts"})
	return ok
}

// programArgs finds a program that a command starts and returns the arguments from there on. The
// program is an interpreter or a script of the skill; wrappers such as env may come first.
// Programs that a shell script starts are not found.
// A wrong answer changes only which packages are checked before the start. The program then reports
// the missing module itself.
func programArgs(sk *skill.Skill, args []string, interpreter func(string) bool, extensions []string) ([]string, bool) {
	for i, arg := range args {
		switch {
		case interpreter(arg):
			return args[i+1:], true
		case isScript(sk, inSkill(sk, arg), interpreter, extensions):
			return args[i:], true
		case i == 0 && !slices.Contains(wrappers, path.Base(arg)):
			return nil, false
		}
	}
	return nil, false
}

// inSkill is an argument as a path within the skill, which a sandbox has at two places.
func inSkill(sk *skill.Skill, arg string) string {
	for _, dir := range []string{sk.BaseDir(), skill.WorkspaceDir} {
		if rest, ok := strings.CutPrefix(arg, dir+"/"); ok {
			return path.Clean(rest)
		}
	}
	return path.Clean(arg)
}

// isScript reports whether a file of the skill is a script of an interpreter, by its extension or
// its #! line.
func isScript(sk *skill.Skill, name string, interpreter func(string) bool, extensions []string) bool {
	f, _, err := sk.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	if slices.Contains(extensions, strings.ToLower(path.Ext(name))) {
		return true
	}
	start, err := io.ReadAll(io.LimitReader(f, 256)) // the kernel reads no more for a #! line
	line, _, _ := strings.Cut(string(start), "\n")
	return err == nil && strings.HasPrefix(line, "#!") && slices.ContainsFunc(strings.Fields(line[2:]), interpreter)
}

// scriptsAt returns the names under which the skill may list the script at a path. It
// returns nothing if no script is there.
// There are two names if the path has a link: requirements of a script are listed under the name
// that the scan of the skill found.
func scriptsAt(sk *skill.Skill, name string) []string {
	found, err := sk.Lookup(name)
	if err != nil {
		return nil
	}
	if clean := path.Clean(name); clean != found.Path {
		return []string{clean, found.Path}
	}
	return []string{found.Path}
}

// Prepared reports whether Python programs of a skill get an environment that was
// prepared for them.
// The lease is released at once, so the answer may be out of date when the caller reads it.
func (x *Executor) Prepared(who permission.Principal, sk *skill.Skill) bool {
	lease, err := x.packages(who, sk, nil)
	if err != nil {
		return false
	}
	defer lease.Release()
	return lease.Digest != ""
}

// packages leases the packages for a Python program of a skill, with requirements that single scripts declare. The
// caller releases them.
func (x *Executor) packages(who permission.Principal, sk *skill.Skill, with []string) (*environment.Lease, error) {
	if x.Environments == nil {
		return nil, environment.ErrNoSource
	}
	python, err := x.Runtimes.ForCommand(sk, []string{"python3"})
	if err != nil {
		return nil, err
	}
	return x.Environments.Acquire(environment.Use{
		Tenant: who.Tenant, Skill: sk, Python: python.Python, Image: python.Image, PythonRoot: embeddedRoot(python), RunsPython: true, Venv: python.Venv, With: with,
	})
}

// CompileVenv compiles the modules of a skill that has a venv, see environment.Store.CompileVenv.
// Nothing is compiled without a suitable Python; the first execution says what is missing.
func (x *Executor) CompileVenv(ctx context.Context, sk *skill.Skill) (room bool) {
	if x.Environments == nil || len(x.Missing) > 0 {
		return true
	}
	python, err := x.Runtimes.ForCommand(sk, []string{"python3"})
	if err != nil {
		return true
	}
	return x.Environments.CompileVenv(ctx, environment.Use{
		Skill: sk, Python: python.Python, Image: python.Image, PythonRoot: embeddedRoot(python), Venv: python.Venv,
	})
}

// node returns the Node.js of executions.
// There is at most one Node.js: the configuration maps each language to one root file system.
func (x *Executor) node() environment.Node {
	r, image, ok := x.Runtimes.Node()
	if !ok {
		return environment.Node{}
	}
	return environment.Node{Runtime: r, Image: image}
}

// Prepare builds the environments of a skill, or finds them: one of Python packages, one for each
// tool of Python, one of Node packages, and one for each tool of Node. It returns them in this order;
// none if the skill needs no packages. log gets the output of the builds as it comes. The error is an
// *UnknownTenantError, or comes from resolving the skill or from [environment.Store.Prepare].
func (x *Executor) Prepare(ctx context.Context, who permission.Principal, ref string, rebuild bool, log func([]byte) error) (made []environment.Environment, err error) {
	if len(x.Missing) > 0 {
		return nil, &BoundaryError{x.Missing}
	}
	if x.currentSuccessor() != nil {
		return nil, ErrHandedOver
	}
	if _, _, draining := x.Counts(); draining {
		return nil, ErrDraining
	}
	end, err := x.beginPrepare(who)
	if err != nil {
		return nil, err
	}
	defer end()
	sk, release, err := x.skillsOf(who).Hold(ref)
	if err != nil {
		return nil, err
	}
	defer release()
	if x.Environments == nil {
		return nil, environment.ErrNoSource
	}
	entry := entryOf(ctx, audit.Prepare, who, "")
	entry.Skill = sk.Name + "@" + sk.Digest
	err = x.audited(entry, func() error {
		made, err = x.prepare(ctx, who, sk, rebuild, log)
		return err
	})
	return made, err
}

// prepare is Prepare of a skill.
func (x *Executor) prepare(ctx context.Context, who permission.Principal, sk *skill.Skill, rebuild bool, log func([]byte) error) ([]environment.Environment, error) {
	for _, f := range sk.Warnings {
		if f.Rule != manifest.RuleToolPlaceholder {
			continue
		}
		if err := log(fmt.Appendf(nil, "warning: %s\n", f)); err != nil {
			return nil, err
		}
	}
	made, err := x.preparePython(ctx, who, sk, rebuild, log)
	if ctx.Err() == nil && !errors.Is(err, environment.ErrClosed) {
		node, nodeErr := x.prepareNode(ctx, who, sk, rebuild, log)
		made, err = append(made, node...), cmp.Or(err, nodeErr)
	}
	if errors.Is(err, environment.ErrClosed) {
		err = ErrDraining
	}
	return made, err
}

// prepareNode prepares the Node packages of a skill, then the packages whose programs its command
// lines run by npx.
// package.json comes before the tools: npx prefers a program of the skill's own packages.
func (x *Executor) prepareNode(ctx context.Context, who permission.Principal, sk *skill.Skill, rebuild bool, log func([]byte) error) ([]environment.Environment, error) {
	node, file, tools := x.node(), sk.Node().File, sk.NodeTools()
	if file == "" && len(tools) == 0 {
		return nil, nil
	}
	if file == "" && !x.Environments.InstallsNode() {
		// Many SKILL.md files name npx although no script needs it.
		return nil, log(fmt.Appendf(nil, "%d commands of npx in SKILL.md are not prepared: %v\n", len(tools), environment.ErrNoRegistry))
	}
	if node == (environment.Node{}) {
		return nil, &runtime.MissingError{Interpreter: "node", File: cmp.Or(file, "npx")}
	}
	var made []environment.Environment
	if file != "" {
		say := fmt.Appendf(nil, "Node packages of %s\n", file)
		if other := sk.Node().Unread; other != "" {
			say = fmt.Appendln(say, manifest.UnreadNodeLock(other))
		}
		if err := log(say); err != nil {
			return nil, err
		}
		env, err := x.Environments.PrepareNode(ctx, who.Tenant, sk, node, rebuild, log)
		if err != nil {
			return nil, err
		}
		made = withPackages(made, env)
	}
	more, err := prepareEach(ctx, tools, log, func(tool manifest.Requirement) (environment.Environment, error) {
		return x.Environments.PrepareNodeTool(ctx, who.Tenant, sk, tool, node, rebuild, log)
	})
	return append(made, more...), err
}

// withPackages appends an environment, unless it has no packages.
func withPackages(made []environment.Environment, env environment.Environment) []environment.Environment {
	if env.Digest == "" {
		return made
	}
	return append(made, env)
}

// prepareEach prepares tools, one after the other. It continues after an error, so that one missing
// tool doesn't prevent the others. It returns their environments and the first error.
func prepareEach(ctx context.Context, tools []manifest.Requirement, log func([]byte) error, prepare func(manifest.Requirement) (environment.Environment, error)) (made []environment.Environment, err error) {
	var first error
	for _, tool := range tools {
		if err := log(fmt.Appendf(nil, "tool %s of %s:%d\n", tool.Text, tool.File, tool.Line)); err != nil {
			return made, err
		}
		env, err := prepare(tool)
		switch {
		case ctx.Err() != nil, errors.Is(err, environment.ErrClosed):
			return made, err
		case err != nil:
			first = cmp.Or(first, fmt.Errorf("tool %s of %s:%d: %w", tool.Text, tool.File, tool.Line, err))
		default:
			made = withPackages(made, env)
		}
	}
	return made, first
}

// preparePython prepares the Python packages and tools of a skill.
func (x *Executor) preparePython(ctx context.Context, who permission.Principal, sk *skill.Skill, rebuild bool, log func([]byte) error) ([]environment.Environment, error) {
	if len(sk.UnreadableRequirements()) == 0 && len(sk.Tools()) == 0 && !slices.ContainsFunc(sk.Requirements(), func(r manifest.Requirement) bool { return !r.System }) {
		return nil, nil // whatever Python there is
	}
	python, err := x.Runtimes.ForCommand(sk, []string{"python3"})
	if err != nil {
		return nil, err
	}
	env, err := x.Environments.Prepare(ctx, who.Tenant, sk, python, rebuild, log)
	if err != nil {
		return nil, err
	}
	tools := slices.DeleteFunc(sk.Tools(), func(tool manifest.Requirement) bool {
		return declared(sk.Requirements(), tool.Text) != nil // the skill's own environment has it
	})
	made, err := prepareEach(ctx, tools, log, func(tool manifest.Requirement) (environment.Environment, error) {
		return x.Environments.PrepareTool(ctx, who.Tenant, sk, tool, python, rebuild, log)
	})
	return append(withPackages(nil, env), made...), err
}

// HasPackages reports whether executions of a tenant find every Python and Node package that a
// skill declares, in the declared version, prepared or on the machine. Without Environments it
// returns true, as nothing is checked then.
func (x *Executor) HasPackages(who permission.Principal, sk *skill.Skill) bool {
	return x.HasPythonPackages(who, sk) && x.HasNodePackages(who, sk)
}

// HasNodePackages is HasPackages for Node packages alone.
func (x *Executor) HasNodePackages(who permission.Principal, sk *skill.Skill) bool {
	if x.Environments == nil {
		return true
	}
	node := x.node()
	return x.Environments.HasNode(environment.Use{Tenant: who.Tenant, Skill: sk, Image: node.Image, Node: node, RunsNode: true})
}

// HasPythonPackages is HasPackages for Python packages alone.
func (x *Executor) HasPythonPackages(who permission.Principal, sk *skill.Skill) bool {
	if x.Environments == nil {
		return true
	}
	var all []string
	for _, r := range sk.Requirements() {
		if !r.System {
			all = append(all, r.Text)
		}
	}
	lease, err := x.packages(who, sk, all)
	defer lease.Release()
	return err == nil && len(lease.Warnings) == 0
}
