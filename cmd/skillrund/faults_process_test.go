package main

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A processFault is a signal to processes of a daemon under load. The daemon goes on and replaces them. No
// execution that ends by the signal counts as a success.
type processFault struct {
	signal signalFault
	victim string
	find   func(*running) []string // pids
	times  int                     // in the whole form
	short  bool                    // also in the short form
}

type signalFault struct {
	name   string
	number unix.Signal
}

var (
	killed  = signalFault{"SIGKILL", unix.SIGKILL}
	stopped = signalFault{"SIGSTOP", unix.SIGSTOP} // each takes as long as the daemon's patience
)

var processFaults = []processFault{
	{killed, "a zygote", (*running).zygotes, 30, true},
	// If one dies during its start, the next start is half a minute later.
	{killed, "a Python zygote", (*running).allPythonZygotes, 6, false},
	{killed, "an init", (*running).inits, 30, false},
	{stopped, "a zygote", (*running).zygotes, 3, false},
	{stopped, "a Python zygote", (*running).allPythonZygotes, 3, false},
	{stopped, "an init", (*running).inits, 3, false},
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

// allPythonZygotes returns the pids of the Python zygotes of all tenants: children of a zygote in its cgroup.
func (d *running) allPythonZygotes() (pids []string) {
	for _, b := range boxesOf(d.instance()) {
		if !b.zygote() {
			continue
		}
		for _, pid := range b.pids {
			if status := statusOf(pid); len(status["Name"]) >= 6 && status["Name"][:6] == "python" && statusOf(status["PPid"])["Name"] == zygoteComm {
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
	times := 3
	if wholeFaults {
		times = f.times
	}
	random := rand.New(rand.NewPCG(18, 3))
	dir := newDir(t)
	writeHostileSkill(t, dir)
	d := startDaemonIn(t, dir, faultConfig)
	l := startLoad(t, d, pb.ExecutionEnd_EXECUTION_END_SIGNALED, pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED, pb.ExecutionEnd_EXECUTION_END_TIMED_OUT)
	for row.times < times {
		goal := l.answers.Load() + 1 + random.Int64N(40)
		until(t, "the load stands still", func() bool { return l.answers.Load() >= goal })
		var pids []string
		until(t, "there is no "+f.victim, func() bool { pids = f.find(d); return len(pids) > 0 })
		pid, err := strconv.Atoi(pids[random.IntN(len(pids))])
		if err != nil {
			t.Fatal(err)
		}
		if unix.Kill(pid, f.signal.number) == nil { // an init may just have ended
			row.times++
		}
	}
	endLoad(t, d, l, row)
}
