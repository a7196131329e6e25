package bench

import (
	"errors"
	"time"
)

// ready times the start of a daemon whose Python is unpacked and whose skills are imported.
// The first start is not counted: it unpacks the Python and imports the skill.
func ready(r *run, rows rowSet) error {
	dir, err := r.prepare("ready", "")
	if err != nil {
		return err
	}
	var times []float64
	n := r.samples(20)
	for i := range n + 1 {
		t, err := r.startTime(dir)
		if err != nil {
			return err
		}
		if i > 0 {
			times = append(times, t)
		}
	}
	r.report.keep("ready", "ms", []*subject{{name: "skillrun"}}, [][]float64{times})
	rows["ready-p50"].set(median(times), len(times))
	return nil
}

// startTime returns how long a daemon takes from its start until it serves, in
// milliseconds. The daemon is stopped again, which does not count.
func (r *run) startTime(dir string) (float64, error) {
	began := time.Now()
	d, err := r.start(dir)
	took := time.Since(began)
	return float64(took) / 1e6, errors.Join(err, d.stop())
}
