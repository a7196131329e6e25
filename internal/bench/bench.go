// Package bench measures skillrun as users experience it. It sends real requests through
// the client, over a Unix socket, to a daemon that it starts. Start with [Run], which takes
// a [Config] and returns a [Report]. docs/performance.md describes the method.
//
// A figure is usually a ratio to the same program started without a sandbox ("bare").
// Machines differ and their speed drifts, so the two take turns in one run. Every execution
// is checked: a row is broken if a request fails or prints unexpected output.
//
// groups.go lists the rows and their targets. A group is a function that fills several rows
// from the same samples, and Run calls one group after the other. Most groups share one
// daemon (daemon.go), warm it up, and let the subjects take turns (latency.go): skillrun, the
// bare program, then other systems (peer.go). Other groups start separate daemons. They measure
// cold starts, next to runc (cold.go, runc.go) or in an image (image.go), memory (memory.go, prewarmed.go), growth
// (growth.go, fill.go), what a part of the daemon costs (cost.go), and networks (network.go, networks.go), next to
// other programs that carry packets (carrier.go), in network namespaces (internet.go, netns.go). stats.go turns
// samples into figures, row.go compares these with the targets, and report.go and svg.go write them down.
//
// prices.go belongs to another benchmark, TestPriceOfBoundaries in package sandbox: it measures the cost
// of each layer of a sandbox.
package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A Config says what to measure, and how.
type Config struct {
	// Daemon is the path of skillrund.
	Daemon string
	// Self is the path of a program whose command "bench neighbour" calls Neighbour.
	Self string
	// Dir is the directory for the daemons' files, which are removed afterwards. It should
	// be on a disk.
	Dir string
	// Rows select rows, as in MatchRows. Empty: all.
	Rows []string
	// Samples replaces each row's number of timed runs. 0: the row's own number.
	Samples int
	// Short measures everything at a small scale, in about a minute. It shows that all rows
	// work, but the figures are not accurate.
	Short bool
	// Peers are other systems to measure in the same turns.
	Peers []Peer
	// Runc is the path of runc. Empty: the one in PATH.
	Runc string
	// Version is the client's.
	Version string
	// Say receives progress messages. Nil: none.
	Say func(format string, args ...any)
	// Done is called with each finished row. Nil: not called.
	Done func(Row)
}

// Names returns the names of all rows in order.
func Names() []string {
	var names []string
	for _, g := range groups(full) {
		for _, r := range g.rows {
			names = append(names, r.Name)
		}
	}
	return names
}

// Run measures the selected rows. A row that fails says so in the report. If the report is
// nil, the error says why nothing could be measured, or that ctx has ended. If there is a
// report and an error, the daemon or its directory could not be cleaned up.
// It runs one measurement after the other, never two at once, because they would disturb
// each other. The daemons end before it returns.
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
	r.report, r.chosen = report, selected
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

// makeDir creates a temporary directory with mode 0711, so that sandboxes can reach paths
// in it.
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

// A run is the state of one benchmark. Only the goroutine of Run uses it; load and each start
// goroutines that share ctx alone.
type run struct {
	Config
	ctx    context.Context
	scale  scale
	dir    string
	report *Report
	chosen []string // the names of the selected rows

	// Rows that need another configuration, or measure the memory or the start of a daemon,
	// start their own.
	standard *daemon // with the default configuration; nil: not started
	daemons  int     // numbers the directories
}

// close stops the shared daemon and removes the directory.
func (r *run) close() error {
	var err error
	if r.standard != nil {
		err = r.standard.stop()
	}
	return errors.Join(err, os.RemoveAll(r.dir))
}

// group measures the selected rows of g. Its error is that ctx has ended.
// A group is measured whole even if one of its rows is selected: its rows come from the same
// samples. Only neighbours are measured one by one. The others are left out of the report.
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
		row.setReason(err)
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

