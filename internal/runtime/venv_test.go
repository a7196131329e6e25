package runtime

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/skill/skilltest"
)

func TestVenv(t *testing.T) {
	files := allLanguages()
	files["usr/bin/python3.12"] = says("Python 3.12.1")
	s := fakeSet(t, files)
	env := []string{"PYTHONUSERBASE=/skills/demo/venv", "VIRTUAL_ENV=/skills/demo/venv"}
	for _, c := range []struct {
		what   string
		venv   map[string]string
		python string
		env    []string
		reason string // of the expected VenvError; empty: no error
	}{
		{"none", nil, "/usr/bin/python3", nil, ""},
		{"as venv makes it", map[string]string{
			"venv/pyvenv.cfg": "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.2\n",
			"venv/bin/python": "-> python3", "venv/bin/python3": "-> /usr/bin/python3",
		}, "/usr/bin/python3.11", env, ""},
		{"another minor version", map[string]string{"venv/pyvenv.cfg": "version = 3.12.7\n", "venv/bin/python": "-> /usr/bin/python3.12"}, "/usr/bin/python3.12", env, ""},
		{"as virtualenv makes it", map[string]string{"venv/pyvenv.cfg": "home = /x\nversion_info = 3.11.9.final.0\n", "venv/bin/python": "-> /home/me/.pyenv/bin/python3.11"}, "/usr/bin/python3.11", env, ""},
		{"a copied interpreter", map[string]string{"venv/pyvenv.cfg": "Version=3.11.2", "venv/bin/python": "ELF"}, "/usr/bin/python3.11", env, ""},
		{"only python3", map[string]string{"venv/pyvenv.cfg": "version = 3.11\r\n", "venv/bin/python3": "-> /usr/bin/python3"}, "/usr/bin/python3.11", env, ""},
		{"a version that is not installed", map[string]string{"venv/pyvenv.cfg": "version = 3.9.1\n", "venv/bin/python": "-> /usr/bin/python3.9"}, "", nil, "3.9, and only 3.11, 3.12"},
		{"no configuration", map[string]string{"venv/bin/python": "-> /usr/bin/python3"}, "", nil, "pyvenv.cfg"},
		{"no version", map[string]string{"venv/pyvenv.cfg": "home = /usr/bin\nversion\nversion = three\n", "venv/bin/python": "-> /usr/bin/python3"}, "", nil, "no version"},
		{"no interpreter", map[string]string{"venv/pyvenv.cfg": "version = 3.11.2\n"}, "", nil, "bin/python"},
		{"a hostile version", map[string]string{"venv/pyvenv.cfg": "version = ../../x.y\n", "venv/bin/python": "-> /usr/bin/python3"}, "", nil, "made with Python"},
		{"a folder that is not a venv", map[string]string{"venv/readme.txt": "x"}, "/usr/bin/python3", nil, ""},
		{"a file that is not a venv", map[string]string{"venv": "x"}, "/usr/bin/python3", nil, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			all := map[string]string{"a.py": "x", "b.sh": "x", "c": "#!/usr/bin/env python\n"}
			for name, text := range c.venv {
				all[name] = text
			}
			sk := skilltest.Load(t, all)
			for _, run := range []func() (Invocation, error){
				func() (Invocation, error) { return s.ForScript(sk, "a.py") },
				func() (Invocation, error) { return s.ForScript(sk, "c") },
				func() (Invocation, error) { return s.ForCode(sk, "", "1") },
			} {
				got, err := run()
				if c.reason != "" {
					var refused *VenvError
					if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.reason) || !strings.HasPrefix(err.Error(), "Python interpreter not found in venv for skill 'demo'") {
						t.Errorf("%v, want a venv error with %q", err, c.reason)
					}
					continue
				}
				if err != nil || got.Args[0] != c.python || !slices.Equal(got.Env, c.env) {
					t.Errorf("%+v, %v; want %s with %v", got, err, c.python, c.env)
				}
			}
			// Programs other than Python run whatever the venv is, and with its environment
			// if it can be used.
			for _, run := range []func() (Invocation, error){
				func() (Invocation, error) { return s.ForScript(sk, "b.sh") },
				func() (Invocation, error) { return s.ForCommand(sk, []string{"ls", "bash"}) },
			} {
				if got, err := run(); err != nil || !slices.Equal(got.Env, c.env) {
					t.Errorf("bash: %+v, %v; want the environment %v", got, err, c.env)
				}
			}
		})
	}
}

// Packages of a real venv are imported as if it were activated: .pth files are read, and
// the standard library comes first.
func TestVenvPackagesAreImported(t *testing.T) {
	s, err := Discover(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	python, err := s.get("python3", "x")
	if err != nil {
		t.Skip("no python3 on this machine")
	}
	skillDir := t.TempDir()
	make := exec.CommandContext(t.Context(), python.Path, "-m", "venv", "--without-pip", filepath.Join(skillDir, "venv"))
	make.Env = []string{}
	if out, err := make.CombinedOutput(); err != nil {
		t.Skipf("python3 -m venv: %v: %s", err, out)
	}
	site := filepath.Join("venv/lib/python"+minor(python.Version), "site-packages")
	write(t, skillDir, map[string]string{
		site + "/mypackage/__init__.py": "WHO = 'venv'\n", site + "/json.py": "raise SystemExit('shadows the standard library')\n",
		site + "/extra.pth": filepath.Join(skillDir, "more") + "\n", "more/other.py": "WHO = 'pth'\n",
	})
	config, err := os.ReadFile(filepath.Join(skillDir, "venv/pyvenv.cfg"))
	if err != nil {
		t.Fatal(err)
	}
	sk := skilltest.Load(t, map[string]string{"venv/pyvenv.cfg": string(config), "venv/bin/python": "-> /usr/bin/python3"})
	inv, err := s.ForCode(sk, "python", "import json, mypackage, other, subprocess, sys; "+
		"print(mypackage.WHO, other.WHO, subprocess.run([sys.executable, '-c', 'import mypackage; print(mypackage.WHO)'], capture_output=True, text=True).stdout, end='')")
	if err != nil {
		t.Fatal(err)
	}
	// Outside a sandbox the skill has another path.
	for i, v := range inv.Env {
		inv.Env[i] = strings.ReplaceAll(v, "/skills/demo", skillDir)
	}
	if got, want := output(t, inv.Args, inv.Env), "venv pth venv\n"; got != want {
		t.Errorf("got %q, want %q (%s)", got, want, fmt.Sprint(inv))
	}
}
