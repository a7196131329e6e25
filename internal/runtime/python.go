package runtime

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/skill"
)

// Python selects the interpreter for a skill's Python programs.
type Python string

// The zero Python selects nothing: the skill decides, then the configuration.
const (
	// Auto is the skill's venv, else the system's Python, else the embedded one.
	Auto Python = "auto"
	// System is the Python beneath /usr.
	System Python = "system"
	// Embedded is the CPython that comes with skillrund.
	Embedded Python = "embedded"
)

// Valid reports whether p is one of these constants or empty.
func (p Python) Valid() bool {
	return p == "" || p == Auto || p == System || p == Embedded
}

// Paths in a sandbox.
const (
	// EmbeddedDir is where the embedded CPython is mounted.
	EmbeddedDir = "/opt/python"
	linksDir    = "/opt/skillrun"
)

// A Mount shows the host directory Source at Target in a sandbox, read-only.
type Mount struct{ Source, Target string }

// With returns a copy of s for an execution whose caller asks for a Python. The zero
// Python leaves the choice to the skill.
// The copy is shallow: maps and slices stay shared, and nothing writes to them.
func (s *Set) With(asked Python) *Set {
	if asked == "" {
		return s
	}
	with := *s
	with.asked = asked
	return &with
}

// Links returns the symbolic links that the root of every sandbox needs, from path to
// target. Skills run python where Debian has only python3. A python3.12 that is not
// the default gets a directory of links in which python3 is python3.12; that
// directory goes into Invocation.Path.
// The links are made when a root file system is built, before any execution is known. So
// they exist in every sandbox, and an execution only chooses a directory for its PATH.
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

// linksOf returns the directory of links in which python3 is r.
func linksOf(r Runtime) string { return linksDir + "/" + path.Base(r.Path) }

// isDefault reports whether r is the system's python3.
// An equal version counts as the same program: /usr/bin/python3 is usually a link to
// python3.11, and both names are in byName.
func (s *Set) isDefault(r Runtime) bool {
	d, ok := s.byName["python3"]
	return ok && (d == r || d.Version != "" && d.Version == r.Version)
}

// ForCommand returns the invocation of a command line in which python and python3 run
// the skill's Python. programs are the programs that the line starts. Args stays empty.
// The error is a *MissingError or a *VenvError. A line that names no Python gets no
// error, unless the caller asked for a certain Python.
func (s *Set) ForCommand(sk *skill.Skill, programs []string) (Invocation, error) {
	s = s.ofCommand(programs)
	named := slices.ContainsFunc(programs, func(p string) bool { return p == "python" || p == "python3" })
	return s.around(sk, named, "a command")
}

// around is for a program that may start Python. A missing Python is an error only if
// it is needed or the caller asked for it.
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

// invocation returns the PATH, mounts and links by which python and python3 run r.
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
		inv.Env, inv.Venv = venvEnv(sk), true
	}
	return inv
}

// wanted returns the choice of the caller, else of the skill, else of the
// configuration. asked is false for the configuration's.
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

// choose returns the Python for a program name of a skill, such as python3 or
// python3.11, and whether the packages of the skill's venv go with it.
// Without a venv only the choice of wanted matters. A venv fixes the minor version, because
// its compiled modules load in that version only; a caller that asks for the embedded
// Python still gets it.
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
		// The caller's choice wins. The venv's packages are dropped if they are for
		// another version.
		if r, ok := s.find(program, Embedded); ok {
			return r, err == nil && minor(r.Version) == version, nil
		}
	}
	if err != nil {
		return Runtime{}, false, &VenvError{Skill: sk.Name, Reason: err.Error()}
	}
	// The configured default applies only to skills that name no Python.
	if !asked {
		p = Auto
	}
	if r, err = s.python(version, p); err != nil {
		return Runtime{}, false, &VenvError{Skill: sk.Name, Reason: err.Error()}
	}
	return r, true, nil
}

// find returns the Python with a program name, the system's first.
func (s *Set) find(program string, p Python) (Runtime, bool) {
	if r, ok := s.byName[program]; ok && p != Embedded {
		return r, true
	}
	has := s.embedded != Runtime{} && (program == "python3" || program == "python"+minor(s.embedded.Version))
	return s.embedded, has && p != System
}

// python returns a Python of a minor version such as "3.11", the system's first.
// The error is the Reason of a VenvError.
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
		return Runtime{}, fmt.Errorf("it was made with Python %s, and the requested %s Python is not available%s", version, p, s.image.in())
	case len(have) == 0:
		return Runtime{}, fmt.Errorf("it was made with Python %s, and no Python is available%s", version, s.image.in())
	case p != Auto:
		return Runtime{}, fmt.Errorf("it was made with Python %s, and the requested %s Python%s has version %s", version, p, s.image.in(), strings.Join(have, ", "))
	}
	return Runtime{}, fmt.Errorf("it was made with Python %s, and only %s is available%s", version, strings.Join(have, ", "), s.image.in())
}
