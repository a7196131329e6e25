package runtime

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/skillrun/skillrun/internal/skill"
)

// Where a virtual environment has its parts, relative to the skill.
const (
	venvDir    = "venv"
	venvConfig = "venv/pyvenv.cfg"
)

// maxVenvConfig bounds what is read of a pyvenv.cfg, in bytes.
const maxVenvConfig = 64 << 10

// VenvError says that the virtual environment of a skill can't be used.
type VenvError struct {
	Skill  string
	Reason string
}

func (e *VenvError) Error() string {
	return fmt.Sprintf("Python interpreter not found in venv for skill '%s': %s", e.Skill, e.Reason)
}

// inSkill says what runs a program for a skill, before its arguments: for python,
// with the skill's own virtual environment if it has one.
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

// HasVenv reports whether a skill brings along a venv with an interpreter in it. That
// is a link out of the skill, as a rule, so it is a refused entry: there, not usable.
func HasVenv(sk *skill.Skill) bool {
	if _, err := sk.Lookup(venvDir); err == nil {
		return false // a file of that name
	}
	return sk.Has(venvDir+"/bin/python") || sk.Has(venvDir+"/bin/python3") || sk.Has(venvConfig)
}

// venvEnv makes the packages of the virtual environment importable.
//
// The interpreter of a venv finds its packages by the path that it is started
// by, and that path is not there in a sandbox. A venv's packages lie where a
// user's own packages lie beneath PYTHONUSERBASE (lib/pythonX.Y/site-packages),
// so naming the venv as that gives the same imports: behind the standard library
// and before the system's packages, with .pth files read, in the script and in
// every python that it starts. (PYTHONPATH would come before the standard library
// and read no .pth files.) What differs from an activated venv: the system's
// packages can be imported too, and sys.prefix is the system's.
func venvEnv(sk *skill.Skill) []string {
	dir := sk.BaseDir() + "/" + venvDir
	return []string{"PYTHONUSERBASE=" + dir, "VIRTUAL_ENV=" + dir}
}

// venvVersion reads the version of python that a venv was made with.
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
		// venv writes version, virtualenv writes version_info.
		if key = strings.ToLower(strings.TrimSpace(key)); key == "version" || key == "version_info" {
			if m := minor(strings.TrimSpace(value)); m != "" {
				return m, nil
			}
		}
	}
	return "", errors.New("its pyvenv.cfg names no version")
}
