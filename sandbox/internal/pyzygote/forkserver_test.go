package pyzygote_test

import (
	"archive/zip"
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/preflight"
	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
	"github.com/skillrun/skillrun/sandbox/internal/pyzygote"
	"github.com/skillrun/skillrun/sandbox/internal/seccomp"
)

// forkTargetInit stands in for a sandbox's init. It makes a root with the directories of a
// sandbox, and waits. $1 is mounted at /skills, other arguments at their own paths, and
// $WORKSPACE at /workspace.
const forkTargetInit = `set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 sandbox /mnt
skills=$1; shift
cd /mnt
mkdir -p usr etc dev proc tmp workspace home/skill skills old
for d in bin sbin lib lib64; do ln -s usr/$d $d; done
mount --rbind /usr usr
mount --rbind /etc etc
mount --rbind /dev dev
mount --rbind "$skills" skills
for d in "$@"; do mkdir -p "./$d"; mount --rbind "$d" "./$d"; done
mount -t proc proc proc
for d in tmp workspace home/skill; do mount -t tmpfs -o mode=1777 "$d" "$d"; done
if [ -n "$WORKSPACE" ]; then mount --bind "$WORKSPACE" workspace; fi
pivot_root . old
umount -l /old
hostname sandbox
mkdir -m 777 /workspace/sub
echo up
exec cat
`

const forkServerNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// forkTarget is a set of namespaces that a process holds.
type forkTarget struct {
	pid        int
	namespaces int
}

func newForkTarget(t testing.TB, skills string, also ...string) *forkTarget {
	t.Helper()
	return newForkTargetOn(t, "", skills, also...)
}

// newForkTargetOn is newForkTarget with a directory as its workspace. Every user may write
// to it. "" makes an empty one.
func newForkTargetOn(t testing.TB, workspace, skills string, also ...string) *forkTarget {
	t.Helper()
	needsRoot(t)
	c := &forkTarget{namespaces: forkServerNamespaces}
	if preflight.TimeNamespaces() {
		c.namespaces |= unix.CLONE_NEWTIME
	}
	cmd := exec.Command("/bin/sh", append([]string{"-c", forkTargetInit, "sandbox", skills}, also...)...)
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 700000, Size: 65536}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: uintptr(c.namespaces), UidMappings: ids, GidMappings: ids,
		GidMappingsEnableSetgroups: true, Credential: &syscall.Credential{},
	}
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "WORKSPACE=" + workspace}
	var said bytes.Buffer
	cmd.Stderr = &said
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.pid = cmd.Process.Pid
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "up\n" {
		stdin.Close()
		_ = cmd.Wait()
		t.Fatalf("sandbox: got %q (%v), stderr %s", line, err, said.String())
	}
	return c
}

// publicDir makes a directory for the test that every user may read.
func publicDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// forkServer is a process that runs the fork server.
type forkServer struct {
	t         testing.TB
	control   int
	cmd       *exec.Cmd
	python    string
	env       []string
	sandboxes int
	ready     forkServerSays
}

type forkServerSays struct {
	Op, Python, Stage, By string
	Imported, Failed      []string
	Fork                  int `json:"sandbox"`
	Pid, Errno            int
	Status                int
}

// forkServerEnv is the environment of scripts and of the zygote.
func forkServerEnv() []string {
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/skill", "LANG=C.UTF-8", "TMPDIR=/tmp", "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1"}
}

// needsRoot skips a test without root, and with -short. The test makes namespaces and starts
// Pythons in them.
func needsRoot(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a fork server: -short leaves it out")
	}
	if os.Geteuid() != 0 {
		t.Skip("makes namespaces, which needs root")
	}
}

// startForkServer starts a fork server that has imported modules.
func startForkServer(t testing.TB, python string, imports ...string) *forkServer {
	t.Helper()
	return startForkServerIn(t, forkServerEnv(), python, imports)
}

// A change replaces a text that is in one file of the fork server, once.
type change struct{ file, old, new string }

// changed returns the fork server's files with the changes.
func changed(t testing.TB, changes ...change) map[string]string {
	t.Helper()
	files := pyzygote.Files()
	for _, c := range changes {
		if strings.Count(files[c.file], c.old) != 1 {
			t.Fatalf("%s: %q is not there once", c.file, c.old)
		}
		files[c.file] = strings.Replace(files[c.file], c.old, c.new, 1)
	}
	return files
}

// startForkServerIn starts a fork server with another environment, or with changes in its
// files.
func startForkServerIn(t testing.TB, env []string, python string, imports []string, changes ...change) *forkServer {
	t.Helper()
	server := launchForkServer(t, env, python, imports, changes...)
	t.Cleanup(server.close)
	server.init(imports)
	server.ready = server.receive()
	if server.ready.Op != "ready" {
		t.Fatalf("zygote: got %+v", server.ready)
	}
	return server
}

