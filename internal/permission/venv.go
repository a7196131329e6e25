package permission

import (
	"path"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/skill"
)

// Programs of a skill's virtual environment by path. The interpreter in a venv is a link to a file of the
// author's machine, and a skill whose packages are prepared has no venv at all. Executions have the
// programs on PATH instead, in a venv that package environment makes. So "venv/bin/python x.py" runs as
// "python x.py". The rules of allowed-tools judge the line as it was written.

var venvProgram = lazyregexp.New(`^(\.?venv)/bin/([A-Za-z0-9._+-]+)$`)

// pythonName matches the names that a venv has for its interpreter.
var pythonName = lazyregexp.New(`^python(3(\.[0-9]+)?)?$`)

// venvOf returns a function for Rules.byPath. It returns the name of a program on PATH for a path of it
// in a skill's own venv, and for a Python in the venv that the skill expects its user to make. Other words
// stay as they are. A relative word counts from the workspace.
func venvOf(sk *skill.Skill) func(word string) string {
	return func(word string) string {
		at := path.Clean(word)
		for _, dir := range []string{sk.BaseDir(), skill.WorkspaceDir} {
			if rest, ok := strings.CutPrefix(at, dir+"/"); ok {
				at = rest
				break
			}
		}
		m := venvProgram.FindStringSubmatch(at)
		switch {
		case m == nil:
		case m[1] == "venv" && sk.Has(at): // sk.Has also knows the refused link of an interpreter
			return m[2]
		case pythonName.MatchString(m[2]) && !sk.Has(m[1]) && !sk.Has(m[1]+"/pyvenv.cfg") && len(sk.Requirements()) > 0:
			return m[2]
		}
		return word
	}
}

// named returns a command with its program by name, if the path is of a venv.
func (r Rules) named(args []string) []string {
	if r.byPath == nil {
		return args
	}
	if name := r.byPath(args[0]); name != args[0] {
		args = slices.Clone(args)
		args[0] = name
	}
	return args
}

// startByName changes a plan so that programs of a venv start by their names, also after a wrapper such as nohup.
func (r Rules) startByName(plan Plan) {
	if r.byPath == nil {
		return
	}
	for _, step := range plan {
		for i := range step.Pipeline {
			c := &step.Pipeline[i]
			for inner := c.Args; inner != nil; inner = unwrap(inner) {
				// A git command without its settings is no part of the line. Its program was named before.
				at := len(c.Args) - len(inner)
				if name := r.byPath(inner[0]); name != inner[0] && slices.Equal(c.Args[at:], inner) {
					c.Args = slices.Clone(c.Args)
					c.Args[at] = name
				}
			}
		}
	}
}
