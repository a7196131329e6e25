package environment

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
)

// A Use is one execution's need of a skill's packages.
type Use struct {
	Tenant string
	Skill  *skill.Skill
	// Python is the interpreter that the execution's Python programs run on; the
	// zero Runtime: it has none.
	Python runtime.Runtime
	// PythonRoot is where the embedded one lies on the host; else empty.
	PythonRoot string
	// RunsPython says that it runs Python programs, and Scripts which of the
	// skill's, as far as is known.
	RunsPython bool
	Scripts    []string
}

// name says which interpreter it is: "system 3.11.2", "embedded 3.14.6".
func pythonName(r runtime.Runtime) string {
	kind := runtime.System
	if isEmbedded(r) {
		kind = runtime.Embedded
	}
	return string(kind) + " " + r.Version
}

// check says what an execution without a prepared environment lacks.
func (s *Store) check(u Use) error {
	have, libraries, root, err := s.installedFor(u)
	if err != nil {
		return err
	}
	on := newPlatform(u.Python.Version, s.machine)
	var missing []string
	for _, r := range u.Skill.Requirements() {
		if r.System || r.Script != "" && !slices.Contains(u.Scripts, r.Script) {
			continue
		}
		p, err := skill.ParseRequirement(r.Text)
		if err != nil {
			continue // a finding of validation; nobody can say what it means
		}
		if applies, _ := on.applies(p.Marker); !applies {
			continue
		}
		if lack := have.lacks(p); lack != "" && !(p.Specifier == "" && inLibrary(root, libraries, p.Name)) && !slices.Contains(missing, lack) {
			missing = append(missing, lack)
		}
	}
	if len(missing) > 0 {
		return &PackagesError{Skill: u.Skill.Name, Packages: missing, Python: pythonName(u.Python)}
	}
	return nil
}

// lacks says what is wrong with a requirement: nothing is empty.
func (in installed) lacks(p skill.PythonRequirement) string {
	version, ok := in[skill.NormalName(p.Name)]
	if !ok {
		return p.Name + p.Specifier
	}
	if fits, known := satisfies(version, p.Specifier); known && !fits {
		return fmt.Sprintf("%s%s (%s is there)", p.Name, p.Specifier, version)
	}
	return ""
}

// installedFor lists what the interpreter of an execution finds by itself.
func (s *Store) installedFor(u Use) (have installed, libraries []string, root string, err error) {
	root, sites, libraries := s.sitesFor(u)
	if have, err = readSites(root, sites); err != nil {
		return nil, nil, "", err
	}
	if runtime.HasVenv(u.Skill) {
		have.inVenv(u.Skill)
	}
	return have, libraries, root, nil
}

func (s *Store) sitesFor(u Use) (root string, sites, libraries []string) {
	if u.PythonRoot != "" {
		lib := "lib/python" + minorOf(u.Python.Version)
		return u.PythonRoot, []string{lib + "/site-packages"}, []string{lib}
	}
	sites, libraries = sitesOf(u.Python)
	return s.config.Rootfs, sites, libraries
}

// checkInterpreter holds the interpreter to what scripts say of it.
func checkInterpreter(u Use) error {
	for _, v := range u.Skill.PythonVersions() {
		if !slices.Contains(u.Scripts, v.Script) {
			continue
		}
		if fits, known := satisfies(u.Python.Version, v.Specifier); known && !fits {
			return &InterpreterError{Skill: u.Skill.Name, Script: v.Script, Want: v.Specifier, Python: pythonName(u.Python)}
		}
	}
	return nil
}

// checkSystem says which packages of the system a skill lacks.
func (s *Store) checkSystem(sk *skill.Skill) error {
	var missing []string
	for _, r := range sk.Requirements() {
		if !r.System {
			continue
		}
		ok, err := s.system.has(r.Text)
		if err != nil {
			return err
		}
		if !ok && !slices.Contains(missing, r.Text) {
			missing = append(missing, r.Text)
		}
	}
	if len(missing) > 0 {
		return &SystemPackagesError{Skill: sk.Name, Packages: missing}
	}
	return nil
}

// checked answers from memory if the same was asked before and went well, and
// nothing was installed or removed since.
func (s *Store) checked(u Use) error {
	scripts := slices.Clone(u.Scripts)
	slices.Sort(scripts)
	key := strings.Join(append([]string{u.Skill.Digest, u.Python.Path, u.Python.Version, fmt.Sprint(u.RunsPython)}, scripts...), "\x00")
	stamp := s.stamp(u)
	s.mu.Lock()
	known, ok := s.passed[key]
	s.mu.Unlock()
	if ok && known == stamp {
		return nil
	}
	if err := s.checkSystem(u.Skill); err != nil {
		return err
	}
	if u.RunsPython {
		if err := checkInterpreter(u); err != nil {
			return err
		}
		if err := s.check(u); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.passed) >= maxPassed {
		clear(s.passed)
	}
	s.passed[key] = stamp
	return nil
}

// maxPassed bounds what checked remembers.
const maxPassed = 10_000

// stamp changes when something is installed or removed.
func (s *Store) stamp(u Use) string {
	stamp := stampOf(s.config.Rootfs, []string{filepath.Dir(dpkgStatus), "usr/local/bin"})
	if !u.RunsPython {
		return stamp
	}
	root, sites, _ := s.sitesFor(u)
	return stamp + stampOf(root, sites)
}
