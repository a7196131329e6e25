package environment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
)

// What makes a directory a virtual environment (PEP 405): a pyvenv.cfg, and links to the
// interpreter in bin. A Python that is started by one of the links finds its packages and its
// prefix by them.
const (
	venvConfig = "pyvenv.cfg"
	venvPrefix = ".venv-" // of a directory of the store
)

// maxVenvPrograms bounds a venv's programs. The rest is left out, and so are programs of more than
// skill.MaxVenvProgram bytes.
const maxVenvPrograms = 1000

// pythonNames are the names of the interpreter in a virtual environment.
func pythonNames(python runtime.Runtime) []string {
	return []string{"python", "python3", "python" + minorOf(python.Version)}
}

// writeVenv makes a directory a virtual environment of an interpreter. The directory has no
// pyvenv.cfg and no bin/python.
// The system's packages stay visible, as without an environment.
func writeVenv(dir string, python runtime.Runtime) error {
	config := fmt.Sprintf("home = %s\ninclude-system-site-packages = true\nversion = %s\n", path.Dir(python.Path), python.Version)
	bin := filepath.Join(dir, "bin")
	err := errors.Join(
		os.WriteFile(filepath.Join(dir, venvConfig), []byte(config), 0o644), os.Chmod(filepath.Join(dir, venvConfig), 0o644),
		os.MkdirAll(bin, 0o755), os.Chmod(bin, 0o755),
	)
	for _, name := range pythonNames(python) {
		err = errors.Join(err, os.Symlink(python.Path, filepath.Join(bin, name)))
	}
	return err
}

// pythonLine matches the begin of a program that is run by an interpreter at an absolute path:
// pip and venv write their own. A path that is too long for a #! line is executed by sh (distlib,
// scripts.py).
var pythonLine = lazyregexp.New(`\A#!(?:/\S*/python[0-9.]*((?:[ \t]+-\S+)*)[ \t]*|/bin/sh\n'''exec' "?/[^"\n]*/python[0-9.]*"? "\$0" "\$@"\n' ''')\r?\n`)

// maxPythonLine is more than pythonLine matches: a path, and the words around it.
const maxPythonLine = 4096 + 128

// withPython returns a program of bin whose first line names the interpreter of the virtual
// environment at target.
func withPython(program io.Reader, target string) (io.Reader, error) {
	start := make([]byte, maxPythonLine)
	n, err := io.ReadFull(program, start)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, err
	}
	start = start[:n]
	if m := pythonLine.FindSubmatchIndex(start); m != nil {
		options := ""
		if m[2] >= 0 {
			options = string(start[m[2]:m[3]])
		}
		start = append([]byte("#!"+target+"/bin/python3"+options+"\n"), start[m[1]:]...)
	}
	return io.MultiReader(bytes.NewReader(start), program), nil
}

// addVenv adds the virtual environment that a skill ships to a lease. Its packages come before
// the packages of a prepared environment, which are then the user's.
func (s *Store) addVenv(l *Lease, u Use) error {
	dir, err := s.venvOf(l, u)
	if err != nil {
		return err
	}
	if l.Venv == "" {
		l.Env = []string{"PYTHONUSERBASE=" + VenvTarget}
	} else {
		l.Env = []string{"PYTHONUSERBASE=" + l.Venv}
	}
	l.Env = append(l.Env, "VIRTUAL_ENV="+VenvTarget)
	l.Path = append([]string{VenvTarget + "/bin"}, l.Path...)
	l.Mounts = append(l.Mounts, runtime.Mount{Source: dir, Target: VenvTarget})
	l.Venv, l.Pythons = VenvTarget, pythonNames(u.Python)
	return nil
}

// A skillVenv is a directory that is a virtual environment with the packages of a skill's own venv. An execution can't
// use the venv of the snapshot: its interpreter is a link out of the skill, and its programs name the interpreter of
// the author's machine.
// The directory has links to the snapshot's directories and copies of its programs. It stays until the skill is gone
// (Forget), and at the longest until the next start.
type skillVenv struct {
	making sync.Mutex
	// Only the holder of making and of a lease writes dir. Store.mu guards leases and gone.
	derived
}

// venvOf returns the directory of a skill's venv, and makes it if this is the first use. The lease keeps it.
func (s *Store) venvOf(l *Lease, u Use) (string, error) {
	key := fmt.Sprintf("%q %q %q %q", u.Skill.Dir, u.Skill.BaseDir(), u.Python.Path, u.Python.Version)
	s.mu.Lock()
	v := s.venvs[key]
	if v == nil {
		v = &skillVenv{derived: derived{of: u.Skill.Dir}}
		s.venvs[key] = v
	}
	v.leases++
	s.mu.Unlock()
	l.also(func() { s.releaseVenv(v) })
	v.making.Lock()
	defer v.making.Unlock()
	if v.dir != "" {
		return v.dir, nil
	}
	// The name is new each time: a sandbox that waits may have an earlier directory mounted.
	dir, err := os.MkdirTemp(s.config.Dir, s.prefix(venvPrefix))
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), writeVenv(dir, u.Python), linkVenv(dir, u.Skill))
	}
	if err != nil {
		if dir != "" {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		return "", fmt.Errorf("venv of skill %s: %w", u.Skill.Name, err)
	}
	v.dir = dir
	return dir, nil
}

func (s *Store) releaseVenv(v *skillVenv) {
	s.mu.Lock()
	defer s.unlock()
	if v.leases--; v.leases == 0 && v.gone && v.dir != "" {
		s.trash = append(s.trash, v.dir)
	}
}

// linkVenv adds the directories and the programs of a skill's venv to a new directory. Their bytes count in the quota of
// the tenant that has pushed the skill, see skill.Version.
func linkVenv(dir string, sk *skill.Skill) error {
	programs := 0
	for e := range sk.Entries() {
		name, ok := strings.CutPrefix(e.Path, "venv/")
		top, rest, inside := strings.Cut(name, "/")
		switch {
		case !ok || name == venvConfig:
		case !inside && top != "bin":
			if err := os.Symlink(sk.BaseDir()+"/venv/"+top, filepath.Join(dir, top)); err != nil {
				return err
			}
		case inside && top == "bin" && e.SHA256 != "" && !strings.Contains(rest, "/") && !pythonProgram.MatchString(name):
			if programs++; programs > maxVenvPrograms || e.Size > skill.MaxVenvProgram {
				continue
			}
			if err := copyProgram(filepath.Join(dir, name), sk, e.Path, e.Executable); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyProgram copies a program of a skill's venv.
func copyProgram(to string, sk *skill.Skill, name string, executable bool) error {
	f, _, err := sk.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	from, err := withPython(f, VenvTarget)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(from, skill.MaxVenvProgram+maxPythonLine))
	if err != nil {
		return err
	}
	mode := os.FileMode(0o644)
	if executable {
		mode = 0o755
	}
	return errors.Join(os.WriteFile(to, text, mode), os.Chmod(to, mode))
}
