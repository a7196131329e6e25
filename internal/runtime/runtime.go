// Package runtime finds the interpreters that a sandbox sees and decides how each of them
// runs a script, code or a command line. Start with [Discover], which returns a [Set], and
// [Set.ForScript], which returns an [Invocation].
//
// A sandbox sees /usr of its root file system read-only. An interpreter is therefore a
// program in usr/local/bin, usr/bin or usr/sbin of that file system, or the embedded
// CPython, which is mounted only into sandboxes that run it. The root file system is this
// machine's or an image's; each language can have a different one (image.go).
//
// cmd/skillrund calls Discover for this machine and for each image, Install for the embedded
// CPython, and joins the results with WithEmbedded and Route. A Set never changes afterwards,
// so executions share it without a lock. For one execution the executor calls With (the
// caller's choice of a Python), then ForScript, ForCode or ForCommand.
//
// Programs of this machine are run directly for their version. A program of an image is
// untrusted and runs in a sandbox only (Asker).
package runtime

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// A Runtime is an interpreter that a sandbox sees.
type Runtime struct {
	Language string // python, bash, sh, node, ruby or perl
	Path     string // inside the sandbox
	Version  string // the program's own answer, "3.11.2"; empty: it gave none, or only List asks for it
}

// An Invocation is how to run one script or text. The caller appends the program's
// arguments to Args; the interpreter does not parse them as its own options.
type Invocation struct {
	Args     []string // interpreter, its options, script or text
	Env      []string // "NAME=value", in addition to the base environment
	Path     []string // directories to put first in PATH
	Mounts   []Mount  // the directories that Args and Path need
	Language string
	// Image is the root file system that holds all of these.
	Image Image
	// Python is the interpreter that python and python3 run. Zero: none is chosen.
	Python Runtime
	// Venv says that the packages of the skill's venv belong to Python.
	Venv bool
}

// Config says where Discover looks for interpreters.
// cmd/skillrund and internal/lint make one; the command line has neither Image nor Ask.
type Config struct {
	// Rootfs is the directory whose usr a sandbox sees. Empty: "/".
	Rootfs string
	// Image replaces Rootfs if it is not zero. Only Ask runs programs of an image;
	// without Ask no version is known.
	Image Image
	Ask   Asker
	// Python is the default for skills that have no venv and name no Python. Empty:
	// Auto.
	Python Python
}

// Set is the result of Discover. It is immutable and safe for concurrent use. The
// zero Set is empty.
type Set struct {
	list   []Runtime          // one for each language, python first
	byName map[string]Runtime // the system's, by program name: python3, python3.11, bash
	// ask has, by Path, functions that return versions. Discover does not call them: no execution needs these versions, and
	// the programs would take a tenth of a daemon's start.
	ask map[string]func() string

	embedded    Runtime // zero: none
	embeddedDir string  // of the host; empty without an embedded CPython
	standard    Python  // the configured one
	asked       Python  // the choice of the execution's caller
	image       Image
	lack        string          // why the embedded CPython is missing
	others      map[string]*Set // by language; see Route
}

// programs lists the interpreters that Discover looks for, with their languages, in
// the order of List.
var programs = []struct{ name, language string }{
	{"python3", "python"}, {"bash", "bash"}, {"sh", "sh"}, {"node", "node"}, {"ruby", "ruby"}, {"perl", "perl"},
}

var pythonMinor = lazyregexp.New(`^python3\.[0-9]{1,3}$`)

