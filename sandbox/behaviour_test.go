package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func bash(script string) Program { return command("/usr/bin/bash", "-c", script) }

var testEnv = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/opt/skillrun/bin", "HOME=/home/skill", "TMPDIR=/tmp", "LANG=C.UTF-8", "USER=skill"}

func TestEnds(t *testing.T) { eachMaker(t, testEnds) }

func testEnds(t *testing.T, h *Host) {
	for _, tt := range []struct {
		name    string
		program Program
		end     End
		code    int
		signal  syscall.Signal
		stdout  string
		stderr  string
	}{
		{name: "true", program: command("/usr/bin/true")},
		{name: "false", program: command("false"), code: 1},
		{name: "code", program: bash("exit 213"), code: 213},
		{name: "kill", program: bash("kill -9 $$"), end: Signaled, signal: syscall.SIGKILL},
		{name: "term", program: bash("kill -15 $$"), end: Signaled, signal: syscall.SIGTERM},
		{name: "segv", program: bash("kill -SEGV $$"), end: Signaled, signal: syscall.SIGSEGV},
		{name: "abort", program: command("python3", "-c", "import os; os.abort()"), end: Signaled, signal: syscall.SIGABRT},
		{name: "python", program: command("python3", "-c", "print(2+2)"), stdout: "4\n"},
		{name: "timers", program: command("python3", "-c", "import ctypes; print(ctypes.CDLL(None).prctl(30))"), stdout: "50000\n"}, // PR_GET_TIMERSLACK
		{name: "node", program: command("node", "-e", "console.log([1,2].map(x => x*2).join())"), stdout: "2,4\n"},
		{name: "no stdin is an empty one", program: command("cat")},
		{name: "streams", program: bash("echo out; echo err >&2"), stdout: "out\n", stderr: "err\n"},
		{name: "124 is the program's own", program: bash("exit 124"), code: 124},
		{name: "dev stdout", program: bash("echo a >/dev/stdout; echo b >/dev/stderr; echo c >/proc/self/fd/1"), stdout: "a\nc\n", stderr: "b\n"},
		{name: "close stdout", program: bash("exec >&- 2>&-; exit 7"), code: 7},
		{name: "daemon dies with the main process", program: bash("(setsid sleep 1000 &) ; echo done"), stdout: "done\n"},
		{name: "background holds stdout", program: bash("sleep 1000 & echo done"), stdout: "done\n"},
		{name: "orphans are reaped", program: bash("for i in $(seq 100); do (true &); done; ls /proc | grep -c '^[0-9]' >/dev/null; echo ok"), stdout: "ok\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := run(t, h, Spec{Program: tt.program, Env: testEnv}, "")
			if got.exit.End != tt.end || got.exit.Code != tt.code || got.exit.Signal != tt.signal {
				t.Errorf("got %v %d %v, want %v %d %v", got.exit.End, got.exit.Code, got.exit.Signal, tt.end, tt.code, tt.signal)
			}
			if got.stdout != tt.stdout || got.stderr != tt.stderr {
				t.Errorf("got %q, %q, want %q, %q", got.stdout, got.stderr, tt.stdout, tt.stderr)
			}
		})
	}
}

func pipeline(commands ...Command) Program { return Program{{Pipeline: commands}} }

func cmd(args ...string) Command { return Command{Args: args} }

func with(c Command, r ...Redirect) Command {
	c.Redirects = append(c.Redirects, r...)
	return c
}

func TestPlans(t *testing.T) { eachMaker(t, testPlans) }

