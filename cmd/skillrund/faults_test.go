package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/skillrun/skillrun/internal/failpoint"
)

// make test-faults sets faultsVar to whole. Otherwise the tests of faults have their short form.
const faultsVar = "SKILLRUN_TEST_FAULTS"

var wholeFaults = os.Getenv(faultsVar) == "whole"

// shortOrWhole returns how often a fault is injected: in the short form, or in make test-faults.
func shortOrWhole(short, whole int) int {
	if wholeFaults {
		return whole
	}
	return short
}

// A faultRow is one row of the table that make test-faults prints.
type faultRow struct {
	fault   string
	times   int // how often it was injected
	tried   int // executions with a key, whose clients got an answer
	lost    int // answered executions without a truthful end, or with less output than their clients had
	doubled int // idempotency keys with two executions, and programs that started twice
	left    int // processes, cgroups, namespaces, mounts and directories of dead daemons; files that nothing needs
}

// wantNone fails the test if the fault did harm, and returns the row for the table.
func (r *faultRow) wantNone(t *testing.T) {
	if r.lost+r.doubled+r.left > 0 {
		t.Errorf("%+v", *r)
	}
	if r.tried == 0 {
		t.Errorf("%s: no execution was tried", r.fault)
	}
}

func faultTable(rows []*faultRow) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "fault\ttimes\texecutions\tlost\tdoubled\tleft over")
	for _, r := range rows {
		if r.times == 0 { // -run has left it out
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\n", r.fault, r.times, r.tried, r.lost, r.doubled, r.left)
	}
	w.Flush()
	return b.String()
}

// TestFaults injects faults under the load of two tenants. The last three numbers of each row must be
// zero, see faultRow. The short form injects some of the faults, a few times each.
func TestFaults(t *testing.T) {
	t.Parallel()
	needsDaemon(t)
	var rows []*faultRow
	t.Run("rows", func(t *testing.T) {
		run := func(fault string, f func(*testing.T, *faultRow)) {
			row := &faultRow{fault: fault}
			rows = append(rows, row)
			t.Run(fault, func(t *testing.T) {
				t.Parallel()
				f(t, row)
				row.wantNone(t)
			})
		}
		run("SIGKILL of the daemon at random", killedAtRandom)
		for _, f := range processFaults {
			if wholeFaults || f.short {
				run(f.name, f.inject)
			}
		}
		for _, f := range hardships {
			if wholeFaults || f.short {
				run(f.name, f.inject)
			}
		}
		if wholeFaults {
			run("takeover", takenOver)
			for _, f := range damageFaults {
				run(f.name, f.inject)
			}
			run("no memory for the daemon", daemonStarved)
			run("cgroup that can't be removed", groupKept)
			for _, f := range networkFaults {
				run(f.name, f.inject)
			}
			for _, f := range diskFaults {
				run(f.name, f.inject)
			}
			for _, f := range takeoverFaults {
				run(fmt.Sprintf("SIGKILL of %s %s", f.victim, f.at), f.inject)
			}
			for _, p := range failpoint.Points() {
				run("SIGKILL of the daemon "+string(p), func(t *testing.T, row *faultRow) { killedAt(t, row, p) })
			}
		}
	})
	fmt.Print(faultTable(rows))
}

func killedAtRandom(t *testing.T, row *faultRow) {
	times := shortOrWhole(4, 200)
	random := rand.New(rand.NewPCG(18, 1))
	dir := newDir(t)
	writeHostileSkill(t, dir)
	d := startDaemonIn(t, dir, faultConfig)
	l := startLoad(t, d, lostWithDaemon...)
	for range times {
		l.untilAnswers(1 + random.Int64N(40)) // the random moment
		dead := d.doomed()
		d.kill()
		row.times++
		d = startDaemonIn(t, dir, faultConfig)
		row.left += d.leftOf(dead)
	}
	endLoad(t, d, l, row)
}

// killedAt lets daemons die at a point. The one that lives at the end is a released one.
func killedAt(t *testing.T, row *faultRow, p failpoint.Point) {
	program := buildFaulty(t)
	random := rand.New(rand.NewPCG(18, 2))
	dir := newDir(t)
	writeHostileSkill(t, dir)
	d := startDaemonIn(t, dir, faultConfig)
	l := startLoad(t, d, lostWithDaemon...)
	d.stop()
	// Each daemon that dies has removed the remains of the one before.
	var dead deadInstance
	for range 8 {
		before := dead
		d = launchProgram(t, dir, faultConfig, program, fmt.Sprintf("%s=%s:%d", failpoint.KillVar, p, random.IntN(40)))
		until(t, "the daemon does not die "+string(p), func() bool {
			if i := d.instance(); i != "" && i != before.name && i != dead.name {
				dead = doomed(i)
			}
			return d.hasExited()
		})
		if text := d.cmd.ProcessState.String(); text != "signal: killed" {
			t.Fatalf("the daemon did not die by SIGKILL %s: %s\n%s", p, text, tail(d.log.String(), 2000))
		}
		row.times++
		if row.times > 1 {
			row.left += d.leftOf(before)
		}
	}
	d = startDaemonIn(t, dir, faultConfig)
	row.left += d.leftOf(dead)
	endLoad(t, d, l, row)
}

// endLoad ends the load of a row, and verifies it.
func endLoad(t *testing.T, d *running, l *faultLoad, row *faultRow) {
	l.end()
	l.verify(row)
	d.wantNothingLeft()
	row.left += l.litter(d)
	dead := d.doomed()
	d.stop()
	row.left += d.leftOf(dead)
}
