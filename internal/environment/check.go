package environment

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// A Use is one execution's need of a skill's packages.
type Use struct {
	Tenant string
	Skill  *skill.Skill
	// Python is the interpreter of the execution's Python programs. The zero Runtime means
	// that it has no interpreter.
	Python runtime.Runtime
	// PythonRoot is where the embedded one lies on the host; else empty.
	PythonRoot string
	// Venv says that the packages of the skill's own venv belong to Python.
	Venv bool
	// Image replaces this machine's files for the execution.
	Image runtime.Image
	// RunsPython says that it runs Python programs, and Scripts which of the
	// skill's, as far as is known.
	RunsPython bool
	Scripts    []string
	// Node is the Node.js of the execution's root file system, and RunsNode says that the
	// execution runs Node programs.
	Node     Node
	RunsNode bool
	// NodeTool is the package whose program a command line of npx runs. Nil: none.
	NodeTool *NodeTool
	// With are requirements that the command line names, each one that the skill declares.
	With []string
	// Tool is the tool that runs, one of the skill's. It gets its own environment in place of
	// the skill's packages. Nil: none.
	Tool *manifest.Requirement
	// ToolPrograms are the programs that the command line runs by uvx or pipx.
	ToolPrograms []ToolProgram
}

// A ToolProgram is a program that a command line runs by uvx or pipx, and the requirement whose package
// must bring it.
type ToolProgram struct {
	Requirement manifest.Requirement
	Program     string
}

// pythonName says which interpreter it is: "system 3.11.2", "embedded 3.14.6".
func pythonName(r runtime.Runtime) string {
	kind := runtime.System
	if isEmbedded(r) {
		kind = runtime.Embedded
	}
	return string(kind) + " " + r.Version
}

// pythonIn is pythonName with the image that it runs in.
func pythonIn(r runtime.Runtime, image runtime.Image) string {
	if image == (runtime.Image{}) {
		return pythonName(r)
	}
	return pythonName(r) + " in image " + image.Name
}

// rootfs is the directory that sandboxes of an image see.
// The zero Image means this machine.
func (s *Store) rootfs(image runtime.Image) string {
	if image == (runtime.Image{}) {
		return s.config.Rootfs
	}
	return image.Rootfs()
}

// check returns an error if an execution without a prepared environment lacks packages, and
// warnings about packages of another version than the declared one, and about the first
// requirement that is not valid.
// It judges the packages that the interpreter finds in the system or image, and in the
// skill's venv. Requirements of scripts that this execution doesn't run don't count.
// Another version is no error by default: authors write the version that they have, and most
// scripts run with an older one.
func (s *Store) check(u Use) (warnings []string, err error) {
	if err := unreadable(u.Skill); err != nil {
		return nil, err
	}
	have, err := runtime.ReadPackages(s.rootfs(u.Image), u.PythonRoot, u.Python, u.Skill)
	if err != nil {
		return nil, err
	}
	on := newPlatform(u.Python.Version, s.machine)
	var missing []string
	invalid := false
	for _, r := range u.Skill.Requirements() {
		if r.System || r.Script != "" && !slices.Contains(u.Scripts, r.Script) && !slices.Contains(u.With, r.Text) {
			continue
		}
		p, err := manifest.ParseRequirement(r.Text)
		if err != nil && !s.config.StrictVersions {
			// It names no package, so nothing says that one is missing. Many scripts run.
			if _, _, err := requirementLine(r, on); !invalid {
				warnings = append(warnings, fmt.Sprintf("skill '%s': %v", u.Skill.Name, err))
			}
			invalid = true
			continue
		}
		if _, there := have.Versions[manifest.NormalName(p.Name)]; err == nil && p.URL != "" && there {
			continue // whether it came from that URL is unknown
		}
		// A marker that can't be read falls through to requirementLine, which refuses it.
		if applies, merr := on.applies(p.Marker); err == nil && merr == nil && !applies {
			continue
		}
		if _, _, err := requirementLine(r, on); err != nil {
			return nil, err
		}
		if isInterpreter(p) {
			if err := interpreterFits(u.Skill, r, p, invocationOf(u)); err != nil {
				return nil, err
			}
			continue
		}
		found, ok := have.Has(p)
		switch lack := lackOf(have, p); {
		case ok:
		case found == "" || s.config.StrictVersions:
			missing = appendNew(missing, lack)
		default:
			warnings = appendNew(warnings, fmt.Sprintf("skill '%s' declares %s%s, but %s is installed for %s; for the declared version run: skillrun prepare %s",
				u.Skill.Name, p.Name, p.Specifier, found, pythonIn(u.Python, u.Image), quote(u.Skill.Name)))
		}
	}
	if len(missing) > 0 {
		return nil, &PackagesError{Skill: u.Skill.Name, Packages: missing, Python: pythonIn(u.Python, u.Image)}
	}
	return warnings, nil
}

func appendNew(list []string, text string) []string {
	if slices.Contains(list, text) {
		return list
	}
	return append(list, text)
}

// isInterpreter reports whether a requirement is one of the interpreter, which skills
// list like a package: "python>=3.8". No index has it.
// It is compared with the version of the interpreter and never given to pip.
func isInterpreter(p manifest.PythonRequirement) bool {
	name := manifest.NormalName(p.Name)
	return p.URL == "" && (name == "python" || name == "python3")
}

