package environment

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// place prints where a Python says that it lives.
const place = "import sys; print(sys.prefix, sys.executable, sys.base_prefix != sys.prefix)"

// A prepared environment is a virtual environment: each Python that PATH leads to, and each
// program of a package, has its prefix and its executable.
func TestEnvironmentIsAVenv(t *testing.T) {
	t.Parallel()
	tool := pkg{name: "sktool", version: "1.0", entryPoint: "sktool = sktool:main", files: map[string]string{
		"sktool.py":                             "def main():\n    " + place + "\n",
		"sktool-1.0.data/scripts/skold":         "#!python\n" + place + "\n",
		"sktool-1.0.data/data/pyvenv.cfg":       "home = /workspace\n",
		"sktool-1.0.data/data/bin/python3":      "#!/bin/sh\necho the package's\n",
		"sktool-1.0.data/data/bin/sk-unchanged": "#!/usr/bin/env -S python3 -s\n" + place + "\n",
	}}
	s := newStore(t, newIndex(t, tool).from)
	for _, kind := range []runtime.Python{runtime.System, runtime.Embedded} {
		t.Run(string(kind), func(t *testing.T) {
			sk := newSkill(t, "python_packages: [sktool]\n", nil)
			inv := python(t, sk, kind)
			mustPrepare(t, s, "acme", sk, kind)
			l, err := s.Acquire(useOf("acme", sk, inv))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Release()
			name := "python" + minorOf(inv.Python.Version)
			for _, c := range []struct {
				args []string
				want string
			}{
				{[]string{"python3", "-c", place}, "/opt/env /opt/env/bin/python3 True\n"},
				{[]string{"python", "-c", place}, "/opt/env /opt/env/bin/python True\n"},
				{[]string{name, "-c", place}, "/opt/env /opt/env/bin/" + name + " True\n"},
				{[]string{"sktool"}, "/opt/env /opt/env/bin/python3 True\n"},
				{[]string{"sh", "-c", "head -n 1 /opt/env/bin/skold; python3 -c '" + place + "'"}, "#!/opt/env/bin/python3\n/opt/env /opt/env/bin/python3 True\n"},
				{[]string{inv.Python.Path, "-c", "import sktool; print(sktool.__file__)"}, "/opt/env/lib/" + name + "/site-packages/sktool.py\n"},
				{[]string{"head", "-n", "1", "/opt/env/bin/sk-unchanged"}, "#!/usr/bin/env -S python3 -s\n"},
				{[]string{"sh", "-c", "grep -h bin/skt /opt/env/lib/python*/site-packages/*.dist-info/RECORD"}, "../../../bin/sktool,,\n"},
			} {
				if out, exit := run(t, sk, inv, l, c.args...); out != c.want || exit.Code != 0 {
					t.Errorf("%q: got %q, %+v; want %q", c.args, out, exit, c.want)
				}
			}
		})
	}
}

