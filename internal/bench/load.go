package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	loadClients = 8
	tailClients = 32
)

// sustained counts how many runs of a program come to their end in a second, with so
// many clients that each send the next request when the last has ended, and with as
// many loops that run it bare, in turns.
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

// A counted is how many runs there were in how much time.
type counted struct {
	runs int
	took time.Duration
	err  error
}

func (c *counted) add(l loaded, err error) error {
	c.runs += len(l.times)
	c.took += l.took
	c.err = err
	return err
}

func (c *counted) rate() float64 { return float64(c.runs) / c.took.Seconds() }

// A loaded is what came of a load.
type loaded struct {
	times []float64 // of each run, in milliseconds
	took  time.Duration
}

// load has n loops run f for about d: what has begun then is finished and counts.
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
					cancel(err) // the first one says why
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

// tail compares the slowest of many requests of many clients with the one in the
// middle.
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

// each calls f for every i below n, at most width at once, and returns the first
// error; nothing is begun after it.
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
