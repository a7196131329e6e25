package permission

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// unlistedSkill has scripts and no allowed-tools.
func unlistedSkill() *skill.Skill {
	return &skill.Skill{Name: "demo", Scripts: []snapshot.Script{
		{Path: "scripts/a.py", Language: "python"}, {Path: "scripts/deep/b.sh", Language: "bash"}, {Path: "c.js", Language: "node"},
		{Path: "scripts/it's me.py", Language: "python"}, {Path: "scripts/x.bat", Language: "batch"},
	}}
}

// Own scripts are exactly the skill's scripts, with any arguments, and nothing else.
func TestUnlistedOwnScripts(t *testing.T) {
	p := Policy{Unlisted: Unlisted{Scripts: true}}
	for _, line := range []string{
		"python scripts/a.py", "python3 scripts/a.py --x 'y z' *.csv", "python3.11 -u ./scripts/a.py", "python {baseDir}/scripts/a.py", "python ${CLAUDE_SKILL_DIR}/scripts/a.py",
		"python /workspace/scripts/a.py", "python /skills/demo/scripts/a.py -c 'import os'", "scripts/a.py x", "./scripts/deep/b.sh", "{baseDir}/scripts/a.py",
		"uv run scripts/a.py x -c", "uv run --with x --script {baseDir}/scripts/a.py", "timeout 5 uv run python scripts/a.py", "uv run scripts/deep/b.sh", "pipx run scripts/a.py",
		"bash scripts/deep/b.sh", "sh -eu scripts/deep/b.sh", "node c.js", "python scripts//a.py", "timeout 5 python scripts/a.py", "nohup ./scripts/a.py",
		"python scripts/a.py | python3 scripts/a.py > out.txt && node c.js", `python "scripts/it's me.py"`, "LANG=C python scripts/a.py", "python c.js",
		"python -m scripts.a x", "python3 -u -m scripts.a", "uv run -m scripts.a", "timeout 5 python -m scripts.a > out.txt",
		"nohup timeout 5 nice uv run python scripts/a.py > out.txt",
	} {
		if d := p.DecideFor(unlistedSkill(), line); !d.Allowed || !d.scoped || len(d.Plan) == 0 || !strings.Contains(d.Reason, "the skill has no allowed-tools") {
			t.Errorf("%s: %+v", line, d)
		}
	}
	for _, line := range []string{
		"python -c 'print(1)'", "python", "python -", "python -m a", "python -m scripts", "python -m scripts.no", "python -m scripts.deep.b", "python -m scripts.a.x", "python -mscripts.a", "python -m ./scripts/a.py", "bash -m scripts.a", "uv run -m pytest", "python scripts/no.py", "python ../demo/scripts/a.py", "python scripts/../scripts/a.py", "python sub/scripts/a.py",
		"python /scripts/a.py", "python /skills/demo-evil/scripts/a.py", "python /skills/demo/../demo/scripts/a.py", "c.js", "a.py", "/workspace/scripts/a.py", "/usr/bin/python scripts/a.py", "./python scripts/a.py",
		"bash -c scripts/deep/b.sh", "bash -o x scripts/deep/b.sh", "bash --rcfile scripts/deep/b.sh x", "sh -s scripts/deep/b.sh", "python -i scripts/a.py", "python -X importtime scripts/a.py", "node -r ./x.js c.js", "node --require=./x c.js",
		"uv run scripts/no.py", "uv run python -c 1", "uv run ls", "uvx ruff", "uvx --from scripts/a.py ls", "uv run --directory sub scripts/a.py", "uv run", "uv sync",
		"env python scripts/a.py", "sudo scripts/a.py", "xargs python scripts/a.py", "echo x", "ls", "rm scripts/a.py", "scripts/x.bat", "cmd scripts/x.bat",
		"python scripts/a.py; rm x", "python scripts/a.py || id", "python scripts/a.py & id", "python scripts/a.py $(id)", "python scripts/a.py `id`", "python scripts/a.p?", "python scripts/*", "PYTHONPATH=. python scripts/a.py",
		"python scripts/a.py > scripts/a.py", "python -m scripts.a > scripts/a.py", "python -m scripts.a > scripts/b/__init__.py", "python -m scripts.a > ./x/../scripts.py", "python -m scripts.a > json.py", "python scripts/a.py > .git/config", "python scripts/a.py > /etc/passwd", "cd scripts && python a.py", "", "python 'scripts/a.py ' x", "python scripts/A.py", "timeout -k 1 5 python scripts/a.py", "nice -n 5 uv run scripts/a.py",
	} {
		if d := p.DecideFor(unlistedSkill(), line); d.Allowed || d.Reason == "" || d.Plan != nil {
			t.Errorf("%s: allowed by %s", line, d.Rule)
		}
	}
	d := p.DecideFor(unlistedSkill(), "rm x")
	if want := "'rm x' is not covered: the skill has no allowed-tools, so only its own scripts may run, such as python {baseDir}/scripts/a.py; once SKILL.md has allowed-tools, its own scripts must be listed there, too"; d.Reason != want || d.Missing != "Bash(rm x:*)" {
		t.Errorf("got %q, %q", d.Reason, d.Missing)
	}
	p.Unlisted.Rules = []string{"Bash(ls:*)"}
	if got, want := p.DecideFor(unlistedSkill(), "rm x").Reason, "so only its own scripts, such as python {baseDir}/scripts/a.py, and the commands that the daemon's configuration lists (without_allowed_tools) may run; once SKILL.md has allowed-tools, its own scripts must be listed there, too"; !strings.HasSuffix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	p.Unlisted.Rules = nil
	if got, want := p.Commands(unlistedSkill()), []string{"Bash(python {baseDir}/scripts/a.py:*)", "Bash(bash {baseDir}/scripts/deep/b.sh:*)", "Bash(node {baseDir}/c.js:*)", "Bash(python {baseDir}/scripts/it's me.py:*)"}; !slices.Equal(got, want) {
		t.Errorf("commands %q, want %q", got, want)
	}
}