// setReason says why a row has no value.
// It makes sure that a row without a figure never looks like a success.
func (r *Row) setReason(err error) {
	var reason notRun
	switch {
	case r.NotRun != "" || r.Broken != "":
	case errors.As(err, &reason):
		r.NotRun, r.Value, r.Ratio = string(reason), nil, nil
	case err != nil && r.Value == nil:
		r.Broken = err.Error()
	case r.Value == nil:
		r.Broken = "the row was not measured"
	case r.TargetOf == "ratio" && r.Ratio == nil:
		r.Broken = "there is nothing to compare with"
	}
}

// Broken returns the names of the rows that failed.
func (r *Report) Broken() []string {
	var names []string
	for _, row := range r.Rows {
		if row.Broken != "" {
			names = append(names, row.Name)
		}
	}
	return names
}

// pause waits for d, or until the run ends.
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

// samples returns how often to run something that a row runs n times at full scale.
// Three samples are enough for a median, and for a short run to show that a row works.
func (r *run) samples(n int) int {
	if r.Samples > 0 {
		return r.Samples
	}
	return max(n/r.scale.divide, 3)
}

// A scale is the size of all measurements. Each field is a quantity of one of the measurements;
// full has the published values.
type scale struct {
	divide     int           // divisor of the number of samples
	warmUp     int           // untimed requests of each kind
	refill     time.Duration // pause in which the daemon prepares sandboxes
	toIdle     time.Duration // pause after which a daemon counts as idle
	tenantIdle time.Duration // the same for a tenant
	idle       [2]time.Duration
	load       time.Duration // duration of a sustained load
	slices     int           // slices of the load, in turns with the bare program
	beside     time.Duration // a slice of the load of a tenant while another tenant has a load, too
	// Bytes that the streaming script prints, and how many executions sleep at once.
	streamBytes int
	sleeping    int
	// Executions in the long record, skills of the daemon with many, and the bytes of the large
	// skill.
	records       int
	skills        int
	snapshotBytes int
	// Bytes of a stream through a network, connections through one, and the pause before each start with a
	// network, in which the last one is removed.
	networkBytes int
	connections  int
	networkIdle  time.Duration
}

// full is the scale for which the targets are defined.
var full = scale{
	divide: 1, warmUp: 10, refill: time.Second, toIdle: 3 * time.Second, tenantIdle: fullTenantIdle,
	// Agents pause between calls. After a pause caches and clocks of the processor are cold,
	// so requests take longer than back to back.
	idle: [2]time.Duration{100 * time.Millisecond, 300 * time.Millisecond},
	load: 30 * time.Second, slices: 3, beside: 5 * time.Second,
	streamBytes: 1 << 30, sleeping: 1000, records: 1_000_000, skills: 10_000, snapshotBytes: 1_000_000_000,
	networkBytes: 256 << 20, connections: 100_000, networkIdle: 50 * time.Millisecond,
}

// short is the scale of a run that takes about a minute.
var short = scale{
	divide: 30, warmUp: 2, refill: 100 * time.Millisecond, toIdle: 200 * time.Millisecond, tenantIdle: 200 * time.Millisecond,
	idle: [2]time.Duration{10 * time.Millisecond, 30 * time.Millisecond},
	load: time.Second, slices: 2, beside: 200 * time.Millisecond,
	streamBytes: 32 << 20, sleeping: 20, records: 5000, skills: 100, snapshotBytes: 10_000_000,
	networkBytes: 8 << 20, connections: 500, networkIdle: 10 * time.Millisecond,
}

// timed returns how long f took, in milliseconds.
// time.Since uses the monotonic clock (package time).
func timed(f func() error) (float64, error) {
	began := time.Now()
	err := f()
	return float64(time.Since(began)) / float64(time.Millisecond), err
}

// fault adds the action that failed to an error.
func fault(what string, err error) error { return fmt.Errorf("%s: %w", what, err) }
