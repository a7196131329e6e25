package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc/metadata"
)

// neighbourConfig gives the neighbour the bounds of a group of sandboxes, and all slots. hoarder has a quota that a
// few executions of hoard fill. The other quotas have their defaults.
const neighbourConfig = `identity: {tokens: tokens.json}
tenants_dir: tenants
tenants: {quiet: {}, default: {}, neighbour: {cgroup: {memory: 1GiB, processes: 400}}, hoarder: {quotas: {state_bytes: 64MiB}}}
`

// neighbours measures a tenant with one client, alone and with each neighbour, in turns. A row compares
// the p99 with its neighbour with the p99 of the slices alone.
func neighbours(r *run, rows rowSet) error {
	dir, err := r.prepare("neighbours", neighbourConfig)
	if err != nil {
		return err
	}
	if err := errors.Join(listenWithTLS(dir), os.Mkdir(filepath.Join(dir, "tenants"), 0o700)); err != nil {
		return err
	}
	d, err := r.start(dir)
	if err != nil {
		return err
	}
	return errors.Join(besideNeighbours(r, d, rows), d.stop())
}

// besideNeighbours fills the row of each selected neighbour. A row that fails says why, and the next one is measured.
func besideNeighbours(r *run, d *daemon, rows rowSet) error {
	token, err := r.token(d, "quiet", "invoke")
	if err != nil {
		return err
	}
	quiet := metadata.AppendToOutgoingContext(r.ctx, "authorization", "Bearer "+token)
	last, err := r.token(d, churnTenant(churnTenants-1), "invoke")
	if err != nil {
		return err
	}
	all := theNeighbours(last)
	chosen := slices.DeleteFunc(slices.Clone(all), func(n neighbour) bool { return !slices.Contains(r.chosen, n.row) })
	if len(chosen) == 0 { // only the row without a neighbour
		chosen = all
	}
	request := func(context.Context, int) error { return trueProgram.request(quiet, d.client) }
	if err := r.each(r.scale.warmUp, 1, request); err != nil {
		return err
	}
	var everAlone []float64
	slice := func() (loaded, error) { return r.load(1, r.scale.beside, request) }
	for _, n := range chosen {
		r.Say("%s", n.row)
		token, err := r.token(d, n.tenant, "invoke")
		if err != nil {
			return err
		}
		task := neighbourTask{Row: n.row, Dir: d.dir, Token: token, Last: last}
		alone, err := r.beside(n, rows[n.row], slice, func() (func() (int, error), error) { return r.moveIn(task) })
		if err != nil {
			rows[n.row].Broken = d.complaint(err).Error()
		}
		everAlone = append(everAlone, alone...)
	}
	rows["neighbour-alone-p99"].set(quantile(everAlone, 0.99), len(everAlone))
	return nil
}

// beside fills a neighbour's row, and returns the times alone. It takes short slices alone and with the neighbour in
// turns, because a machine slows down and speeds up for seconds at a time. The neighbour moves in for its slice only, so
// it cannot slow the slice alone. slice loads the daemon for the time of a slice.
func (r *run) beside(n neighbour, row *Row, slice func() (loaded, error), moveIn func() (end func() (int, error), err error)) (alone []float64, err error) {
	var beside []float64
	var acts int
	var took time.Duration
	for range r.scale.slices {
		l, err := slice()
		if err != nil {
			return alone, fault("the measured tenant, alone", err)
		}
		alone = append(alone, l.times...)
		end, err := moveIn()
		if err != nil {
			return alone, fault("the neighbour", err)
		}
		began := time.Now()
		// The daemon refills its pool of prewarmed sandboxes, and the neighbour's load reaches its usual height.
		err = r.pause(r.scale.refill)
		if err == nil {
			if l, err = slice(); err != nil {
				err = fault("the measured tenant, beside its neighbour", err)
			}
		}
		done, endErr := end()
		if endErr != nil {
			err = errors.Join(err, fault("the neighbour", endErr))
		}
		if err != nil {
			return alone, err
		}
		beside = append(beside, l.times...)
		acts, took = acts+done, took+time.Since(began)
	}
	r.report.keep(n.row, "ms", []*subject{{name: "skillrun"}, {name: "alone"}}, [][]float64{beside, alone})
	row.setRatio(quantile(beside, 0.99), quantile(alone, 0.99), len(beside))
	row.Note = fmt.Sprintf("the neighbour began %.3g acts a second", float64(acts)/took.Seconds())
	return alone, nil
}
