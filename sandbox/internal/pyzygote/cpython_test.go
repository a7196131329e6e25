package pyzygote_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cpythonTests is where Debian's libpython3.X-testsuite installs CPython's tests. Without
// that package the directory still exists, with helpers for other tests.
const cpythonTests = "/usr/lib/%s/test/test_atexit.py"

// cpythonVar names the variable that selects tests: "all", or names of files separated by
// blanks. Without it only the quick ones run.
const cpythonVar = "SKILLRUN_CPYTHON"

// cpythonFiles lists the files to run, one per line: tests that a fork could break, and
// that run in a sandbox. The word "quick" after a name marks the quick ones.
const cpythonFiles = "testdata/cpython/files"

// cpythonPatience is how long a file may run before it is killed, which is an outcome, too.
const cpythonPatience = 5 * time.Minute

// maxDiffersSaid bounds how many tests of a file are reported.
const maxDiffersSaid = 10

// cpythonResults is the file, in a sandbox, that run.py writes to.
const cpythonResults = "/home/skill/results"

// A cpythonRun holds the outcomes of a file's tests by name, and how the file ended.
type cpythonRun struct {
	tests  map[string]string
	status unix.WaitStatus
	stderr string // for a person
}

// CPython's tests have the same outcomes in a forked Python as in a started one. Some fail
// in a sandbox both ways.
func TestForkServerCPython(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(fmt.Sprintf(cpythonTests, forkServerVersion(t))); err != nil {
		t.Skipf("CPython's tests are not there: install lib%s-testsuite: %v", forkServerVersion(t), err)
	}
	files := filesOfCPython(t, os.Getenv(cpythonVar))
	skills := filepath.Join(publicDir(t), "skills")
	if err := os.CopyFS(skills, os.DirFS("testdata/cpython")); err != nil {
		t.Fatal(err)
	}
	server := startForkServer(t, forkServerPython(), forkServerImports...)
	ready, bare := newForkTarget(t, skills, forkServerAlso()...), newForkTarget(t, skills, forkServerAlso()...)
	ready.raiseLoopback(t)
	bare.raiseLoopback(t)
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			defer func(t testing.TB) { server.t = t }(server.t)
			server.t = t
			compareCPython(t, server, ready, bare, file)
		})
	}
}

func filesOfCPython(t *testing.T, which string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(cpythonFiles)
	if err != nil {
		t.Fatal(err)
	}
	if which != "" && which != "all" {
		return strings.Fields(which)
	}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if which == "all" || rest == "quick" {
			names = append(names, name)
		}
	}
	return names
}

// compareCPython compares the outcomes of a file's tests. Tests that differ run again,
// because some depend on time. Only a test that differs each time is an error.
func compareCPython(t *testing.T, server *forkServer, ready, bare *forkTarget, file string) {
	before := server.childrenTime(t)
	got, want := server.runCPython(t, ready, "", file, nil), server.runCPython(t, bare, "exec", file, nil)
	if len(want.tests) < 2 {
		t.Fatalf("%d tests: status %#x, stderr %s", len(want.tests), want.status, want.stderr)
	}
	counts := map[string]int{}
	for _, outcome := range want.tests {
		outcome, _, _ = strings.Cut(outcome, ":")
		counts[outcome]++
	}
	t.Logf("%d tests %v, status %#x, %v of processor time in both", len(want.tests), counts, want.status, server.childrenTime(t)-before)
	if got.status.Signaled() && !want.status.Signaled() {
		t.Errorf("killed by %v; stderr %s", got.status.Signal(), got.stderr)
	}
	differs := unlike(got, want)
	for range 2 {
		if len(differs) == 0 {
			break
		}
		for _, name := range differs[:min(len(differs), maxDiffersSaid)] {
			t.Logf("again %s: got %q, want %q", name, got.tests[name], want.tests[name])
		}
		names := differs
		if slices.ContainsFunc(names, func(name string) bool { return !strings.HasPrefix(name, "test.") }) {
			names = nil // an outcome of a class, of a module, or of the end: run the whole file
		}
		got, want = server.runCPython(t, ready, "", file, names), server.runCPython(t, bare, "exec", file, names)
		differs = unlike(got, want)
	}
	for _, name := range differs[:min(len(differs), maxDiffersSaid)] {
		t.Errorf("%s: got %q, want %q", name, got.tests[name], want.tests[name])
	}
	if n := len(differs) - maxDiffersSaid; n > 0 {
		t.Errorf("and %d more", n)
	}
	if got.status != want.status && len(differs) == 0 {
		t.Errorf("status: got %#x, want %#x; stderr %s", got.status, want.status, got.stderr)
	}
}

