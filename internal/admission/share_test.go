package admission

import (
	"container/heap"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// A load is one tenant of a simulation: it always has enough waiting executions.
type load struct {
	weight   int
	need     Resources
	duration time.Duration // of one execution, on average
}

// An ending is the end of a simulated execution.
type ending struct {
	at     time.Time
	tenant int
	ticket *Ticket
}

type endings []ending

func (h endings) Len() int           { return len(h) }
func (h endings) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h endings) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *endings) Push(x any)        { *h = append(*h, x.(ending)) }
func (h *endings) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// simulate runs loads for some time, and returns the average dominant share of each.
func simulate(t *testing.T, c Config, loads []load, span time.Duration) []float64 {
	t.Helper()
	clock := newClock()
	c.Now = clock.time
	a := New(c)
	random := rand.New(rand.NewPCG(3, 3))
	waiting := make([][]*Ticket, len(loads))
	var running endings
	refill := func(i int) {
		for len(waiting[i]) < 4 {
			waiting[i] = append(waiting[i], need(t, enterFor(t, a, fmt.Sprint(i), alice), loads[i].need.MemoryBytes, loads[i].need.MilliCPUs))
		}
	}
	for i, l := range loads {
		a.SetTenant(fmt.Sprint(i), Quota{Weight: l.weight, Running: c.Slots, Queued: 8})
	}
	shares := make([]float64, len(loads))
	end := clock.now.Add(span)
	for clock.now.Before(end) {
		for i := range loads {
			refill(i)
			for len(waiting[i]) > 0 && hasSlot(waiting[i][0]) {
				took := time.Duration((0.5 + random.Float64()) * float64(loads[i].duration))
				heap.Push(&running, ending{clock.now.Add(took), i, waiting[i][0]})
				waiting[i] = waiting[i][1:]
				refill(i)
			}
		}
		next := heap.Pop(&running).(ending)
		for i := range loads {
			x := a.tenants[fmt.Sprint(i)]
			shares[i] += x.share * float64(x.quota.Weight) * next.at.Sub(clock.now).Seconds() / span.Seconds()
		}
		clock.now = next.at
		next.ticket.Release()
	}
	return shares
}

// Within 10 s the shares are in proportion to the weights, for each dominant resource, for short and
// long executions, and with few slots.
func TestSharesConvergeToWeights(t *testing.T) {
	const ms = time.Millisecond
	short, long := 50*ms, 400*ms
	for name, c := range map[string]struct {
		Config
		loads []load
	}{
		"equal":              {Config{Slots: 16}, []load{{1, Resources{}, short}, {1, Resources{}, short}}},
		"weights":            {Config{Slots: 16}, []load{{1, Resources{}, short}, {2, Resources{}, short}, {5, Resources{}, short}}},
		"few slots":          {Config{Slots: 4}, []load{{1, Resources{}, short}, {2, Resources{}, short}, {5, Resources{}, short}}},
		"one slot":           {Config{Slots: 1}, []load{{1, Resources{}, short}, {3, Resources{}, short}}},
		"different lengths":  {Config{Slots: 16}, []load{{1, Resources{}, long}, {2, Resources{}, short}, {2, Resources{}, long}}},
		"dominant resources": {Config{Slots: 1000, Resources: Resources{1800, 900}}, []load{{1, Resources{40, 10}, short}, {1, Resources{10, 30}, short}}},
		"all three":          {Config{Slots: 60, Resources: Resources{6000, 6000}}, []load{{1, Resources{150, 10}, short}, {2, Resources{10, 200}, long}, {3, Resources{10, 10}, short}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shares := simulate(t, c.Config, c.loads, 10*time.Second)
			t.Logf("%.3f", shares)
			for i := range shares {
				got, want := shares[i]/shares[0], float64(c.loads[i].weight)/float64(c.loads[0].weight)
				if math.Abs(got/want-1) > 0.05 {
					t.Errorf("load %d has %.3f times the share of the first one, want %.3f", i, got, want)
				}
			}
		})
	}
}

