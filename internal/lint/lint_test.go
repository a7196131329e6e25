package lint

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// files is a folder's content: path -> text. A path that ends in "*" is executable,
// a text that starts with "-> " is a link's target.
type files map[string]string

func (fs files) write(t *testing.T, dir string) {
	t.Helper()
	for p, text := range fs {
		full, executable := strings.CutSuffix(filepath.Join(dir, p), "*")
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			if err := os.Symlink(target, full); err != nil {
				t.Fatal(err)
			}
			continue
		}
		mode := os.FileMode(0o644)
		if executable {
			mode = 0o755
		}
		if err := os.WriteFile(full, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
}

// md is a SKILL.md with more fields, and its body from line 5 on, or further down
// with more fields.
func md(fields, body string) string {
	if fields != "" {
		fields += "\n"
	}
	return "---\nname: demo\ndescription: Shows things.\n" + fields + "---\n" + body
}

// skillDir makes a folder "demo".
func skillDir(t *testing.T, content files) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "demo")
	if _, ok := content["SKILL.md"]; !ok {
		files{"SKILL.md": md("", "Do it.\n")}.write(t, dir)
	}
	content.write(t, dir)
	return dir
}

// machine is one that has a few programs and nothing else.
func machine(t *testing.T) *Machine {
	t.Helper()
	root := t.TempDir()
	files{
		"usr/bin/python3.11*": "#!/bin/sh\necho Python 3.11.2\n", "usr/bin/python3": "-> python3.11",
		"usr/bin/bash*": "", "usr/bin/git*": "", "usr/bin/jq*": "", "usr/bin/perl*": "", "usr/bin/wc*": "",
		"usr/lib/python3/dist-packages/pandas-1.5.3.dist-info/METADATA":     "",
		"usr/lib/python3/dist-packages/pandas/__init__.py":                  "",
		"usr/lib/python3/dist-packages/PyYAML-6.0.egg-info":                 "",
		"usr/lib/python3.11/dist-packages/ruamel.yaml-0.1.dist-info/RECORD": "",
		"usr/lib/python3.10/dist-packages/older-1.dist-info/RECORD":         "",
		"var/lib/dpkg/status": "Package: poppler-utils\nStatus: install ok installed\n\nPackage: gone\nStatus: deinstall ok config-files\n\nPackage: mawk\nStatus: hold ok installed\nProvides: awk (= 1), more\n",
	}.write(t, root)
	set, err := runtime.Discover(t.Context(), runtime.Config{Rootfs: root})
	if err != nil {
		t.Fatal(err)
	}
	return &Machine{Runtimes: set, Rootfs: root}
}

// brief are findings as "severity rule file:line".
func brief(list []manifest.Finding) []string {
	var out []string
	for _, f := range list {
		out = append(out, fmt.Sprintf("%s %s %s:%d", f.Severity, f.Rule, f.File, f.Line))
	}
	return out
}

// Command lines of a skill without allowed-tools are judged by the policy, if it is known.
func TestCommandsFollowPolicy(t *testing.T) {
	dir := skillDir(t, files{
		"SKILL.md":     "---\nname: demo\ndescription: A demo.\n---\n```bash\npython scripts/a.py x\ngit log\ngit status\n```\n",
		"scripts/a.py": "#!/usr/bin/env python3\nprint(1)\n",
	})
	for _, tt := range []struct {
		policy *permission.Policy
		want   []string
	}{
		{nil, nil},
		{&permission.Policy{Unlisted: permission.Unlisted{Scripts: true}}, []string{"SKILL.md:7 'git log'", "SKILL.md:8 'git status'"}},
		{&permission.Policy{Unlisted: permission.Unlisted{Scripts: true, Rules: []string{"Bash(git:*)"}}}, nil},
		{&permission.Policy{Unlisted: permission.Unlisted{Rules: []string{"Bash(git log:*)"}}}, []string{"SKILL.md:6 'python'", "SKILL.md:8 'git status'"}},
		{&permission.Policy{}, []string{"SKILL.md:6 'python'", "SKILL.md:7 'git log'", "SKILL.md:8 'git status'"}},
	} {
		m := machine(t)
		m.Policy = tt.policy
		list, err := Dir(t.Context(), dir, m)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range list {
			if f.Rule != RuleCommandRefused {
				continue
			}
			command, reason, _ := strings.Cut(strings.TrimPrefix(f.Message, "the daemon refuses this command: "), " is not covered")
			if !strings.Contains(reason, "the skill has no allowed-tools") {
				t.Errorf("message %q", f.Message)
			}
			got = append(got, fmt.Sprintf("%s:%d %s", f.File, f.Line, command))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%+v: got %q, want %q", tt.policy, got, tt.want)
		}
	}
}