// interpreterFits reports a version that the requirement excludes. A specifier that can't be
// read counts as met; validation of the skill reports it.
func interpreterFits(sk *skill.Skill, r manifest.Requirement, p manifest.PythonRequirement, inv runtime.Invocation) error {
	if fits, known := runtime.Satisfies(inv.Python.Version, p.Specifier); known && !fits {
		return &InterpreterError{Skill: sk.Name, Script: r.File, Want: p.Specifier, Python: pythonIn(inv.Python, inv.Image)}
	}
	return nil
}

// invocationOf returns the Python of a use, as a plan needs it.
func invocationOf(u Use) runtime.Invocation {
	inv := runtime.Invocation{Python: u.Python, Image: u.Image}
	if u.PythonRoot != "" {
		inv.Mounts = []runtime.Mount{{Source: u.PythonRoot, Target: runtime.EmbeddedDir}}
	}
	return inv
}

// embeddedRoot is where the embedded CPython lies on the host, or empty.
func embeddedRoot(inv runtime.Invocation) string {
	for _, m := range inv.Mounts {
		if m.Target == runtime.EmbeddedDir {
			return m.Source
		}
	}
	return ""
}

// checkInterpreter holds the interpreter to what scripts say of it.
// Only scripts that this execution runs count, as far as the executor knows them.
func checkInterpreter(u Use) error {
	for _, v := range u.Skill.PythonVersions() {
		if !slices.Contains(u.Scripts, v.Script) {
			continue
		}
		if fits, known := runtime.Satisfies(u.Python.Version, v.Specifier); known && !fits {
			return &InterpreterError{Skill: u.Skill.Name, Script: v.Script, Want: v.Specifier, Python: pythonIn(u.Python, u.Image)}
		}
	}
	return nil
}

// checkSystem says which packages of the system a skill lacks.
func (s *Store) checkSystem(sk *skill.Skill, image runtime.Image) error {
	var missing []string
	for _, r := range sk.Requirements() {
		if !r.System {
			continue
		}
		ok, err := s.systemOf(image).Has(r.Text)
		if err != nil {
			return err
		}
		if !ok && !slices.Contains(missing, r.Text) {
			missing = append(missing, r.Text)
		}
	}
	if len(missing) > 0 {
		return &SystemPackagesError{Skill: sk.Name, Packages: missing, Image: image.Name}
	}
	return nil
}

// systemOf are the packages of the system that an image, or this machine, has.
// The zero Image means this machine, whose programs are looked up anew each time. An image
// doesn't change, so its programs are known from the start.
func (s *Store) systemOf(image runtime.Image) *runtime.SystemPackages {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.system[image]
	if p == nil { // as many as the daemon has images
		root, find := s.rootfs(image), image.Program
		if image == (runtime.Image{}) {
			find = func(name string) (string, bool) { return runtime.Program(root, name) }
		}
		p = runtime.NewSystemPackages(root, func(name string) bool { _, ok := find(name); return ok })
		s.system[image] = p
	}
	return p
}

// A passedCheck is what checked remembers of a check that found no error.
type passedCheck struct {
	stamp    string // of the machine at that time
	warnings []string
}

// checked answers from memory if the same was asked before and went well, and
// nothing was installed or removed since.
// Only success is remembered. After a refusal the operator installs something, and the next
// execution must see it at once.
func (s *Store) checked(u Use) (warnings []string, err error) {
	scripts := slices.Clone(u.Scripts)
	slices.Sort(scripts)
	// The snapshot, not its digest: the time of an answer must not tell what another tenant has pushed.
	key := strings.Join(append([]string{
		u.Skill.Dir, u.Python.Path, u.Python.Version, u.Image.Digest, fmt.Sprintf("%t %q", u.RunsPython, u.With),
	}, scripts...), "\x00")
	// Before the check: a package that is removed during the check gives another stamp the
	// next time, and the check runs again.
	stamp := s.stamp(u)
	s.mu.Lock()
	known, ok := s.passed[key]
	s.mu.Unlock()
	if ok && known.stamp == stamp {
		return known.warnings, nil
	}
	if err := s.checkSystem(u.Skill, u.Image); err != nil {
		return nil, err
	}
	if u.RunsPython {
		if err := checkInterpreter(u); err != nil {
			return nil, err
		}
		if warnings, err = s.check(u); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.passed) >= maxPassed {
		clear(s.passed)
	}
	s.passed[key] = passedCheck{stamp, warnings}
	return warnings, nil
}

// maxPassed bounds the entries of passed and of library. A full map is emptied: the next
// executions check again, which costs time and no correctness.
const maxPassed = 10_000

// stamp changes when something is installed or removed.
// The modification time of a directory changes when an entry is added or removed (inode(7)).
// dpkg replaces its status file by a rename, so the directory of that file changes with each
// package. The stamp misses a program that was deleted from /usr/bin by hand; the script
// then fails to start it.
func (s *Store) stamp(u Use) string {
	if u.Image != (runtime.Image{}) {
		return "" // an image does not change
	}
	stamp := stampOf([]string{filepath.Join(s.config.Rootfs, filepath.Dir(runtime.DpkgStatus)), filepath.Join(s.config.Rootfs, "usr/local/bin")})
	if !u.RunsPython {
		return stamp
	}
	return stamp + stampOf(runtime.PackageDirs(s.config.Rootfs, u.PythonRoot, u.Python))
}