// init sends the first request.
func (server *forkServer) init(imports []string) {
	server.t.Helper()
	filter := forkServerFilter(server.t)
	path := filepath.Join(server.t.TempDir(), "filter")
	if err := os.WriteFile(path, filter, 0o600); err != nil {
		server.t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		server.t.Fatal(err)
	}
	defer file.Close()
	server.send(map[string]any{"op": "init", "imports": append([]string{}, imports...), "filter_bytes": len(filter), "fast_exit": true}, int(file.Fd()))
}

// launchForkServer starts a fork server with more modules in its list. It sends no request.
func launchForkServer(t testing.TB, env []string, python string, modules []string, changes ...change) *forkServer {
	t.Helper()
	needsRoot(t)
	plainly, err := os.ReadFile("testdata/plainly.py")
	if err != nil {
		t.Fatal(err)
	}
	const list, end = "\nMODULES = \"\"\"", "\n\nmain()\n"
	files := changed(t, append(changes,
		change{"forkserver/zygote.py", list, list + strings.Join(modules, " ") + " "}, // the list of these tests is longer
		change{"sitecustomize.py", end, "\n\n" + string(plainly) + end})...)
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "control")
	server := &forkServer{t: t, control: pair[0], python: python, env: env}
	server.cmd = &exec.Cmd{Path: pyzygote.UnreadableCopy(t, python), Args: []string{"python3"}, Env: append([]string{"PYTHONPATH=" + dir}, server.env...), Dir: "/", Stderr: os.Stderr, ExtraFiles: []*os.File{theirs}}
	if python != "/usr/bin/python3" {
		server.cmd.Args[0] = python
	}
	if err := server.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	return server
}

func forkServerFilter(t testing.TB) []byte {
	t.Helper()
	p, err := seccomp.ParsePolicy()
	if err != nil {
		t.Fatal(err)
	}
	script, err := p.Compile(nil)
	if err != nil {
		t.Fatal(err)
	}
	return script
}

// close ends the zygote like a daemon that ends: it closes the socket.
func (server *forkServer) close() {
	unix.Close(server.control)
	if err := server.cmd.Wait(); err != nil {
		server.t.Errorf("zygote: %v", err)
	}
}

func (server *forkServer) send(request any, fds ...int) {
	server.t.Helper()
	b, err := json.Marshal(request)
	if err != nil {
		server.t.Fatal(err)
	}
	if err := unix.Sendmsg(server.control, b, unix.UnixRights(fds...), nil, 0); err != nil {
		server.t.Fatal(err)
	}
}

func (server *forkServer) receive() (says forkServerSays) {
	server.t.Helper()
	b := make([]byte, 1<<16)
	n, err := unix.Read(server.control, b)
	if err == nil {
		err = json.Unmarshal(b[:n], &says)
	}
	if err != nil {
		server.t.Fatalf("zygote: %v: %q", err, b[:max(n, 0)])
	}
	return says
}

// forkServerChild is a child that waits or runs.
type forkServerChild struct {
	server         *forkServer
	pid            int
	barrier        net.Conn
	lines          *bufio.Reader
	stdin          *os.File
	stdout, stderr *os.File
}

func (server *forkServer) fork(c *forkTarget) *forkServerChild {
	server.t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		server.t.Fatal(err)
	}
	ours := os.NewFile(uintptr(pair[0]), "barrier")
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		server.t.Fatal(err)
	}
	child := &forkServerChild{server: server, barrier: conn, lines: bufio.NewReader(conn)}
	var theirs [3]*os.File
	pipe := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			server.t.Fatal(err)
		}
		return r, w
	}
	theirs[0], child.stdin = pipe()
	child.stdout, theirs[1] = pipe()
	child.stderr, theirs[2] = pipe()
	// The streams of a sandbox must not be O_NONBLOCK; Fd makes them blocking.
	fds := []int{pair[1], int(theirs[0].Fd()), int(theirs[1].Fd()), int(theirs[2].Fd())}
	spaces, kinds, err := pyzygote.OpenNamespaces(c.pid)
	if err != nil {
		server.t.Fatal(err)
	}
	for _, f := range spaces {
		fds = append(fds, int(f.Fd()))
	}
	server.sandboxes++
	server.send(map[string]any{"op": "fork", "sandbox": server.sandboxes, "namespaces": kinds, "rlimits": [][]int64{{unix.RLIMIT_NOFILE, 1024, 1024}, {unix.RLIMIT_CORE, 0, 0}, {unix.RLIMIT_STACK, 8 << 20, -1}}}, fds...)
	unix.Close(pair[1])
	closeFiles(theirs[:])
	closeFiles(spaces)
	says := server.receive()
	if says.Op != "forked" || says.Fork != server.sandboxes {
		server.t.Fatalf("fork: got %+v", says)
	}
	child.pid = says.Pid
	if got := child.says(); got.Op != "waiting" {
		server.t.Fatalf("child: got %+v, want it to wait", got)
	}
	return child
}

