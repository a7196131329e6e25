package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Clients at the same time in the sustained rows, each with its own connection.
	loadClients = 8
	// More than the daemon runs at once with fewer than 4 processors (8 for each, by default), so
	// that the queue counts too.
	tailClients = 32
)

// sustained measures completed runs of a program per second. loadClients clients each send a
// request as soon as the last one has ended. In turns, the same number of loops run the bare
// program. The slices of the load take turns, as single requests do in takeTurns.
// The untimed first load fills the pool and opens the connections. A peer that fails is left out
// from then on and shown as broken; the other numbers stay.
func sustained(name string, p program) func(*run, rowSet) error {
	return func(r *run, rows rowSet) error {
		d, err := r.theStandard()
		if err != nil {
			return err
		}
		clients, end, err := d.dial(loadClients)
		if err != nil {
			return err
		}
		defer end()
		request := func(ctx context.Context, i int) error { return p.request(ctx, clients[i]) }
		bare := func(context.Context, int) error { return p.runBare() }
		if _, err := r.load(loadClients, time.Second, request); err != nil {
			return err
		}
		slice := r.scale.load / time.Duration(r.scale.slices)
		var ours, alone counted
		peers := make([]counted, len(r.Peers))
		for range r.scale.slices {
			if err := ours.add(r.load(loadClients, slice, request)); err != nil {
				return err
			}
			if err := alone.add(r.load(loadClients, slice, bare)); err != nil {
				return err
			}
			for i, peer := range r.Peers {
				if peers[i].err != nil {
					continue
				}
				peers[i].add(r.load(loadClients, slice, func(context.Context, int) error { return peer.run(p) }))
				if err := context.Cause(r.ctx); err != nil {
					return err
				}
			}
		}
		row := rows[name]
		row.setRatio(ours.rate(), alone.rate(), ours.runs)
		for i, peer := range r.Peers {
			v := PeerValue{Value: rounded(peers[i].rate()), Ratio: number(peers[i].rate() / alone.rate())}
			if err := peers[i].err; err != nil {
				v = PeerValue{Broken: err.Error()}
			}
			row.setPeer(peer.Name, v)
		}
		return nil
	}
}

// A counted is a number of runs and the time that they took.
type counted struct {
	runs int
	took time.Duration
	err  error
}

// add counts one slice, also the runs of a slice that failed; err is then kept and returned.
func (c *counted) add(l loaded, err error) error {
	c.runs += len(l.times)
	c.took += l.took
	c.err = err
	return err
}

// rate is in runs per second.
func (c *counted) rate() float64 { return float64(c.runs) / c.took.Seconds() }

// A loaded is the result of a load. Its times are of all loops, in no order.
type loaded struct {
	times []float64 // of each run, in milliseconds
	took  time.Duration
}

// load runs f in n loops for about d. Runs that have begun by then are finished and count.
// took runs until the last loop has ended, so the runs that end after d count with their
// time.
func (r *run) load(n int, d time.Duration, f func(context.Context, int) error) (loaded, error) {
	ctx, cancel := context.WithCancelCause(r.ctx)
	defer cancel(nil)
	var over atomic.Bool
	timer := time.AfterFunc(d, func() { over.Store(true) })
	defer timer.Stop()
	times := make([][]float64, n)
	began := time.Now()
	var loops sync.WaitGroup
	for i := range n {
		loops.Go(func() {
			for !over.Load() && ctx.Err() == nil {
				t, err := timed(func() error { return f(ctx, i) })
				if err != nil {
					cancel(err) // only the first error counts
					return
				}
				times[i] = append(times[i], t)
			}
		})
	}
	loops.Wait()
	l := loaded{took: time.Since(began)}
	for _, t := range times {
		l.times = append(l.times, t...)
	}
	return l, context.Cause(ctx)
}

// tail compares the p99 with the p50 of requests from many clients. The ratio of two quantiles of
// one load shows the spread; a bare program has no queue to compare with.
func tail(name string, p program) func(*run, rowSet) error {
	return func(r *run, rows rowSet) error {
		d, err := r.theStandard()
		if err != nil {
			return err
		}
		clients, end, err := d.dial(tailClients)
		if err != nil {
			return err
		}
		defer end()
		request := func(ctx context.Context, i int) error { return p.request(ctx, clients[i]) }
		if _, err := r.load(tailClients, time.Second, request); err != nil {
			return err
		}
		l, err := r.load(tailClients, r.scale.load, request)
		if err != nil {
			return err
		}
		r.report.keep(name, "ms", []*subject{{name: "skillrun"}}, [][]float64{l.times})
		rows[name].setRatio(quantile(l.times, 0.99), median(l.times), len(l.times))
		return nil
	}
}

// each calls f for every i below n, at most width calls at the same time. After the first
// error it starts no further call, and returns that error.
func (r *run) each(n, width int, f func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(r.ctx)
	defer cancel(nil)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range width {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}
