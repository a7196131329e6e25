package runtime

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/skillrun/skillrun/internal/skill"
)

// Paths in a virtual environment, relative to the skill.
const (
	venvDir    = "venv"
	venvConfig = "venv/pyvenv.cfg"
)

// maxVenvConfig bounds the size of a pyvenv.cfg that is read, in bytes.
const maxVenvConfig = 64 << 10

// VenvError reports that a skill's virtual environment can't be used.
type VenvError struct {
	Skill  string
	Reason string
}

func (e *VenvError) Error() string {
	return fmt.Sprintf("Python interpreter not found in venv for skill '%s': %s", e.Skill, e.Reason)
}

// inSkill returns the invocation of a program without its arguments. A Python gets
// the packages of the skill's venv, if the skill has one.
// A program that is no Python still gets the venv's variables and PATH, because it may start
// Python. A missing Python is then not an error.
func (s *Set) inSkill(sk *skill.Skill, program, file string) (Invocation, error) {
	s = s.of(program)
	var inv Invocation
	r, err := s.get(program, file)
	if strings.HasPrefix(program, "python") {
		var venv bool
		if r, venv, err = s.choose(sk, program, file); err == nil {
			inv = s.invocation(sk, r, venv)
		}
	} else if err == nil {
		inv, err = s.around(sk, false, file)
	}
	if err != nil {
		return Invocation{}, err
	}
	inv.Args, inv.Language = []string{r.Path}, r.Language
	return inv, nil
}

// HasVenv reports whether a skill ships a venv with an interpreter. That interpreter
// is usually a link out of the skill and so a refused entry: it exists, but can't be
// used.
// It asks the list of entries and opens nothing.
func HasVenv(sk *skill.Skill) bool {
	if _, err := sk.Lookup(venvDir); err == nil {
		return false // venv is a file
	}
	return sk.Has(venvDir+"/bin/python") || sk.Has(venvDir+"/bin/python3") || sk.Has(venvConfig)
}

// venvEnv makes the packages of the virtual environment importable for any Python that the
// execution starts, whatever path it is started by.
//
// A venv has the same layout as a user's own packages under PYTHONUSERBASE
// (lib/pythonX.Y/site-packages). So PYTHONUSERBASE is set to the venv, which gives the same
// imports: after the standard library and before the system's packages, with .pth files.
// PYTHONPATH would come before the standard library and read no .pth files. The interpreter
// of a venv finds its packages by the path it was started from, and the snapshot has no such
// interpreter. Package environment gives the execution one, and replaces these variables.
func venvEnv(sk *skill.Skill) []string {
	dir := sk.BaseDir() + "/" + venvDir
	return []string{"PYTHONUSERBASE=" + dir, "VIRTUAL_ENV=" + dir}
}

// venvVersion returns the Python version that the venv was made with.
// The version decides which Python runs: compiled modules of one minor version don't load in
// another one.
func venvVersion(sk *skill.Skill) (string, error) {
	if !sk.Has(venvDir+"/bin/python") && !sk.Has(venvDir+"/bin/python3") {
		return "", errors.New("it has no bin/python")
	}
	f, _, err := sk.Open(venvConfig)
	if err != nil {
		return "", fmt.Errorf("its pyvenv.cfg can't be read: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxVenvConfig))
	if err != nil {
		return "", fmt.Errorf("its pyvenv.cfg can't be read: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, "=")
		// venv writes the key version, virtualenv writes version_info.
		if key = strings.ToLower(strings.TrimSpace(key)); key == "version" || key == "version_info" {
			if m := minor(strings.TrimSpace(value)); m != "" {
				return m, nil
			}
		}
	}
	return "", errors.New("its pyvenv.cfg names no version")
}