// unlike returns the names of tests whose outcomes differ.
func unlike(got, want cpythonRun) (names []string) {
	for name := range want.tests {
		if got.tests[name] != want.tests[name] {
			names = append(names, name)
		}
	}
	for name := range got.tests {
		if _, ok := want.tests[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Parts of messages that differ between processes and moments.
var ofAMoment = regexp.MustCompile(`0x[0-9a-f]+|@test_[0-9]+|[0-9]+|/tmp/[a-z0-9_]+`)

// runCPython runs the named tests of a file in c; all of them if names is empty.
func (server *forkServer) runCPython(t *testing.T, c *forkTarget, by, file string, names []string) cpythonRun {
	t.Helper()
	child := server.fork(c)
	child.assign(forkServerCommand{Argv: append([]string{server.cmd.Args[0], "/skills/run.py", cpythonResults, "test." + file}, names...), Dir: ".", Exec: by != ""})
	if got := child.started(); got != by {
		t.Errorf("started by %q, want %q", got, by)
	}
	late := time.AfterFunc(cpythonPatience, func() { _ = unix.Kill(child.pid, unix.SIGKILL) })
	defer late.Stop()
	ended := child.finish("")
	run := cpythonRun{tests: map[string]string{}, status: ended.status, stderr: ended.stderr}
	f, err := os.Open(filepath.Join("/proc", strconv.Itoa(c.pid), "root", cpythonResults))
	if err != nil {
		t.Fatalf("%s: no results: status %#x, stderr %s", file, ended.status, ended.stderr)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct{ Test, Outcome, Detail string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%s: %v: %s", file, err, lines.Text())
		}
		run.add(line.Test, line.Outcome, ofAMoment.ReplaceAllString(line.Detail, "#"))
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	c.takeFiles(t)
	return run
}

// loopbackUp is the request that brings the loopback of a sandbox up (SIOCSIFFLAGS,
// netdevice(7)).
const loopbackUp = `
import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sH14x", b"lo", 1))
`

// raiseLoopback brings the sandbox's loopback up.
func (c *forkTarget) raiseLoopback(t *testing.T) {
	t.Helper()
	cmd := exec.Command("nsenter", "--target", strconv.Itoa(c.pid), "--user", "--net", "/usr/bin/python3", "-c", loopbackUp)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("loopback: %v: %s", err, out)
	}
}

// add adds a line of run.py. If a test has begun and not ended, the Python died in it.
// Several tests may have the same name, so the outcomes of a name are a set.
func (r cpythonRun) add(test, outcome, detail string) {
	if detail != "" {
		outcome += ": " + detail
	}
	var all []string
	if before := r.tests[test]; before != "" && before != "begun" {
		all = strings.Split(before, "; ")
	}
	if outcome != "begun" || len(all) == 0 {
		all = append(all, outcome)
	}
	slices.Sort(all)
	r.tests[test] = strings.Join(slices.Compact(all), "; ")
}

// childrenTime returns the processor time of a zygote's children that have ended.
func (server *forkServer) childrenTime(t testing.TB) time.Duration {
	t.Helper()
	pid := server.cmd.Process.Pid
	return time.Duration(statOf(t, pid, 16)+statOf(t, pid, 17)) * 10 * time.Millisecond // a tick
}
