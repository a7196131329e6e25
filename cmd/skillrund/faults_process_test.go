package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A processFault ends or stops a process of a daemon under load. The daemon goes on and replaces the process. No
// execution that ends by the fault counts as a success.
type processFault struct {
	name   string
	find   func(*running) []string          // pids
	harm   func(l *faultLoad, pid int) bool // false: the process had ended before
	times  int                              // in the whole form
	short  bool                             // also in the short form
	config string                           // besides faultConfig
	ends   []pb.ExecutionEnd                // that it explains
	// Codes of refusals that it explains, besides UNAVAILABLE.
	refusals []codes.Code
}

var (
	endsOfSignal = []pb.ExecutionEnd{pb.ExecutionEnd_EXECUTION_END_SIGNALED, pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED, pb.ExecutionEnd_EXECUTION_END_TIMED_OUT}
	endsOfMemory = []pb.ExecutionEnd{pb.ExecutionEnd_EXECUTION_END_SIGNALED, pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED, pb.ExecutionEnd_EXECUTION_END_OOM_KILLED}
)

// sessionStaysBusy has the refusal of a request that waits for its session for longer than the queue timeout: the daemon
// waits longer than that for a stopped process.
var sessionStaysBusy = []codes.Code{codes.FailedPrecondition}

// A stopped process takes as long as the daemon's patience.
var processFaults = []processFault{
	{"SIGKILL to a zygote", (*running).zygotes, signaled(unix.SIGKILL), 20, true, "", endsOfSignal, nil},
	// If one dies during its start, the next start is half a minute later.
	{"SIGKILL to a Python zygote", (*running).allPythonZygotes, signaled(unix.SIGKILL), 4, false, "", endsOfSignal, nil},
	{"SIGKILL to an init", (*running).inits, signaled(unix.SIGKILL), 20, false, "", endsOfSignal, nil},
	{"SIGSTOP to a zygote", (*running).zygotes, signaled(unix.SIGSTOP), 3, false, "", endsOfSignal, sessionStaysBusy},
	{"SIGSTOP to a Python zygote", (*running).allPythonZygotes, signaled(unix.SIGSTOP), 3, false, "", endsOfSignal, sessionStaysBusy},
	{"SIGSTOP to an init", (*running).inits, signaled(unix.SIGSTOP), 3, false, "", endsOfSignal, sessionStaysBusy},
	{"no memory for a zygote", (*running).busyZygotes, starved, 5, false, "prepared: {python_zygotes: 0}\n", endsOfMemory, nil},
	{"no memory for a Python zygote", (*running).allPythonZygotes, starved, 4, false, "", endsOfMemory, nil},
	{"no memory for an init", (*running).inits, starvedUntilExcuse, 5, false, "", endsOfMemory, nil},
}

