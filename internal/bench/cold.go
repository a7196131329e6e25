package bench

import (
	"errors"
	"fmt"
	"os/exec"
	"time"

	skillrun "github.com/skillrun/skillrun/clients/go"
)

// coldConfig turns prewarming off. noZygoteConfig turns the zygote off as well.
const (
	// prepared.sandboxes and prepared.python_zygotes are the sizes of the pools.
	coldConfig     = "prepared: {sandboxes: 0, python_zygotes: 0}\n"
	noZygoteConfig = "prepared: {zygote: false, sandboxes: 0, python_zygotes: 0}\n"
)

// cold times three daemons: one without prewarming, one without a zygote, and one that has no
// prewarmed sandbox for the requested program. For comparison it times runc with the same
// boundaries, and the program alone. Each daemon is started, measured and stopped before the next
// one, so that only one of them runs.
func cold(r *run, rows rowSet) error {
	all := []coldDaemon{
		{"cold", coldConfig, trueProgram, []coldRow{{"cold-true-p50", "cold-true-bare-p50", 100, 0}, {"cold-true-idle300-p50", "", 40, r.scale.idle[1]}}},
		{"no-zygote", noZygoteConfig, trueProgram, []coldRow{{"no-zygote-true-p50", "", 100, 0}}},
		{"unseen", "", unseen(trueProgram), []coldRow{{"unseen-true-p50", "", 100, 0}}},
	}
	for _, c := range all {
		d, err := r.startNew(c.name, c.config)
		if err == nil {
			err = errors.Join(coldOf(r, d, c, rows), d.stop())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// A coldDaemon is a daemon's configuration, the program to request, and the rows to fill.
type coldDaemon struct {
	name, config string
	program      program
	rows         []coldRow
}

// A coldRow names two rows with the same samples: compared with runc and, if bare is not
// empty, with the bare program. n is the number of samples at full scale, idle the pause before
// each.
type coldRow struct {
	row, bare string
	n         int
	idle      time.Duration
}

// unseen returns p with limits that no earlier request had, so that no sandbox is prewarmed
// for it.
// The limit of open files changes with each request, so no request repeats the limits of an
// earlier one.
func unseen(p program) program {
	sandboxed, n := p.sandboxed, uint32(100)
	p.sandboxed = func(c *skillrun.Client) *skillrun.Cmd {
		cmd := sandboxed(c)
		n++
		cmd.Limits.OpenFiles = n
		return cmd
	}
	return p
}

// Peers of the command line are left out. runc takes the place of the first peer, so
// takeTurns keeps an error of runc in its subject.
func coldOf(r *run, d *daemon, c coldDaemon, rows rowSet) error {
	all := r.subjects(d.client, c.program)[:firstPeer]
	runc, missing := r.findRunc()
	if missing == nil {
		runc, end, err := r.openRunc(runc)
		if err != nil {
			return err
		}
		defer end()
		all = append(all, &subject{name: "runc", run: runc})
	}
	if err := r.warm(all); err != nil {
		return err
	}
	for _, m := range c.rows {
		if err := m.measure(r, all, rows); err != nil {
			return err
		}
		if missing != nil {
			rows[m.row].NotRun = missing.Error()
		}
	}
	return nil
}

// measure fills the row that compares with runc, if the group has one, and the row that
// compares with the bare program, if it is selected.
func (c coldRow) measure(r *run, all []*subject, rows rowSet) error {
	row, bare := rows[c.row], rows[c.bare]
	times, err := r.takeTurns(r.samples(c.n), c.idle, all)
	if err != nil {
		return err
	}
	if bare != nil {
		r.report.keep("cold-true", "ms", all, times)
		bare.setPairs(times[sandboxedSubject], times[bareSubject], 0.5)
	}
	if len(all) > firstPeer {
		if err := all[firstPeer].broken; err != nil {
			return fmt.Errorf("runc: %w", err)
		}
		row.setPairs(times[sandboxedSubject], times[firstPeer], 0.5)
	}
	return nil
}

// findRunc returns the path of runc. Its error says how to get runc.
func (r *run) findRunc() (string, error) {
	name := r.Runc
	if name == "" {
		name = "runc"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", notRun("runc is not installed: make bench builds it, --runc sets its path")
	}
	return path, nil
}
