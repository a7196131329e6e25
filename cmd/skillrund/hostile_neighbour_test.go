package main

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// noisyCases are the attacks with which the noisy tenant of api-22 fills the machine: forks, memory,
// output, busy processors, and processes that come and go.
var noisyCases = []string{"res-01-fork-bomb-bash", "res-04-memory-anon", "res-12-output-flood", "res-16-cpu-spin-many", "res-26-fork-exit-churn"}

// noisyNeighbour has one tenant that fills every slot and a queue with attacks, and another that runs
// one program after the other. The quiet tenant is never refused, and gets the first slot that becomes
// free: its share of the machine is always smaller than the other's. So it waits for one attack at most, and not for
// the queue of attacks. The test also compares the quiet tenant's times with the times of the attacks, and prints its
// p99 with and without them; the benchmark's rows "neighbour" measure them.
func noisyNeighbour(t *testing.T, _ *running, _ hostileCase) {
	const (
		slots   = 4
		backlog = 40 // noisy executions that wait
		served  = 12 // executions of each tenant, at least
		// Start times in the record are a moment after admission's decision. So each slot may have
		// one noisy start that was decided before the quiet request, and one decided after its slot.
		// First come, first served would have all of the backlog in between.
		most = 2 * slots
		// The quiet tenant's p99 may be so many times the longest attack. The queue has ten attacks for each slot.
		slowdown = 3
	)
	d := startHostile(t, withTokens+`
concurrency: {running: 4, reserved: 0, queued: 1000, queue_timeout: 600s}
tenants: {noisy: {}, quiet: {}, default: {}}
`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	noisy, quiet := d.asTenant(ctx, "noisy", "invoke"), d.asTenant(t.Context(), "quiet", "invoke")
	ask := func() time.Duration {
		began := time.Now()
		stream, err := d.runs.Execute(quiet, shell("hostile", "echo hi"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := collect(t, stream, 0, nil)
		if err != nil {
			t.Fatalf("the quiet tenant is refused: %v", err)
		}
		r.wantExit(t, 0)
		r.wantStdout(t, "hi\n")
		return time.Since(began)
	}
	var alone, beside []time.Duration
	for range served {
		alone = append(alone, ask())
	}
	cases := hostileCasesByID(t)
	var noise sync.WaitGroup
	for i := range slots + backlog {
		noise.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				c := cases[noisyCases[n%len(noisyCases)]]
				d.attack(noisy, t, c)
			}
		})
	}
	until(t, "no full machine and no queue", func() bool {
		_, running := limitOf(d.tenant("noisy"), "running")
		_, queued := limitOf(d.tenant("noisy"), "queued")
		return running == slots && queued >= backlog/2
	})
	for len(beside) < served || len(d.starts(noisy)) < served { // on a slow machine an attack takes seconds
		beside = append(beside, ask())
	}
	mine, others := d.starts(quiet), d.starts(noisy)
	if len(mine) != len(alone)+len(beside) || len(others) < served {
		t.Fatalf("%d and %d starts in the record", len(mine), len(others))
	}
	if between := worst(mine, others); between > most {
		t.Errorf("%d noisy executions got a slot while one of the quiet tenant waited, want at most %d", between, most)
	}
	cancel()
	noise.Wait()
	for range served {
		alone = append(alone, ask())
	}
	longest := slices.MaxFunc(others, func(a, b grant) int { return cmp.Compare(a.took, b.took) }).took
	t.Logf("p99 of the quiet tenant: %s alone, %s beside attacks that took up to %s", p99(alone), p99(beside), longest)
	if got := p99(beside); got > slowdown*(longest+p99(alone)) {
		t.Errorf("the quiet tenant's p99 is %s beside attacks, want at most %d times %s and %s", got, slowdown, longest, p99(alone))
	}
	d.wantNothingLeft()
}

// attack runs a case of the catalogue as a tenant. Every end is fine that was not skillrun's fault, and
// so is the end of ctx.
func (d *running) attack(ctx context.Context, t *testing.T, c hostileCase) {
	stream, err := d.runs.Execute(ctx, c.request())
	if err == nil {
		var r *result
		if r, err = collect(t, stream, 0, nil); err == nil {
			if ended, _ := endedAs("ANY", r.outcome); !ended {
				t.Errorf("%s ended as %v", c.ID, r.outcome)
			}
			return
		}
	}
	if ctx.Err() == nil {
		t.Errorf("%s is refused: %v", c.ID, err)
	}
}

// p99 returns the time that 99 % of the times don't exceed; of fewer than 100 times it is the longest.
func p99(times []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[(len(sorted)*99-1)/100]
}

// A grant is when an execution came, when it got its slot, and how long its program ran.
type grant struct {
	created, granted time.Time
	took             time.Duration
}

// worst is how many of the others got a slot while one of mine waited, at most.
func worst(mine, others []grant) (most int) {
	for _, q := range mine {
		between := 0
		for _, n := range others {
			if n.granted.After(q.created) && n.granted.Before(q.granted) {
				between++
			}
		}
		most = max(most, between)
	}
	return most
}

// starts returns the grants of all executions of a tenant that have started.
func (d *running) starts(ctx context.Context) (list []grant) {
	d.t.Helper()
	for token := ""; ; {
		page, err := d.runs.ListExecutions(ctx, &pb.ListExecutionsRequest{PageToken: token})
		if err != nil {
			d.t.Fatal(err)
		}
		for _, e := range page.Executions {
			if queued := e.GetOutcome().GetUsage().GetQueueTime(); queued != nil && e.StartTime != nil {
				created := e.CreateTime.AsTime()
				list = append(list, grant{created, created.Add(queued.AsDuration()), e.GetOutcome().GetUsage().GetWallTime().AsDuration()})
			}
		}
		if token = page.NextPageToken; token == "" {
			return list
		}
	}
}
