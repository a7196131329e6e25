package environment

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// Places in an execution's sandbox.
const (
	// Target is where an environment is mounted.
	Target = "/opt/env"
	// VenvTarget is where the virtual environment of a skill is mounted.
	VenvTarget = "/opt/venv"
)

// A Lease is an environment in use. While it is held, the environment is not removed. The zero
// Lease holds nothing.
// The executor merges Env, Path and Mounts into the Spec and releases the lease after the
// sandbox has ended. A lease that is never released keeps the environment from eviction
// until the daemon ends.
type Lease struct {
	Digest string
	Env    []string        // "NAME=value"; it replaces the runtime's value of that name
	Path   []string        // directories that come first in PATH
	Mounts []runtime.Mount // read-only
	// Venv is the virtual environment in whose bin the programs Pythons lead to Use.Python.
	// Empty: none.
	Venv    string
	Pythons []string
	// NodeDigest is the environment of Node packages. Empty: none.
	NodeDigest string
	// Warnings has a sentence for each package that is installed in another version than the
	// skill declares.
	Warnings []string
	release  func()
}

// Release gives the environment back. It may be called again, and of nil.
// The files may be removed at once, so the sandbox must have ended before.
func (l *Lease) Release() {
	if l != nil && l.release != nil {
		l.release()
	}
}

// Acquire leases the packages that a skill needs for an execution: the prepared environment
// and the skill's virtual environment, or nothing if the skill needs none or the interpreter
// has them. The error is a *PackagesError, a *SystemPackagesError, an *InterpreterError, a
// *RequirementError, or internal. The caller releases the lease.
// It never builds: a build takes seconds to minutes and needs the index, and an execution
// has a deadline. So the caller of Prepare waits, not the caller of an execution.
func (s *Store) Acquire(u Use) (*Lease, error) {
	if (u.Python == runtime.Runtime{}) {
		u.RunsPython, u.Venv = false, false
	}
	lease, err := s.prepared(u)
	if err == nil && u.Venv {
		err = s.addVenv(lease, u)
	}
	if err == nil {
		err = s.checkToolPrograms(lease, u)
	}
	if err == nil {
		err = s.addNode(lease, u)
	}
	if err == nil && u.NodeTool != nil {
		err = s.addNodeTool(lease, u)
	}
	if err != nil {
		lease.Release()
		return nil, err
	}
	return lease, nil
}

// prepared leases the environment that was prepared for a use. The lease is empty if the skill
// needs none or the interpreter has the packages.
func (s *Store) prepared(u Use) (*Lease, error) {
	if u.Tool != nil {
		return s.tool(u)
	}
	requirements := u.Skill.Requirements()
	if len(requirements) == 0 && len(u.Skill.PythonVersions()) == 0 && len(u.Skill.UnreadableRequirements()) == 0 {
		return &Lease{}, nil
	}
	// From here k is leased, and every error below must release it.
	k, err := s.find(u, requirements)
	if err != nil {
		return nil, err
	}
	if k == nil {
		warnings, err := s.checked(u)
		return &Lease{Warnings: warnings}, err
	}
	err = s.checkSystem(u.Skill, u.Image)
	if err == nil && u.RunsPython {
		err = checkInterpreter(u)
	}
	if err != nil {
		s.release(k)
		return nil, err
	}
	return s.lease(k, u), nil
}

// tool leases the environment of a tool.
func (s *Store) tool(u Use) (*Lease, error) {
	p, err := s.planOf(u.Skill, []manifest.Requirement{*u.Tool}, invocationOf(u))
	if err != nil {
		return nil, err
	}
	k, err := s.take(tenantDir(u.Tenant), p.key)
	if err != nil {
		return nil, err
	}
	if k != nil {
		return s.lease(k, u), nil
	}
	return nil, &PackagesError{Skill: u.Skill.Name, Packages: []string{u.Tool.Text}, Python: pythonIn(u.Python, u.Image)}
}

// checkToolPrograms returns a *RequirementError if a package does not bring the program that a command line
// runs by uvx or pipx. Without the check, PATH could lead to a program of the same name from another package or from
// the system. A package that the system brings has its programs in the system.
func (s *Store) checkToolPrograms(l *Lease, u Use) error {
	for _, p := range u.ToolPrograms {
		var programs []string
		for _, m := range l.Mounts {
			names, err := programsIn(filepath.Join(m.Source, "bin"))
			if err != nil {
				return err
			}
			programs = append(programs, names...)
		}
		if slices.Contains(programs, p.Program) {
			continue
		}
		if _, system := s.program(u.Image, p.Program); system && l.Digest == "" {
			continue
		}
		return &RequirementError{Text: p.Requirement.Text, File: p.Requirement.File, Line: p.Requirement.Line, Reason: noProgram(p.Program, programs)}
	}
	return nil
}

