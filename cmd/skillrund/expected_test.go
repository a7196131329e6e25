package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// Programs find out by /etc/os-release of which distribution /usr is.
func TestOSRelease(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("/etc/os-release")
	if err != nil {
		t.Skipf("this machine has none: %v", err)
	}
	d := startShared(t)
	d.run(shell("calculator", "cat /etc/os-release")).wantStdout(t, string(want))
}

// The limit of processes counts the program's children: with the default of 64 it can start 64,
// and the 65th is refused. The advice says so.
func TestProcessLimitIsForChildren(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	d.addSkill("forks", "", nil)
	r := d.run(code("forks", `import os, signal
n = 0
try:
    while True:
        if os.fork() == 0: signal.pause()
        n += 1
except OSError: print(n)`))
	r.wantStdout(t, "64\n")
	if r.outcome.Limits.Processes != 64 || !strings.Contains(r.outcome.Advice, "its limit of 64, which counts processes and threads besides the program itself") {
		t.Errorf("limit %d, advice %q", r.outcome.Limits.Processes, r.outcome.Advice)
	}
}

// Without a network npm fails, and does not wait for one until the execution's time is up: with
// its own defaults it would try three times, in 70 s.
func TestNpmFailsWithoutNetwork(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("no npm here")
	}
	d := startShared(t)
	d.addSkill("npm", "", nil)
	r := d.run(wall(shell("npm", "npm install left-pad"), time.Minute))
	if r.outcome.End != pb.ExecutionEnd_EXECUTION_END_EXITED || r.outcome.GetExitCode() == 0 {
		t.Errorf("got %v, stderr %q", r.outcome, r.stderr.String())
	}
	if !strings.Contains(r.stderr.String(), "EAI_AGAIN") || !strings.Contains(r.outcome.Advice, "It seems to need a network") {
		t.Errorf("stderr %q, advice %q", r.stderr.String(), r.outcome.Advice)
	}
}
