package sandbox

import (
	"errors"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/preflight"
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
}

// PythonModules returns the modules that Python.Imports may name.
func PythonModules() []string { return pyzygote.Modules() }

// pythonKey returns the key of the Python zygote that can fork s's program. The zero key
// means that the program must be executed.
func (s Spec) pythonKey() pyzygote.Key {
	if s.Root != "" || s.Python == nil || len(s.Program) != 1 || len(s.Program[0].Pipeline) != 1 {
		return pyzygote.Key{}
	}
	c := s.Program[0].Pipeline[0]
	env := slices.Sorted(slices.Values(environ(s.Env, c.Env)))
	// The child's command line is JSON, which can hold only valid UTF-8.
	valid := !slices.ContainsFunc(slices.Concat(c.Args, env), func(s string) bool { return !utf8.ValidString(s) })
	if !valid || len(c.Globs)+len(c.Redirects) > 0 {
		return pyzygote.Key{}
	}
	// No key has a program of an execution's mounts.
	return pyzygote.NewKey(c.Args[0], env, s.Python.Imports)
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
	return pyzygote.Command{Args: c.Args, Env: env, Dir: s.Dir, Elsewhere: s.Python.Elsewhere, Lines: s.Python.Lines}
}

// forkFrom has a Python zygote fork the first process of c. It returns when the process waits
// for its command line.
func (c *sandbox) forkFrom(in *pyzygote.Zygote, procsFiles []*os.File) (*pyzygote.Child, error) {
	var limits [][3]uint64
	for _, l := range rlimits(c.spec) {
		if l.Type == unix.RLIMIT_NOFILE { // without the descriptors that only init needs
			l.Hard = uint64(c.spec.Limits.OpenFiles)
		}
		limits = append(limits, [3]uint64{uint64(l.Type), l.Hard, l.Hard})
	}
	spaces, kinds, err := openSpaces(c.init.pid)
	if err != nil {
		return nil, err
	}
	defer closeFiles(spaces)
	if c.init.ended() { // then another process may have its pid, and spaces are that process's
		return nil, errors.New("init is gone")
	}
	return in.Fork(pyzygote.Place{Streams: c.pipes.inside, Namespaces: spaces, Kinds: kinds, Procs: procsFiles, Rlimits: limits})
}

// A space is a namespace that a child of a Python zygote enters.
type space struct {
	name string
	kind int
}

// enteredSpaces returns the namespaces that a child enters, in this order: it enters the PID
// namespace by the fork, and the user namespace gives it the right to enter the others.
func enteredSpaces() []space {
	spaces := []space{
		{"pid", unix.CLONE_NEWPID}, {"user", unix.CLONE_NEWUSER}, {"mnt", unix.CLONE_NEWNS}, {"net", unix.CLONE_NEWNET},
		{"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"cgroup", unix.CLONE_NEWCGROUP},
	}
	if preflight.TimeNamespaces() {
		spaces = append(spaces, space{"time", unix.CLONE_NEWTIME})
	}
	return spaces
}

// openSpaces opens the namespaces of init for a child. A Python zygote may not open them:
// the permission that it would need also lets it read init's memory (namespaces(7)).
func openSpaces(pid int) (files []*os.File, kinds []int, err error) {
	for _, s := range enteredSpaces() {
		f, err := openNamespace(pid, s.name)
		if err != nil {
			closeFiles(files)
			return nil, nil, err
		}
		files, kinds = append(files, f), append(kinds, s.kind)
	}
	return files, kinds, nil
}
