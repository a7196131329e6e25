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
	"syscall"
	"testing"

	"github.com/skillrun/skillrun/internal/failpoint"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A takeoverFault is SIGKILL to one of the two daemons of a takeover under load.
type takeoverFault struct {
	victim string
	at     failpoint.Point
	ends   []pb.ExecutionEnd // that it explains
	// after waits for what follows, and returns the daemon that serves then. d is the earlier daemon.
	after func(d, next *running) *running
}

var takeoverFaults = []takeoverFault{
	{"the earlier daemon", failpoint.DuringHandOver, lostWithDaemon, (*running).restartAfterBoth},
	{"the next daemon", failpoint.BeforeServing, nil, (*running).untilGoesOn},
	{"the earlier daemon", failpoint.DuringServing, lostWithDaemon, (*running).untilAdopted},
	{"the earlier daemon", failpoint.AfterServing, lostWithDaemon, (*running).untilAdopted},
}

const takeoversWithFault = 5

func (f takeoverFault) inject(t *testing.T, row *faultRow) {
	random := rand.New(rand.NewPCG(18, 4))
	dir := newDir(t)
	writeHostileSkill(t, dir)
	d := launchProgram(t, dir, faultConfig, buildFaulty(t), dyingAt(f.at))
	d.waitServing()
	l := startLoad(t, d, f.ends...)
	for range takeoversWithFault {
		l.untilAnswers(10 + random.Int64N(30))
		before := d.doomedAll()
		d.cmd.Process.Signal(syscall.SIGUSR2)
		next := d.nextProcess()
		serving := f.after(d, next)
		row.times++
		if serving == d {
			before = d.doomedBut(before)
		}
		for _, dead := range before {
			row.left += serving.leftOf(dead)
		}
		d = serving
	}
	endLoad(t, d, l, row)
}

// dyingAt is the variable with which daemons die at a point. The next daemon inherits it.
func dyingAt(p failpoint.Point) string { return fmt.Sprintf("%s=%s:0", failpoint.KillVar, p) }

// nextProcess returns the daemon that d has started to take over. It returns nil if both have died so soon that nobody
// saw the next one.
func (d *running) nextProcess() *running {
	d.t.Helper()
	var next int
	until(d.t, "the next daemon does not start", func() bool {
		dead := d.hasExited()
		next = d.findNext()
		return next != 0 || dead
	})
	if next == 0 {
		return nil
	}
	return d.adoptProcess(next)
}

// findNext returns the process of the next daemon, or 0. Besides d it is the only one that has takeoverVar in its
// environment and uses d's directory: it removes the variable for its own children.
func (d *running) findNext() int {
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range paths {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		args, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if pid == d.cmd.Process.Pid || !bytes.Contains(args, []byte(d.dir)) {
			continue
		}
		if env, _ := os.ReadFile(path); bytes.Contains(env, []byte(takeoverVar+"=")) {
			return pid
		}
	}
	return 0
}

// untilKilled waits for the end of a daemon at its point.
func (d *running) untilKilled() {
	d.t.Helper()
	until(d.t, "the daemon does not die", d.hasExited)
}

// restartAfterBoth starts a daemon after d has died and next has given up.
func (d *running) restartAfterBoth(next *running) *running {
	d.t.Helper()
	d.untilKilled()
	if next != nil {
		until(d.t, "the next daemon does not give up", next.hasExited)
	}
	again := launchProgram(d.t, d.dir, faultConfig, buildFaulty(d.t), dyingAt(failpoint.DuringHandOver))
	again.waitServing()
	return again
}

// untilGoesOn waits until d has taken everything back.
func (d *running) untilGoesOn(next *running) *running {
	d.t.Helper()
	next.untilKilled()
	tries := strings.Count(d.log.String(), "takeover: starting the next daemon")
	until(d.t, "the earlier daemon does not go on", func() bool {
		return strings.Count(d.log.String(), "the next daemon does not serve; this daemon continues to serve") == tries
	})
	return d
}

// untilAdopted waits until next has adopted what d has left.
func (d *running) untilAdopted(next *running) *running {
	d.t.Helper()
	d.untilKilled()
	tries := strings.Count(d.log.String(), "takeover: starting the next daemon")
	until(d.t, "the next daemon does not adopt", func() bool {
		return strings.Count(d.log.String(), "takeover: the earlier daemon has ended") == tries
	})
	return next
}

// doomedAll describes all instances in the state directory.
func (d *running) doomedAll() (all []deadInstance) {
	for _, name := range d.instances() {
		all = append(all, doomed(name))
	}
	return all
}

// doomedBut describes the instances that are not in known.
func (d *running) doomedBut(known []deadInstance) []deadInstance {
	return slices.DeleteFunc(d.doomedAll(), func(i deadInstance) bool {
		return slices.ContainsFunc(known, func(k deadInstance) bool { return k.name == i.name })
	})
}