// A row has a skill in which a rule fires, or a near miss, in which nothing does.
type row struct {
	name  string
	files files
	want  []string
}

func TestRules(t *testing.T) {
	m := machine(t)
	all := slices.Concat(scriptRows, manifestRows, toolRows, networkRows, packageRows)
	fired := map[string]bool{}
	for _, tt := range all {
		t.Run(tt.name, func(t *testing.T) {
			list, err := Dir(t.Context(), skillDir(t, tt.files), m)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range list {
				fired[f.Rule] = true
			}
			if got := brief(list); !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q\n%v", got, tt.want, list)
			}
		})
	}
	for _, rule := range ruleNames(t, "rules.go") {
		if !fired[rule] {
			t.Errorf("%s: no row in which it fires", rule)
		}
	}
}

// The text about a venv is true about the Python that comes with a daemon: without a daemon,
// nothing is known about it.
func TestVenvWithoutDaemon(t *testing.T) {
	const unknown = "only a daemon knows (skillrun validate demo asks it)"
	for _, tt := range []struct {
		name, python, version string
		daemon                bool
		want, not             string
	}{
		{"embedded", "embedded", "3.11.9", false, "made with Python 3.11, and whether the embedded Python", "embedded Python is not available"},
		{"embedded, in words", "embedded", "3.11.9", false, unknown, "embedded Python is not available"},
		{"embedded, of a daemon", "embedded", "3.11.9", true, "the requested embedded Python is not available", "a daemon"},
		{"not said", "auto", "3.9.1", false, "the embedded Python of a daemon may be the one", "no Python is available"},
		{"not said, of a daemon", "auto", "3.9.1", true, "only 3.11 is available", "a daemon"},
		{"system", "system", "3.9.1", false, "has version 3.11: leave it out", "a daemon"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := machine(t)
			m.Daemon = tt.daemon
			list, err := Dir(t.Context(), skillDir(t, files{
				"SKILL.md": md("python: "+tt.python, ""), "venv/pyvenv.cfg": "version = " + tt.version + "\n",
				"venv/bin/python": "-> /usr/bin/python3", "scripts/a.py": "print(1)\n",
			}), m)
			if err != nil || len(list) != 1 || !strings.Contains(list[0].Message, tt.want) || strings.Contains(list[0].Message, tt.not) {
				t.Errorf("got %v, %v, want %q without %q", list, err, tt.want, tt.not)
			}
		})
	}
}

// On a machine that is known to have the packages none is missing.
func TestPreparedPackages(t *testing.T) {
	m := machine(t)
	dir := skillDir(t, files{"requirements.txt": "polars==1.0\n"})
	for _, has := range []bool{false, true} {
		m.HasPackages = has
		list, err := Dir(t.Context(), dir, m)
		if err != nil || (len(list) == 0) != has {
			t.Errorf("prepared %t: got %v, %v", has, list, err)
		}
	}
}

