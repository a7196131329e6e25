package permission

import (
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/skill/skilltest"
)

func TestRefusesFile(t *testing.T) {
	sk := skilltest.Load(t, map[string]string{"scripts/x.py": "1", "tools/y.py": "1", "main.py": "1", "pkg/mod.py": "1"})
	for _, c := range []struct {
		rules, command, dir, file, refused string
	}{
		{"Bash(git status)", "git status", "", ".git/config", "make git run"},
		{"Bash(git status)", "git status", "", "sub/.git/config", "make git run"},
		{"Bash(git status)", "git status", "", "sub/.GiT/HEAD", "make git run"},
		{"Bash(git status)", "git status", "", ".git", "make git run"},
		{"Bash(ls:*)", "ls", "", ".hg/hgrc", "make git run"},
		{"Bash(git status)", "git status", "", ".gitignore", ""},
		{"Bash(git status)", "git status", "", "x.git", ""},
		{"Bash", "git status", "", ".git/config", ""},
		{"Bash(git:*) Bash(*)", "git status", "", ".git/config", ""},
		{"Bash(ls:*)", "ls", "", "scripts/evil.py", "another folder"},
		{"Bash(ls:*)", "ls", "", "scripts2/evil.py", ""},
		{"Bash(Rscript {baseDir}/main.py)", "Rscript {baseDir}/main.py", "", ".Rprofile", "another name"},
		{"Bash(R CMD BATCH:*)", "R CMD BATCH a.R", "", ".RData", "R runs"},
		{"Bash(latexmk:*)", "latexmk a.tex", "", ".latexmkrc", "latexmk runs"},
		{"Bash(latexmk:*)", "latexmk -cd sub/a.tex", "", "sub/latexmkrc", "latexmk runs"},
		{"Bash(latexmk:*)", "latexmk a.tex", "", "latexmkrc.tex", ""},
		{"Bash(javac:*)", "javac A.java", "", "META-INF/services/javax.annotation.processing.Processor", "javac runs"},
		{"Bash(javac:*)", "javac A.java", "", "META-INF/services/com.sun.source.util.Plugin", "javac runs"},
		{"Bash(javac:*)", "javac A.java", "", "A.java", ""},
		{"Bash(python3 scripts/*)", "python3 scripts/evil.py", "", "scripts/evil.py", "another folder"},
		{"Bash(python3 scripts/x.py)", "python3 scripts/x.py", "", "scripts/json.py", "another folder"},
		{"Bash(python3 scripts/x.py)", "python3 scripts/x.py", "evil", "evil/scripts/x.py", "working_directory"},
		{"Bash(python3 scripts/*)", "python3 scripts/z.py", "evil", "evil/scripts/z.py", "working_directory"},
		{"Bash(python3 scripts/x.py)", "python3 scripts/x.py", "", "in.csv", ""},
		{"Bash(python3 scripts/x.py)", "python3 scripts/x.py", "", "src/app.py", ""},
		{"Bash(python3 tools/*)", "python3 tools/evil.py", "", "tools/evil.py", "working_directory"},
		{"Bash(python3 tools/y.py)", "python3 tools/y.py", "", "tools/json/__init__.py", "same folder"},
		{"Bash(nohup python3 tools/*)", "nohup python3 tools/evil.py", "", "tools/evil.py", "working_directory"},
		{"Bash(python3 tools/*)", "nohup python3 tools/evil.py", "", "tools/evil.py", "working_directory"},
		{"Bash(env A=1 python3 tools/*)", "env A=1 python3 tools/evil.py", "", "tools/evil.py", "working_directory"},
		{"Bash(bash tools/y.sh:*)", "bash tools/y.sh", "", "tools/y.sh", "working_directory"},
		{"Bash(tools/*)", "tools/evil", "", "tools/evil", "working_directory"},
		{"Bash(python3 -u -W ignore tools/*)", "python3 -u -W ignore tools/evil.py", "", "tools/evil.py", "working_directory"},
		{"Bash(python3 /workspace/tools/*)", "python3 /workspace/tools/evil.py", "sub", "tools/evil.py", "working_directory"},
		{"Bash(python3 main.py:*)", "python3 main.py", "", "json.py", "another name"},
		{"Bash(python3 main.py:*)", "python3 main.py", "", "json/__init__.py", "another name"},
		{"Bash(python3 main.py:*)", "python3 main.py", "", "pkg/__pycache__/mod.cpython-311.pyc", "another name"},
		{"Bash(python3 main.py:*)", "python3 main.py", "", "src/app.py", ""},
		{"Bash(python3 main.py:*)", "python3 main.py in.csv", "", "in.csv", ""},
		{"Bash(node tools/y.js)", "node tools/y.js", "", "node_modules/x/index.js", "another name"},
		// node takes the file that exports names for require("NAME").
		{"Bash(node tools/y.js)", "node tools/y.js", "", "package.json", "another name"},
		{"Bash(node tools/y.js)", "node tools/y.js", "sub", "sub/package.json", "another name"},
		{"Bash(npx tsx tools/y.ts)", "npx tsx tools/y.ts", "", "tsconfig.json", "another name"},
		{"Bash(tools/y:*)", "tools/y", "", "package.json", "another name"},
		{"Bash(node tools/y.js)", "node tools/y.js", "", "data/package.json", ""},
		{"Bash(python3 tools/y.py)", "python3 tools/y.py", "", "package.json", ""},
		{"Bash(python3 -m pkg.mod:*)", "python3 -m pkg.mod", "", "json.py", "another name"},
		{"Bash(python3 -m json.tool:*)", "python3 -m json.tool x", "", "json/__init__.py", "another name"},
		{"Bash(python3 -m json.tool:*)", "python3 -m json.tool x", "sub", "sub/argparse.py", "another name"},
		{"Bash(python3 -m json.tool:*)", "python3 -m json.tool x", "", "x.json", ""},
		// A rule that does not name the code allows the caller's own. So does a rule for a
		// file that the skill does not have.
		{"Bash(python3:*)", "python3 my.py", "", "my.py", ""},
		{"Bash(python3 tools/y.py) Bash(python3:*)", "python3 tools/y.py", "", "tools/json.py", ""},
		{"Bash(./gradlew:*)", "./gradlew build", "", "gradlew", ""},
		{"Bash(make:*)", "make test", "", "Makefile", ""},
		// The skill's folder is read-only and takes no input files.
		{"Bash(python3 {baseDir}/main.py:*)", "python3 {baseDir}/main.py", "", "json.py", ""},
	} {
		d := ParseRules([]string{c.rules}, sk.BaseDir()).Decide(c.command)
		if !d.Allowed {
			t.Errorf("%s: %q: %s", c.rules, c.command, d.Reason)
		}
		g := Grant{valid: true, skill: sk, scoped: d.scoped, code: d.code}
		reason := g.RefusesFile(c.dir, c.file)
		if (reason != "") != (c.refused != "") || !strings.Contains(reason, c.refused) {
			t.Errorf("%s: %q in %q with %s: %q, want %q", c.rules, c.command, c.dir, c.file, reason, c.refused)
		}
	}
	// With NoCode a script takes no file that it would load as code.
	for _, c := range []struct{ script, file, refused string }{
		{"scripts/x.py", "scripts/json.py", "another folder"},
		{"scripts/x.py", "scripts/in.csv", "another folder"},
		{"scripts/x.py", "json.py", "another name"},
		{"scripts/x.py", "node_modules/x/index.js", "another name"},
		{"scripts/x.py", "in.csv", ""},
		{"scripts/x.py", "src/app.py", ""},
		{"main.py", "json/__init__.py", "another name"},
		{"main.py", "in/x.csv", ""},
	} {
		g, err := Policy{NoCode: true}.Check(who, sk, Source{Kind: Script, Script: c.script}, nil)
		reason := g.RefusesFile("", c.file)
		if err != nil || (reason != "") != (c.refused != "") || !strings.Contains(reason, c.refused) {
			t.Errorf("%s with %s: %q, %v, want %q", c.script, c.file, reason, err, c.refused)
		}
	}
	for _, src := range []Source{{Kind: Script, Script: "scripts/x.py"}, {Kind: Code, Code: "1"}} {
		g, err := Policy{}.Check(who, sk, src, nil)
		if err != nil || g.RefusesFile("", ".git/config") != "" || g.RefusesFile("", "scripts/new.py") != "" {
			t.Errorf("%s: %v, or a file is refused", src.Kind, err)
		}
	}
}
