package main

import (
	"strings"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A command line that is a single Python command is forked from a Python zygote, as scripts
// are. The first run is executed, because no Python zygote has started yet. A forked run has the
// same output as an executed one. The parent of a forked process is outside of the sandbox, so
// getppid returns 0.
func TestForkedCommands(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	who := "import json, os, sys; print(os.getppid()); print(sys.executable, sys.prefix, sys.argv, sys.orig_argv, sys.path[0], __file__, os.getcwd(), sys.flags, os.path.realpath('/proc/self/exe'))"
	writeSkill(t, dir, "demo", "allowed-tools: Bash(python:*), Bash(python3:*)", map[string]string{"scripts/who.py": who})
	d := startDaemonIn(t, dir, "python: system\n")
	for _, line := range []string{
		"python3 scripts/who.py a 'b c'",
		"python {baseDir}/scripts/who.py",
		`python3 -c "` + strings.Replace(who, "__file__", "0", 1) + `" x`,
	} {
		t.Run(line, func(t *testing.T) {
			var first string
			until(t, "it is never forked", func() bool {
				r := d.run(command("demo", line))
				r.wantExit(t, 0)
				parent, rest, _ := strings.Cut(r.stdout.String(), "\n")
				if first == "" {
					first = rest
				}
				if rest != first {
					t.Errorf("with the parent %s got %s\nwant %s", parent, rest, first)
				}
				return parent == "0"
			})
		})
	}
}

// A program gets the first module on its search path, even if the Python zygote has imported
// another module of that name.
func TestForkedFindsItsOwnModules(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	const shows = "; import os, statistics; print(os.getppid()); print(statistics.__file__)"
	insert := "import sys; sys.path.insert(0, os.path.abspath('lib'))"
	writeSkill(t, dir, "demo", "allowed-tools: Bash(python3:*)", map[string]string{
		"lib/statistics.py":   "",
		"scripts/direct.py":   "import os; " + insert + shows,
		"scripts/indirect.py": "import paths" + shows,
		"scripts/paths.py":    "import os; " + insert,
	})
	writeSkill(t, dir, "plain", "allowed-tools: Bash(python3:*)", map[string]string{"other/statistics.txt": ""})
	d := startDaemonIn(t, dir, "python: system\n")
	brings := code("plain", "import brought"+shows)
	brings.Files = []*pb.InputFile{
		{Path: "brought.py", Source: &pb.InputFile_Content{Content: []byte("import os; " + insert)}},
		{Path: "lib/statistics.py", Source: &pb.InputFile_Content{}},
	}
	for name, request := range map[string]*pb.ExecuteRequest{
		"script":            script("demo", "scripts/direct.py"),
		"module":            script("demo", "scripts/indirect.py"),
		"code":              code("demo", "import os; "+insert+shows),
		"code and module":   code("demo", "import scripts.paths"+shows),
		"command":           command("demo", "python3 scripts/direct.py"),
		"file of a request": brings,
	} {
		t.Run(name, func(t *testing.T) {
			until(t, "it is never forked", func() bool {
				r := d.run(request)
				r.wantExit(t, 0)
				parent, file, _ := strings.Cut(r.stdout.String(), "\n")
				if file != "/workspace/lib/statistics.py\n" {
					t.Errorf("with the parent %s got %s", parent, file)
				}
				return parent == "0"
			})
		})
	}
}

// A forked program that has filled most of its memory with small objects ends normally: the
// decision about the fast exit needs no memory in proportion to the objects.
func TestForkedEndNeedsNoMemory(t *testing.T) {
	t.Parallel()
	const fill = `import os
kept = []
def held(): return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
while held() < 246 << 20: kept.append([[] for _ in range(10000)])
print(os.getppid())`
	dir := newDir(t)
	writeSkill(t, dir, "demo", "allowed-tools: Bash(python3:*)", nil)
	d := startDaemonIn(t, dir, "python: system\n")
	until(t, "it is never forked", func() bool {
		return d.run(code("demo", "import os; print(os.getppid())")).stdout.String() == "0\n"
	})
	request := code("demo", fill)
	request.Limits = &pb.ExecutionLimits{MemoryBytes: 256 << 20}
	r := d.run(request)
	r.wantExit(t, 0)
	if got := r.stdout.String(); got != "0\n" {
		t.Errorf("got %q, want the end of a program that was forked", got)
	}
}
