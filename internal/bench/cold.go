package bench

import (
	"errors"
	"fmt"
	"os/exec"
	"time"
)

// coldConfig is what keeps a daemon from preparing anything ahead.
const coldConfig = "prepared: {sandboxes: 0}\n"

// cold times a daemon that has nothing prepared beside runc with the same boundaries,
// and beside the program alone.
func cold(r *run, rows rowSet) error {
	d, err := r.startNew("cold", coldConfig)
	if err != nil {
		return err
	}
	return errors.Join(coldOf(r, d, rows), d.stop())
}

func coldOf(r *run, d *daemon, rows rowSet) error {
	all := r.subjects(d.client, trueProgram)[:firstPeer]
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
	for _, m := range []struct {
		row, bare string
		n         int
		idle      time.Duration
	}{{"cold-true-p50", "cold-true-bare-p50", 100, 0}, {"cold-true-idle300-p50", "", 40, r.scale.idle[1]}} {
		if err := coldRow(r, all, m.n, m.idle, rows[m.row], rows[m.bare]); err != nil {
			return err
		}
		if missing != nil {
			rows[m.row].NotRun = missing.Error()
		}
	}
	return nil
}

// coldRow fills the row that compares with runc, if there is one, and the one that
// compares with bare, if it is not nil.
func coldRow(r *run, all []*subject, n int, idle time.Duration, row, bare *Row) error {
	times, err := r.takeTurns(r.samples(n), idle, all)
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

// findRunc returns runc's path; the error says how to get it.
func (r *run) findRunc() (string, error) {
	name := r.Runc
	if name == "" {
		name = "runc"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", notRun("there is no runc to compare with: make .tools/runc builds it, --runc says where it is")
	}
	return path, nil
}