// Discover finds the interpreters. It asks Python and Node.js for their versions, and each interpreter of an image; List
// asks the others. A missing interpreter, or one that prints no version, is not an error. A root file system without
// usr is.
func Discover(ctx context.Context, c Config) (*Set, error) {
	f := finder{root: c.Rootfs}
	if f.root == "" {
		f.root = "/"
	}
	if c.Image != (Image{}) {
		f = finder{root: c.Image.Dir, image: true}
	}
	if fi, err := os.Stat(filepath.Join(f.root, "usr")); !f.image && (err != nil || !fi.IsDir()) {
		return nil, fmt.Errorf("runtimes of %s: no directory usr", f.root)
	}
	type candidate struct {
		name, target string
		Runtime
	}
	var found []*candidate
	add := func(name, language string) {
		if program, target, ok := f.find(name); ok {
			found = append(found, &candidate{name, target, Runtime{Language: language, Path: program}})
		}
	}
	for _, p := range programs {
		add(p.name, p.language)
	}
	for _, name := range f.names(pythonMinor) {
		add(name, "python")
	}
	s := &Set{byName: map[string]Runtime{}, ask: map[string]func() string{}, standard: c.Python, image: c.Image}
	asks := map[string]func() string{} // by target: python3 and python3.11 are usually one program
	ask := func(ctx context.Context, target string) func() string {
		if asks[target] == nil {
			asks[target] = sync.OnceValue(func() string { return f.version(ctx, target) })
		}
		return asks[target]
	}
	// In parallel: each program takes some milliseconds to start, and in an image it needs a
	// sandbox.
	var asking sync.WaitGroup
	for _, one := range found {
		switch {
		case f.image && c.Ask != nil:
			asking.Go(func() {
				one.Version = versionNumber.FindString(string(c.Ask(ctx, []string{one.Path, "--version"}, nil)))
			})
		case f.image:
		case one.Language == "python" || one.Language == "node":
			version := ask(ctx, one.target)
			asking.Go(func() { one.Version = version() })
		default:
			s.ask[one.Path] = ask(context.WithoutCancel(ctx), one.target)
		}
	}
	asking.Wait()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("runtimes of %s: %w", f.root, err)
	}
	seen := map[string]bool{}
	for _, one := range found {
		s.byName[one.name] = one.Runtime
		// List each program once, whatever its other names are.
		if key := one.Language + " " + one.target; !seen[key] {
			seen[key] = true
			s.list = append(s.list, one.Runtime)
		}
	}
	return s, nil
}

// WithEmbedded returns a copy of s that also has the embedded CPython. The sets that
// Route added do not change.
func (s *Set) WithEmbedded(i *Installation) *Set {
	with := *s
	with.embedded = Runtime{Language: "python", Path: EmbeddedDir + "/bin/python3", Version: i.Version}
	with.embeddedDir = i.Dir
	with.list = append(slices.Clone(s.list), with.embedded)
	return &with
}

// List returns the runtimes, python first. A language has several if several
// versions of it are there, the default one first.
// The order is for people and for linters; the choice of an interpreter doesn't use it.
// The first call runs the interpreters for their versions.
func (s *Set) List() []Runtime {
	list := slices.Clone(s.list)
	var asking sync.WaitGroup
	for i, r := range list {
		if ask := s.ask[r.Path]; ask != nil {
			asking.Go(func() { list[i].Version = ask() })
		}
	}
	asking.Wait()
	order := func(r Runtime) int {
		return slices.IndexFunc(programs, func(p struct{ name, language string }) bool { return p.language == r.Language })
	}
	slices.SortStableFunc(list, func(a, b Runtime) int { return order(a) - order(b) })
	return list
}

// UnknownExtensionError reports that neither the extension nor the #! line of a
// script names an interpreter.
// The texts of this error and of MissingError are part of the published tool contracts
// (docs/contracts.md).
type UnknownExtensionError struct {
	Ext     string // ".xyz", or empty
	Program string // from its #! line; empty: no #! line
}

func (e *UnknownExtensionError) Error() string {
	text := "No interpreter mapping for extension: " + e.Ext
	if e.Program != "" {
		text += fmt.Sprintf(" (and none for %q of its #! line)", e.Program)
	}
	return text
}

// MissingError reports that an interpreter is known but not installed.
type MissingError struct {
	Interpreter string // "powershell"
	File        string // the script's name without directories
	Image       string // the image that lacks it; empty: this machine
	Reason      string // why another interpreter does not help; empty: no such interpreter, or not known
}

func (e *MissingError) Error() string {
	text := fmt.Sprintf("Interpreter '%s' not found in PATH for %s", e.Interpreter, e.File)
	if e.Image != "" {
		text += " in image " + e.Image
	}
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	return text
}

// get returns the runtime whose program runs a file.
func (s *Set) get(program, file string) (Runtime, error) {
	r, ok := s.byName[program]
	if !ok {
		return Runtime{}, s.missing(program, file)
	}
	return r, nil
}

// minor returns the first two numbers of a version: minor("3.11.2") is "3.11".
// It returns "" if the version has no second number.
func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return ""
	}
	return parts[0] + "." + parts[1]
}
