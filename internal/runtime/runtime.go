// Package runtime knows which interpreters a sandbox sees and how each of them
// runs a script or a text. A sandbox sees /usr of its root file system read-only,
// so an interpreter is a program beneath usr/local/bin, usr/bin or usr/sbin there;
// or it is the embedded CPython, which is mounted into the sandboxes that run it.
// The root file system is this machine's or an image's, by language (image.go).
package runtime

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// A Runtime is an interpreter that a sandbox sees.
type Runtime struct {
	Language string // python, bash, sh, node, ruby or perl
	Path     string // inside the sandbox
	Version  string // as it says itself, "3.11.2"; empty if it doesn't
}

// An Invocation is how to run one script or text. The caller's own arguments
// follow Args; the interpreter takes none of them for its own.
type Invocation struct {
	Args     []string // interpreter, its options, script or text
	Env      []string // "NAME=value", needed beside the base environment
	Path     []string // directories that come first in PATH
	Mounts   []Mount  // what Args and Path name
	Language string
	// Image is the root file system that all of this is in.
	Image Image
	// Python is what python and python3 name there; zero if none is chosen.
	Python Runtime
}

// Config says where interpreters are looked for.
type Config struct {
	// Rootfs is the directory whose usr a sandbox sees. Empty: "/".
	Rootfs string
	// Image is looked through in place of Rootfs, if it is not zero. None of its
	// programs is run but by Ask; without that no version is known.
	Image Image
	Ask   Asker
	// Python is for skills that have no venv and don't say. Empty: Auto.
	Python Python
}

// Set is the interpreters that were found. It is immutable and safe for
// concurrent use. The zero Set has none.
type Set struct {
	list   []Runtime          // a language once, python first
	byName map[string]Runtime // of the system, by the name of the program: python3, python3.11, bash

	embedded    Runtime // zero: none
	embeddedDir string  // of the host
	standard    Python  // the configured one
	asked       Python  // by the caller of an execution
	image       Image
	lack        string          // why the embedded one is not there
	others      map[string]*Set // by language: they run elsewhere
}

// programs are the interpreters that are looked for, in the order of List, with
// their languages.
var programs = []struct{ name, language string }{
	{"python3", "python"}, {"bash", "bash"}, {"sh", "sh"}, {"node", "node"}, {"ruby", "ruby"}, {"perl", "perl"},
}

var pythonMinor = regexp.MustCompile(`^python3\.[0-9]{1,3}$`)

// Discover finds the interpreters and asks each for its version. One that is not
// there, or says nothing, is no error; a root file system without usr is.
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
	var asking sync.WaitGroup
	for _, one := range found {
		asking.Go(func() {
			switch {
			case !f.image:
				one.Version = f.version(ctx, one.target)
			case c.Ask != nil:
				one.Version = versionNumber.FindString(string(c.Ask(ctx, []string{one.Path, "--version"}, nil)))
			}
		})
	}
	asking.Wait()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("runtimes of %s: %w", f.root, err)
	}
	s := &Set{byName: map[string]Runtime{}, standard: c.Python, image: c.Image}
	seen := map[string]bool{}
	for _, one := range found {
		s.byName[one.name] = one.Runtime
		// Another name of the same program is not listed.
		if key := one.Language + " " + one.target; !seen[key] {
			seen[key] = true
			s.list = append(s.list, one.Runtime)
		}
	}
	return s, nil
}

// WithEmbedded returns the interpreters and the embedded CPython beside them. Those
// of other images are as they were.
func (s *Set) WithEmbedded(i *Installation) *Set {
	with := *s
	with.embedded = Runtime{Language: "python", Path: EmbeddedDir + "/bin/python3", Version: i.Version}
	with.embeddedDir = i.Dir
	with.list = append(slices.Clone(s.list), with.embedded)
	return &with
}

// List returns the runtimes, python first. A language has several if several
// versions of it are there, the default one first.
func (s *Set) List() []Runtime {
	list := slices.Clone(s.list)
	order := func(r Runtime) int {
		return slices.IndexFunc(programs, func(p struct{ name, language string }) bool { return p.language == r.Language })
	}
	slices.SortStableFunc(list, func(a, b Runtime) int { return order(a) - order(b) })
	return list
}

// UnknownExtensionError says that neither the extension nor the #! line of a
// script names an interpreter.
type UnknownExtensionError struct {
	Ext     string // ".xyz", or empty
	Program string // what its #! line names, if it has one
}

func (e *UnknownExtensionError) Error() string {
	text := "No interpreter mapping for extension: " + e.Ext
	if e.Program != "" {
		text += fmt.Sprintf(" (and none for %q of its #! line)", e.Program)
	}
	return text
}

// MissingError says that an interpreter is known and not there.
type MissingError struct {
	Interpreter string // "powershell"
	File        string // the script's name without directories
	Image       string // where it is not; empty: on this machine
	Reason      string // why not even the embedded one is; empty: nothing to say
}

func (e *MissingError) Error() string {
	text := fmt.Sprintf("Interpreter '%s' not found in PATH for %s", e.Interpreter, e.File)
	if e.Image == "" {
		return text
	}
	text += " in image " + e.Image
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	return text
}

// get returns the runtime of a program for a file.
func (s *Set) get(program, file string) (Runtime, error) {
	r, ok := s.byName[program]
	if !ok {
		return Runtime{}, s.missing(program, file)
	}
	return r, nil
}

// minor returns the first two numbers of a version: "3.11" of "3.11.2".
func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return ""
	}
	return parts[0] + "." + parts[1]
}
