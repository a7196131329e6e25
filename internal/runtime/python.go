package runtime

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/skill"
)

// Python says which Python a skill's Python programs run on.
type Python string

// The zero Python asks for nothing: the skill decides, else the daemon.
const (
	// Auto is the skill's venv, else the system's Python, else the embedded one.
	Auto Python = "auto"
	// System is the Python beneath /usr.
	System Python = "system"
	// Embedded is the CPython that comes with skillrund.
	Embedded Python = "embedded"
)

// Valid reports whether p is one of the words, or asks for nothing.
func (p Python) Valid() bool {
	return p == "" || p == Auto || p == System || p == Embedded
}

// Places in a sandbox.
const (
	// EmbeddedDir is where the embedded CPython is mounted.
	EmbeddedDir = "/opt/python"
	linksDir    = "/opt/skillrun"
)

// A Mount is a directory of the host that a sandbox needs, read-only.
type Mount struct{ Source, Target string }

// With returns the same interpreters for an execution whose caller asks for a
// Python. The zero Python leaves it to the skill.
func (s *Set) With(asked Python) *Set {
	if asked == "" {
		return s
	}
	with := *s
	with.asked = asked
	return &with
}

// Links are the symbolic links that the root of every sandbox needs, so that
// Invocation.Path has something to name: path to target. Skills say python, and
// Debian has only python3; a python3.12 beside the default one gets a directory in
// which it is python3.
func (s *Set) Links() map[string]string {
	links := map[string]string{}
	for name, r := range s.byName {
		switch {
		case name == "python3":
			links[linksDir+"/bin/python"] = r.Path
		case pythonMinor.MatchString(name) && !s.isDefault(r):
			dir := linksOf(r)
			links[dir+"/python"], links[dir+"/python3"] = r.Path, r.Path
		}
	}
	return links
}

// linksOf is the directory in which a python of the system is python3.
func linksOf(r Runtime) string { return linksDir + "/" + path.Base(r.Path) }

// isDefault reports whether a python of the system is what python3 names.
func (s *Set) isDefault(r Runtime) bool {
	d, ok := s.byName["python3"]
	return ok && (d == r || d.Version != "" && d.Version == r.Version)
}

// ForCommand says what a command line of a skill needs beside its own programs, so
// that python and python3 are the skill's Python in it. programs are what its
// commands start. Args stays empty. The error is a *MissingError or a *VenvError;
// a line that names no Python has none, unless one was asked for.
func (s *Set) ForCommand(sk *skill.Skill, programs []string) (Invocation, error) {
	s = s.ofCommand(programs)
	named := slices.ContainsFunc(programs, func(p string) bool { return p == "python" || p == "python3" })
	return s.around(sk, named, "a command")
}

// around is what a program that is not Python needs for the Python that it may
// start. Its lack is an error only if that Python was needed or asked for.
func (s *Set) around(sk *skill.Skill, needed bool, file string) (Invocation, error) {
	r, venv, err := s.choose(sk, "python3", file)
	if err == nil {
		return s.invocation(sk, r, venv), nil
	}
	if _, asked := s.wanted(sk); needed || asked {
		return Invocation{}, err
	}
	return Invocation{Image: s.image}, nil
}

// invocation is what makes python and python3 name r in a sandbox.
func (s *Set) invocation(sk *skill.Skill, r Runtime, venv bool) Invocation {
	inv := Invocation{Python: r, Image: s.image}
	switch {
	case r == s.embedded:
		inv.Path = []string{EmbeddedDir + "/bin"}
		inv.Mounts = []Mount{{Source: s.embeddedDir, Target: EmbeddedDir}}
	case !s.isDefault(r) && pythonMinor.MatchString(path.Base(r.Path)):
		inv.Path = []string{linksOf(r)}
	}
	if venv {
		inv.Env = venvEnv(sk)
	}
	return inv
}

// wanted returns the Python that is asked for: by the caller, else by the skill,
// else by nobody, and then the configured one.
func (s *Set) wanted(sk *skill.Skill) (p Python, asked bool) {
	switch {
	case s.asked != "":
		return s.asked, true
	case sk.Manifest.Python != "":
		return Python(sk.Manifest.Python), true
	case s.standard != "":
		return s.standard, false
	}
	return Auto, false
}

// choose returns the Python for a program of a skill: python3, python3.11, and
// whether it gets the packages of the skill's venv.
func (s *Set) choose(sk *skill.Skill, program, file string) (r Runtime, venv bool, err error) {
	p, asked := s.wanted(sk)
	if !HasVenv(sk) {
		if r, ok := s.find(program, p); ok {
			return r, false, nil
		}
		return Runtime{}, false, s.missing(program, file)
	}
	version, err := venvVersion(sk)
	if s.asked == Embedded {
		// A caller who wants this one takes it without the venv's packages, if they
		// are for another.
		if r, ok := s.find(program, Embedded); ok {
			return r, err == nil && minor(r.Version) == version, nil
		}
	}
	if err != nil {
		return Runtime{}, false, &VenvError{Skill: sk.Name, Reason: err.Error()}
	}
	// What is configured is for skills that need no certain one.
	if !asked {
		p = Auto
	}
	if r, err = s.python(version, p); err != nil {
		return Runtime{}, false, &VenvError{Skill: sk.Name, Reason: err.Error()}
	}
	return r, true, nil
}

// find looks for a Python by the name of its program, the system's first.
func (s *Set) find(program string, p Python) (Runtime, bool) {
	if r, ok := s.byName[program]; ok && p != Embedded {
		return r, true
	}
	has := s.embedded != Runtime{} && (program == "python3" || program == "python"+minor(s.embedded.Version))
	return s.embedded, has && p != System
}

// python returns a Python of a minor version, such as "3.11", the system's first.
func (s *Set) python(version string, p Python) (Runtime, error) {
	if r, ok := s.find("python"+version, p); ok {
		return r, nil
	}
	var have []string
	for _, r := range s.list {
		embedded := r == s.embedded
		if r.Language != "python" || embedded && p == System || !embedded && p == Embedded {
			continue
		}
		if minor(r.Version) == version {
			return r, nil
		}
		have = append(have, minor(r.Version))
	}
	switch {
	case len(have) == 0 && p != Auto:
		return Runtime{}, fmt.Errorf("it was made with Python %s, and there is no %s Python%s, which was asked for", version, p, s.image.in())
	case len(have) == 0:
		return Runtime{}, fmt.Errorf("it was made with Python %s, and no Python is there%s", version, s.image.in())
	case p != Auto:
		return Runtime{}, fmt.Errorf("it was made with Python %s, and the %s Python%s, which was asked for, is %s", version, p, s.image.in(), strings.Join(have, ", "))
	}
	return Runtime{}, fmt.Errorf("it was made with Python %s, and only %s is there%s", version, strings.Join(have, ", "), s.image.in())
}
