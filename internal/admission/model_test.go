package admission

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The reference is a simple model of package admission, without lists, caches and clever sums. It
// can't say which of two tenants with almost equal shares is next. So it does not choose a ticket: it
// judges the choice of an Admission.
type reference struct {
	Config
	tenants []*refTenant
}

type refTenant struct {
	name    string
	quota   Quota
	turns   []string                // the callers that wait
	waiting map[string][]*refTicket // by caller
	running map[string]int          // by caller
	used    Resources
	average float64
}

type refTicket struct {
	*Ticket
	tenant  *refTenant
	caller  string
	need    Resources
	started bool
}

func (t *refTenant) runs() (n int) {
	for _, k := range t.running {
		n += k
	}
	return n
}

func (t *refTenant) queued() (n int) {
	for _, k := range t.waiting {
		n += len(k)
	}
	return n
}

func (t *refTenant) hasRoom(caller string) bool {
	share := (t.quota.Queued + 15) / 16
	return t.queued() < t.quota.Queued || len(t.waiting[caller]) < share && t.queued() < t.quota.Queued+4*share
}

func (r *reference) used() (running int, sum Resources) {
	for _, t := range r.tenants {
		running += t.runs()
		sum.add(t.used)
	}
	return running, sum
}

func within(have, need, bound int64) bool { return bound == 0 || have+need <= bound }

func fitsIn(have, need, bound Resources) bool {
	return within(have.MemoryBytes, need.MemoryBytes, bound.MemoryBytes) && within(have.MilliCPUs, need.MilliCPUs, bound.MilliCPUs)
}

func (r *reference) share(t *refTenant) float64 {
	s := float64(t.runs()) / float64(r.Slots+r.Reserved)
	if r.MemoryBytes > 0 {
		s = max(s, float64(t.used.MemoryBytes)/float64(r.MemoryBytes))
	}
	if r.MilliCPUs > 0 {
		s = max(s, float64(t.used.MilliCPUs)/float64(r.MilliCPUs))
	}
	return s / float64(t.quota.Weight)
}

func (r *reference) pass(d time.Duration) {
	for _, t := range r.tenants {
		s := r.share(t)
		t.average = s + (t.average-s)*math.Exp(-float64(d)/float64(memory))
	}
}

// next returns the ticket of a tenant that starts next, or nil.
func (t *refTenant) next() *refTicket {
	for _, caller := range t.turns {
		if runs := t.runs(); runs < t.quota.Running || t.running[caller] == 0 && runs < t.quota.Running+t.quota.Reserved {
			if k := t.waiting[caller][0]; fitsIn(t.used, k.need, t.quota.Resources) {
				return k
			}
			return nil
		}
	}
	return nil
}

// nexts returns the tickets that may get a slot now: the ticket of the tenant with the smallest share,
// or several tickets if the shares of their tenants differ by rounding errors at most. blocked means
// that the next ticket may be one that does not fit.
func (r *reference) nexts() (may []*refTicket, blocked bool) {
	running, used := r.used()
	least := math.Inf(1)
	keys := map[*refTicket]float64{}
	for _, t := range r.tenants {
		k := t.next()
		if k == nil || running >= r.Slots && (t.runs() > 0 || running >= r.Slots+r.Reserved) {
			continue
		}
		keys[k] = t.average + r.share(t)*present
		least = min(least, keys[k])
	}
	for k, key := range keys {
		switch {
		case key > least+1e-9:
		case fitsIn(used, k.need, r.Resources):
			may = append(may, k)
		default:
			blocked = true
		}
	}
	return may, blocked
}

func (t *refTenant) push(k *refTicket, front bool) {
	line := t.waiting[k.caller]
	at := len(line)
	if front {
		at = 0
		t.turns = slices.DeleteFunc(t.turns, func(c string) bool { return c == k.caller })
		t.turns = append([]string{k.caller}, t.turns...)
	} else if at == 0 {
		t.turns = append(t.turns, k.caller)
	}
	t.waiting[k.caller] = slices.Insert(line, at, k)
}

func (t *refTenant) remove(k *refTicket) {
	line := t.waiting[k.caller]
	at := slices.Index(line, k)
	if line = slices.Delete(line, at, at+1); len(line) == 0 {
		t.turns = slices.DeleteFunc(t.turns, func(c string) bool { return c == k.caller })
	}
	t.waiting[k.caller] = line
}

// start gives a slot to a waiting ticket. Its caller then has the last turn.
func (t *refTenant) start(k *refTicket) {
	t.remove(k)
	if at := slices.Index(t.turns, k.caller); at >= 0 {
		t.turns = append(slices.Delete(t.turns, at, at+1), k.caller)
	}
	t.hold(k, 1)
}