func testPlans(t *testing.T, h *Host) {
	long := strings.Repeat("0123456789", 20_000)
	lower := newSnapshot(t, map[string]string{"gone/x": ""})
	if err := os.Remove(filepath.Join(lower, "gone/x")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		program Program
		dir     string
		stdin   string
		code    int
		stdout  string
		stderr  string
	}{
		{name: "pipeline", program: pipeline(cmd("printf", `b\na\n`), cmd("sort"), cmd("tr", "a-z", "A-Z")), stdout: "A\nB\n"},
		{name: "status is the last one's", program: pipeline(cmd("true"), cmd("bash", "-c", "exit 3")), code: 3},
		{name: "and", program: Program{{Pipeline: []Command{cmd("true")}}, {When: IfSucceeded, Pipeline: []Command{cmd("echo", "yes")}}}, stdout: "yes\n"},
		{name: "and not", program: Program{{Pipeline: []Command{cmd("false")}}, {When: IfSucceeded, Pipeline: []Command{cmd("echo", "yes")}}}, code: 1},
		{name: "or", program: Program{{Pipeline: []Command{cmd("false")}}, {When: IfFailed, Pipeline: []Command{cmd("echo", "no")}}}, stdout: "no\n"},
		{name: "or not, then", program: Program{{Pipeline: []Command{cmd("true")}}, {When: IfFailed, Pipeline: []Command{cmd("echo", "no")}}, {When: Always, Pipeline: []Command{cmd("echo", "then")}}}, stdout: "then\n"},
		{name: "not found", program: Program{{Pipeline: []Command{cmd("nonesuch", "x")}}, {When: IfFailed, Pipeline: []Command{cmd("nonesuch2")}}}, code: 127,
			stderr: "skillrun: nonesuch: not found\nskillrun: nonesuch2: not found\n"},
		{name: "not executable", program: Program{{Pipeline: []Command{cmd("true")}}, {Pipeline: []Command{cmd("/etc/passwd")}}}, code: 126, stderr: "skillrun: /etc/passwd: Permission denied\n"},
		{name: "a directory", program: Program{{Pipeline: []Command{cmd("true")}}, {Pipeline: []Command{cmd("/usr/bin")}}}, code: 126, stderr: "skillrun: /usr/bin: Permission denied\n"},
		{name: "write, append, read", program: Program{
			{Pipeline: []Command{with(cmd("echo", "1"), Redirect{FD: 1, Kind: Write, Path: "f"})}},
			{Pipeline: []Command{with(cmd("echo", "2"), Redirect{FD: 1, Kind: Append, Path: "f"})}},
			{Pipeline: []Command{with(cmd("cat"), Redirect{FD: 0, Kind: Read, Path: "./f"})}},
		}, stdout: "1\n2\n"},
		{name: "dup order", program: pipeline(with(cmd("bash", "-c", "echo o; echo e >&2"),
			Redirect{FD: 2, Kind: Dup, From: 1}, Redirect{FD: 1, Kind: Write, Path: "/dev/null"})), stdout: "e\n"},
		{name: "descriptor 3", program: pipeline(with(cmd("bash", "-c", "echo three >&3; cat t"), Redirect{FD: 3, Kind: Write, Path: "t"})), stdout: "three\n"},
		{name: "here-document", program: pipeline(with(cmd("cat"), Redirect{FD: 0, Kind: Text, Text: "a\x00b\n"})), stdout: "a\x00b\n"},
		{name: "long here-document", program: pipeline(with(cmd("cat"), Redirect{FD: 0, Kind: Text, Text: long})), stdout: long},
		{name: "pipe stderr", program: pipeline(Command{Args: []string{"bash", "-c", "echo e >&2"}, PipeStderr: true}, cmd("tr", "e", "E")), stdout: "E\n"},
		{name: "missing file", program: pipeline(with(cmd("cat"), Redirect{FD: 0, Kind: Read, Path: "none"})), code: 1, stderr: "skillrun: none: No such file or directory\n"},
		{name: "link out of the workspace", program: Program{
			{Pipeline: []Command{cmd("ln", "-s", "/etc/passwd", "l")}},
			{Pipeline: []Command{with(cmd("cat"), Redirect{FD: 0, Kind: Read, Path: "l"})}},
		}, code: 1, stderr: "skillrun: l: Invalid cross-device link\n"},
		{name: "stdin goes to the first", program: pipeline(cmd("cat"), cmd("wc", "-c")), stdin: "12345", stdout: "5\n"},
		{name: "the next step has the rest of stdin", program: Program{
			{Pipeline: []Command{cmd("bash", "-c", "read x; echo got $x")}}, {Pipeline: []Command{cmd("cat")}}}, stdin: "a\nb\n", stdout: "got a\nb\n"},
		{name: "SIGPIPE", program: pipeline(cmd("yes"), cmd("head", "-n1")), stdout: "y\n"},
		{name: "env", program: pipeline(Command{Args: []string{"bash", "-c", "echo $A $LANG"}, Env: []string{"A=1", "LANG=C"}}), stdout: "1 C\n"},
		{name: "own PATH", program: pipeline(Command{Args: []string{"true"}, Env: []string{"PATH=/nowhere"}}, cmd("echo", "x")), stdout: "x\n", stderr: "skillrun: true: not found\n"},
		{name: "directory is gone", program: Program{{Pipeline: []Command{cmd("bash", "-c", "rmdir /workspace/gone")}}, {Pipeline: []Command{cmd("true")}}}, dir: "gone",
			code: 126, stderr: "skillrun: gone: No such file or directory\n"},
		{name: "many commands", program: pipeline(append([]Command{cmd("echo", "x")}, repeat(cmd("cat"), 62)...)...), stdout: "x\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := run(t, h, Spec{Program: tt.program, Env: testEnv, Dir: tt.dir, Workspace: Workspace{Lower: []string{lower}},
				Limits: Limits{OpenFiles: minOpenFiles}}, tt.stdin)
			if got.exit.End != Exited || got.exit.Code != tt.code {
				t.Errorf("got %+v, want code %d", got.exit, tt.code)
			}
			if got.stdout != tt.stdout || got.stderr != tt.stderr {
				t.Errorf("got %.100q, %.100q, want %.100q, %.100q", got.stdout, got.stderr, tt.stdout, tt.stderr)
			}
		})
	}
}

func repeat(c Command, n int) []Command {
	var list []Command
	for range n {
		list = append(list, c)
	}
	return list
}
