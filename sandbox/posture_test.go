package sandbox

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
)

// TestPostureRefuses gives each check an unconfined process: this one.
func TestPostureRefuses(t *testing.T) {
	h := openHost(t)
	self := os.Getpid()
	// A descriptor that stays open over exec.
	if _, err := unix.Dup(0); err != nil {
		t.Fatal(err)
	}
	p := posture{
		ids: idPair{root: 1 << 28}, group: h.cgroups.Group(h.groupName(), "none"), initPid: self,
		rlimits: map[int]uint64{unix.RLIMIT_CORE: 12345}, memory: 1 << 20, pids: 3,
	}
	for _, tt := range []struct {
		name  string
		check func(int) error
		want  string
	}{
		{"status", func(pid int) error { return p.checkStatus(mustReadStatus(t, pid)) }, "Uid"},
		{"oom score", p.checkOOMScore, "oom_score_adj"},
		{"namespaces", p.checkNamespaces, "daemon's"},
		{"groups", p.checkGroups, "cgroup of"},
		{"rlimits", p.checkRlimits, "rlimit"},
		{"descriptors", p.checkDescriptors, "descriptor"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.check(self); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
		})
	}
	// The error names each of several differences.
	if err := p.checkStatus(mustReadStatus(t, self)); err == nil || !strings.Contains(err.Error(), "; CapEff: got ") {
		t.Errorf("got %v, want all that differs", err)
	}
	if _, err := p.check(2); err == nil || !strings.Contains(err.Error(), "got 0, want 1") {
		t.Errorf("got %v", err)
	}
}

func mustReadStatus(t *testing.T, pid int) pseudofs.Status {
	t.Helper()
	status, err := pseudofs.ReadStatus(strconv.Itoa(pid))
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// TestPostureOfARunningProgram checks a real program with right and with wrong expectations.
func TestPostureOfARunningProgram(t *testing.T) { eachMaker(t, testPostureOfARunningProgram) }

func testPostureOfARunningProgram(t *testing.T, h *Host) {
	k := startTalk(t, h, Spec{Program: command("bash", "-c", "echo $$; read x")}, nil)
	k.line("") // the pid is read below
	var pid uint32
	b := make([]byte, 1)
	for {
		if _, err := k.out.Read(b); err != nil || b[0] == '\n' {
			break
		}
		pid = pid*10 + uint32(b[0]-'0')
	}
	c := k.p.sandbox
	right := c.posture()
	if _, err := right.check(pid); err != nil {
		t.Errorf("got %v", err)
	}
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", right.initPid))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*posture){
		"zygote's":   func(p *posture) { p.spaces = map[string]string{"net": space} },
		"Uid":        func(p *posture) { p.ids.root += 2 },
		"NSpid":      func(p *posture) { pid++ },
		"rlimit":     func(p *posture) { p.rlimits = map[int]uint64{unix.RLIMIT_NOFILE: 1 << 20} },
		"memory":     func(p *posture) { p.memory *= 2 },
		"pids.max":   func(p *posture) { p.pids++ },
		"processes":  func(p *posture) { p.initPid = 1 },
		"cgroup of ": func(p *posture) { p.group.Path += "x" },
	} {
		wrong, was := right, pid
		change(&wrong)
		if _, err := wrong.check(pid); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
		pid = was
	}
	k.p.Stop(0)
	k.wait()
}

func TestLimitsOf(t *testing.T) {
	const header = "Limit                     Soft Limit           Hard Limit           Units     \n"
	for text, want := range map[string]string{
		"": "[]", header: "[]",
		header + "Max cpu time              unlimited            20                   seconds   \n": "[[unlimited 20]]",
		header + "Max cpu time              1                    2                    seconds   \n" +
			"Max nice priority         0                    3                    \n": "[[1 2] [0 3]]",
	} {
		if got, err := limitsOf(text); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%q: got %v, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"\n", header + "Max cpu time              1", "Max\n"} {
		if got, err := limitsOf(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}
