package bench

import (
	"errors"
	"fmt"
	"os/exec"
	"time"

	skillrun "github.com/skillrun/skillrun/clients/go"
)

// A subject is one way to run a program. Subjects take turns.
type subject struct {
	name string
	run  func() error
	// broken is the error of a peer that failed. It is not run any longer.
	broken error
}

// takeTurns runs the subjects n times in turns, with a pause of idle before each run. It returns
// the duration of each run in milliseconds. The error of a peer is kept in its subject. Turns
// rather than blocks: a machine slows down and speeds up for seconds at a time, and then
// neighbouring samples share the disturbance. The first subjects must not fail: their error ends
// the group.
func (r *run) takeTurns(n int, idle time.Duration, subjects []*subject) ([][]float64, error) {
	times := make([][]float64, len(subjects))
	for range n {
		for i, s := range subjects {
			if s.broken != nil {
				continue
			}
			if err := r.pause(idle); err != nil {
				return nil, err
			}
			t, err := timed(s.run)
			switch {
			case err != nil && i >= firstPeer:
				s.broken, times[i] = err, nil
			case err != nil:
				return nil, err
			default:
				times[i] = append(times[i], t)
			}
		}
	}
	return times, nil
}

// The indices of subjects: skillrun, the bare program, then the peers.
const (
	sandboxedSubject = iota
	bareSubject
	firstPeer
)

// subjects returns the ways to run p: through a client, bare, and through each peer. The indices
// sandboxedSubject and bareSubject hold in the result.
func (r *run) subjects(c *skillrun.Client, p program) []*subject {
	all := []*subject{
		{name: "skillrun", run: func() error { return p.request(r.ctx, c) }},
		{name: "bare", run: p.runBare},
	}
	for _, peer := range r.Peers {
		all = append(all, &subject{name: peer.Name, run: func() error { return peer.run(p) }})
	}
	return all
}

// warm runs each subject a few times, so that caches and prewarmed sandboxes are filled.
// The pause lets the daemon refill its pool of prewarmed sandboxes.
func (r *run) warm(subjects []*subject) error {
	if _, err := r.takeTurns(r.scale.warmUp, 0, subjects); err != nil {
		return err
	}
	return r.pause(r.scale.refill)
}

// warmTurns warms the subjects, takes n samples of each in turns, and keeps them in the report as name. The
// result is in milliseconds, as of takeTurns.
func (r *run) warmTurns(name string, n int, idle time.Duration, all []*subject) ([][]float64, error) {
	if err := r.warm(all); err != nil {
		return nil, err
	}
	times, err := r.takeTurns(r.samples(n), idle, all)
	if err == nil {
		r.report.keep(name, "ms", all, times)
	}
	return times, err
}

// latency times single requests of one program in turns with the bare program. It fills the
// rows name-p50 and name-p95, if they are selected.
func latency(name string, p program, n int, idle time.Duration) func(*run, rowSet) error {
	return func(r *run, rows rowSet) error {
		d, err := r.theStandard()
		if err != nil {
			return err
		}
		_, err = r.latencyOf(d, rows, name, p, n, idle)
		return err
	}
}

// latencyOf is latency for a daemon. It returns the times of the subjects.
func (r *run) latencyOf(d *daemon, rows rowSet, name string, p program, n int, idle time.Duration) ([][]float64, error) {
	all := r.subjects(d.client, p)
	times, err := r.warmTurns(name, n, idle, all)
	if err != nil {
		return nil, err
	}
	for suffix, q := range map[string]float64{"-p50": 0.5, "-p95": 0.95} {
		row := rows[name+suffix]
		if row == nil {
			continue
		}
		row.setPairs(times[sandboxedSubject], times[bareSubject], q)
		row.setPeers(all, times, q)
	}
	return times, nil
}

// setPeers adds the values of the peers to the row.
func (r *Row) setPeers(all []*subject, times [][]float64, q float64) {
	for i := firstPeer; i < len(all); i++ {
		v := PeerValue{}
		if all[i].broken != nil {
			v.Broken = all[i].broken.Error()
		} else {
			v.Value = rounded(quantile(times[i], q))
			v.Ratio = number(quantile(ratios(times[i], times[bareSubject]), q))
		}
		r.setPeer(all[i].name, v)
	}
}

// setPeer adds one peer's figure. Peers is nil in a row without any, so that JSON leaves it out.
func (r *Row) setPeer(name string, v PeerValue) {
	if r.Peers == nil {
		r.Peers = map[string]PeerValue{}
	}
	r.Peers[name] = v
}

// python wraps a measurement of a Python program. It makes sure that the sandbox's Python and the
// bare one search the same packages when they start. A Python that reads more .pth files starts
// more slowly, and the ratio would compare two different things; the row then has a note.
func python(measure func(*run, rowSet) error) func(*run, rowSet) error {
	return func(r *run, rows rowSet) error {
		if err := hasPython(); err != nil {
			return err
		}
		d, err := r.theStandard()
		if err != nil {
			return err
		}
		note, err := sameView(r.ctx, d.client)
		if err != nil {
			return fmt.Errorf("compare the Pythons: %w", err)
		}
		if note != "" {
			for _, row := range rows {
				row.Note = note
			}
		}
		return measure(r, rows)
	}
}

// pandas wraps a measurement that needs pandas.
func pandas(measure func(*run, rowSet) error) func(*run, rowSet) error {
	return func(r *run, rows rowSet) error {
		cmd := exec.CommandContext(r.ctx, systemPython, "-c", "import pandas")
		cmd.Env = bareEnv
		// Only an exit code other than 0 means that pandas is missing. Another error ends
		// the measurement itself.
		if exit := (*exec.ExitError)(nil); errors.As(cmd.Run(), &exit) {
			return notRun("pandas is not installed for " + systemPython)
		}
		return measure(r, rows)
	}
}
