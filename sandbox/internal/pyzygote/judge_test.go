package pyzygote_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// judgedCode imports a preloaded module with a directory of the workspace in front.
const judgedCode = `import sys
sys.path.insert(0, sys.argv[1] if len(sys.argv) > 1 else "")
import json
print(json.__file__)
`

// openDir makes a directory for a sandbox's workspace.
func openDir(t testing.TB) string {
	t.Helper()
	dir := publicDir(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// mkdirDeep makes directories, one in the other, and returns the last one. It takes one
// step at a time: the path may be longer than the kernel takes.
func mkdirDeep(t testing.TB, top, name string, count int) *os.File {
	t.Helper()
	f, err := os.Open(top)
	for range count {
		var fd int
		if err == nil {
			err = unix.Mkdirat(int(f.Fd()), name, 0o755)
		}
		if err == nil {
			fd, err = unix.Openat(int(f.Fd()), name, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		f = os.NewFile(uintptr(fd), name)
	}
	return f
}

// makeTree makes files beneath top: name to text. A text that begins with "->" makes a
// link, and a name that ends with a slash a directory.
func makeTree(t testing.TB, top string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(top, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		target, link := strings.CutPrefix(text, "->")
		switch {
		case err != nil:
		case link:
			err = os.Symlink(target, path)
		case strings.HasSuffix(name, "/"):
			err = os.Mkdir(path, 0o755)
		default:
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// judge runs command twice in a sandbox: in a child that decides, and in a child that
// executes. It compares the results unless they may differ.
func judge(t *testing.T, server *forkServer, c *forkTarget, command forkServerCommand, by string, differs bool) {
	t.Helper()
	defer func(t testing.TB) { server.t = t }(server.t)
	server.t = t
	command.Elsewhere = true
	child := server.fork(c)
	child.assign(command)
	if got := child.started(); got != by && by != "any" {
		t.Errorf("%.200q: started by %q, want %q", command.Argv, got, by)
	}
	got := child.finish("").withoutAddresses()
	command.Exec = true
	if want := server.run(c, command, "", "exec").withoutAddresses(); got != want && !differs {
		t.Errorf("%.200q: got %v\nwant %v", command.Argv, got, want)
	}
}

// The fork server executes each command that it can't judge. No command fails to start.
func TestForkServerJudges(t *testing.T) {
	t.Parallel()
	server := startForkServerIn(t, forkServerEnv(), forkServerPython(), []string{"json", "csv", "subprocess", "nothing", "msvcrt"}, change{"forkserver/judge.py", "MAX_LISTED = 1 << 16", "MAX_LISTED = 1 << 8"})
	python := server.cmd.Args[0]
	version := forkServerVersion(t)
	pth := func(line string) map[string]string {
		return map[string]string{"base/lib/" + version + "/site-packages/odd.pth": line + "\n"}
	}
	zip := zipOf(t, map[string]string{"json.py": "", "__main__.py": "import json; print(json.__file__)"})
	many := map[string]string{}
	for i := range 1<<8 + 1 {
		many[fmt.Sprintf("many/%d", i)] = ""
	}
	many["many/main.py"] = "print('many')"
	links := map[string]string{"link0": "main.py", "main.py": "print('links')"}
	for i := range 1500 {
		links[fmt.Sprintf("link%d", i+1)] = fmt.Sprintf("->link%d", i)
	}
	links["link0"] = "->main.py"
	long := strings.Repeat("x", 5000)
	const base = "PYTHONUSERBASE=/workspace/base"
	packages := "venv/lib/" + version + "/site-packages"
	for _, c := range []struct {
		name  string
		files map[string]string
		make  func(t *testing.T, top string)
		args  []string // else judgedCode with the workspace in front
		env   string   // an additional variable
		by    string
		// A package may break more of Python's start than of a forked Python.
		differs bool
	}{
		{name: "nothing"},
		{name: "deep", make: func(t *testing.T, top string) { mkdirDeep(t, top, "a", 1500).Close() }, by: "exec"},
		{name: "deeper than a path", make: func(t *testing.T, top string) { mkdirDeep(t, top, strings.Repeat("a", 200), 40).Close() }, by: "exec"},
		{name: "not too deep", make: func(t *testing.T, top string) { mkdirDeep(t, top, "a", 30).Close() }},
		{name: "unreadable", files: map[string]string{"a/json.py": ""}, make: func(t *testing.T, top string) {
			if err := os.Chmod(filepath.Join(top, "a"), 0); err != nil {
				t.Error(err)
			}
		}, by: "exec"},
		{name: "undecodable names", files: map[string]string{"\xff\xfe.py": "", "a\nb/\xed\xa0\x80/c.py": "", strings.Repeat("n", 255): ""}},
		{name: "an undecodable link", files: map[string]string{"a": "->\xff", "\xff/json.py": ""}, by: "exec"},
		{name: "links in a circle", files: map[string]string{"a": "->b", "b": "->a"}, by: "exec"},
		{name: "a link to its directory", files: map[string]string{"a/b": "->..", "c": "->."}},
		{name: "a link to nothing", files: map[string]string{"a": "->none"}},
		{name: "a link that leads out", files: map[string]string{"a": "->/usr/share"}, by: "exec"},
		{name: "a link to a directory beside", files: map[string]string{"a": "->/workspacex"}},
		{name: "a link to a link to a package", files: map[string]string{"json": "->b", "b": "->c", "c/__init__.py": ""}, by: "exec"},
		{name: "a module in a virtual environment", files: map[string]string{"venv/pyvenv.cfg": "", "venv/json.py": "print('venv')"}, args: []string{"-c", judgedCode, "/workspace/venv"}, by: "exec"},
		{name: "a package of a virtual environment", files: map[string]string{packages + "/json.py": "print('package')"}, args: []string{"-c", judgedCode, "/workspace/" + packages}, by: "exec"},
		{name: "a part of a package of a virtual environment", files: map[string]string{packages + "/a/json.py": ""}},
		{name: "a zip file", files: map[string]string{"lib/vendor.ZIP": zip}, args: []string{"-c", judgedCode, "/workspace/lib/vendor.ZIP"}, by: "exec"},
		{name: "a link to a wheel", files: map[string]string{"vendor.whl": zip, "vendor": "->vendor.whl"}, args: []string{"-c", judgedCode, "/workspace/vendor"}, by: "exec"},
		{name: "a directory with a zip file's name", files: map[string]string{"vendor.zip/mine.py": ""}, args: []string{"-c", judgedCode, "/workspace/vendor.zip"}},
		{name: "a module that a preloaded one looked for", files: map[string]string{"lib/msvcrt.py": "print('found')"}, args: []string{"-c", "import sys; sys.path.insert(0, '/workspace/lib'); import subprocess"}, by: "exec"},
		{name: "a module that the zygote doesn't find", files: map[string]string{"lib/nothing.py": "print('found')"}, args: []string{"-c", "import sys; sys.path.insert(0, '/workspace/lib'); import nothing"}},
		{name: "many names", files: many, args: []string{"many/main.py"}, by: "exec"},
		{name: "many links", files: links, args: []string{"link1500"}, by: "exec"},
		{name: "some links", files: links, args: []string{"link20"}, by: "exec"}, // the others are in a circle's way
		{name: "a path of nothing but parents", args: []string{strings.Repeat("../", 1000) + "workspace/none.py"}, by: "exec"},
		{name: "a long path", args: []string{long}, by: "exec"},
		{name: "a deep path", args: []string{strings.Repeat("a/", 1500) + "b.py"}, by: "exec"},
		{name: "an unreadable script", files: map[string]string{"a.py": ""}, make: func(t *testing.T, top string) {
			if err := os.Chmod(filepath.Join(top, "a.py"), 0); err != nil {
				t.Error(err)
			}
		}, args: []string{"a.py"}, by: "exec"},
		{name: "a zip file with a script's name", files: map[string]string{"a.py": zip}, args: []string{"a.py"}, by: "exec"},
		{name: "a script in a loop", files: map[string]string{"a": "->a"}, args: []string{"a/b.py"}, by: "exec"},
		{name: "no arguments of -c", args: []string{"-c"}, by: "exec"},
		{name: "nothing's name", args: []string{""}, by: "exec"},
		{name: "a device", args: []string{"/dev/null"}, by: "exec"},
		{name: "memory", args: []string{"/proc/self/mem"}, by: "exec"},
		{name: "a file without an end", args: []string{"/proc/self/environ"}, by: "exec"},
		{name: "standard input", args: []string{"/proc/self/fd/0"}, by: "exec"},
		{name: "the barrier", args: []string{"/proc/self/fd/3"}, by: "exec"},
		{name: "the root", args: []string{"/"}},
		{name: "a text that nests", args: []string{"-c", strings.Repeat("(", 50000)}},
		{name: "a text that nests in names", args: []string{"-c", "x" + strings.Repeat(".a", 50000)}},
		{name: "a long text", args: []string{"-c", "print(1)\n#" + strings.Repeat("x", 100_000)}},
		{name: "a text that is no characters", args: []string{"-c", "print(ascii('\U0010ffff\ufffd\ufffe\u2028'))", "\ufffe\U000e0001"}},
		{name: "a time zone in a directory", args: []string{"-c", "import time; print(time.tzname)"}, env: "TZ=:/workspace", by: "exec"},
		{name: "a time zone above", args: []string{"-c", "import time; print(time.tzname)"}, env: "TZ=../../../workspace", by: "exec"},
		{name: "time zones elsewhere", args: []string{"-c", "import time; print(time.tzname)"}, env: "TZDIR=/workspace", by: "exec"},
		{name: "a long time zone", args: []string{"-c", "import time; print(time.tzname)"}, env: "TZ=" + long},
		{name: "a home that is long", env: "HOME=/" + long},
		{name: "no home", env: "HOME="},
		{name: "a home in a loop", files: map[string]string{"a": "->a"}, args: []string{"-c", "print(1)"}, env: "HOME=/workspace/a", by: "exec"},
		{name: "packages by a long name", env: "PYTHONUSERBASE=/" + long},
		{name: "packages of another's home", env: "PYTHONUSERBASE=~nobody"},
		{name: "packages at odd names", env: "PYTHONUSERBASE=\x01\n~\ufffd"},
		{name: "a number on the path", files: pth("import sys; sys.path.append(5)"), env: base},
		{name: "a list on the path", files: pth("import sys; sys.path.append([])"), env: base, by: "any"},
		{name: "bytes on the path", files: pth("import sys; sys.path.append(b'/')"), env: base},
		{name: "an object on the path", files: pth("import sys; sys.path.append(type('T', (), {'__eq__': None, '__hash__': None})())"), env: base, by: "any"},
		{name: "no path", files: pth("import sys; sys.path = None"), env: base, by: "any"},
		{name: "NUL on the path", files: pth(`import sys; sys.path.append("\\0")`), env: base, by: "any"},
		{name: "surrogates on the path", files: pth(`import sys; sys.path.append("\\ud800")`), env: base, by: "any"},
		{name: "a long path on the path", files: pth("import sys; sys.path.append('x' * 5000)"), env: base, by: "any"},
		{name: "a zip file on the path", files: map[string]string{"base/lib/" + version + "/site-packages/odd.pth": "/workspace/a.data\n", "a.data": zip}, env: base}, // found after the barrier has said that it runs
		{name: "no recursion", files: pth("import sys; sys.setrecursionlimit(40)"), env: base, by: "any", differs: true},
		{name: "no files", files: pth("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))"), env: base, by: "any", differs: true},
		{name: "no functions", files: pth("import os; os.scandir = os.readlink = os.stat = None"), env: base, by: "any", differs: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			workspace := openDir(t)
			makeTree(t, workspace, c.files)
			if c.make != nil {
				c.make(t, workspace)
			}
			sandbox := newForkTargetOn(t, workspace, publicDir(t), forkServerAlso()...)
			if c.args == nil {
				c.args = []string{"-c", judgedCode, "/workspace"}
			}
			judge(t, server, sandbox, forkServerCommand{Argv: append([]string{python}, c.args...), Env: server.environment(c.env)}, c.by, c.differs)
		})
	}
}

// A time zone may name a file of the program. Only the program may read it: here it is a
// pipe without a writer.
func TestForkServerReadsNoTimeZone(t *testing.T) {
	server := startForkServer(t, forkServerPython())
	workspace := openDir(t)
	c := newForkTargetOn(t, workspace, publicDir(t), forkServerAlso()...)
	if err := unix.Mkfifo(filepath.Join(workspace, "zone"), 0o666); err != nil {
		t.Fatal(err)
	}
	child := server.fork(c)
	child.assign(forkServerCommand{Argv: []string{server.cmd.Args[0], "-c", "pass"}, Env: server.environment("TZ=/workspace/zone")})
	if got := child.started(); got != "exec" {
		t.Errorf("started by %q", got)
	}
	zone, err := os.OpenFile(filepath.Join(workspace, "zone"), os.O_WRONLY, 0) // waits for its reader
	if err != nil {
		t.Fatal(err)
	}
	zone.Close()
	if got := child.finish(""); got != (forkServerResult{}) {
		t.Errorf("got %v", got)
	}
}

// A child executes the command if any step of the judgement, or of the change into
// the Python that was asked for, raises an exception.
func TestForkServerFailsTowardsExecution(t *testing.T) {
	t.Parallel()
	workspace := openDir(t)
	c := newForkTargetOn(t, workspace, publicDir(t), forkServerAlso()...)
	makeTree(t, workspace, map[string]string{
		"main.py": "print('main')", "a": "->b", "b/c.py": "",
		"base/lib/" + forkServerVersion(t) + "/site-packages/other.py": "",
	})
	makeTree(t, workspace, venvFiles(t, "venv"))
	raise := func(what string) string { return "    raise " + what + "\n" }
	errors := []string{"RecursionError", "MemoryError", "OSError(36, 'File name too long')", "UnicodeDecodeError('utf-8', b'', 0, 1, '')", "ValueError", "KeyboardInterrupt", "SystemExit"}
	functions := []struct{ file, def string }{
		{"judge", "def settings(env):"},
		{"judge", "def names_a_file(zone):"},
		{"judge", "def names(directory):"},
		{"judge", "def hides(directory, preloaded):"},
		{"judge", "def hides_beneath(top, preloaded):"},
		{"judge", "def is_module(name, directory, preloaded):"},
		{"judge", "def hides_by_link(entry, top, preloaded):"},
		{"judge", "def where_is(path):"},
		{"judge", "def first_on_path(argv):"},
		{"judge", "def names_a_module(text, preloaded):"},
		{"judge", "def names_a_setting(text):"},
		{"judge", "def depends_on_order(text):"},
		{"judge", "def may_be_zip(path):"},
		{"judge", "def find_user_site():"},
		{"judge", "def runs_code(path):"},
		{"judge", "def find_venv_site(prefix):"},
		{"become", "def add_sites(command, user):"},
		{"become", "def enter_venv(command, known):"},
		{"become", "def executable_of(command):"},
		{"judge", "def may_fork(zygote, command):"},
		{"become", "def add_packages(zygote, barrier, command):"},
		{"become", "def reconfigure(zygote, command):"},
		{"become", "def configure(argv, heap):"},
		{"become", "def renew_main():"},
		{"exit", "def sentinel(zygote, more):"},
		{"become", "def rename(argv, layout):"},
	}
	// A function fails only once the child has its command: the fork server judges its own settings, too.
	var faulty []change
	for i, function := range functions {
		old := "\n" + function.def + "\n"
		faulty = append(faulty, change{"forkserver/" + function.file + ".py", old,
			old + fmt.Sprintf("    if os.environ.get('FAULT') == %q:\n    ", function.def) + raise(errors[i%len(errors)])})
	}
	server := startForkServerIn(t, forkServerEnv(), forkServerPython(), []string{"json"}, faulty...)
	for _, function := range functions {
		t.Run(function.def, func(t *testing.T) {
			env := server.environment("PYTHONUSERBASE=/workspace/base")
			command := forkServerCommand{Argv: []string{"/workspace/venv/bin/python3", "main.py"}, Env: env, Venv: "/workspace/venv", Base: server.cmd.Args[0]}
			judge(t, server, c, command, "", false)
			env["FAULT"] = function.def
			judge(t, server, c, command, "exec", false)
		})
	}
}

// In trees made by chance a forked Python imports the same files as a started one.
func TestForkServerJudgesByChance(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	server := startForkServer(t, forkServerPython(), "json", "csv")
	words := []string{"a", "b", "json", "csv", "json.py", "csv.py", "__init__.py", "json.pyc", "json.txt", "venv", "pyvenv.cfg", "__pycache__", "\xff", "x.py", ".git", "json.so"}
	word := func() string { return words[r.IntN(len(words))] }
	for round := range 24 {
		workspace := openDir(t)
		c := newForkTargetOn(t, workspace, publicDir(t), forkServerAlso()...)
		dirs := []string{"."}
		for range r.IntN(12) {
			name := filepath.Join(dirs[r.IntN(len(dirs))], word())
			path := filepath.Join(workspace, name)
			switch r.IntN(4) {
			case 0, 1:
				if os.Mkdir(path, 0o755) == nil { // else it is there
					dirs = append(dirs, name)
				}
			case 2:
				_ = os.Symlink(filepath.Join("/workspace", dirs[r.IntN(len(dirs))]), path)
			default:
				if f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644); err == nil {
					f.Close()
				}
			}
		}
		first := dirs[r.IntN(len(dirs))]
		t.Run(fmt.Sprintf("%d %q of %q", round, first, dirs), func(t *testing.T) {
			if strings.Contains(first, "\xff") { // arguments are UTF-8
				first = "."
			}
			judge(t, server, c, forkServerCommand{Argv: []string{server.cmd.Args[0], "-c", judgedCode, filepath.Join("/workspace", first)}}, "any", false)
		})
	}
}