// The average stays equal to its definition, over hours and many changes.
func TestAverageShare(t *testing.T) {
	c := newClock()
	a := newMany(Config{Slots: 4, Now: c.time}, map[string]Quota{"a": {Weight: 2, Running: 4, Queued: 4}})
	x := a.tenants["a"]
	random := rand.New(rand.NewPCG(5, 5))
	want := 0.0
	var running []*Ticket
	for range 100_000 {
		d := time.Duration(random.IntN(2000)) * time.Millisecond
		want = x.share + (want-x.share)*math.Exp(-float64(d)/float64(memory))
		c.advance(d)
		if len(running) < 4 && random.IntN(2) == 0 {
			running = append(running, enterFor(t, a, "a", alice))
		} else if len(running) > 0 {
			running[0].Release()
			running = running[1:]
		}
		g := a.growth(c.now)
		if got := x.base/g + x.share; math.Abs(got-want) > 1e-9 {
			t.Fatalf("got %g, want %g", got, want)
		}
	}
	c.advance(1000 * time.Hour)
	if g := a.growth(c.now); g != 1 || math.Abs(x.base) > 1e-9 {
		t.Errorf("after a long time: growth %g, base %g", g, x.base)
	}
}

// One tenant has one client, the other a crowd of 400. The one client gets the first slot that becomes
// free, each time.
func TestOneClientBesideACrowd(t *testing.T) {
	c := newClock()
	a := newMany(Config{Slots: 8, Now: c.time}, map[string]Quota{"crowd": {Running: 8, Queued: 1000}, "one": {Running: 8, Queued: 10}})
	var running, waiting []*Ticket
	for range 400 {
		k := enterFor(t, a, "crowd", alice)
		if hasSlot(k) {
			running = append(running, k)
		} else {
			waiting = append(waiting, k)
		}
	}
	for range 40 {
		c.advance(100 * time.Millisecond)
		mine := enterFor(t, a, "one", alice)
		running[0].Release()
		running = running[1:]
		if !hasSlot(mine) {
			t.Fatal("the first slot that became free went to the crowd")
		}
		c.advance(10 * time.Millisecond)
		mine.Release()
		if !hasSlot(waiting[0]) {
			t.Fatal("a slot stays free")
		}
		running, waiting = append(running, waiting[0]), waiting[1:]
	}
}

// Many goroutines enter, look at their positions, wait, give up and release at once. Nothing is left.
func TestConcurrentCallers(t *testing.T) {
	a := newMany(Config{Slots: 3, Resources: Resources{MemoryBytes: 10}}, map[string]Quota{"a": {Running: 2, Queued: 5}, "b": {Running: 3, Queued: 5}})
	var callers sync.WaitGroup
	for i := range 16 {
		random := rand.New(rand.NewPCG(1, uint64(i)))
		callers.Go(func() {
			for range 500 {
				k, err := a.Enter([]string{"a", "b"}[random.IntN(2)], fmt.Sprint(i%4))
				if err != nil {
					continue
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(100))*time.Microsecond)
				looked := make(chan int)
				go func() { looked <- k.Position() }()
				if k.Need(Resources{MemoryBytes: int64(random.IntN(12))}) == nil {
					_ = k.Wait(ctx, time.Minute) // any end is fine
				}
				if running, _, _ := a.Counts(); running > 3 {
					t.Errorf("%d run", running)
				}
				cancel()
				k.Release()
				<-looked
			}
		})
	}
	callers.Wait()
	wantEmpty(t, a)
}

// BenchmarkAdmit measures an execution's whole admission on a saturated machine: Enter, Need and, after
// the end of another execution, the slot.
func BenchmarkAdmit(b *testing.B) {
	for _, tenants := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("tenants=%d", tenants), func(b *testing.B) {
			const slots = 16
			// The clock stands still, so tenants get slots in turn, and the loop knows whose turn it is.
			a := New(Config{Slots: slots, Resources: Resources{1 << 40, 1 << 20}, Now: newClock().time})
			queues := make([][]*Ticket, tenants)
			names := make([]string, tenants)
			enter := func(i int) *Ticket {
				k, err := a.Enter(names[i], "caller")
				if err == nil {
					err = k.Need(Resources{1 << 20, 10})
				}
				if err != nil {
					b.Fatal(err)
				}
				return k
			}
			for i := range tenants {
				names[i] = fmt.Sprint("tenant", i)
				a.SetTenant(names[i], Quota{Running: slots, Queued: 1000})
			}
			var running []*Ticket
			for len(running) < slots {
				running = append(running, enter(0))
			}
			for i := range tenants {
				for range slots {
					queues[i] = append(queues[i], enter(i))
				}
			}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				running[n%slots].Release()
				i := (n + 1) % tenants
				if running[n%slots] = queues[i][0]; !hasSlot(queues[i][0]) {
					b.Fatal("another tenant has got the slot")
				}
				copy(queues[i], queues[i][1:])
				queues[i][slots-1] = enter(i)
			}
		})
	}
}