// The virtual environment of a skill works although its interpreter and its programs name
// paths of the author's machine. The packages of an environment come after it.
func TestVenvOfASkill(t *testing.T) {
	t.Parallel()
	s := newStore(t, newIndex(t, base).from)
	version := minorOf(python(t, newSkill(t, "", nil), runtime.System).Python.Version)
	files := map[string]string{
		"venv/bin/python3": "-> /home/me/.pyenv/bin/python3", "venv/pyvenv.cfg": "home = /home/me/.pyenv/bin\nversion = " + version + ".0\n",
		"venv/lib/python" + version + "/site-packages/mine.py": "def main():\n    " + place + "\n",
		"venv/bin/mine": "#!/home/me/demo/venv/bin/python3\nimport mine; mine.main()\n",
		"venv/lib64":    "-> lib", "venv/share/x": "x",
	}
	for _, c := range []struct{ what, front, also string }{
		{"alone", "", "import sys"},
		{"with an environment", "python_packages: [skbase]\n", "import skbase"},
	} {
		t.Run(c.what, func(t *testing.T) {
			sk := newSkill(t, c.front, files)
			inv := python(t, sk, runtime.Auto)
			mustPrepare(t, s, "acme", sk, runtime.Auto)
			for range 2 { // the second time it is there
				l, err := s.Acquire(useOf("acme", sk, inv))
				if err != nil {
					t.Fatal(err)
				}
				const want = "/opt/venv /opt/venv/bin/python3 True\n"
				if out, exit := run(t, sk, inv, l, "python3", "-c", c.also+"; import mine; mine.main()"); out != want || exit.Code != 0 {
					t.Errorf("python3: got %q, %+v", out, exit)
				}
				if out, exit := run(t, sk, inv, l, "head", "-n", "1", "/opt/venv/bin/mine", "/opt/venv/share/x"); !strings.Contains(out, "#!/opt/venv/bin/python3\n") || !strings.HasSuffix(out, "\nx") {
					t.Errorf("files: got %q, %+v", out, exit)
				}
				l.Release()
			}
		})
	}
	if got := leftIn(t, s); len(got) != 2 {
		t.Errorf("got %v, want the two skills' venvs", got)
	}
	s.Close()
	again, err := Open(s.config)
	if err != nil {
		t.Fatal(err)
	}
	if got := leftIn(t, again); len(got) != 0 {
		t.Errorf("after a start: %v", got)
	}
}

// A venv that can't be made is an error.
func TestVenvCantBeMade(t *testing.T) {
	s := newStore(t, nil)
	sk := newSkill(t, "", map[string]string{"venv/bin/python3": "-> /usr/bin/python3", "venv/pyvenv.cfg": "version = 3.11.2\n"})
	u := Use{Tenant: "acme", Skill: sk, Python: runtime.Runtime{Language: "python", Path: "/usr/bin/python3", Version: "3.11.2"}, RunsPython: true, Venv: true}
	if err := os.RemoveAll(s.config.Dir); err != nil {
		t.Fatal(err)
	}
	if l, err := s.Acquire(u); err == nil || l != nil {
		t.Errorf("got %v, %v", l, err)
	}
}

// Only a line that names an interpreter by its path is written anew.
func TestLinesOfPrograms(t *testing.T) {
	long := strings.Repeat("x", 2*maxPythonLine)
	const sh, end = "#!/bin/sh\n'''exec' ", " \"$0\" \"$@\"\n' '''\nx"
	for from, want := range map[string]string{
		"#!/usr/bin/python3\nx\n":               "#!/opt/env/bin/python3\nx\n",
		"#!/usr/bin/python3.11 -sP\nx":          "#!/opt/env/bin/python3 -sP\nx",
		"#!/opt/python/bin/python\r\nx":         "#!/opt/env/bin/python3\nx",
		sh + `"/a b/venv/bin/python3"` + end:    "#!/opt/env/bin/python3\nx",
		sh + "/a/python3" + end:                 "#!/opt/env/bin/python3\nx",
		"#!/usr/bin/python3\n" + long:           "#!/opt/env/bin/python3\n" + long,
		"#!/usr/bin/env python3\nx":             "#!/usr/bin/env python3\nx",
		"#!/bin/sh\nexec python3\n":             "#!/bin/sh\nexec python3\n",
		"x\n#!/usr/bin/python3\n":               "x\n#!/usr/bin/python3\n",
		"#!/usr/bin/python-config\n":            "#!/usr/bin/python-config\n",
		"#!/usr/bin/python3":                    "#!/usr/bin/python3",
		"":                                      "",
		"#!" + long + "/usr/bin/python3\nlater": "#!" + long + "/usr/bin/python3\nlater",
	} {
		r, err := withPython(strings.NewReader(from), Target)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); string(got) != want || err != nil {
			t.Errorf("%.80q: got %.80q, %v; want %.80q", from, got, err, want)
		}
	}
}

