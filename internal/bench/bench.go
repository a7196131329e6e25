// Package bench measures skillrun as a user meets it: real requests through the
// client, over a Unix socket, to a real daemon that it starts for itself, each
// beside the same program started bare. docs/performance.md has the method.
//
// What a figure says is a ratio: machines differ and drift, so the two that are
// compared take turns in one run. Every run is checked: a request that fails, or
// prints something else than it should, breaks its row.
package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A Config says what is measured, and with what.
type Config struct {
	// Daemon is the path of skillrund.
	Daemon string
	// Dir is where the daemons' directories are made and removed: on a disk.
	Dir string
	// Rows select rows, as in MatchRows. Empty: all.
	Rows []string
	// Samples replaces how often what is timed one by one is run. 0: as each row has
	// it.
	Samples int
	// Short measures everything at a small scale: it tells that all of it works, and
	// little of how fast.
	Short bool
	// Peers are other systems that run beside.
	Peers []Peer
	// Runc is the path of runc. Empty: the one in PATH.
	Runc string
	// Version is the client's.
	Version string
	// Say is told what is going on. Nil: nobody is.
	Say func(format string, args ...any)
	// Done is called with each row when it is final. Nil: nobody is.
	Done func(Row)
}

// Names are the names of all rows, in their order.
func Names() []string {
	var names []string
	for _, g := range groups(full) {
		for _, r := range g.rows {
			names = append(names, r.Name)
		}
	}
	return names
}

// Run measures. What went wrong with a row is in the row. Without a report the error is
// what kept it from measuring at all, or the end of ctx; beside one it says that the
// daemon or its directory could not be cleared away.
func Run(ctx context.Context, c Config) (report *Report, err error) {
	selected, err := MatchRows(Names(), c.Rows)
	if err != nil {
		return nil, err
	}
	r := &run{Config: c, ctx: ctx, scale: full}
	if c.Short {
		r.scale = short
	}
	if c.Say == nil {
		r.Say = func(string, ...any) {}
	}
	if r.dir, err = makeDir(c.Dir); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	report = &Report{Version: c.Version, Short: c.Short, Time: time.Now().UTC().Truncate(time.Second), Machine: describeMachine()}
	report.Machine.LoadBefore = loadAverage()
	r.report = report
	for _, g := range groups(r.scale) {
		if err := r.group(g, selected); err != nil {
			return nil, err
		}
	}
	report.Machine.LoadAfter = loadAverage()
	report.Took = time.Since(report.Time).Round(time.Second).String()
	report.judge()
	return report, nil
}

// makeDir makes a directory that sandboxes can be entered beneath.
func makeDir(parent string) (string, error) {
	dir, err := os.MkdirTemp(parent, "skillrun-bench-")
	if err != nil {
		return "", err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711)
}

// A run is one benchmark under way.
type run struct {
	Config
	ctx    context.Context
	scale  scale
	dir    string
	report *Report

	standard *daemon // with the default configuration; nil: not started
	daemons  int
}

// close ends what is left and removes the directory.
func (r *run) close() error {
	var err error
	if r.standard != nil {
		err = r.standard.stop()
	}
	return errors.Join(err, os.RemoveAll(r.dir))
}

// group measures those rows of g that are selected. Its error is that of ctx.
func (r *run) group(g group, selected []string) error {
	set := rowSet{}
	wanted := false
	for i := range g.rows {
		set[g.rows[i].Name] = &g.rows[i]
		for _, name := range selected {
			wanted = wanted || name == g.rows[i].Name
		}
	}
	if !wanted {
		return nil
	}
	r.Say("%s", g.name)
	err := g.measure(r, set)
	if ctxErr := r.ctx.Err(); ctxErr != nil {
		return context.Cause(r.ctx)
	}
	for _, row := range g.rows {
		row.settle(err)
		for _, name := range selected {
			if name != row.Name {
				continue
			}
			r.report.Rows = append(r.report.Rows, row)
			if r.Done != nil {
				r.Done(row)
			}
		}
	}
	return nil
}

// settle says of a row that has no value why that is.
func (r *Row) settle(err error) {
	var reason notRun
	switch {
	case r.NotRun != "" || r.Broken != "":
	case errors.As(err, &reason):
		r.NotRun, r.Value, r.Ratio = string(reason), nil, nil
	case err != nil && r.Value == nil:
		r.Broken = err.Error()
	case r.Value == nil:
		r.Broken = "it was not measured"
	case r.TargetOf == "ratio" && r.Ratio == nil:
		r.Broken = "there is nothing to compare with"
	}
}

// Broken names the rows that failed.
func (r *Report) Broken() []string {
	var names []string
	for _, row := range r.Rows {
		if row.Broken != "" {
			names = append(names, row.Name)
		}
	}
	return names
}

// pause waits, or until the run ends.
func (r *run) pause(d time.Duration) error {
	if d <= 0 {
		return context.Cause(r.ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
}

// samples is how often something is run that a row would run n times.
func (r *run) samples(n int) int {
	if r.Samples > 0 {
		return r.Samples
	}
	return max(n/r.scale.divide, 3)
}

// A scale is how large everything is.
type scale struct {
	divide        int           // samples by this
	warmUp        int           // requests of a kind before it is timed
	refill        time.Duration // in which the daemon may get ready for more
	settle        time.Duration // after which a daemon is called idle
	idle          [2]time.Duration
	load          time.Duration // a sustained load
	slices        int           // in which it takes turns with the bare one
	streamBytes   int
	sleeping      int
	records       int
	skills        int
	snapshotBytes int
}

// full is what the targets speak of.
var full = scale{
	divide: 1, warmUp: 10, refill: time.Second, settle: 3 * time.Second,
	idle: [2]time.Duration{100 * time.Millisecond, 300 * time.Millisecond},
	load: 30 * time.Second, slices: 3,
	streamBytes: 1 << 30, sleeping: 1000, records: 1_000_000, skills: 10_000, snapshotBytes: 1_000_000_000,
}

// short shows in a minute that everything works.
var short = scale{
	divide: 30, warmUp: 2, refill: 100 * time.Millisecond, settle: 200 * time.Millisecond,
	idle: [2]time.Duration{10 * time.Millisecond, 30 * time.Millisecond},
	load: time.Second, slices: 2,
	streamBytes: 32 << 20, sleeping: 20, records: 5000, skills: 100, snapshotBytes: 10_000_000,
}

// timed says how long f took, in milliseconds.
func timed(f func() error) (float64, error) {
	began := time.Now()
	err := f()
	return float64(time.Since(began)) / float64(time.Millisecond), err
}

// fault is what an execution did that it should not.
func fault(what string, err error) error { return fmt.Errorf("%s: %w", what, err) }
