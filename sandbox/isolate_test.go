package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/runc/libcontainer/exeseal"
	"golang.org/x/sys/unix"
)

// TestIsolated examines this process, which called Isolate in TestMain.
func TestIsolated(t *testing.T) {
	needsRoot(t)
	if !exeseal.IsSelfExeCloned() {
		t.Error("the binary is not sealed")
	}
	if f, err := os.OpenFile("/proc/self/exe", os.O_RDWR, 0); err == nil {
		if _, err := f.Write([]byte("x")); err == nil {
			t.Error("the binary can be written to")
		}
		f.Close()
	}
	own, err1 := os.Readlink("/proc/self/ns/mnt")
	parents, err2 := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", os.Getppid()))
	if err1 != nil || err2 != nil || own == parents {
		t.Errorf("mount namespace: got %s (%v), the parent's is %s (%v)", own, err1, parents, err2)
	}
	if v, ok := os.LookupEnv(isolatedVar); ok {
		t.Errorf("%s=%s is left", isolatedVar, v)
	}
	comm, err := os.ReadFile("/proc/self/comm")
	if want := filepath.Base(os.Args[0]); err != nil || !strings.HasPrefix(want, strings.TrimSpace(string(comm))) {
		t.Errorf("name: got %q, %v, want %q", comm, err, want)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads: %v, %v", threads, err)
	}
	for _, thread := range threads {
		slack, err := os.ReadFile(filepath.Join("/proc", thread.Name(), "timerslack_ns"))
		if err == nil && strings.TrimSpace(string(slack)) != strconv.Itoa(timerSlack) { // else it has ended
			t.Errorf("thread %s: timer slack %q, want %d", thread.Name(), slack, timerSlack)
		}
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(info)) {
		if strings.Contains(line, " shared:") {
			t.Errorf("a mount is shared with the machine: %s", line)
		}
	}
}

// TestMainThread: /proc/self must be ours after sandboxes were made (pid1/reexec.go).
func TestMainThread(t *testing.T) {
	h := openHost(t)
	before, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		run(t, h, Spec{Program: command("true"), Env: testEnv}, "")
	}
	after, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil || after != before {
		t.Errorf("got %s, %v, want %s", after, err, before)
	}
}

// inheritsVar makes TestInherited the child that has inherited a descriptor.
const inheritsVar = "SKILLRUN_TEST_INHERITS"

// A descriptor that the daemon's parent left open survives Isolate, but the daemon's children do not get it.
func TestInherited(t *testing.T) {
	needsRoot(t)
	if os.Getenv(inheritsVar) != "" {
		flags, err := unix.FcntlInt(firstFD, unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("flags %#x, %v", flags, err)
		}
		return
	}
	f, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestInherited$", "-test.v")
	c.Env, c.ExtraFiles = append(os.Environ(), inheritsVar+"=1"), []*os.File{f}
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestInherited") {
		t.Errorf("%v\n%s", err, out)
	}
}
