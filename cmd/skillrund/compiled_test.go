package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// modulesWithVenv returns the files of a skill with a venv and enough modules to be compiled, and the version of
// Python that they are for. scripts/a.py is compiledOf.
func modulesWithVenv(t *testing.T) (version string, files map[string]string) {
	t.Helper()
	out, err := exec.Command("/usr/bin/python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2], end='')").Output()
	if err != nil {
		t.Skipf("no Python on this machine: %v", err)
	}
	version = string(out)
	files = map[string]string{
		"venv/pyvenv.cfg": "home = /home/me/bin\nversion = " + version + ".1\n",
		"venv/lib/python" + version + "/site-packages/mine.py": "", "scripts/a.py": compiledOf,
	}
	for i := range 12 {
		files[fmt.Sprintf("scripts/m%d.py", i)] = fmt.Sprintf("WHO = %d\n", i)
	}
	return version, files
}

// compiledOutput is the output of compiledOf if both modules are compiled.
func compiledOutput(version string) string {
	m0, mine := "/workspace/scripts/m0.py", "/opt/venv/lib/python"+version+"/site-packages/mine.py"
	return m0 + " " + m0 + "\n" + mine + " " + mine + "\n"
}

// The modules of a skill with a venv are compiled once, when it is imported. Then all executions find
// the compiled files. The artifacts, the digest and the files that a script may change stay the same.
func TestModulesAreCompiledOnce(t *testing.T) {
	t.Parallel()
	version, files := modulesWithVenv(t)
	maps.Copy(files, map[string]string{
		"scripts/sh.sh": "python3 scripts/a.py\n",
		"scripts/change.py": `import os, subprocess, sys
with open(os.path.join(os.path.dirname(__file__), "m1.py"), "w") as f:
    f.write("WHO = 'changed'\n")
import m1
print(m1.WHO)
subprocess.run([sys.executable, "-c", "import m1; print(m1.WHO)"], cwd="scripts", check=True)
`,
		"scripts/remove.sh": "[ -d scripts/__pycache__ ] && rm -r scripts/__pycache__ && python3 scripts/a.py | head -n 1\n",
	})
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
	with := compiledOutput(version)
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
				Path:   "scripts/__pycache__/m0.cpython-" + strings.ReplaceAll(version, ".", "") + ".pyc",
				Source: &pb.InputFile_Content{Content: []byte("of no Python")},
			}},
		})
		r.wantExit(t, 1)
		if !strings.Contains(r.stderr.String(), "EOFError") {
			t.Errorf("stderr %q", r.stderr.String())
		}
	})
}

// A pushed skill is compiled at its push, and after a restart before its tenant calls. The compiled files go with the
// version: they are links to all files of the skill.
func TestPushedModulesAreCompiled(t *testing.T) {
	t.Parallel()
	version, files := modulesWithVenv(t)
	dir := newDir(t)
	writeSkill(t, filepath.Join(dir, "new"), "pushed", "", files)
	source := filepath.Join(dir, "new/skills/pushed")
	if err := errors.Join(os.Mkdir(source+"/venv/bin", 0o755), os.Symlink("/home/me/bin/python3", source+"/venv/bin/python3")); err != nil {
		t.Fatal(err)
	}
	d := startDaemonIn(t, dir, "python: system\n")
	cli := func(args ...string) string {
		t.Helper()
		out, err := d.cli(args...).CombinedOutput()
		if err != nil {
			t.Fatalf("skillrun %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	compiled := func(times int) {
		t.Helper()
		until(t, "the skill is not compiled", func() bool { return strings.Count(d.log.String(), `"skill compiled" skill=pushed`) == times })
	}
	cli("push", source)
	for daemon := range 2 {
		compiled(daemon + 1)
		if out := cli("run", "pushed", "scripts/a.py"); out != compiledOutput(version) {
			t.Errorf("the first execution: got %q", out)
		}
		d.stop()
		d = startDaemonIn(t, dir, "python: system\n")
	}
	compiled(3)
	cli("skills", "rm", "pushed")
	untilNone(t, "left of the deleted skill", func() []string {
		left, err := filepath.Glob(filepath.Join(dir, "state/environments/.compiled-*"))
		if err != nil {
			t.Fatal(err)
		}
		return left
	})
}

// Two tenants push equal skills, and each skill is compiled before its first execution. Otherwise the second tenant
// would learn that the other one has the skill.
func TestEqualPushedModulesAreCompiledForEachTenant(t *testing.T) {
	t.Parallel()
	version, files := modulesWithVenv(t)
	files["SKILL.md"] = "---\nname: pushed\ndescription: A skill that a test pushes.\n---\nRun it.\n"
	p := startPushing(t, "python: system\n")
	digests := map[string]bool{}
	for i, who := range []context.Context{p.acme, p.other} {
		link := &pb.PushSkillEntry{Path: "venv/bin/python3", LinkTarget: "/home/me/bin/python3"}
		r, err := p.push(who, append(pushOf(files), &pb.PushSkillRequest{Message: &pb.PushSkillRequest_Entry{Entry: link}})...)
		if err != nil {
			t.Fatal(err)
		}
		digests[r.GetVersion().GetDigest()] = true
		until(t, fmt.Sprintf("%d of 2 skills are compiled", i), func() bool {
			return strings.Count(p.log.String(), `"skill compiled" skill=pushed`) == i+1
		})
	}
	if len(digests) != 1 {
		t.Errorf("got %d digests, want equal skills", len(digests))
	}
	for _, who := range []context.Context{p.acme, p.other} {
		stream, err := p.runs.Execute(who, script("pushed", "scripts/a.py"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := collect(t, stream, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.wantStdout(t, compiledOutput(version))
	}
}