func (t *refTenant) hold(k *refTicket, sign int) {
	k.started = sign > 0
	t.running[k.caller] += sign
	t.used.add(Resources{int64(sign) * k.need.MemoryBytes, int64(sign) * k.need.MilliCPUs})
}

// A world makes the same random steps with an Admission and with the reference. It releases every
// ticket once.
type world struct {
	t      testing.TB
	a      *Admission
	ref    reference
	clock  *clock
	random func(n int) int // in [0, n)
	live   []*refTicket
	asked  map[*refTicket]bool // Need was called
}

func newWorld(t testing.TB, random func(n int) int) *world {
	w := &world{t: t, clock: newClock(), random: random, asked: map[*refTicket]bool{}}
	c := Config{Slots: 1 + random(6), Reserved: random(2), Now: w.clock.time}
	if random(3) > 0 {
		c.Resources = Resources{int64(20 + random(80)), int64(20 + random(80))}
	}
	w.a, w.ref.Config = New(c), c
	for i := range 1 + random(5) {
		w.ref.tenants = append(w.ref.tenants, &refTenant{name: fmt.Sprint(i), waiting: map[string][]*refTicket{}, running: map[string]int{}})
		w.setTenant(w.ref.tenants[i])
	}
	return w
}

func (w *world) setTenant(t *refTenant) {
	t.quota = Quota{Weight: 1 + w.random(4), Running: w.random(8), Reserved: w.random(2), Queued: w.random(20)}
	if w.random(2) > 0 {
		t.quota.Resources = Resources{int64(w.random(100)), int64(w.random(100))}
	}
	w.a.SetTenant(t.name, t.quota)
}

func (w *world) step() {
	switch op := w.random(100); {
	case op < 40:
		w.enter()
	case op < 65:
		w.need()
	case op < 90:
		w.release()
	case op < 99:
		d := time.Duration(w.random(200)) * time.Millisecond
		w.ref.pass(d)
		w.clock.advance(d)
	default:
		w.setTenant(w.ref.tenants[w.random(len(w.ref.tenants))])
		w.judge()
	}
	w.audit()
}

func (w *world) enter() {
	t := w.ref.tenants[w.random(len(w.ref.tenants))]
	k := &refTicket{tenant: t, caller: fmt.Sprint(w.random(4))}
	room := t.hasRoom(k.caller)
	got, err := w.a.Enter(t.name, k.caller)
	if k.Ticket = got; err == nil {
		w.live = append(w.live, k)
		t.push(k, false)
		w.judge()
		if !k.started && !room {
			w.t.Fatal("a ticket waits in a full queue")
		}
		return
	}
	if room {
		w.t.Fatalf("refused with room in the queue: %v", err)
	}
	t.push(k, false)
	w.judge() // it may not have a slot either
	t.remove(k)
}

func (w *world) need() {
	i := slices.IndexFunc(w.live, func(k *refTicket) bool { return !w.asked[k] })
	if i < 0 {
		return
	}
	k := w.live[i]
	w.asked[k] = true
	t, r := k.tenant, Resources{int64(w.random(30)), int64(w.random(30))}
	_, used := w.ref.used()
	alone := fitsIn(Resources{}, r, t.quota.Resources) && fitsIn(Resources{}, r, w.ref.Resources)
	beside := fitsIn(t.used, r, t.quota.Resources) && fitsIn(used, r, w.ref.Resources)
	switch err := k.Need(r); {
	case err != nil:
		if alone && (beside || !k.started || t.hasRoom(k.caller)) {
			w.t.Fatalf("refused: %v", err)
		}
		w.drop(i)
		return
	case !alone:
		w.t.Fatal("one that never fits is not refused")
	case k.started && beside:
		t.used.add(r)
	case k.started:
		t.hold(k, -1)
		t.push(k, true)
	}
	k.need = r
	w.judge()
}

func (w *world) release() {
	if len(w.live) > 0 {
		w.drop(w.random(len(w.live)))
	}
}

// drop releases a ticket in any state.
func (w *world) drop(i int) {
	k := w.live[i]
	w.live = slices.Delete(w.live, i, i+1)
	delete(w.asked, k)
	if k.started {
		k.tenant.hold(k, -1)
	} else {
		k.tenant.remove(k)
	}
	k.Release()
	w.judge()
}

// judge compares the tickets that have got a slot with the tickets that the reference allows.
func (w *world) judge() {
	w.t.Helper()
	got := map[*refTicket]bool{}
	for _, k := range w.live {
		if hasSlot(k.Ticket) && !k.started {
			got[k] = true
		}
	}
	for {
		may, blocked := w.ref.nexts()
		i := slices.IndexFunc(may, func(k *refTicket) bool { return got[k] })
		if i < 0 {
			if len(may) > 0 && !blocked {
				w.t.Fatalf("%d tickets may start and do not", len(may))
			}
			break
		}
		delete(got, may[i])
		may[i].tenant.start(may[i])
	}
	if len(got) > 0 {
		w.t.Fatalf("%d tickets started out of turn", len(got))
	}
}