func (c *forkServerChild) says() (says forkServerSays) {
	c.server.t.Helper()
	line, err := c.lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &says)
	}
	if err != nil {
		c.server.t.Fatalf("barrier: %v: %q", err, line)
	}
	return says
}

// forkServerCommand is the command that a child gets.
type forkServerCommand struct {
	Argv []string          `json:"argv"`
	Env  map[string]string `json:"env"`
	Dir  string            `json:"dir"`
	Exec bool              `json:"exec,omitempty"` // only for testdata/plainly.py

	Elsewhere bool   `json:"elsewhere,omitempty"`
	Lines     bool   `json:"lines,omitempty"`
	Venv      string `json:"venv,omitempty"`
	Base      string `json:"base,omitempty"`
}

func (c *forkServerChild) assign(command forkServerCommand) {
	c.server.t.Helper()
	if command.Env == nil {
		command.Env = map[string]string{}
		for _, e := range c.server.env {
			k, v, _ := strings.Cut(e, "=")
			command.Env[k] = v
		}
	}
	b, err := json.Marshal(command)
	if err != nil {
		c.server.t.Fatal(err)
	}
	b = append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...)
	if _, err := c.barrier.Write(b); err != nil {
		c.server.t.Fatal(err)
	}
}

// started returns how the child became its program: "" for a fork, or "exec".
func (c *forkServerChild) started() string {
	c.server.t.Helper()
	says := c.says()
	if says.Op != "started" {
		c.server.t.Fatalf("child: got %+v, want it to start", says)
	}
	return says.By
}

// forkServerResult is everything that a program leaves.
type forkServerResult struct {
	stdout, stderr string
	status         unix.WaitStatus
	files          string // of takeFiles; empty if it was not called
}

func (c *forkServerChild) finish(stdin string) forkServerResult {
	c.server.t.Helper()
	defer c.barrier.Close()
	read := func(f *os.File) <-chan string {
		done := make(chan string, 1)
		go func() {
			b, _ := io.ReadAll(f)
			f.Close()
			done <- string(b)
		}()
		return done
	}
	out, errs := read(c.stdout), read(c.stderr)
	go func() {
		_, _ = io.WriteString(c.stdin, stdin) // a program need not read it
		c.stdin.Close()
	}()
	says := c.server.receive()
	if says.Op != "ended" {
		c.server.t.Fatalf("zygote: got %+v, want an end", says)
	}
	return forkServerResult{stdout: <-out, stderr: <-errs, status: unix.WaitStatus(says.Status)}
}

func (r forkServerResult) String() string {
	return fmt.Sprintf("status %#x, stdout:\n%s\nstderr:\n%s\nfiles:\n%s", r.status, r.stdout, r.stderr, r.files)
}

var address = regexp.MustCompile(`0x[0-9a-f]{6,}`)

// withoutAddresses returns r without addresses, which differ between processes.
func (r forkServerResult) withoutAddresses() forkServerResult {
	r.stdout = address.ReplaceAllString(r.stdout, "0x")
	r.stderr = address.ReplaceAllString(r.stderr, "0x")
	return r
}

// sorted returns r with sorted lines.
func (r forkServerResult) sorted() forkServerResult {
	order := func(s string) string { return strings.Join(slices.Sorted(strings.Lines(s)), "") }
	r.stdout, r.stderr = order(r.stdout), order(r.stderr)
	return r
}

// run runs a command in a new child.
func (server *forkServer) run(c *forkTarget, command forkServerCommand, stdin, by string) forkServerResult {
	server.t.Helper()
	child := server.fork(c)
	child.assign(command)
	if got := child.started(); got != by {
		server.t.Errorf("%q: started by %q, want %q", command.Argv, got, by)
	}
	return child.finish(stdin)
}

// forkServerPython is the interpreter of these tests: Debian's, or the path of another
// bin/python3 in SKILLRUN_READY_PYTHON.
func forkServerPython() string {
	if p := os.Getenv("SKILLRUN_READY_PYTHON"); p != "" {
		return p
	}
	return "/usr/bin/python3"
}

// forkServerAlso returns the directories outside /usr that forkServerPython needs.
func forkServerAlso() []string {
	if p := forkServerPython(); p != "/usr/bin/python3" {
		return []string{filepath.Dir(filepath.Dir(p))}
	}
	return nil
}