// noProgram says that a package lacks a program, and which ones are there.
func noProgram(program string, there []string) string {
	if len(there) == 0 {
		return fmt.Sprintf("no program %.80s of it is installed", program)
	}
	return fmt.Sprintf("it has no program %.80s; its programs, and those of its packages, are: %.300s", program, strings.Join(there, ", "))
}

// programsIn lists the programs in the bin of a virtual environment, without the interpreter. If the
// directory is missing, the list is empty.
func programsIn(bin string) ([]string, error) {
	entries, err := os.ReadDir(bin)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !pythonProgram.MatchString("bin/" + e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// find leases the environment that is prepared for a use. It returns nil without an error if none is.
// The interpreter and the requirements decide; a script's name does not. So all scripts of a
// skill share one environment.
func (s *Store) find(u Use, requirements []manifest.Requirement) (*kept, error) {
	forPython := slices.ContainsFunc(requirements, func(r manifest.Requirement) bool { return !r.System })
	if !forPython || u.Python == (runtime.Runtime{}) {
		return nil, nil
	}
	s.mu.Lock()
	// A tenant without environments is answered before newPlan, which parses all
	// requirements.
	none := s.tenants[tenantDir(u.Tenant)] == nil && !s.incomplete()
	s.mu.Unlock()
	if none {
		return nil, nil
	}
	p, err := s.newPlan(u.Skill, invocationOf(u))
	if durable.MayPass(err) {
		return nil, err
	}
	if err != nil {
		return nil, nil // it can't have been prepared
	}
	return s.take(tenantDir(u.Tenant), p.key)
}

// take leases the environment that is prepared for a key. It returns nil without an error if none is. It drops a damaged
// environment. An environment that cannot be read at present is an error, and stays.
// The lease is counted before intact looks, so that no eviction removes the files under the
// check.
func (s *Store) take(tenantName, key string) (*kept, error) {
	s.mu.Lock()
	if s.incomplete() {
		if err := s.learnKey(tenantName, key); err != nil {
			s.mu.Unlock()
			return nil, err
		}
	}
	t := s.tenants[tenantName]
	if t == nil || t.kept[t.prepared[key]] == nil {
		s.mu.Unlock()
		return nil, nil
	}
	k := t.kept[t.prepared[key]]
	k.leases++
	s.touch(k)
	s.unlock()
	err := s.intact(k)
	if err == nil {
		return k, nil
	}
	if durable.MayPass(err) {
		s.release(k)
		return nil, err
	}
	s.mu.Lock()
	// Another caller may have dropped or replaced it while intact ran without the lock.
	if t.kept[k.environment.Digest] == k {
		if err := s.drop(t, k); err != nil {
			s.config.Log.Error("damaged environment not removed", "dir", k.dir, "err", err)
		}
	}
	s.unlock()
	s.release(k)
	return nil, nil
}

// release ends one lease of k. The last lease removes a retired environment, and makes up
// for an eviction that found everything in use.
func (s *Store) release(k *kept) {
	s.mu.Lock()
	defer s.unlock()
	if k.leases--; k.leases > 0 {
		return
	}
	if k.gone {
		s.endRetired(k)
	}
	if s.over {
		s.evict()
	}
}

// lease says how an execution sees an environment: as a virtual environment. Its packages
// are the user's, too (PYTHONUSERBASE), for a Python that is started by another path than
// bin/python3 of the environment.
func (s *Store) lease(k *kept, u Use) *Lease {
	return &Lease{
		Digest: k.environment.Digest,
		Env:    []string{"PYTHONUSERBASE=" + Target, "VIRTUAL_ENV=" + Target},
		Path:   []string{Target + "/bin"},
		Mounts: []runtime.Mount{{Source: k.root(), Target: Target}},
		Venv:   Target, Pythons: pythonNames(u.Python),
		release: sync.OnceFunc(func() { s.release(k) }),
	}
}

// readable lets every user read a new directory, whatever the umask.
func readable(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if d.IsDir() {
			mode = 0o755
		}
		return os.Chmod(path, mode)
	})
}

// isEmbedded tells the embedded CPython from the system's.
func isEmbedded(r runtime.Runtime) bool { return strings.HasPrefix(r.Path, runtime.EmbeddedDir+"/") }
