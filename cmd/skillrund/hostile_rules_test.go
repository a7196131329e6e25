package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// repository returns the files of a git repository with a configuration.
func repository(at, config string) map[string]string {
	return map[string]string{at + "HEAD": "ref: refs/heads/main\n", at + "config": "[core]\n\trepositoryformatversion = 0\n" + config, at + "objects/x": "", at + "refs/x": ""}
}

const (
	plant     = "echo RAN >&2"
	plantFile = "#!/bin/sh\n" + plant + "\n"
	plantCode = "import sys; sys.stderr.write('RAN\\n')\n"
	// selfPackage gives the name of a module to a file, for every script beneath its folder.
	selfPackage = `{"name": "absent", "exports": "./data/e.js"}`
	plantScript = "console.error('RAN')\n"
)

// A detour is an attack that tries to run another program than a rule covers.
type detour struct {
	name, rules, command string
	needs, dir           string
	files                map[string]string
	code                 codes.Code
	says                 string
}

func detours() []detour {
	return []detour{
		{"configuration of git", "Bash(git status)", "git status", "git", "", repository(".git/", "\tfsmonitor = "+plant+"\n"), codes.InvalidArgument, ".git"},
		{"configuration of git below", "Bash(git:*)", "git -C sub status", "git", "", repository("sub/.git/", "\tfsmonitor = "+plant+"\n"), codes.InvalidArgument, ".git"},
		{"alias of git", "Bash(git st)", "git st", "git", "", repository(".git/", "[alias]\n\tst = !"+plant+"\n"), codes.InvalidArgument, ".git"},
		{"directory of git", "Bash(git:*)", "git --git-dir=x --work-tree=. status", "git", "", repository("x/", "\tbare = false\n\tfsmonitor = "+plant+"\n"), codes.PermissionDenied, "--git-dir"},
		{"setting of git", "Bash(git:*)", "git init -q . && git -c core.fsmonitor='" + plant + "' status", "git", "", nil, codes.PermissionDenied, "'-c'"},
		{"copied configuration", "Bash(git:*) Bash(cp:*)", "git init -q . && cp c .git/config && git status", "git", "", map[string]string{"c": "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = " + plant + "\n"}, codes.PermissionDenied, ".git"},
		{"redirected configuration", "Bash(git:*) Bash(cat:*)", "git init -q . && cat c > .git/config && git status", "git", "", map[string]string{"c": "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = " + plant + "\n"}, codes.PermissionDenied, ".git"},
		{"output of git", "Bash(git:*)", "git init -q . && git config user.name a && git config user.email a@b && git commit -qm x --allow-empty && git log --format='[core]%nrepositoryformatversion = 0%nfsmonitor = " + plant + "' --output=.git/config && git status", "git", "", nil, codes.PermissionDenied, ".git"},
		{"dot-dot", "Bash(python3 scripts/*)", "python3 scripts/../evil.py", "python3", "", map[string]string{"evil.py": plantCode}, codes.PermissionDenied, "leaves the folder"},
		{"another script", "Bash(python3 scripts/*)", "python3 scripts/evil.py", "python3", "", map[string]string{"scripts/evil.py": plantCode}, codes.InvalidArgument, "scripts/"},
		{"module beside the script", "Bash(python3 tools/json_tool.py:*)", "python3 tools/json_tool.py", "python3", "", map[string]string{"tools/json.py": plantCode}, codes.InvalidArgument, "same folder"},
		{"module beside a script of the root", "Bash(python3 main.py)", "python3 main.py", "python3", "", map[string]string{"json.py": plantCode}, codes.InvalidArgument, "load"},
		{"package of the system", "Bash(python3 -m json.tool:*)", "python3 -m json.tool --help", "python3", "", map[string]string{"json/__init__.py": plantCode}, codes.InvalidArgument, "load"},
		{"working directory", "Bash(python3 scripts/ok.py)", "python3 scripts/ok.py", "python3", "in", map[string]string{"in/scripts/ok.py": plantCode}, codes.InvalidArgument, "working_directory"},
		{"redirected script", "Bash(python3 scripts/ok.py) Bash(cat:*)", "cat c > scripts/ok.py; python3 scripts/ok.py", "python3", "", map[string]string{"c": plantCode}, codes.PermissionDenied, "{baseDir}/scripts/ok.py"},
		{"copied script", "Bash(python3 scripts/ok.py) Bash(cp:*)", "cp c scripts/ok.py; python3 scripts/ok.py", "python3", "", map[string]string{"c": plantCode}, codes.PermissionDenied, "{baseDir}/scripts/ok.py"},
		{"package of node", "Bash(node tools/x.js:*)", "node tools/x.js", "node", "", map[string]string{"package.json": selfPackage, "data/e.js": plantScript}, codes.InvalidArgument, "load"},
		{"redirected package of node", "Bash(node tools/x.js) Bash(cat:*)", "cat c > package.json; node tools/x.js", "node", "", map[string]string{"c": selfPackage, "data/e.js": plantScript}, codes.PermissionDenied, "{baseDir}/tools/x.js"},
		{"redirected module of node", "Bash(node tools/x.js) Bash(cat:*) Bash(mkdir:*)", "mkdir node_modules; cat c > node_modules/absent.js; node tools/x.js", "node", "", map[string]string{"c": plantScript}, codes.PermissionDenied, "{baseDir}/tools/x.js"},
		{"program in a folder", "Bash(ls*)", "lsx/run", "ls", "", map[string]string{"lsx/run": plantFile}, codes.PermissionDenied, "Bash(ls*)"},
		{"test of zip", "Bash(zip:*)", "zip -T -qTT '" + plant + " #' x.zip c", "zip", "", map[string]string{"c": "c"}, codes.PermissionDenied, "-qTT"},
		{"options file of gcc", "Bash(gcc:*)", "gcc @options -c a.c", "gcc", "", map[string]string{"options": "-B.", "as": plantFile, "a.c": ""}, codes.PermissionDenied, "@options"},
		{"programs of gcc", "Bash(gcc:*)", "gcc -B. -c a.c", "gcc", "", map[string]string{"as": plantFile, "a.c": ""}, codes.PermissionDenied, "-B."},
		{"command of sqlite3", "Bash(sqlite3:*)", "sqlite3 x.db '.shell " + plant + "'", "sqlite3", "", nil, codes.PermissionDenied, ".shell"},
		{"input of sqlite3", "Bash(sqlite3:*)", "sqlite3 x.db <<< '.shell " + plant + "'", "sqlite3", "", nil, codes.PermissionDenied, "-safe"},
		{"configuration of wget", "Bash(wget:*)", "wget --config=c http://127.0.0.1/", "wget", "", map[string]string{"c": "use_askpass = ./ask\n", "ask": plantFile}, codes.PermissionDenied, "--config"},
		{"subcommand of git with a slash", "Bash(git:*)", "git ./x", "git", "", map[string]string{"git-./x": plantFile}, codes.PermissionDenied, "./x"},
		{"remote helper of git with a slash", "Bash(git:*)", "git remote-./x", "git", "", map[string]string{"git-remote-./x": plantFile}, codes.PermissionDenied, "remote-./x"},
		{"strategy of git with a slash", "Bash(git:*)", "git init -q . && git config user.name a && git config user.email a@b && git commit -qm x --allow-empty && git checkout -qb b && git add c && git commit -qm c && git checkout -q - && git add d && git commit -qm d && git rebase -s ./x b", "git", "", map[string]string{"git-merge-./x": plantFile, "c": "c", "d": "d"}, codes.PermissionDenied, "'-s'"},
		// The command cat ends when what psql starts has ended; psql does not wait for it.
		{"pipe of psql", "Bash(psql:*) Bash(cat:*)", "psql -o '|" + plant + "' -c 'select 1' 2>&1 | cat >&2", "psql", "", nil, codes.PermissionDenied, "'-o'"},
		{"pipe of psql in a cluster", "Bash(psql:*) Bash(cat:*)", "psql '-qo|" + plant + "' -c 'select 1' 2>&1 | cat >&2", "psql", "", nil, codes.PermissionDenied, "-qo"},
		{"value of an option of sqlite3", "Bash(sqlite3:*)", "sqlite3 -nonce -safe x.db '.shell " + plant + "'", "sqlite3", "", nil, codes.PermissionDenied, "-nonce"},
		{"plugin of gcc's preprocessor", "Bash(gcc:*)", "gcc -shared -fPIC -o p.so p.c && gcc -Wp,-fplugin=./p.so -c a.c", "gcc", "", map[string]string{"p.c": "#include <unistd.h>\n__attribute__((constructor)) static void f(void) { write(2, \"RAN\\n\", 4); }\n", "a.c": ""}, codes.PermissionDenied, "-Wp,-fplugin"},
		{"runner hyperfine", "Bash(hyperfine:*)", "hyperfine -r 1 --show-output '" + plant + "'", "hyperfine", "", nil, codes.PermissionDenied, "must have all words"},
		{"configuration of latexmk", "Bash(latexmk:*)", "latexmk a.tex", "latexmk", "", map[string]string{"latexmkrc": "system('" + plant + "');\n", "a.tex": ""}, codes.InvalidArgument, "latexmk runs"},
		{"processor of javac", "Bash(javac:*)", "javac -proc:none P.java && javac A.java", "javac", "", map[string]string{"META-INF/services/javax.annotation.processing.Processor": "P\n", "P.java": processor, "A.java": "class A {}\n"}, codes.InvalidArgument, "javac runs"},
		{"linker of rustc", "Bash(rustc:*)", "rustc -C linker=./x a.rs", "/usr/bin/rustc", "", map[string]string{"x": plantFile, "a.rs": "fn main() {}\n"}, codes.PermissionDenied, "'-C'"},
	}
}