// scriptsOfForkServer are the scripts whose behaviour must be the same. Their first
// lines may say more: "# args: a b", "# stdin: text", "# env: NAME=value",
// "# order: none" if the lines may come in any, as objects that nothing relates are
// finalized, "# streams: lines" for the streams that the daemon asks for by default, and
// "# differs: why" if a difference is known.
func scriptsOfForkServer(t *testing.T) (dir string, names []string) {
	t.Helper()
	dir, err := filepath.Abs("testdata/forkserver")
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.py"))
	if err != nil || len(found) == 0 {
		t.Fatalf("%s: %v, %d scripts", dir, err, len(found))
	}
	for _, f := range found {
		names = append(names, filepath.Base(f))
	}
	return dir, names
}

func directive(text, name string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "# "+name+": "); ok {
			return strings.TrimSuffix(rest, "\n")
		}
		if !strings.HasPrefix(line, "#") {
			break
		}
	}
	return ""
}

func TestForkServerScripts(t *testing.T) {
	t.Parallel()
	dir, names := scriptsOfForkServer(t)
	// Another user may not read the checkout, so the scripts are copied.
	skills := filepath.Join(publicDir(t), "skills")
	if err := os.CopyFS(skills, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	also := forkServerAlso()
	ready, bare := newForkTarget(t, skills, also...), newForkTarget(t, skills, also...)
	zygotes := map[string]*forkServer{} // by the imports of scripts
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		env := directive(string(text), "env")
		key, imports := env, forkServerImports
		if strings.Contains(string(text), "sqlite3") { // sqlite3 prevents the fast exit
			key, imports = env+" sqlite3", append(slices.Clone(forkServerImports), "sqlite3")
		}
		if zygotes[key] == nil {
			zygotes[key] = startForkServerIn(t, append(forkServerEnv(), strings.Fields(env)...), forkServerPython(), imports)
		}
		t.Run(name, func(t *testing.T) {
			compareForked(t, zygotes[key], ready, bare, name, string(text))
		})
	}
}

// forkServerImports are the modules that most scripts import, and more.
var forkServerImports = []string{
	"argparse", "asyncio", "base64", "collections", "concurrent.futures", "contextlib", "copy", "csv", "dataclasses", "datetime", "decimal",
	"enum", "fractions", "functools", "glob", "hashlib", "html", "io", "itertools", "json", "logging", "math", "multiprocessing", "operator",
	"os", "pathlib", "platform", "random", "re", "shlex", "shutil", "signal", "ssl", "statistics", "string", "struct",
	"subprocess", "tempfile", "textwrap", "threading", "time", "traceback", "types", "typing", "unicodedata", "unittest", "urllib", "uuid",
	"zipfile", "zlib",
}

func compareForked(t *testing.T, server *forkServer, ready, bare *forkTarget, name, text string) {
	command := forkServerCommand{Argv: append([]string{server.cmd.Args[0], "/skills/" + name}, strings.Fields(directive(text, "args"))...), Dir: ".", Lines: directive(text, "streams") == "lines"}
	stdin := strings.ReplaceAll(directive(text, "stdin"), `\n`, "\n")
	got, want := runBoth(t, server, ready, bare, command, stdin, "")
	if directive(text, "order") == "none" {
		got, want = got.sorted(), want.sorted()
	}
	why := directive(text, "differs")
	switch {
	case why == "" && got != want:
		t.Errorf("%q: got %v\nwant %v", command.Argv, got, want)
	case why != "" && got == want:
		t.Errorf("%q: the same, but its line says that it differs: %s", command.Argv, why)
	case want == forkServerResult{}:
		t.Error("a script that says nothing shows nothing")
	}
}

// compare runs command in a forked and in a started Python. by is how the child must start.
func compare(t *testing.T, server *forkServer, ready, bare *forkTarget, command forkServerCommand, stdin, by string) forkServerResult {
	t.Helper()
	got, want := runBoth(t, server, ready, bare, command, stdin, by)
	if got != want {
		t.Errorf("%q: got %v\nwant %v", command.Argv, got, want)
	}
	return got
}

// runBoth returns the results of command in a forked and in a started Python. A started
// Python has no streams of lines: its streams are buffered instead.
func runBoth(t *testing.T, server *forkServer, ready, bare *forkTarget, command forkServerCommand, stdin, by string) (got, want forkServerResult) {
	t.Helper()
	defer func(t testing.TB) { server.t = t }(server.t)
	server.t = t
	got = server.run(ready, command, stdin, by).withoutAddresses()
	got.files = ready.takeFiles(t)
	command.Exec = true
	if command.Lines {
		command.Env = server.environment("PYTHONUNBUFFERED=")
	}
	want = server.run(bare, command, stdin, "exec").withoutAddresses()
	want.files = bare.takeFiles(t)
	return got, want
}

