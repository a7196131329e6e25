package sandbox

import (
	"errors"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/pyzygote"
)

// A Python marks a Program that is one command that starts a Python interpreter. A Host with
// Python zygotes forks the program from a Python zygote that has already imported modules.
type Python struct {
	// Imports are modules of the Python installation that the script will import. If one
	// is not in PythonModules, the program is executed instead of forked. The Python
	// zygote skips modules that it can't import.
	Imports []string
	// Elsewhere reports that the program may search for modules in further directories of
	// the workspace. If one of these has a module with the name of a preimported one, the
	// program is executed instead of forked.
	Elsewhere bool
	// Lines has a forked program's standard output and error pass on whole lines where
	// PYTHONUNBUFFERED=1 passes on each write. Printing then takes half as many system calls. An
	// executed program knows no such setting and does what its environment says.
	Lines bool
	// Venv is the virtual environment in which Args[0] is found, as bin/NAME, and Base is the
	// interpreter to which that link leads. A forked program gets the prefix and the
	// packages that site would give it by its executable's path. "" means none.
	Venv, Base string
}

// PythonModules returns the modules that Python.Imports may name.
func PythonModules() []string { return pyzygote.Modules() }

// pythonKey returns the key of the Python zygote that can fork s's program. The zero key
// means that the program must be executed.
func (s Spec) pythonKey() pythonKey {
	if s.Root != "" || s.Python == nil || len(s.Program) != 1 || len(s.Program[0].Pipeline) != 1 {
		return pythonKey{}
	}
	c := s.Program[0].Pipeline[0]
	env := slices.Sorted(slices.Values(environ(s.Env, c.Env)))
	// The child's command line is JSON, which can hold only valid UTF-8.
	valid := !slices.ContainsFunc(slices.Concat(c.Args, env), func(s string) bool { return !utf8.ValidString(s) })
	if !valid || len(c.Globs)+len(c.Redirects) > 0 {
		return pythonKey{}
	}
	// No key has a program of an execution's mounts. A virtual environment is one; its
	// interpreter isn't.
	name := c.Args[0]
	if s.Python.Venv != "" {
		name = s.Python.Base
	}
	return pythonKey{s.Group, pyzygote.NewKey(name, env, s.Python.Imports)}
}

// pythonCommand returns the command line of s's program, for the child that a Python zygote
// forked.
func (s Spec) pythonCommand() pyzygote.Command {
	c := s.Program[0].Pipeline[0]
	env := map[string]string{}
	for _, e := range environ(s.Env, c.Env) {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	return pyzygote.Command{
		Args: c.Args, Env: env, Dir: s.Dir, Elsewhere: s.Python.Elsewhere, Lines: s.Python.Lines,
		Venv: s.Python.Venv, Base: s.Python.Base,
	}
}

// forkFrom has a Python zygote fork the first process of c. It returns when the process waits
// for its command line.
func (c *sandbox) forkFrom(python *pyzygote.Zygote, procsFiles []*os.File) (*pyzygote.Child, error) {
	var limits [][3]uint64
	for _, l := range rlimits(c.spec) {
		if l.Type == unix.RLIMIT_NOFILE { // without the descriptors that only init needs
			l.Hard = uint64(c.spec.Limits.OpenFiles)
		}
		limits = append(limits, [3]uint64{uint64(l.Type), l.Hard, l.Hard})
	}
	spaces, kinds, err := pyzygote.OpenNamespaces(c.init.pid)
	if err != nil {
		return nil, err
	}
	defer closeFiles(spaces)
	if c.init.ended() { // then another process may have its pid, and spaces are that process's
		return nil, errors.New("init is gone")
	}
	return python.Fork(pyzygote.Place{Streams: c.pipes.inside, Namespaces: spaces, Kinds: kinds, Procs: procsFiles, Rlimits: limits})
}
