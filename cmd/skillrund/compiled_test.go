package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// compiledOf prints where two modules were found, and the path in the compiled file of each.
const compiledOf = `import marshal, os, sys
sys.path.insert(0, "/workspace/scripts")
import m0, mine
for module in m0, mine:
    cached = module.__spec__.cached
    path = marshal.loads(open(cached, "rb").read()[16:]).co_filename if os.path.exists(cached) else "not compiled"
    print(module.__file__, path)
`

// The modules of a skill with a venv are compiled once, when it is imported. Then all executions find
// the compiled files. The artifacts, the digest and the files that a script may change stay the same.
func TestModulesAreCompiledOnce(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("/usr/bin/python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2], end='')").Output()
	if err != nil {
		t.Skipf("no Python on this machine: %v", err)
	}
	site := "/lib/python" + string(out) + "/site-packages/"
	files := map[string]string{
		"venv/pyvenv.cfg": "home = /home/me/bin\nversion = " + string(out) + ".1\n", "venv" + site + "mine.py": "",
		"scripts/a.py": compiledOf, "scripts/sh.sh": "python3 scripts/a.py\n",
		"scripts/change.py": `import os, subprocess, sys
with open(os.path.join(os.path.dirname(__file__), "m1.py"), "w") as f:
    f.write("WHO = 'changed'\n")
import m1
print(m1.WHO)
subprocess.run([sys.executable, "-c", "import m1; print(m1.WHO)"], cwd="scripts", check=True)
`,
		"scripts/remove.sh": "[ -d scripts/__pycache__ ] && rm -r scripts/__pycache__ && python3 scripts/a.py | head -n 1\n",
	}
	for i := range 12 {
		files[fmt.Sprintf("scripts/m%d.py", i)] = fmt.Sprintf("WHO = %d\n", i)
	}
	dir := newDir(t)
	add := func(name string) {
		t.Helper()
		writeSkill(t, filepath.Join(dir, "new"), name, "allowed-tools: Bash(python:*) Bash(venv/bin/python3 scripts/*)", files)
		from, bin := filepath.Join(dir, "new/skills", name), filepath.Join(dir, "new/skills", name, "venv/bin")
		if err := errors.Join(
			os.Mkdir(bin, 0o755), os.Symlink("/home/me/bin/python3", filepath.Join(bin, "python3")),
			os.MkdirAll(filepath.Join(dir, "skills"), 0o755), os.Rename(from, filepath.Join(dir, "skills", name)),
		); err != nil {
			t.Fatal(err)
		}
	}
	add("modules")
	d := startDaemonIn(t, dir, "python: system\n")
	const m0 = "/workspace/scripts/m0.py"
	mine := "/opt/venv" + site + "mine.py"
	with := m0 + " " + m0 + "\n" + mine + " " + mine + "\n"
	d.untilLogged("skill compiled")
	first := d.run(script("modules", "scripts/a.py"))
	first.wantExit(t, 0)
	first.wantStdout(t, with)
	t.Run("imported later", func(t *testing.T) {
		add("later")
		d.untilLogged(`"skill compiled" skill=later`)
		r := d.run(script("later", "scripts/a.py"))
		r.wantExit(t, 0)
		r.wantStdout(t, with)
	})
	for what, req := range map[string]*pb.ExecuteRequest{
		"script": script("modules", "scripts/a.py"), "code": code("modules", compiledOf),
		"command": command("modules", "python scripts/a.py"), "command by path": command("modules", "venv/bin/python3 scripts/a.py"), "from bash": script("modules", "scripts/sh.sh"),
	} {
		t.Run(what, func(t *testing.T) {
			r := d.run(req)
			r.wantExit(t, 0)
			r.wantStdout(t, with)
			if r.header.GetSkillDigest() != first.header.GetSkillDigest() || len(r.outcome.Artifacts)+len(r.outcome.ArtifactsRefused) > 0 {
				t.Errorf("got %v and %v", r.header, r.outcome)
			}
		})
	}
	t.Run("changed", func(t *testing.T) {
		r := d.run(script("modules", "scripts/change.py"))
		r.wantExit(t, 0)
		r.wantStdout(t, "changed\nchanged\n")
		if got := artifactPaths(r.outcome); fmt.Sprint(got) != "[scripts/m1.py]" {
			t.Errorf("artifacts %v", got)
		}
	})
	t.Run("removed", func(t *testing.T) {
		r := d.run(script("modules", "scripts/remove.sh"))
		r.wantExit(t, 0)
		r.wantStdout(t, m0+" not compiled\n")
		if len(r.outcome.Artifacts)+len(r.outcome.ArtifactsRefused) > 0 {
			t.Errorf("artifacts %v, refused %v", r.outcome.Artifacts, r.outcome.ArtifactsRefused)
		}
	})
	t.Run("an input beside them", func(t *testing.T) {
		r := d.run(&pb.ExecuteRequest{
			Skill: "modules", Source: &pb.ExecuteRequest_Script{Script: "scripts/a.py"},
			Files: []*pb.InputFile{{
				Path:   "scripts/__pycache__/m0.cpython-" + strings.ReplaceAll(string(out), ".", "") + ".pyc",
				Source: &pb.InputFile_Content{Content: []byte("of no Python")},
			}},
		})
		r.wantExit(t, 1)
		if !strings.Contains(r.stderr.String(), "EOFError") {
			t.Errorf("stderr %q", r.stderr.String())
		}
	})
}