// Half a line comes before the output of a forked process, and comes once, as in a Python whose streams are unbuffered.
func TestForkServerForksInALine(t *testing.T) {
	t.Parallel()
	server := startForkServer(t, forkServerPython())
	c := newForkTarget(t, publicDir(t), forkServerAlso()...)
	const fork = `
pid = os.fork()
if pid == 0:
    print("child", end=" ")
    sys.exit()
os.waitpid(pid, 0)
print("parent")
`
	for _, tt := range []struct{ name, code string }{
		{"output", `print("half", end=" ")`},
		{"errors", `print("half", end=" ", file=sys.stderr)`},
		{"a hook that prints", `os.register_at_fork(before=lambda: print("hook", end=" "))`},
		{"a program that collects blocks", `sys.stdout.reconfigure(line_buffering=False, write_through=False); print("half", end=" ")`},
		{"closed output", `sys.stderr.close(); print("half", end=" ")`},
		{"no output", `sys.__stderr__ = None; print("half", end=" ")`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			defer func(t testing.TB) { server.t = t }(server.t)
			server.t = t
			command := forkServerCommand{Argv: []string{server.cmd.Args[0], "-c", "import os, sys\n" + tt.code + fork}, Lines: true}
			got := server.run(c, command, "", "")
			command.Exec = true
			if want := server.run(c, command, "", "exec"); got != want {
				t.Errorf("got %v\nwant %v", got, want)
			}
		})
	}
}

