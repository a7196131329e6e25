package pyzygote_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// venvFiles are the files of a virtual environment of forkServerPython at top.
func venvFiles(t testing.TB, top string) map[string]string {
	t.Helper()
	python := forkServerPython()
	return map[string]string{
		top + "/pyvenv.cfg":  "home = " + filepath.Dir(python) + "\ninclude-system-site-packages = true\n",
		top + "/bin/python":  "->" + python,
		top + "/bin/python3": "->" + python,
	}
}

// A forked Python in a virtual environment has the prefix, the executable and the packages
// that a started one has by the path of its executable.
func TestForkServerEntersAVenv(t *testing.T) {
	skills := publicDir(t)
	site := "/lib/" + forkServerVersion(t) + "/site-packages/"
	for _, venv := range []string{"venv", "bare", "hides"} {
		makeTree(t, skills, venvFiles(t, venv))
	}
	makeTree(t, skills, map[string]string{
		"venv" + site + "mine.py": "WHO = 'venv'\n", "base" + site + "mine.py": "WHO = 'user'\n", "base" + site + "users.py": "",
		"venv" + site + "more.pth": "/skills/more\nimport sys; sys.marks = getattr(sys, 'marks', 0) + 1\n", "more/further.py": "",
		"hides" + site + "csv.py": "WHO = 'venv'\n",
		"main.py":                 "import sys, mine\nprint(sys.argv, sys.path[0], mine.WHO)\n",
	})
	m := startForkServer(t, forkServerPython(), "json", "csv", "sysconfig", "subprocess")
	ready, bare := newForkTarget(t, skills, forkServerAlso()...), newForkTarget(t, skills, forkServerAlso()...)
	const state = `import site, sys, sysconfig
print(sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, sys.executable, sys._base_executable, sys._home, sys.orig_argv)
print(sys.path, site.PREFIXES, site.getsitepackages(), site.USER_SITE, site.ENABLE_USER_SITE, getattr(sys, "marks", None))
print(sorted((k, v) for k, v in sysconfig.get_config_vars().items() if "/skills" in str(v)), sysconfig.get_paths())
`
	for _, c := range []struct{ name, venv, program, env, code, by, want string }{
		{"its state", "venv", "/skills/venv/bin/python3", "", state, "", "/skills/venv /skills/venv /usr /usr /skills/venv/bin/python3"},
		{"by its other name", "venv", "/skills/venv/bin/python", "", state, "", "/skills/venv/bin/python "},
		{"found on PATH", "venv", "python3", "PATH=/skills/venv/bin:/usr/bin:/bin", state, "", "/skills/venv/bin/python3 "},
		{"as the user's packages, too", "venv", "/skills/venv/bin/python3", "PYTHONUSERBASE=/skills/venv", state, "", "/skills/more"},
		{"with other packages of the user", "venv", "/skills/venv/bin/python3", "PYTHONUSERBASE=/skills/base", "import mine, users; print(mine.WHO, users.__file__)" + "\n" + state, "", "venv /skills/base"},
		{"by a .pth file", "venv", "/skills/venv/bin/python3", "", "import further; print(further.__file__)", "", "/skills/more/further.py"},
		{"without packages", "bare", "/skills/bare/bin/python3", "", state, "", "/skills/bare /skills/bare"},
		{"that hides a module", "hides", "/skills/hides/bin/python3", "", "import csv; print(csv.__file__)", "exec", "/csv.py"},
		{"a Python that it starts", "venv", "/skills/venv/bin/python3", "", "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'import mine, sys; print(mine.WHO, sys.prefix)'], capture_output=True, text=True))", "", "venv /skills/venv"},
		{"without its base", "venv", "/skills/venv/bin/python3", "BASE=other", "import mine; print(mine.WHO)", "exec", "venv"},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := m.cmd.Args[0]
			env := m.environment(c.env)
			if env["BASE"] != "" {
				base = env["BASE"]
			}
			command := forkServerCommand{Argv: []string{c.program, "-c", c.code, "x"}, Env: env, Venv: "/skills/" + c.venv, Base: base}
			if got := compare(t, m, ready, bare, command, "", c.by); !strings.Contains(got.stdout, c.want) || got.stderr != "" {
				t.Errorf("got %+v, want it to hold %q", got, c.want)
			}
		})
	}
	command := forkServerCommand{Argv: []string{"/skills/venv/bin/python3", "/skills/main.py", "x"}, Venv: "/skills/venv", Base: m.cmd.Args[0]}
	if got := compare(t, m, ready, bare, command, "", ""); got.stdout != "['/skills/main.py', 'x'] /skills venv\n" {
		t.Errorf("a script: got %+v", got)
	}
}