// zygotes returns the pids of the zygotes of all tenants.
func (d *running) zygotes() (pids []string) {
	for _, b := range boxesOf(d.instance()) {
		for _, pid := range b.pids {
			if b.zygote() && statusOf(pid)["Name"] == zygoteComm {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// busyZygotes returns the pids of the zygotes of the tenants with load.
func (d *running) busyZygotes() (pids []string) {
	for _, pid := range d.zygotes() {
		if id, err := strconv.Atoi(pid); err == nil && filepath.Base(memoryGroup(id)) != zygoteBox {
			pids = append(pids, pid)
		}
	}
	return pids
}

// allPythonZygotes returns the pids of the Python zygotes of all tenants: children of a zygote in its cgroup.
func (d *running) allPythonZygotes() (pids []string) {
	for _, b := range boxesOf(d.instance()) {
		if !b.zygote() {
			continue
		}
		for _, pid := range b.pids {
			if status := statusOf(pid); strings.HasPrefix(status["Name"], "python") && statusOf(status["PPid"])["Name"] == zygoteComm {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// inits returns the pids of the inits of sandboxes in which a program runs.
func (d *running) inits() (pids []string) {
	for _, b := range usedBoxes(d.instance()) {
		if b.sandbox() && b.init != "" {
			pids = append(pids, b.init)
		}
	}
	return pids
}

func (f processFault) inject(t *testing.T, row *faultRow) {
	times := shortOrWhole(3, f.times)
	random := rand.New(rand.NewPCG(18, 3))
	dir := newDir(t)
	writeHostileSkill(t, dir)
	d := startDaemonIn(t, dir, faultConfig+f.config)
	l := &faultLoad{programs: faultPrograms, ends: f.ends, refusals: f.refusals}
	l.start(t, d)
	for row.times < times {
		l.untilAnswers(1 + random.Int64N(40))
		var pids []string
		until(t, "no process to harm", func() bool { pids = f.find(d); return len(pids) > 0 })
		pid, err := strconv.Atoi(pids[random.IntN(len(pids))])
		if err != nil {
			t.Fatal(err)
		}
		if f.harm(l, pid) {
			row.times++
		}
	}
	endLoad(t, d, l, row)
}

func signaled(number unix.Signal) func(*faultLoad, int) bool {
	return func(_ *faultLoad, pid int) bool { return unix.Kill(pid, number) == nil }
}

// starved leaves the processes in the cgroup of a process no more memory than they have, until the kernel has killed one
// of them for that.
func starved(l *faultLoad, pid int) bool {
	l.t.Helper()
	before := -1
	return l.starvedUntil(memoryGroup(pid), func(group string) bool {
		kills, err := oomKills(group)
		if before < 0 {
			before = kills
		}
		return err != nil || kills > before
	})
}

// starvedUntilExcuse is starved for a sandbox, whose cgroup does not last: it waits until some execution ends so that the
// fault explains it, or the sandbox is gone.
func starvedUntilExcuse(l *faultLoad, pid int) bool {
	l.t.Helper()
	group := memoryGroup(pid)
	// On cgroup v1, a process enters one hierarchy after the other. An init that is being made may be in its own cgroup, but
	// count in the zygote's memory.
	if strings.HasPrefix(filepath.Base(group), zygoteBox) {
		return false
	}
	before := l.excused.Load()
	l.starvedUntil(group, func(group string) bool {
		_, err := os.Stat(group)
		return err != nil || l.excused.Load() > before
	})
	return l.excused.Load() > before
}

// starvedUntil is starved with another end. group is the directory of the cgroup; "" if its process has ended.
func (l *faultLoad) starvedUntil(group string, done func(group string) bool) bool {
	l.t.Helper()
	limit := "memory.limit_in_bytes"
	if unified() {
		limit = "memory.max"
	}
	before, err := os.ReadFile(filepath.Join(group, limit))
	if group == "" || err != nil {
		return false
	}
	unlessGone := func(err error) {
		if _, gone := os.Stat(group); err != nil && gone == nil {
			l.t.Error(err)
		}
	}
	done(group)
	if err := limitMemory(group, 0); err != nil {
		unlessGone(err)
		return false
	}
	until(l.t, "the memory of "+group+" is enough", func() bool {
		if done(group) {
			return true
		}
		// The first limit may have had room: the processes may have used memory then that they have freed since.
		unlessGone(limitMemory(group, 0))
		return false
	})
	unlessGone(os.WriteFile(filepath.Join(group, limit), bytes.TrimSpace(before), 0))
	return true
}

// memoryGroup returns the cgroup that limits the memory of a process of a daemon; "" if the process has ended.
func memoryGroup(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		names, path, _ := strings.Cut(rest, ":")
		if !strings.Contains(path, "/skillrun-") { // an ended process is in the root
			continue
		}
		if unified() {
			return filepath.Join("/sys/fs/cgroup", path)
		} else if slices.Contains(strings.Split(names, ","), "memory") {
			return filepath.Join("/sys/fs/cgroup/memory", path)
		}
	}
	return ""
}

// oomKills returns how many processes of a cgroup the kernel has killed because its memory ran out.
func oomKills(group string) (int, error) {
	name := "memory.oom_control"
	if unified() {
		name = "memory.events"
	}
	text, err := os.ReadFile(filepath.Join(group, name))
	for line := range strings.Lines(string(text)) {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strconv.Atoi(strings.TrimSpace(count))
		}
	}
	return 0, err
}