var scriptRows = []row{
	{"nothing", files{"scripts/a.py": "import os\n", "scripts/b.sh": "#!/usr/bin/env bash\necho\n"}, nil},

	{"interpreter missing", files{"scripts/a.rb": "puts 1\n"}, []string{"warning interpreter-missing scripts/a.rb:0"}},
	{"interpreter there", files{"scripts/a.pl": "print 1;\n", "scripts/b": "#!/usr/bin/python3\n"}, nil},
	{"python of a version that is not there", files{"scripts/a": "#!/usr/bin/env python3.9\n"}, []string{"warning shebang-interpreter scripts/a:1"}},
	{"unknown extension", files{"scripts/a.lua": "print(1)\n"}, []string{"warning no-interpreter scripts/a.lua:0"}},
	{"unknown extension with a shebang", files{"scripts/a.awk": "#!/usr/bin/perl\n"}, nil},
	{"PowerShell", files{"scripts/a.ps1": "1\n"}, []string{"warning no-interpreter scripts/a.ps1:0"}},
	{"data in scripts", files{"scripts/table.csv": "a,b\n", "scripts/README": "text\n"}, nil},

	{"CRLF in a shebang", files{"scripts/a.py": "#!/usr/bin/env python3\r\nprint(1)\r\n"}, []string{"error script-line-ends scripts/a.py:1"}},
	{"CRLF in a shell script", files{"scripts/a.sh": "echo 1\necho 2\r\n"}, []string{"error script-line-ends scripts/a.sh:2"}},
	{"CRLF in Python without a shebang", files{"scripts/a.py": "print(1)\r\n"}, nil},
	{"byte order mark", files{"scripts/a.py": "\ufeff#!/usr/bin/env python3\nprint(1)\n"}, []string{"error shebang-byte-order-mark scripts/a.py:1"}},
	{"byte order mark without a shebang", files{"scripts/a.py": "\ufeffprint(1)\n"}, nil},
	{"shebang of another machine", files{"scripts/a.py": "#!/opt/homebrew/bin/python3\n"}, []string{"warning shebang-interpreter scripts/a.py:1"}},
	{"shebang of uv", files{"scripts/a.py": "#!/usr/bin/env -S uv run --script\n", "scripts/b": "#!/usr/bin/env -S uv run --quiet\n"}, nil},
	{"shebang of uv that can't be met", files{"scripts/a.py": "#!/usr/bin/env -S uv run --directory x\n"}, []string{"warning shebang-interpreter scripts/a.py:1"}},
	{"shebang of a tool that is not there", files{"scripts/a.ts": "#!/usr/bin/env bun\n"}, []string{"warning shebang-interpreter scripts/a.ts:1"}},
	{"shebang of what is there", files{"scripts/a.py": "#!/bin/python3 -u\n", "scripts/b.sh": "#!/usr/bin/env -S bash -e\n"}, nil},

	{"program elsewhere", files{"tools/run.py": "def f(): pass\nif __name__ == '__main__':\n    f()\n", "make.sh": "echo\n"}, []string{
		"warning script-place make.sh:0", "warning script-place tools/run.py:0",
	}},
	{"module elsewhere", files{"core/easing.py*": "#!/usr/bin/env python3\ndef f(): pass\n", "assets/x.sh": "echo\n", "tests/t.sh": "echo\n"}, nil},
	{"what others wrote", files{"node_modules/x/a.sh": "#!/opt/sh\n", ".venv/bin/x.sh": "#!/opt/sh\n"}, nil},

	{"venv of another version", files{"venv/pyvenv.cfg": "version = 3.9.1\n", "venv/bin/python": "-> /usr/bin/python3.9", "scripts/a.py": "print(1)\n", "scripts/b.py": "print(1)\n"},
		[]string{"warning venv-unusable venv:0"}},
	{"venv of this version", files{"venv/pyvenv.cfg": "version = 3.11.9\n", "venv/bin/python": "-> /usr/bin/python3.11", "scripts/a.py": "print(1)\n"}, nil},

	{"above the skill, by pathlib", files{
		"scripts/a.py":     "from pathlib import Path\nHERE = Path(__file__).resolve().parent\n\nROOT = HERE.parents[2]\nOTHER = ROOT.parent\n",
		"scripts/b.py":     "import pathlib\ndef root() -> pathlib.Path:\n    current = pathlib.Path(__file__).absolute()\n    for p in current.parents:\n        pass\n    return current.parents[3]\n",
		"scripts/d.py":     "from pathlib import Path\ndef root(start: Path) -> Path:\n    current = start.resolve()\n    for p in [current] + list(current.parents):\n        pass\n    return current.parents[3]\nROOT = root(Path(__file__))\n",
		"scripts/sub/c.py": "from pathlib import Path\nprint(Path( __file__ ).parent.parent.parent.parent / 'x')\n",
	}, []string{"warning above-skill scripts/a.py:4", "warning above-skill scripts/b.py:6", "warning above-skill scripts/d.py:6", "warning above-skill scripts/sub/c.py:2"}},
	{"above the skill, by os.path", files{
		"scripts/a.py": "import os\nHERE = os.path.dirname(os.path.abspath(__file__))\nSKILL = os.path.dirname(HERE)\nROOT = os.path.join(os.path.dirname(SKILL), 'lib')\n",
		"scripts/b.py": "from os.path import dirname\nroot = dirname(dirname(dirname(__file__)))\n",
	}, []string{"warning above-skill scripts/a.py:4", "warning above-skill scripts/b.py:2"}},
	{"not above the skill", files{
		"scripts/a.py": "from pathlib import Path\n# Path(__file__).parents[9]\n'''Path(__file__).parents[9]'''\nSKILL = Path(__file__).resolve().parents[1]\nx = SKILL / 'assets'\nx = x.parent.parent.parent\n",
		"scripts/b.py": "import os\nfrom pathlib import Path\nhere = Path(__file__).parent\nhere = Path.cwd()\nprint(here.parent.parent)\np = Path(__file__).parent\ndef f(p):\n    return p.parents[4]\nwhile True:\n    q = Path(__file__).parent\n    q = q.parent\n    q = q.parent\nprint(os.path.dirname(os.path.dirname(__file__)))\n",
		"scripts/c.sh": "dirname $(dirname $(dirname __file__))\n",
	}, nil},

	{"absolute path in Python", files{"scripts/a.py": "# /home/me/x\n\"\"\"Reads /home/me/x.\"\"\"\np = '/home/me/data.csv'\nq = '/home/me/data.csv'\n"}, []string{"warning absolute-path scripts/a.py:3"}},
	{"absolute path in shell", files{"scripts/a.sh": "# /Users/me\ncat /Users/me/x\ncd 'C:\\Users\\me'\n"}, []string{"warning absolute-path scripts/a.sh:2", "warning absolute-path scripts/a.sh:3"}},
	{"absolute path in node", files{"scripts/a.js": "#!/usr/bin/env bash\n/* /mnt/data\n /mnt/data */\n// /mnt/data\nconst x = '/mnt/data/x'\n"}, []string{
		"warning interpreter-missing scripts/a.js:0", "warning absolute-path scripts/a.js:5",
	}},
	{"paths that are there", files{"scripts/a.py": "a = ['/tmp/x', '/usr/share/x', '/workspace/x', '/home/skill/x', 'https://x.org/home/x', f'{root}/home/x', '../mnt/x', r'\\d:\\w']\n"}, nil},
}