// Own scripts may lie anywhere in the skill. Links, other files and missing files do not count.
func TestUnlistedScriptsElsewhere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "demo")
	for name, text := range map[string]string{
		"SKILL.md": "---\nname: demo\ndescription: d\n---\n", "tools/x.py": "", "lib/deep/run.sh": "", "bin/tool": "#!/bin/sh\n", "types/x.d.ts": "", "data.csv": "",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("tools/x.py", filepath.Join(dir, "link.py")); err != nil {
		t.Fatal(err)
	}
	sk, _, err := skill.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	p := Policy{Unlisted: Unlisted{Scripts: true}}
	for line, want := range map[string]bool{
		"python tools/x.py a": true, "python3 {baseDir}/tools/x.py": true, "./tools/x.py": true, "uv run tools/x.py": true, "bash lib/deep/run.sh | python tools/x.py > out.txt": true,
		"python link.py": false, "python tools/y.py": false, "python tools": false, "node types/x.d.ts": false, "python data.csv": false, "sh bin/tool": false, "./bin/tool": false,
		"python -m tools.x": false, "python tools/x.py > tools/x.py": false, "python tools/x.py > tools/json.py": false, "python tools/../tools/x.py": false,
	} {
		if d := p.DecideFor(sk, line); d.Allowed != want {
			t.Errorf("%s: allowed %v: %s", line, d.Allowed, d.Reason)
		}
	}
	d := p.DecideFor(sk, "python tools/x.py")
	if len(d.code) != 1 || d.code[0].refusesFile(sk.Has, "", "tools/json.py") == "" || d.code[0].refusesFile(sk.Has, "", "in.csv") != "" {
		t.Errorf("input files beside it: %+v", d.code)
	}
	if d := p.DecideFor(sk, "ls"); !strings.Contains(d.Reason, "such as bash {baseDir}/lib/deep/run.sh; once") {
		t.Errorf("got %q", d.Reason)
	}
}

// In another directory the names of own scripts are relative to it.
func TestUnlistedScriptsInADirectory(t *testing.T) {
	p := Policy{Unlisted: Unlisted{Scripts: true, Rules: []string{"Bash(cp:*)"}}}
	for _, c := range []struct {
		dir, line string
		allowed   bool
	}{
		{"scripts", "python a.py x", true}, {"./scripts/", "timeout 5 python3 ./a.py | uv run a.py", true}, {"scripts", "bash deep/b.sh && python {baseDir}/scripts/a.py", true},
		{"scripts/deep", "./b.sh", true}, {"sub", "python /workspace/scripts/a.py", true}, {"sub", "python {baseDir}/scripts/a.py < in.csv", true}, {".", "python scripts/a.py > out", true},
		{"scripts", "python scripts/a.py", false}, {"sub", "python -m scripts.a", false}, {".", "python -m scripts.a", true}, {"sub", "python scripts/a.py", false}, {"sub", "python a.py", false}, {"scripts", "a.py", false}, {"scripts/deep", "python ../a.py", false},
		{"sub/../scripts", "python ../scripts/a.py", false}, {"../scripts", "python a.py", false}, {"/workspace/scripts", "python a.py", false},
		{"scripts", "python a.py > out", false}, {"scripts", "python a.py >> /workspace/scripts/helper.py && python a.py", false}, {"scripts", "cp x /workspace/scripts/helper.py && python a.py", false},
	} {
		grant, err := p.Check(Principal{}, unlistedSkill(), Source{Kind: Command, Command: c.line, Dir: c.dir}, nil)
		if grant.Valid() != c.allowed || (err == nil) != c.allowed {
			t.Errorf("%s in %q: %v, want %v: %v", c.line, c.dir, grant.Valid(), c.allowed, err)
		}
	}
}