// Command lines other than the name of a script.
func TestForkServerCommands(t *testing.T) {
	t.Parallel()
	skills := filepath.Join(publicDir(t), "skills")
	archive := zipOf(t, map[string]string{"__main__.py": "import sys, inzip\nprint(sys.argv, sys.path[0], __file__, inzip.x)\n1/0\n", "inzip.py": "x = 1\n"})
	for name, text := range map[string]string{
		"plain/main.py": "import sys\nprint(sys.argv, sys.path[0], __file__)\n",
		"hides/main.py": "import csv\nprint(csv.__file__)\n", "hides/csv.py": "",
		"names/main.py":       "# This may write csv.py.\nprint('names')\n",
		"package/__main__.py": "import sys, other\nprint(sys.argv, sys.path[0], __file__, __spec__.name)\n1/0\n", "package/other.py": "",
		"empty/file":                            "",
		"app.zip":                               archive,
		"no-suffix":                             "print('no suffix')\n",
		"extra/extra.py":                        "print('extra', __file__)\n",
		"site/sitecustomize.py":                 "print('the site of the path')\n",
		"base/lib/python/site-packages/mine.py": "print('mine', __file__)\n",
	} {
		name = strings.Replace(name, "lib/python/", "lib/"+forkServerVersion(t)+"/", 1)
		if err := os.MkdirAll(filepath.Dir(filepath.Join(skills, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(skills, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("plain/main.py", filepath.Join(skills, "link.py")); err != nil {
		t.Fatal(err)
	}
	server := startForkServer(t, forkServerPython(), forkServerImports...)
	ready, bare := newForkTarget(t, skills, forkServerAlso()...), newForkTarget(t, skills, forkServerAlso()...)
	python := server.cmd.Args[0]
	for _, c := range []struct {
		name string
		args []string
		env  string // an additional variable
		dir  string
		by   string
		want string // part of its output
	}{
		{name: "code", args: []string{"-c", "import sys; print(sys.argv, sys.path, sorted(globals()))", "a"}, want: "['-c', 'a']"},
		{name: "code that fails", args: []string{"-c", "def f():\n    1/0\nf()"}, want: "<string>"},
		{name: "code with a syntax error", args: []string{"-c", "if"}, want: "SyntaxError"},
		{name: "code that is empty", args: []string{"-c", ""}},
		{name: "code in a directory", args: []string{"-c", "import os; print(os.getcwd())"}, dir: "sub", want: "/workspace/sub"},
		{name: "a link", args: []string{"/skills/link.py"}, want: "/skills/plain /skills/link.py"},
		{name: "a relative path", args: []string{"../skills/plain/main.py", "x"}, want: "x"},
		{name: "no suffix", args: []string{"/skills/no-suffix"}, want: "no suffix"},
		{name: "a package", args: []string{"/skills/package", "x"}, want: "ZeroDivisionError"},
		{name: "a directory without main", args: []string{"/skills/empty"}, want: "__main__"},
		{name: "a zip file", args: []string{"/skills/app.zip", "x"}, by: "exec", want: "ZeroDivisionError"},
		{name: "no such file", args: []string{"/skills/none.py"}, by: "exec", want: "can't open file"},
		{name: "no such relative file", args: []string{"none.py"}, by: "exec", want: "can't open file"},
		{name: "a module", args: []string{"-m", "json.tool", "--help"}, by: "exec", want: "usage"},
		{name: "an option", args: []string{"-O", "-c", "print(__debug__)"}, by: "exec", want: "False"},
		{name: "standard input", by: "exec"},
		{name: "a module that is hidden", args: []string{"/skills/hides/main.py"}, by: "exec", want: "/skills/hides/csv.py"},
		{name: "a module that the code writes", args: []string{"-c", "open('csv.py', 'w').write('')\nimport csv; print(csv.__file__)"}, dir: "sub", by: "exec", want: "/workspace/sub/csv.py"},
		{name: "a module that a script names", args: []string{"/skills/names/main.py"}, by: "exec", want: "names"},
		{name: "names of other files", args: []string{"-c", "print('main.py my_csv.py csv.pyx csv.pyplot .py')"}, want: "main.py"},
		{name: "a path", args: []string{"-c", "import extra, sys; print(sys.path)"}, env: "PYTHONPATH=/skills/extra", by: "exec", want: "/skills/extra/extra.py"},
		{name: "a path that hides", args: []string{"-c", "import csv; print(csv.__file__)"}, env: "PYTHONPATH=/skills/hides", by: "exec", want: "/skills/hides/csv.py"},
		{name: "a path with a site of its own", args: []string{"-c", "import sys; print('sitecustomize' in sys.modules)"}, env: "PYTHONPATH=/skills/site", by: "exec", want: "the site of the path"},
		{name: "a user's packages", args: []string{"-c", "import mine, site, sys; print(sys.path, site.USER_SITE)"}, env: "PYTHONUSERBASE=/skills/base", want: "mine"},
		{name: "a setting of Python", args: []string{"-c", "print({'a', 'b', 'c', 'd'})"}, env: "PYTHONHASHSEED=1", by: "exec"},
		{name: "a setting of numpy's libraries", args: []string{"-c", "pass"}, env: "OPENBLAS_NUM_THREADS=2", by: "exec"},
		{name: "a setting of a package", args: []string{"-c", "pass"}, env: "SYMPY_USE_CACHE=no", by: "exec"},
		{name: "a setting of a package of a package", args: []string{"-c", "pass"}, env: "MPMATH_NOGMPY=1", by: "exec"},
		{name: "a setting that the code makes", args: []string{"-c", "import os; os.environ['OMP_NUM_THREADS'] = '2'"}, by: "exec"},
		{name: "a setting by a keyword", args: []string{"-c", "import os; os.environ |= dict(OMP_NUM_THREADS='2')"}, by: "exec"},
		{name: "a setting of OpenSSL", args: []string{"-c", "import os; os.environ['OPENSSL_CONF'] = '/workspace/none'\nimport hashlib"}, by: "exec"},
		{name: "other words", args: []string{"-c", "print('COMP_X', \"OMP\") # OMP_NUM_THREADS"}, want: "COMP_X"},
		{name: "a configuration of logging", args: []string{"-c", `import logging.config
logging.config.dictConfig({"version": 1})
import asyncio
print("disabled", logging.getLogger("asyncio").disabled)`}, by: "exec", want: "disabled False"},
		{name: "another class of loggers", args: []string{"-c", `import logging
class Logger(logging.Logger): pass
logging.setLoggerClass(Logger)
import asyncio
print(type(logging.getLogger("asyncio")))`}, by: "exec", want: "__main__.Logger"},
		{name: "gevent", args: []string{"-c", "try:\n    from gevent import monkey; monkey.patch_all()\nexcept ImportError:\n    print('none')"}, by: "exec"},
		{name: "eventlet", args: []string{"-c", "try:\n    import eventlet; eventlet.monkey_patch()\nexcept ImportError:\n    print('none')"}, by: "exec"},
		{name: "other logging", args: []string{"-c", "import logging; logging.basicConfig(); print('dictConfigurator')"}, want: "dictConfigurator"},
		{name: "a version", args: []string{"-c", "import ssl; print(ssl.OPENSSL_VERSION == '')"}, want: "False"},
		{name: "a setting of the C library", args: []string{"-c", "pass"}, env: "MALLOC_ARENA_MAX=1", by: "exec"},
		{name: "a time zone", args: []string{"-c", "import time; print(time.tzname)"}, env: "TZ=XYZ-3", want: "XYZ"},
	} {
		t.Run(c.name, func(t *testing.T) {
			command := forkServerCommand{Argv: append([]string{python}, c.args...), Dir: c.dir, Env: server.environment(c.env)}
			got := compare(t, server, ready, bare, command, "", c.by)
			if !strings.Contains(got.stdout+got.stderr, c.want) {
				t.Errorf("got %+v, want it to hold %q", got, c.want)
			}
		})
	}
}

// environment returns the environment of scripts and one more variable, NAME=value or "".
func (server *forkServer) environment(more string) map[string]string {
	env := map[string]string{}
	for _, e := range append(slices.Clone(server.env), more) {
		if k, v, ok := strings.Cut(e, "="); ok {
			env[k] = v
		}
	}
	return env
}

// forkServerVersion returns the pythonX.Y of forkServerPython.
func forkServerVersion(t *testing.T) string {
	t.Helper()
	out, err := exec.Command(forkServerPython(), "-c", "import sys; print('python%d.%d' % sys.version_info[:2], end='')").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func zipOf(t *testing.T, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, text := range files {
		f, err := w.Create(name)
		if err == nil {
			_, err = io.WriteString(f, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Random values must differ between two children.
func TestForkServerFresh(t *testing.T) {
	skills := publicDir(t)
	server := startForkServer(t, forkServerPython(), append(slices.Clone(forkServerImports), "secrets")...)
	c, other := newForkTarget(t, skills, forkServerAlso()...), newForkTarget(t, skills, forkServerAlso()...)
	code := `import random, secrets, ssl, uuid, tempfile, multiprocessing, os
print(random.random())
print(secrets.token_hex(8))
print(ssl.RAND_bytes(8).hex())
print(uuid.uuid4())
print(next(tempfile._get_candidate_names()))
print(bytes(multiprocessing.current_process().authkey).hex())
print(os.urandom(8).hex())
`
	seen := map[string]bool{}
	// Children of different sandboxes have the same pid.
	for _, c := range []*forkTarget{c, other, c} {
		got := server.run(c, forkServerCommand{Argv: []string{server.cmd.Args[0], "-c", code}, Env: server.environment("")}, "", "")
		lines := strings.Fields(got.stdout)
		if got.status != 0 || len(lines) != 7 {
			t.Fatalf("got %+v", got)
		}
		for i, line := range lines {
			if seen[line] {
				t.Errorf("line %d: %s was there before", i+1, line)
			}
			seen[line] = true
		}
	}
}

// At its import urllib3 notes whether the network has IPv6. The zygote's network is another one.
func TestForkServerNetwork(t *testing.T) {
	t.Parallel()
	const module = "pip._vendor.urllib3.util.connection"
	server := startForkServer(t, forkServerPython(), module)
	if !slices.Contains(server.ready.Imported, module) {
		t.Skip("this Python has no pip with urllib3")
	}
	c := newForkTarget(t, publicDir(t), forkServerAlso()...) // its loopback interface is down
	code := "import " + module + " as connection; print(connection.HAS_IPV6)"
	got := server.run(c, forkServerCommand{Argv: []string{server.cmd.Args[0], "-c", code}, Env: server.environment("")}, "", "")
	if got != (forkServerResult{stdout: "False\n"}) {
		t.Errorf("got %v, want no IPv6", got)
	}
}

// The daemon reads a child's posture from the kernel before it gives the child a command.
func TestForkServerPosture(t *testing.T) {
	skills := publicDir(t)
	server := startForkServer(t, forkServerPython())
	c := newForkTarget(t, skills, forkServerAlso()...)
	child := server.fork(c)
	pid := strconv.Itoa(child.pid)
	status, err := pseudofs.ReadStatus(pid)
	if err != nil {
		t.Fatal(err)
	}
	none := strings.Repeat("0", 16)
	for key, want := range map[string]string{
		"Uid": "701000\t701000\t701000\t701000", "Gid": "701000\t701000\t701000\t701000", "Groups": "",
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
		"NoNewPrivs": "1", "Seccomp": "2", "Umask": "0077", "Threads": "1", "SigBlk": none, "SigCgt": "0000000000000002",
	} {
		if got := status.Of(key); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
	for _, name := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"} {
		if name == "time" && !preflight.TimeNamespaces() {
			continue
		}
		got, err := os.Readlink("/proc/" + pid + "/ns/" + name)
		want, err2 := os.Readlink("/proc/" + strconv.Itoa(c.pid) + "/ns/" + name)
		if err != nil || err2 != nil || got != want {
			t.Errorf("%s namespace: got %s (%v), want %s (%v)", name, got, err, want, err2)
		}
	}
	for fd := range 3 {
		if link, err := os.Readlink(fmt.Sprintf("/proc/%s/fd/%d", pid, fd)); err != nil || !strings.HasPrefix(link, "pipe:") {
			t.Errorf("descriptor %d: got %q (%v), want a pipe", fd, link, err)
		}
	}
	fds, err := os.ReadDir("/proc/" + pid + "/fd")
	if err != nil || len(fds) != 4 {
		t.Errorf("descriptors: got %d (%v), want three pipes and the barrier", len(fds), err)
	}
	// It has not become a script, and it exits.
	child.barrier.Close()
	if says := server.receive(); says.Op != "ended" || says.Status != 0 {
		t.Errorf("got %+v, want an end", says)
	}
}

// The zygote survives every request.
func TestForkServerSurvives(t *testing.T) {
	skills := publicDir(t)
	server := startForkServer(t, forkServerPython())
	c := newForkTarget(t, skills, forkServerAlso()...)
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd, kinds := int(null.Fd()), kindsOfNamespaces(t)
	for _, r := range []struct {
		request any
		fds     []int
		stage   string
	}{
		{map[string]any{"op": "fork", "sandbox": 7, "namespaces": 0}, nil, "request"},
		{map[string]any{"op": "fork", "sandbox": 7, "rlimits": []int{}}, []int{fd, fd, fd, fd, fd}, "request"},
		{map[string]any{"op": "fork", "sandbox": 7, "namespaces": []int{unix.CLONE_NEWUSER}, "rlimits": []int{}}, []int{fd, fd, fd, fd, fd}, "request"},
		{map[string]any{"op": "fork", "sandbox": 7, "namespaces": []int{unix.CLONE_NEWPID}, "rlimits": []int{}}, []int{fd, fd, fd, fd, fd}, "request"},
		{map[string]any{"op": "fork", "sandbox": 7, "namespaces": kinds, "rlimits": []int{}}, slices.Repeat([]int{fd}, 4+len(kinds)), "pid namespace"},
		{map[string]any{"op": "fork", "sandbox": 7, "namespaces": kinds, "rlimits": []int{}}, slices.Repeat([]int{fd}, 3+len(kinds)), "request"},
		{map[string]any{"op": "init", "sandbox": 7, "imports": []string{"json"}, "filter_bytes": 8, "fast_exit": true}, []int{fd}, "request"},
		{map[string]any{"op": "other", "sandbox": 7}, []int{fd}, "request"},
	} {
		server.send(r.request, r.fds...)
		if got := server.receive(); got.Op != "failed" || got.Fork != 7 || got.Stage != r.stage {
			t.Errorf("%v: got %+v, want it to fail at %q", r.request, got, r.stage)
		}
	}
	got := server.run(c, forkServerCommand{Argv: []string{server.cmd.Args[0], "-c", "print(1)"}}, "", "")
	if got != (forkServerResult{stdout: "1\n"}) {
		t.Errorf("got %+v", got)
	}
	before, err := os.ReadDir("/proc/" + strconv.Itoa(server.cmd.Process.Pid) + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, stage := range []struct {
		name    string
		command forkServerCommand
	}{
		{"directory", forkServerCommand{Argv: []string{"python3"}, Dir: "../etc"}},
		{"directory", forkServerCommand{Argv: []string{"python3"}, Dir: "none"}},
		{"exec", forkServerCommand{Argv: []string{"/none"}}},
	} {
		child := server.fork(c)
		child.assign(stage.command)
		says := child.says()
		if stage.name == "exec" {
			says = child.says() // the first one said that the command starts
		}
		if says.Op != "failed" || says.Stage != stage.name || says.Errno == 0 {
			t.Errorf("%+v: got %+v, want it to fail at %q", stage.command, says, stage.name)
		}
		if got := child.finish(""); got.status.ExitStatus() != 127 {
			t.Errorf("%+v: got %+v", stage.command, got)
		}
	}
	after, err := os.ReadDir("/proc/" + strconv.Itoa(server.cmd.Process.Pid) + "/fd")
	if err != nil || len(after) != len(before) {
		t.Errorf("descriptors of the zygote: got %d (%v), want %d", len(after), err, len(before))
	}
}

// A zygote ends at an invalid first request. It imports no module outside of its list.
func TestForkServerBeginsOnce(t *testing.T) {
	for _, name := range []string{"this", "json.tool", "antigravity", "os; print(1)"} {
		server := launchForkServer(t, forkServerEnv(), forkServerPython(), nil)
		server.init([]string{name})
		b := make([]byte, 1<<16)
		if n, err := unix.Read(server.control, b); n > 0 {
			t.Errorf("%s: it answers %q, %v", name, b[:n], err)
		}
		unix.Close(server.control)
		if err := server.cmd.Wait(); server.cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("%s: ended with %v, want exit status 1", name, err)
		}
	}
}

// A zygote that loses its daemon ends, and so do its children.
func TestForkServerEnds(t *testing.T) {
	server := startForkServer(t, forkServerPython())
	c := newForkTarget(t, publicDir(t), forkServerAlso()...)
	waits, runs := server.fork(c), server.fork(c)
	runs.assign(forkServerCommand{Argv: []string{server.cmd.Args[0], "-c", "import time; print(flush=True); time.sleep(1000)"}})
	if by := runs.started(); by != "" {
		t.Errorf("started by %q", by)
	}
	if err := unix.Shutdown(server.control, unix.SHUT_RDWR); err != nil {
		t.Fatal(err)
	}
	for _, child := range []*forkServerChild{waits, runs} {
		if b, err := io.ReadAll(child.stdout); err != nil || strings.TrimSpace(string(b)) != "" {
			t.Errorf("got %q, %v", b, err)
		}
		child.stdout.Close()
		child.stderr.Close()
		child.stdin.Close()
		child.barrier.Close()
	}
}
