package main

import (
	"strings"
	"testing"
)

// besideScripts print their directory and their path, and write a file into their directory.
var besideScripts = map[string]string{
	"scripts/py.py": `import os, sys
here = os.path.dirname(__file__)
print(here, sys.argv[0])
assert sys.path[0] == here, sys.path
open(os.path.join(here, "py.txt"), "w").write("new")
`,
	"scripts/js.js": `const fs = require("fs"), path = require("path")
console.log(__dirname, process.argv[1])
fs.writeFileSync(path.join(__dirname, "js.txt"), "new")
`,
	"scripts/mjs.mjs": `import fs from "node:fs"
console.log(import.meta.dirname, import.meta.filename)
fs.writeFileSync(new URL("mjs.txt", import.meta.url), "new")
`,
	"scripts/sh.sh": "here=$(dirname \"$0\"); echo \"$here $0\"; printf new >\"$here/sh.txt\"\n",
	"scripts/rb.rb": "puts __dir__ + ' ' + $0; File.write(File.join(__dir__, 'rb.txt'), 'new')\n",
	"scripts/pl.pl": "use FindBin; print \"$FindBin::Bin $0\\n\"; open(my $f, '>', \"$FindBin::Bin/pl.txt\"); print $f 'new';\n",
}

// A script runs by its path in the workspace, so it can write into its directory. The new file is an
// artifact, and the snapshot and the next execution don't have it.
func TestScriptsWriteBesideThemselves(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "beside", "", besideScripts)
	writeSkill(t, dir, "embedded", "python: embedded", besideScripts)
	d := startDaemonIn(t, dir, "python: system\n")
	check := func(t *testing.T, skill, path string) {
		t.Helper()
		r := d.run(script(skill, path))
		r.wantExit(t, 0)
		r.wantStdout(t, "/workspace/scripts /workspace/"+path+"\n")
		name, _, _ := strings.Cut(path, ".")
		if got := r.outcome.Artifacts; len(got) != 1 || got[0].Path != name+".txt" || got[0].SizeBytes != 3 || len(r.outcome.ArtifactsRefused) > 0 {
			t.Errorf("artifacts %v, refused %v", got, r.outcome.ArtifactsRefused)
		}
	}
	for path := range besideScripts {
		t.Run(path, func(t *testing.T) {
			d.t = t
			check(t, "beside", path)
		})
	}
	t.Run("embedded Python", func(t *testing.T) {
		d.t = t
		check(t, "embedded", "scripts/py.py")
	})
	t.Run("snapshot", func(t *testing.T) {
		d.t = t
		r := d.run(shell("beside", "ls /skills/beside/scripts /workspace/scripts | grep txt; touch /skills/beside/scripts/x"))
		if r.stdout.Len() > 0 || !strings.Contains(r.stderr.String(), "Read-only file system") {
			t.Errorf("stdout %q, stderr %q", r.stdout.String(), r.stderr.String())
		}
	})
}

// A forked Python behaves here like a started one. The first run is started, because no Python zygote
// is running yet. The parent of a started Python is in the sandbox. The parent of a forked Python is not,
// so its getppid returns 0.
func TestForkedScriptsWriteBesideThemselves(t *testing.T) {
	t.Parallel()
	const text = `import os, sys
print(os.getppid())
print(sys.path[0], sys.argv, __file__, os.path.realpath(__file__), os.getcwd())
open(__file__ + ".txt", "w").write("new")
open(__file__, "a").write("# changed\n")
raise ValueError("beside")
`
	dir := newDir(t)
	writeSkill(t, dir, "beside", "", map[string]string{"scripts/a.py": text})
	d := startDaemonIn(t, dir, "python: system\n")
	var first string
	until(t, "it is never forked", func() bool {
		r := d.run(script("beside", "scripts/a.py", "x"))
		r.wantExit(t, 1)
		parent, rest, _ := strings.Cut(r.stdout.String(), "\n")
		if first == "" {
			first = rest
		}
		if want := "/workspace/scripts ['/workspace/scripts/a.py', 'x'] /workspace/scripts/a.py /workspace/scripts/a.py /workspace\n"; rest != want || rest != first {
			t.Errorf("with the parent %s got %swant %s", parent, rest, want)
		}
		if want := "  File \"/workspace/scripts/a.py\", line 6, in <module>\n    raise ValueError(\"beside\")\n"; !strings.Contains(r.stderr.String(), want) {
			t.Errorf("with the parent %s stderr is %q", parent, r.stderr.String())
		}
		if got := strings.Join(artifactPaths(r.outcome), " "); got != "scripts/a.py scripts/a.py.txt" {
			t.Errorf("with the parent %s artifacts %s", parent, got)
		}
		return parent == "0"
	})
}

// Compiled modules are not artifacts, even if a Python that ignores the environment writes them
// beside the script.
func TestCompiledModulesAreNoArtifacts(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	d.addSkill("compiled", "", map[string]string{
		"scripts/a.py": `import glob, os, py_compile, subprocess, sys
here = os.path.dirname(__file__)
py_compile.compile(__file__)
subprocess.run([sys.executable, "-E", "-c", "import helper"], cwd=here, check=True)
print(len(glob.glob(here + "/__pycache__/*.pyc")))
`,
		"scripts/helper.py": "",
	})
	r := d.run(script("compiled", "scripts/a.py"))
	r.wantExit(t, 0)
	r.wantStdout(t, "2\n")
	if len(r.outcome.Artifacts)+len(r.outcome.ArtifactsRefused) > 0 {
		t.Errorf("artifacts %v, refused %v", r.outcome.Artifacts, r.outcome.ArtifactsRefused)
	}
}