// audit compares the sums, and the bounds on them.
func (w *world) audit() {
	running, queued, used := 0, 0, Resources{}
	for _, t := range w.ref.tenants {
		want := Usage{t.runs(), t.queued(), t.used}
		if got := w.a.Usage(t.name); got != want {
			w.t.Fatalf("tenant %s uses %+v, want %+v", t.name, got, want)
		}
		running, queued = running+want.Running, queued+want.Queued
		used.add(t.used)
	}
	if r, q, _ := w.a.Counts(); r != running || q != queued || w.a.used != used {
		w.t.Fatalf("%d run and %d wait, want %d and %d", r, q, running, queued)
	}
	if running > w.ref.Slots+w.ref.Reserved || !fitsIn(used, Resources{}, w.ref.Resources) {
		w.t.Fatalf("%d run with %+v", running, used)
	}
}

// end releases all tickets, and checks that nothing is left.
func (w *world) end(t *testing.T) {
	t.Helper()
	for len(w.live) > 0 {
		w.release()
	}
	wantEmpty(t, w.a)
}

func TestModel(t *testing.T) {
	for seed := range uint64(100) {
		w := newWorld(t, rand.New(rand.NewPCG(seed, 1)).IntN)
		for range 1000 {
			w.step()
		}
		w.end(t)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzModel(f *testing.F) {
	f.Add([]byte("every grant is given back exactly once"))
	f.Fuzz(func(t *testing.T, data []byte) {
		random := func(n int) int {
			if len(data) == 0 {
				return 0
			}
			b := data[0]
			data = data[1:]
			return int(b) % n
		}
		w := newWorld(t, random)
		for len(data) > 0 {
			w.step()
		}
		w.end(t)
	})
}

// In a million random steps every ticket that waits starts, after a bounded number of other starts.
func TestNobodyStarves(t *testing.T) {
	const (
		steps   = 1_000_000
		tenants = 8
		queued  = 8
		// At most 12 tickets of the same tenant start first. The smallest weight is a thirtieth of
		// the sum. Tenant 0 needs five times as much for each start as the others. The factor 2
		// is for chance.
		passed = 2 * 12 * 30 * 5
	)
	random := rand.New(rand.NewPCG(7, 7))
	c := newClock()
	a := New(Config{Slots: 6, Resources: Resources{100, 100}, Now: c.time})
	for i := range tenants {
		a.SetTenant(fmt.Sprint(i), Quota{Weight: 1 << (i % 4), Running: 6, Queued: queued, Resources: Resources{80, 80}})
	}
	type waiter struct {
		*Ticket
		began uint64 // the number of starts when it began to wait
	}
	var waiting []waiter
	var running []*Ticket
	var longest uint64
	starts := a.starts
	look := func() {
		if starts == a.starts {
			return
		}
		starts = a.starts
		waiting = slices.DeleteFunc(waiting, func(w waiter) bool {
			if !hasSlot(w.Ticket) {
				return false
			}
			longest = max(longest, a.starts-w.began)
			running = append(running, w.Ticket)
			return true
		})
	}
	for range steps {
		c.advance(time.Duration(random.IntN(10)) * time.Millisecond)
		if len(running) > 0 && random.IntN(3) == 0 {
			i := random.IntN(len(running))
			running[i].Release()
			running = slices.Delete(running, i, i+1)
			look()
			continue
		}
		// Tenant 0 always needs most of the machine.
		tenant, most := random.IntN(tenants), 30
		if tenant == 0 {
			most = 80
		}
		k, err := a.Enter(fmt.Sprint(tenant), fmt.Sprint(random.IntN(3)))
		if err != nil {
			continue
		}
		began := a.starts
		if err := k.Need(Resources{int64(most - random.IntN(20)), int64(random.IntN(most))}); err != nil {
			k.Release()
		} else if waiting = append(waiting, waiter{k, began}); hasSlot(k) {
			starts-- // look at it, though it may have had its slot before
		}
		look()
	}
	t.Logf("%d starts; the longest wait was %d of them", a.starts, longest)
	if a.starts < steps/10 || longest > passed {
		t.Errorf("%d starts; a ticket waited for %d of them, want at most %d", a.starts, longest, passed)
	}
	for len(running) > 0 {
		running[0].Release()
		running = running[1:]
		look()
	}
	if len(waiting) > 0 {
		t.Errorf("%d tickets never started", len(waiting))
	}
	wantEmpty(t, a)
}