// A request cannot put a file in place of an own script, whatever its working directory is.
func TestUnlistedScriptsStayTheSkills(t *testing.T) {
	sk := unlistedSkill()
	d := (Policy{Unlisted: Unlisted{Scripts: true}}).DecideFor(sk, "python scripts/a.py")
	if !d.scoped || len(d.code) != 1 || d.code[0].name != "scripts/a.py" {
		t.Fatalf("got %+v", d)
	}
	has := func(name string) bool { return slices.Contains([]string{"scripts", "scripts/a.py"}, name) }
	for _, c := range []struct{ dir, file string }{
		{"", "scripts/json.py"}, {"sub", "sub/scripts/a.py"}, {"sub", "sub/scripts/helper.py"}, {"", "scripts/__pycache__/a.pyc"},
	} {
		if refusedByRules(has, c.file) == "" && d.code[0].refusesFile(has, c.dir, c.file) == "" {
			t.Errorf("%s in %q is not refused", c.file, c.dir)
		}
	}
	for _, c := range []struct{ dir, file string }{{"", "in.csv"}, {"", "data/in.csv"}, {"sub", "sub/in.csv"}} {
		if reason := refusedByRules(has, c.file) + d.code[0].refusesFile(has, c.dir, c.file); reason != "" {
			t.Errorf("%s in %q: %s", c.file, c.dir, reason)
		}
	}
}

// A request cannot put a file into the directory of a module that a rule names, or replace the module
// by a package.
func TestModulesStayTheSkills(t *testing.T) {
	has := func(name string) bool { return slices.Contains([]string{"tools", "tools/b.py"}, name) }
	d := ParseRules([]string{"Bash(python -m tools.b:*), Bash(cp:*)"}, "/skills/demo").Decide("python -m tools.b x")
	if !d.Allowed || len(d.code) != 1 || !d.code[0].module {
		t.Fatalf("got %+v", d)
	}
	for _, file := range []string{"tools/c.py", "tools/b/__init__.py", "tools/__init__.py", "tools.py", "json.py"} {
		if d.code[0].refusesFile(has, "", file) == "" {
			t.Errorf("%s is not refused", file)
		}
	}
	if d.code[0].refusesFile(has, "x", "x/tools/b.py") == "" {
		t.Error("in another directory, x/tools/b.py is not refused")
	}
	for _, file := range []string{"in.csv", "data/in.csv", "toolset/x.py"} {
		if reason := d.code[0].refusesFile(has, "", file); reason != "" {
			t.Errorf("%s: %s", file, reason)
		}
	}
	for _, line := range []string{"cp x tools/b.py && python -m tools.b", "cp x tools && python -m tools.b", "cp x y > tools/c.py && python -m tools.b"} {
		if d := ParseRules([]string{"Bash(python -m tools.b:*), Bash(cp:*)"}, "/skills/demo").Decide(line); d.Allowed {
			t.Errorf("%s is allowed", line)
		}
	}
}

// Without the word scripts only the list decides, and an empty list allows nothing. For a skill with
// allowed-tools, even empty ones, only allowed-tools decide.
func TestUnlistedRules(t *testing.T) {
	for _, c := range []struct {
		list    []string
		line    string
		allowed bool
	}{
		{nil, "python scripts/a.py", false}, {nil, "ls", false},
		{[]string{"Bash(ls:*), Bash(python {baseDir}/scripts/*)"}, "ls -l && python {baseDir}/scripts/a.py", true},
		{[]string{"Bash(ls:*)"}, "python scripts/a.py", false},
		{[]string{OwnScripts, "Bash(ls:*)"}, "python scripts/a.py && ls", true},
		{[]string{"Bash"}, "rm x", true}, {[]string{"Bash"}, "echo $(id)", false},
	} {
		p := Policy{Unlisted: ParseUnlisted(c.list)}
		if d := p.DecideFor(unlistedSkill(), c.line); d.Allowed != c.allowed || d.Reason == "" {
			t.Errorf("%q %s: %+v", c.list, c.line, d)
		}
		listed := unlistedSkill()
		listed.Manifest.HasAllowedTools = true
		if d := p.DecideFor(listed, c.line); d.Allowed {
			t.Errorf("%q %s: allowed to a skill with empty allowed-tools", c.list, c.line)
		}
	}
	for entry, ok := range map[string]bool{
		OwnScripts: true, "Bash": true, "Bash(ls:*)": true, "Bash(a), Bash(b:*)": true,
		"": false, "Read": false, "script": false, "bash(ls)": false, "Bash(ls": false, "Bash()": false, "Bash(env:*)": false, "Bash(cd:*)": false, "Bash(a), Read": false,
	} {
		if got := CheckUnlisted(entry); (got == "") != ok {
			t.Errorf("%q: %q", entry, got)
		}
	}
}
