package environment

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/skillrun/skillrun/internal/environment/download"
	"github.com/skillrun/skillrun/internal/runtime"
)

// PackagesError: Python or Node packages that a skill needs are not there, or, if versions are
// strict, not in the declared version.
type PackagesError struct {
	Skill    string
	Packages []string // "pandas>=2.0.0", then the version that was found
	Python   string   // "system 3.11.2"
	Node     string   // "node 20.20.2", if they are Node packages
	// Undeclared says that the skill declares no such package, so that prepare would not install
	// them either.
	Undeclared bool
}

// Error ends with the command that helps. If the skill does not declare the packages, the declaration comes first.
func (e *PackagesError) Error() string {
	if e.Undeclared && e.Node != "" {
		return fmt.Sprintf("skill '%s' does not declare %s: an execution installs nothing. Write the command line into SKILL.md, or the package into package.json. Then run: skillrun prepare %s",
			e.Skill, strings.Join(e.Packages, ", "), quote(e.Skill))
	}
	if e.Undeclared {
		return fmt.Sprintf("skill '%s' does not declare %s: an execution installs nothing. Write the command line into SKILL.md, or the package into python_packages there. Then run: skillrun prepare %s",
			e.Skill, strings.Join(e.Packages, ", "), quote(e.Skill))
	}
	if e.Node != "" {
		return fmt.Sprintf("skill '%s' needs Node packages that are not installed for %s: %s. Run: skillrun prepare %s",
			e.Skill, e.Node, strings.Join(e.Packages, ", "), quote(e.Skill))
	}
	return fmt.Sprintf("skill '%s' needs Python packages that are not installed for %s: %s. Run: skillrun prepare %s",
		e.Skill, e.Python, strings.Join(e.Packages, ", "), quote(e.Skill))
}

// Fix is the command that helps.
func (e *PackagesError) Fix() string { return "skillrun prepare " + quote(e.Skill) }

// SystemPackagesError: packages of the system that a skill needs are not there.
type SystemPackagesError struct {
	Skill    string
	Packages []string
	Image    string // that lacks them; empty: this machine
}

func (e *SystemPackagesError) Error() string {
	if e.Image != "" {
		return fmt.Sprintf("skill '%s' needs system packages that image %s lacks: %s. Put them into the image: %s",
			e.Skill, e.Image, strings.Join(e.Packages, ", "), e.Fix())
	}
	return fmt.Sprintf("skill '%s' needs system packages that are not installed: %s. On the daemon's machine run: %s",
		e.Skill, strings.Join(e.Packages, ", "), e.Fix())
}

// Fix is the command that helps.
func (e *SystemPackagesError) Fix() string {
	var names []string
	for _, p := range e.Packages {
		if name := runtime.SystemName(p); name != "" {
			names = append(names, name)
		}
	}
	return "apt-get install " + strings.Join(names, " ")
}

// InterpreterError: a script says that it needs another Python.
type InterpreterError struct {
	Skill, Script string
	Want          string // ">=3.12"
	Python        string // "system 3.11.2"
}

func (e *InterpreterError) Error() string {
	return fmt.Sprintf("%s of skill '%s' needs Python %s, but runs on %s: choose another Python in its SKILL.md (python: system or embedded)", e.Script, e.Skill, e.Want, e.Python)
}

// A RequirementError reports requirements of a skill that can't be read or can't be installed.
type RequirementError struct {
	Text   string
	File   string
	Line   int
	Reason string
}

func (e *RequirementError) Error() string {
	at := e.File
	if e.Line > 0 {
		at = fmt.Sprintf("%s:%d", e.File, e.Line)
	}
	if e.Text == "" {
		return at + ": " + e.Reason
	}
	return fmt.Sprintf("%s: requirement %.80q: %s", at, e.Text, e.Reason)
}

// ErrNoSource: the daemon has neither an index nor wheels.
var ErrNoSource = errors.New("no source of packages is configured: set environments.index or environments.wheels in the daemon's configuration")

// ErrNoRegistry: the daemon has neither a registry of Node packages nor their files.
var ErrNoRegistry = errors.New("no source of Node packages is configured: set environments.registry or environments.tarballs in the daemon's configuration")

// ErrNoNpm says that a build has no npm.
var ErrNoNpm = errors.New("the Node.js that runs scripts has no npm: install npm where the daemon runs (package npm), or in the image")

// ErrClosed: the store was closed during a build.
var ErrClosed = errors.New("the daemon stops; prepare again later")

// ErrNoPip says that a build has no pip.
var ErrNoPip = errors.New("pip is missing: it comes with the embedded Python (skillrun-python), which this daemon lacks or could not unpack; the daemon's log says which")

// IndexError: the index can't be reached, or gave no usable answer.
type IndexError = download.IndexError

// NoPackageError: the source has no such package, or none that can be installed.
type NoPackageError struct {
	Name, Source string
	// Wheel is the name of a wheel that the source has, for another Python or platform than Python.
	// Sdist is the name of a source distribution that it has, and may not be built. At most one is set.
	Wheel, Sdist string
	Python       string // "system 3.11.2"
}

func (e *NoPackageError) Error() string {
	switch {
	case e.Wheel != "":
		return fmt.Sprintf("package %s: %s: there are wheels, such as %s, but none for %s; add one, or choose another Python in SKILL.md (python: system or embedded)", e.Name, e.Source, e.Wheel, e.Python)
	case e.Sdist != "":
		return fmt.Sprintf("package %s: %s: there are only source distributions, such as %s, and environments.sdists is false; add a wheel, or set it to true", e.Name, e.Source, e.Sdist)
	}
	return fmt.Sprintf("package %s: not in %s; check its name, or add it there", e.Name, e.Source)
}

// BuildError: the build ran and did not succeed.
type BuildError struct {
	Skill  string
	Reason string
}

func (e *BuildError) Error() string {
	return fmt.Sprintf("environment of skill '%s': %s", e.Skill, e.Reason)
}

// A TooLargeError is an environment beyond a bound.
type TooLargeError struct {
	Skill string
	What  string // "bytes" on disk, "files", "packages", "bytes of names of packages", "bytes of paths"
	Limit int64
}

func (e *TooLargeError) Error() string {
	help := "declare fewer or smaller packages, or raise environments.bytes in the daemon's configuration"
	if e.What != "bytes" { // a bound of the daemon, without a key
		help = "declare fewer or smaller packages; this bound is fixed"
	}
	return fmt.Sprintf("environment of skill '%s': more than %d %s; %s", e.Skill, e.Limit, e.What, help)
}

// BusyError: too many builds at once.
type BusyError struct {
	Waiting, OfTenant int           // builds that wait, of all tenants and of the caller's
	RetryAfter        time.Duration // the estimate of the time until a build has ended
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("%d builds of environments run or wait, %d of them of this tenant; try again later", e.Waiting, e.OfTenant)
}

// quote makes a skill's name one word of a command line.
// Users paste the command of an error into a shell.
func quote(name string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./", r)
	}
	if name != "" && strings.TrimFunc(name, plain) == "" && name[0] != '-' {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}