// processor is an annotation processor that shows that it ran.
const processor = "public class P extends javax.annotation.processing.AbstractProcessor {\n" +
	"public P() { System.err.println(\"RAN\"); }\n" +
	"public boolean process(java.util.Set<? extends javax.lang.model.element.TypeElement> a, javax.annotation.processing.RoundEnvironment r) { return false; }\n}\n"

// aroundTheRules tries each detour. A skill with the rule refuses it and names the field or the
// rule. With a skill that allows every command the program runs, which shows that the attack works.
func aroundTheRules(t *testing.T, _ *running, _ hostileCase) {
	cases := detours()
	dir := newDir(t)
	files := map[string]string{"scripts/ok.py": "print('ok')\n", "tools/json_tool.py": "import json\n", "main.py": "import json\n", "tools/x.js": "try { require('absent') } catch {}\n"}
	writeSkill(t, dir, "open", "allowed-tools: Bash", files)
	for i, c := range cases {
		writeSkill(t, dir, fmt.Sprintf("scoped%d", i), "allowed-tools: "+c.rules, files)
	}
	d := startDaemonIn(t, dir, "")
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d.t = t
			request := func(skill string) *pb.ExecuteRequest {
				req := command(skill, c.command)
				req.WorkingDirectory = c.dir
				for path, text := range c.files {
					req.Files = append(req.Files, &pb.InputFile{Path: path, Executable: strings.HasPrefix(text, "#!"), Source: &pb.InputFile_Content{Content: []byte(text)}})
				}
				return req
			}
			r, err := d.try(request(fmt.Sprintf("scoped%d", i)))
			if status.Code(err) != c.code {
				t.Fatalf("%v, want %v; it ran: %v", err, c.code, r)
			}
			if message := status.Convert(err).Message(); !strings.Contains(message, c.says) {
				t.Errorf("message %q, want one with %q", message, c.says)
			}
			if _, err := exec.LookPath(c.needs); err != nil {
				t.Skipf("no %s here to show that the refusal is needed", c.needs)
			}
			if r := d.run(request("open")); !strings.Contains(r.stderr.String(), "RAN") {
				t.Errorf("a skill that allows everything did not run what was brought: stdout %q, stderr %q", r.stdout.String(), r.stderr.String())
			}
		})
	}
}