// A program that a command line runs by uvx or pipx must come from the package that the line names. Otherwise the
// refusal names the programs that are there: PATH may have another program of the same name.
func TestProgramsOfTools(t *testing.T) {
	t.Parallel()
	tool := pkg{name: "sktool", version: "1.0", entryPoint: "sksay = sktool:main", files: map[string]string{"sktool.py": "def main():\n    print('said')\n"}}
	s := newStore(t, newIndex(t, tool, base).from)
	sk := newSkill(t, "", map[string]string{
		"SKILL.md": "---\nname: demo\ndescription: Shows things.\npython_packages: [skbase]\n---\n`uvx sktool`\n",
	})
	inv := python(t, sk, runtime.System)
	of := manifest.Requirement{Text: "sktool", File: "SKILL.md", Line: 6}
	if _, err := s.PrepareTool(t.Context(), "acme", sk, of, inv, false, func([]byte) error { return nil }); err != nil {
		t.Fatal(err)
	}
	acquire := func(r manifest.Requirement, program string, tool *manifest.Requirement) (*Lease, error) {
		u := useOf("acme", sk, inv)
		u.Tool, u.ToolPrograms = tool, []ToolProgram{{r, program}}
		return s.Acquire(u)
	}
	for _, program := range []string{"sktool", "env", "python3"} {
		_, err := acquire(of, program, &of)
		want := `SKILL.md:6: requirement "sktool": it has no program ` + program + "; its programs, and those of its packages, are: sksay"
		if _, typed := errors.AsType[*RequirementError](err); !typed || err.Error() != want {
			t.Errorf("%s: got %v, want %s", program, err, want)
		}
	}
	l, err := acquire(of, "sksay", &of)
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := run(t, sk, inv, l, "sksay"); out != "said\n" {
		t.Errorf("got %q", out)
	}
	l.Release()
	mustPrepare(t, s, "acme", sk, runtime.System)
	declared := manifest.Requirement{Text: "skbase", File: "SKILL.md", Line: 4}
	if _, err := acquire(declared, "env", nil); err == nil || err.Error() != `SKILL.md:4: requirement "skbase": no program env of it is installed` {
		t.Errorf("a declared package without programs: got %v", err)
	}
	for _, k := range s.tenants[tenantDir("acme")].kept {
		if k.leases != 0 {
			t.Errorf("a refusal keeps a lease of %s", k.dir)
		}
	}
}

// The directory of a venv goes with its skill, since it has copies of the skill's files; but not under an execution.
func TestVenvsOfSkillsThatAreGone(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	version := minorOf(python(t, newSkill(t, "", nil), runtime.System).Python.Version)
	sk := newSkill(t, "", map[string]string{
		"venv/bin/python3": "-> /home/me/bin/python3", "venv/pyvenv.cfg": "home = /home/me/bin\nversion = " + version + ".0\n",
		"venv/bin/mine": "#!/home/me/venv/bin/python3\nprint('mine')\n",
	})
	inv := python(t, sk, runtime.Auto)
	acquire := func() *Lease {
		t.Helper()
		l, err := s.Acquire(useOf("acme", sk, inv))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	acquire().Release()
	l := acquire()
	s.KeepSkills(map[string]bool{sk.Digest: true})
	if left := leftIn(t, s); len(left) != 1 {
		t.Errorf("of two executions: %v, want one directory", left)
	}
	s.KeepSkills(nil)
	again := acquire() // by an execution that has found the skill before
	if out, _ := run(t, sk, inv, l, "python3", "/opt/venv/bin/mine"); out != "mine\n" {
		t.Errorf("a removed skill's program under an execution: got %q", out)
	}
	l.Release()
	if left := leftIn(t, s); len(left) != 1 {
		t.Errorf("left: %v, want the second directory", left)
	}
	again.Release()
	s.KeepSkills(nil)
	if left := leftIn(t, s); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