var manifestRows = []row{
	{"absolute path in a command", files{"SKILL.md": md("", "Never /home/me.\n\n```bash\npython x.py /home/me/in.csv\n```\n\nSave to `/mnt/data/out.csv`.\n")}, []string{
		"warning absolute-path SKILL.md:8", "warning absolute-path SKILL.md:11",
	}},
	{"no absolute path", files{"SKILL.md": md("", "```bash\npython {baseDir}/scripts/x.py /tmp/a $HOME/mnt/b\n```\n"), "scripts/x.py": ""}, nil},

	{"reference missing", files{"SKILL.md": md("", "See [the guide](references/GUIDE.md#x) and `scripts/none.py`.\n\n```bash\npython scripts/gone.py a\n./scripts/none.py\n```\n")}, []string{
		"warning reference-missing SKILL.md:5", "warning reference-missing SKILL.md:5", "warning reference-missing SKILL.md:8",
	}},
	{"link missing", files{"SKILL.md": md("", "![x](images/a%20b.png) [y](FORMS.md \"title\")\n")}, []string{
		"warning reference-missing SKILL.md:5", "warning reference-missing SKILL.md:5",
	}},
	{"references that are there", files{
		"SKILL.md": md("", "[a](references/a%20b.md) [b](https://x.org/y.md) [c](#d) [e](mailto:x@y.z) [f](/abs) [g]({baseDir}/g.md)\n`scripts/*.py` `assets/<name>.png`\n"+
			"For example `scripts/rotate.py`.\n\n```bash\npython scripts/a.py > assets/out.png --output references/new.md\n```\n```python\nopen('assets/x')\n```\n```\n├── scripts/x.py\n```\n"),
		"references/a b.md": "", "scripts/a.py": "", "g.md": "",
	}, nil},
	{"base dir", files{"SKILL.md": md("", "`{baseDir}/scripts/none.py`\n")}, []string{"warning base-dir-reference SKILL.md:5"}},
	{"lower case manifest", files{"SKILL.md": "-> skill.md", "skill.md": md("", "`scripts/none.py`\n")}, []string{"warning reference-missing SKILL.md:5"}},
}