// unpackedRepository has a script of the skill unpack a repository whose configuration names
// programs. A git that a rule covers gets an environment that ignores them.
func unpackedRepository(t *testing.T, _ *running, _ hostileCase) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git here")
	}
	dir := newDir(t)
	files := map[string]string{"unpack.py": "import shutil\nshutil.copytree('repo', '.git')\n"}
	writeSkill(t, dir, "open", "allowed-tools: Bash", files)
	writeSkill(t, dir, "scoped", "allowed-tools: Bash(python3 {baseDir}/unpack.py) Bash(git:*)", files)
	d := startDaemonIn(t, dir, "")
	for config, line := range map[string]string{
		"\tfsmonitor = " + plant + "\n":          "git status",
		"[alias]\n\tst = !" + plant + "\n":       "git st",
		"\tfsmonitor = " + plant + " #\n":        "git -C . status",
		"[core]\n\tsshCommand = " + plant + "\n": "git ls-remote ssh://x/y",
	} {
		for skill, ran := range map[string]bool{"open": true, "scoped": false} {
			req := command(skill, "python3 {baseDir}/unpack.py && "+line)
			for path, text := range repository("repo/", config) {
				req.Files = append(req.Files, &pb.InputFile{Path: path, Source: &pb.InputFile_Content{Content: []byte(text)}})
			}
			if r := d.run(req); strings.Contains(r.stderr.String(), "RAN") != ran {
				t.Errorf("%s with %q ran %v, want %v: %q", line, config, !ran, ran, r.stderr.String())
			}
		}
	}
}
