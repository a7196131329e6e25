// Package lint finds out, before a skill runs, why it would fail in a sandbox: missing
// programs and packages, paths that lead nowhere, rules of allowed-tools that never match.
// Package skill checks the published rules of manifests; this package adds its findings to
// those.
//
// It reads files and never runs anything. Some rules judge text that only a program could
// understand, so they guess: such a finding says "looks like", and docs/validate.md gives its
// grounds. An error fails everywhere. A warning fails on this machine, or is likely to.
//
// Order of the rules: readManifest and readPrograms read the files once, then each rule
// looks at that text and adds findings. A rule that repeats what another one has said in the
// same file asks has, so rules later in Skill depend on earlier ones.
//
// A skill is a stranger's text of up to maxText bytes a file, so the work of a rule must grow
// with the length of the text, not with its square: do nothing with a whole line or a whole
// block for each match in it. TestHostileTexts tries texts with very many matches.
package lint

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// Bounds on the text that is read.
const (
	maxText = 1 << 20 // bytes of a file; the rest of it is not looked at
	// Further programs and command lines are not looked at, without a finding.
	maxPrograms = 1_000
	maxCommands = 1_000
	maxFindings = 500 // of this package; the findings of validation come on top
)

// A Machine is what sandboxes run on, as far as a skill depends on it.
// The command line makes one with ThisMachine; the daemon makes one from its own runtimes.
type Machine struct {
	// Runtimes are its interpreters.
	Runtimes *runtime.Set
	// Rootfs is the directory whose usr a sandbox sees. Empty: "/".
	Rootfs string
	// HasPackages says that every Python package that the skill declares is known to
	// be there, in a prepared environment perhaps.
	HasPackages bool
	// HasNodePackages is the same for the packages of package.json.
	HasNodePackages bool
	// Daemon says that Runtimes are a daemon's, with its embedded Python if it has one.
	Daemon bool
	// Policy decides about command lines, as it does for executions. Nil: not known.
	Policy *permission.Policy
}

// ThisMachine looks at the machine that it runs on.
func ThisMachine(ctx context.Context) (*Machine, error) {
	set, err := runtime.Discover(ctx, runtime.Config{})
	if err != nil {
		return nil, err
	}
	return &Machine{Runtimes: set}, nil
}

// Dir checks a skill folder in its place. Without a machine, it leaves out rules that depend on a
// machine. The error says that the folder couldn't be read at all.
// If the folder breaks the published rules so badly that it is not a skill, the result has only the
// findings of skill.ReadDir.
func Dir(ctx context.Context, dir string, m *Machine) ([]manifest.Finding, error) {
	sk, found, err := skill.ReadDir(dir)
	if err != nil || sk == nil {
		return found, err
	}
	return Skill(ctx, sk, m)
}

// Skill checks a loaded skill, or one that skill.ReadDir read. It returns the
// findings of validation too, all in the order of files and lines. The error says
// that a file of the skill couldn't be read, or a directory of the machine's Python packages,
// or that ctx ended. A list of system packages that can't be read is passed over.
func Skill(ctx context.Context, sk *skill.Skill, m *Machine) ([]manifest.Finding, error) {
	c := &check{skill: sk, machine: m, found: sk.Validate()}
	if err := c.readManifest(); err != nil {
		return nil, err
	}
	if err := c.readPrograms(ctx); err != nil {
		return nil, err
	}
	c.references()
	c.tools()
	if err := c.commands(ctx); err != nil {
		return nil, err
	}
	c.manifestPaths()
	for _, p := range c.programs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c.place(p)
		c.shebang(p)
		c.interpreter(p)
		c.network(p)
		c.programPaths(p)
		c.aboveSkill(p)
	}
	if err := c.packages(ctx); err != nil {
		return nil, err
	}
	slices.SortStableFunc(c.found, func(a, b manifest.Finding) int {
		if n := strings.Compare(a.File, b.File); n != 0 {
			return n
		}
		return a.Line - b.Line
	})
	return c.found, nil
}

// A check is one look at one skill.
type check struct {
	skill    *skill.Skill
	machine  *Machine // nil: not known
	manifest markdown
	programs []program
	found    []manifest.Finding
	// Number of findings of this package, also those beyond maxFindings.
	added int
}

func (c *check) error(file string, line int, rule, format string, args ...any) {
	c.add(manifest.SeverityError, file, line, rule, format, args...)
}

func (c *check) warn(file string, line int, rule, format string, args ...any) {
	c.add(manifest.SeverityWarning, file, line, rule, format, args...)
}

// A finding has a rule's stable name, because clients and CI filter by it. Line 0 means the
// whole file.
func (c *check) add(s manifest.Severity, file string, line int, rule, format string, args ...any) {
	switch c.added++; {
	case c.added <= maxFindings:
		c.found = append(c.found, manifest.Finding{Severity: s, File: file, Line: line, Rule: rule, Message: fmt.Sprintf(format, args...)})
	case c.added == maxFindings+1:
		c.found = append(c.found, manifest.Finding{Severity: manifest.SeverityWarning, File: c.manifest.file, Rule: manifest.RuleTooMany, Message: "more findings are left out"})
	}
}

// has reports whether a rule has found something in a file.
func (c *check) has(file, rule string) bool {
	return slices.ContainsFunc(c.found, func(f manifest.Finding) bool { return f.File == file && f.Rule == rule })
}

// program looks for a program on the PATH of a sandbox. On a machine that is not
// known everything is there.
// The images of single languages don't count here: a program that is no interpreter runs in
// the default root file system.
func (c *check) program(name string) bool {
	if c.machine == nil {
		return true
	}
	if name == "python" || name == "python3" { // the daemon brings one
		return true
	}
	return c.onPath(name)
}

// onPath reports whether the machine has a program of that name on a sandbox's PATH. c.machine
// must not be nil.
func (c *check) onPath(name string) bool {
	if c.machine.Rootfs == "" && c.machine.Runtimes != nil {
		_, ok := c.machine.Runtimes.Image().Program(name)
		return ok
	}
	_, ok := runtime.Program(c.machine.rootfs(), name)
	return ok
}

func (m *Machine) rootfs() string {
	if m.Rootfs == "" {
		return "/"
	}
	return m.Rootfs
}