var toolRows = []row{
	{"rules that never match", files{"SKILL.md": md("allowed-tools: >-\n  Bash(git log:*), Bash(cat x | wc),\n  Bash(sudo:*), Bash(), bash(wc:*), Bash(cd:*), Read", "")}, []string{
		"warning tool-rule-unusable SKILL.md:5", "warning tool-rule-unusable SKILL.md:6", "warning tool-rule-unusable SKILL.md:6",
		"warning tool-rule-unusable SKILL.md:6", "warning tool-rule-unusable SKILL.md:6",
	}},
	{"rules that match", files{"SKILL.md": md("allowed-tools: Bash(git log:*) Bash(python {baseDir}/scripts/a.py:*) Read WebFetch(domain:x.org)", ""), "scripts/a.py": ""}, nil},
	{"program of a rule missing", files{"SKILL.md": md("allowed-tools: [\"Bash(ffmpeg:*)\", \"Bash({baseDir}/scripts/none.sh:*)\",\n  \"Bash(/opt/x/tool:*)\", \"Bash(scripts/no.sh:*)\", \"Bash(/usr/bin/git:*)\", \"Bash({baseDir}/run.sh:*)\"]", ""), "run.sh": ""}, []string{
		"warning tool-program-missing SKILL.md:4", "warning tool-program-missing SKILL.md:4",
		"warning tool-program-missing SKILL.md:5", "warning tool-program-missing SKILL.md:5", "warning script-place run.sh:0",
	}},
	{"script of a rule missing", files{"SKILL.md": md("allowed-tools: Bash(python tools/a.py:*) Bash(python {baseDir}/scripts/b.py:*) Bash(python scripts/c.py)", ""), "scripts/c.py": ""}, []string{
		"warning tool-program-missing SKILL.md:4", "warning tool-program-missing SKILL.md:4",
	}},
	{"rules twice", files{"SKILL.md": md("allowed-tools:\n  - Bash(git:*)\n  - Bash(git log:*)\n  - Read\n  - Read", "")}, []string{
		"warning tool-rule-shadowed SKILL.md:7",
	}},
	{"a rule under a wider one", files{"SKILL.md": md("allowed-tools: Bash(wc -l:*) Bash(wc:*)", "")}, []string{"warning tool-rule-shadowed SKILL.md:4"}},

	{"command refused", files{"SKILL.md": md("allowed-tools: Bash(git log:*)", "```bash\n# first\ngit log -n 3\ngit push\ngit push\nfor f in a b; do\n  wc $f\ndone\n```\n```sh\ncd x && \\\n  git log\n```\n")}, []string{
		"warning command-refused SKILL.md:9", "warning command-refused SKILL.md:11", "warning command-refused SKILL.md:16",
	}},
	{"command refused in a session", files{"SKILL.md": md("allowed-tools: Bash(git log:*)", "```console\n$ git push\npushed\n$ git log\n```\n")}, []string{"warning command-refused SKILL.md:7"}},
	{"commands that are none", files{"SKILL.md": md("allowed-tools: Bash(git log:*)", "```python\nimport os\n```\n```\nrm -rf /\n```\n```bash\ngit push <remote>\nrm your-file\ntool [options] x\ngit log '*.md' # shows {baseDir}\n```\n`rm x`\n")}, nil},
	{"no allowed-tools", files{"SKILL.md": md("", "```bash\nrm x\n```\n")}, nil},
}

var networkRows = []row{
	{"network in Python", files{"scripts/a.py": "import os, json\nfrom urllib import request\n", "scripts/b.py": "def f():\n    import requests.adapters as r\n"}, []string{
		"warning network-undeclared scripts/a.py:2", "warning network-undeclared scripts/b.py:2", "warning package-undeclared scripts/b.py:2",
	}},
	{"no network in Python", files{"scripts/a.py": "# import requests\n'''\nimport socket\n'''\nx = 'import socket'\nfrom urllib.parse import quote\nimport http.server\n", "scripts/b.py": "import socket\ns = socket.socket(socket.AF_UNIX)\n"}, nil},
	{"network in shell", files{"scripts/a.sh": "# curl x\necho curl\ncurl -s http://x\n", "scripts/b.sh": "x=$(wget -q y)\n", "scripts/c.sh": "if true; then pip install x; fi\n", "scripts/d.sh": "git clone https://x.org/y\n"}, []string{
		"warning network-undeclared scripts/a.sh:3", "warning network-undeclared scripts/b.sh:1", "warning network-undeclared scripts/c.sh:1", "warning network-undeclared scripts/d.sh:1",
	}},
	{"no network in shell", files{"scripts/a.sh": "git clone history.bundle /tmp/repo\necho 'no curl here'\nmycurl x\n"}, nil},
	{"network in perl", files{"scripts/a.pl": "use strict;\nuse LWP::UserAgent;\n"}, []string{"warning network-undeclared scripts/a.pl:2"}},
	{"network in node", files{"scripts/a.js": "#!/usr/bin/perl\nconst http = require('node:https')\n", "scripts/b.mjs": "#!/usr/bin/perl\nawait fetch(url)\n", "scripts/c.js": "repo.fetch(x); prefetch(y)\n"}, []string{
		"warning interpreter-missing scripts/a.js:0", "warning network-undeclared scripts/a.js:2",
		"warning interpreter-missing scripts/b.mjs:0", "warning network-undeclared scripts/b.mjs:2", "warning interpreter-missing scripts/c.js:0",
	}},
	{"network in ruby", files{"scripts/a.rb": "require 'json'\nrequire 'net/http'\n"}, []string{"warning interpreter-missing scripts/a.rb:0", "warning network-undeclared scripts/a.rb:2"}},
	{"network declared", files{"SKILL.md": md("network_access: true", ""), "scripts/a.sh": "curl x\n"}, nil},
}
