package admission

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A clock is moved by hand.
type clock struct{ now time.Time }

func newClock() *clock                   { return &clock{time.Unix(1_000_000, 0)} }
func (c *clock) time() time.Time         { return c.now }
func (c *clock) advance(d time.Duration) { c.now = c.now.Add(d) }

// newMany returns an Admission with tenants and no jitter.
func newMany(c Config, quotas map[string]Quota) *Admission {
	c.Jitter = func() float64 { return 0 }
	a := New(c)
	for name, q := range quotas {
		a.SetTenant(name, q)
	}
	return a
}

// need calls Need and fails the test on an error.
func need(t *testing.T, k *Ticket, memory, cpus int64) *Ticket {
	t.Helper()
	if err := k.Need(Resources{memory, cpus}); err != nil {
		t.Fatal(err)
	}
	return k
}

// One tenant has a queue of old tickets. The first ticket of another one takes the next slot.
func TestTenantsTakeTurns(t *testing.T) {
	a := newMany(Config{Slots: 1}, map[string]Quota{"a": {Running: 1, Queued: 9}, "b": {Running: 1, Queued: 9}})
	running := enterFor(t, a, "a", alice)
	old := []*Ticket{enterFor(t, a, "a", alice), enterFor(t, a, "a", bob)}
	other := enterFor(t, a, "b", alice)
	running.Release()
	if !hasSlot(other) || hasSlot(old[0]) {
		t.Fatal("want the tenant with nothing running to be next")
	}
	other.Release()
	if !hasSlot(old[0]) || hasSlot(old[1]) {
		t.Error("want the oldest of the other tenant to be next")
	}
}

// Of tenants with equal shares, the one whose last start is longest ago is next.
func TestTenantsWithEqualShares(t *testing.T) {
	q := Quota{Running: 9, Queued: 9}
	a := newMany(Config{Slots: 1, Now: newClock().time}, map[string]Quota{"a": q, "b": q, "c": q})
	running := enterFor(t, a, "a", alice)
	names := map[*Ticket]string{}
	for _, name := range []string{"a", "a", "b", "b", "c", "c"} {
		names[enterFor(t, a, name, alice)] = name
	}
	order := ""
	for len(names) > 0 {
		running.Release()
		for k, name := range names {
			if hasSlot(k) {
				order += name
				running = k
				delete(names, k)
			}
		}
	}
	if want := "bcabca"; order != want {
		t.Errorf("got %s, want %s", order, want)
	}
}

// A full queue of one tenant does not affect another tenant, and each refusal names the bound.
func TestTenantsHaveQueuesOfTheirOwn(t *testing.T) {
	a := newMany(Config{Slots: 3}, map[string]Quota{"a": {Running: 2, Queued: 1}, "b": {Running: 2, Queued: 1}, "c": {Running: 1}})
	for range 3 {
		enterFor(t, a, "a", alice) // two run, one waits
	}
	_, err := a.Enter("a", alice)
	if full, ok := errors.AsType[*QuotaError](err); !ok || full.Quota != Queued || full.Limit != 1 || full.Used != 1 {
		t.Errorf("a: got %v, want 1 of 1 queued", err)
	}
	if b := enterFor(t, a, "b", alice); !hasSlot(b) {
		t.Error("b does not run though a slot is free")
	}
	enterFor(t, a, "b", alice)
	_, err = a.Enter("b", alice) // b may run two, so the machine is full, and not b's quota
	if full, ok := errors.AsType[*SaturatedError](err); !ok || full.Queued != 1 || full.RetryAfter <= 0 {
		t.Errorf("b: got %v, want that the machine is saturated", err)
	}
	if _, err = a.Enter("c", alice); !isSaturated(err) {
		t.Errorf("c: got %v, want that the machine is saturated", err)
	}
	a.SetTenant("c", Quota{})
	_, err = a.Enter("c", alice)
	if full, ok := errors.AsType[*QuotaError](err); !ok || full.Quota != Running || full.Limit != 0 {
		t.Errorf("c, which may run nothing: got %v", err)
	}
}

func isSaturated(err error) bool { _, ok := errors.AsType[*SaturatedError](err); return ok }

// Reserved slots of the machine are for tenants with nothing running.
func TestTenantsReservedSlots(t *testing.T) {
	q := Quota{Running: 9, Queued: 9}
	a := newMany(Config{Slots: 2, Reserved: 1}, map[string]Quota{"a": q, "b": q})
	first := enterFor(t, a, "a", alice)
	enterFor(t, a, "a", bob)
	third := enterFor(t, a, "a", carol)
	b := enterFor(t, a, "b", alice)
	if hasSlot(third) || !hasSlot(b) {
		t.Error("want the reserved slot to go to the tenant with nothing running")
	}
	first.Release()
	if hasSlot(third) {
		t.Error("a reserved slot went to a tenant with something running")
	}
	b.Release()
	if !hasSlot(third) {
		t.Error("a slot stays free while a ticket waits")
	}
}

func TestTenantsUnknownAndRemoved(t *testing.T) {
	a := newMany(Config{Slots: 1}, map[string]Quota{"a": {Running: 1, Queued: 1}})
	if _, err := a.Enter("b", alice); !errors.Is(err, ErrNoTenant) {
		t.Errorf("unknown: got %v", err)
	}
	if a.Usage("b") != (Usage{}) {
		t.Error("an unknown tenant uses something")
	}
	running, waiting := enterFor(t, a, "a", alice), enterFor(t, a, "a", alice)
	a.RemoveTenant("a")
	a.RemoveTenant("b")
	if _, err := a.Enter("a", alice); !errors.Is(err, ErrNoTenant) {
		t.Errorf("removed: got %v", err)
	}
	running.Release()
	if !hasSlot(waiting) {
		t.Error("a ticket of a removed tenant lost its turn")
	}
	waiting.Release()
	if len(a.tenants) != 0 {
		t.Error("a removed tenant with nothing left is not forgotten")
	}
	// One that comes back before its last execution has ended is the same tenant.
	a.SetTenant("a", Quota{Running: 1})
	running = enterFor(t, a, "a", alice)
	a.RemoveTenant("a")
	a.SetTenant("a", Quota{Running: 2})
	if got := a.Usage("a").Running; got != 1 {
		t.Errorf("%d running, want 1", got)
	}
	running.Release()
	a.RemoveTenant("a")
	if len(a.tenants) != 0 {
		t.Error("a removed tenant that has nothing is not forgotten")
	}
}

// A lower quota ends no execution. A higher quota starts waiting ones.
func TestSetTenantWhileItRuns(t *testing.T) {
	a := newMany(Config{Slots: 4}, map[string]Quota{"a": {Running: 2, Queued: 2}})
	var k []*Ticket
	for range 4 {
		k = append(k, enterFor(t, a, "a", alice))
	}
	a.SetTenant("a", Quota{Running: 1, Queued: 0})
	k[0].Release()
	if hasSlot(k[2]) {
		t.Error("more run than the new quota allows")
	}
	a.SetTenant("a", Quota{Running: 3, Queued: 2})
	if !hasSlot(k[2]) || !hasSlot(k[3]) {
		t.Error("tickets wait though the new quota has slots")
	}
}

func TestNeedIsBounded(t *testing.T) {
	a := newMany(Config{Slots: 9, Resources: Resources{MemoryBytes: 100, MilliCPUs: 100}},
		map[string]Quota{"a": {Running: 9, Queued: 9, Resources: Resources{MemoryBytes: 60, MilliCPUs: 200}}, "b": {Running: 9, Queued: 9}})
	first := need(t, enterFor(t, a, "a", alice), 40, 0)
	// The second has a slot, and goes back to the queue, in front of the third.
	second, third := enterFor(t, a, "a", alice), enterFor(t, a, "a", alice)
	if !hasSlot(second) {
		t.Fatal("no slot before the need is known")
	}
	need(t, second, 30, 0)
	need(t, third, 10, 0)
	if hasSlot(second) {
		t.Error("the tenant has 70 bytes, and may have 60")
	}
	fourth := need(t, enterFor(t, a, "a", bob), 20, 0)
	if hasSlot(fourth) {
		t.Error("a small one passes one that waits for memory")
	}
	other := need(t, enterFor(t, a, "b", alice), 50, 0)
	if !hasSlot(other) {
		t.Error("another tenant's quota holds b up")
	}
	if got := a.Usage("a"); got.MemoryBytes != 50 {
		t.Errorf("a uses %+v, want 50 bytes of the first and the third", got)
	}
	first.Release()
	if !hasSlot(second) || !hasSlot(third) || hasSlot(fourth) {
		t.Errorf("want the second beside the third; the machine has %+v", a.used)
	}
	other.Release()
	if !hasSlot(fourth) {
		t.Error("a ticket waits though there is memory")
	}
	for _, k := range []*Ticket{second, third, fourth} {
		k.Release()
	}
	wantEmpty(t, a)
}

// An execution that is too large for the whole tenant or the whole machine is refused at once.
func TestNeedThatIsTooLarge(t *testing.T) {
	a := newMany(Config{Slots: 1, Resources: Resources{MemoryBytes: 100, MilliCPUs: 100}},
		map[string]Quota{"a": {Running: 1, Queued: 1, Resources: Resources{MemoryBytes: 60, MilliCPUs: 200}}})
	k := enterFor(t, a, "a", alice)
	for need, want := range map[Resources]TooLargeError{
		{61, 0}:  {Memory, 61, 60, "tenant"},
		{0, 201}: {Processors, 201, 200, "tenant"},
		{0, 101}: {Processors, 101, 100, "daemon"},
	} {
		err := k.Need(need)
		if got, ok := errors.AsType[*TooLargeError](err); !ok || *got != want {
			t.Errorf("%v: got %v, want %v", need, err, &want)
		} else if !strings.Contains(err.Error(), want.SetBy+"'s") {
			t.Errorf("got %q", err)
		}
	}
	k.Release()
	wantEmpty(t, a)
}

// A ticket that has a slot, but too little memory or too few processors, goes back to the queue. It is
// refused if the queue has no room for it.
func TestNeedWithAFullQueue(t *testing.T) {
	for name, c := range map[string]struct {
		machine, tenant, need Resources
		quota                 Name // empty: the machine's
	}{
		"memory of the tenant":      {tenant: Resources{100, 100}, need: Resources{60, 10}, quota: Memory},
		"processors of the tenant":  {tenant: Resources{100, 100}, need: Resources{10, 60}, quota: Processors},
		"memory of the machine":     {machine: Resources{100, 0}, need: Resources{60, 0}},
		"processors of the machine": {machine: Resources{0, 100}, need: Resources{0, 60}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newMany(Config{Slots: 2, Resources: c.machine}, map[string]Quota{"a": {Running: 2, Resources: c.tenant}})
			k := []*Ticket{enterFor(t, a, "a", alice), enterFor(t, a, "a", alice)}
			need(t, k[0], c.need.MemoryBytes, c.need.MilliCPUs)
			err := k[1].Need(c.need)
			full, ok := errors.AsType[*QuotaError](err)
			switch {
			case c.quota == "" && !isSaturated(err):
				t.Errorf("got %v, want that the machine is saturated", err)
			case c.quota != "" && (!ok || *full != QuotaError{c.quota, 100, 60, time.Second}):
				t.Errorf("got %v, want 60 of 100 %s", err, c.quota)
			}
			k[1].Release()
			k[0].Release()
			wantEmpty(t, a)
		})
	}
}

func TestStartsPerSecond(t *testing.T) {
	c := newClock()
	a := newMany(Config{Slots: 99, Now: c.time}, map[string]Quota{"a": {Running: 99, StartsPerSecond: 2.5, Burst: 2}, "b": {Running: 99}})
	limit := int64(2)
	take := func(want time.Duration) {
		t.Helper()
		k, err := a.Enter("a", alice)
		full, refused := errors.AsType[*QuotaError](err)
		switch {
		case want == 0 && err != nil:
			t.Errorf("refused: %v", err)
		case want == 0:
			k.Release()
		case !refused || full.Quota != Starts || full.Limit != limit || full.RetryAfter != want:
			t.Errorf("got %v, want a wait of %s", err, want)
		}
	}
	take(0)
	take(0)
	take(400 * time.Millisecond)
	take(400 * time.Millisecond) // the refused one took nothing
	c.advance(400 * time.Millisecond)
	take(0)
	take(400 * time.Millisecond)
	for range 9 {
		enterFor(t, a, "b", alice)
	}
	// A new quota keeps the tokens; no bound, and then one again, gives a full bucket.
	a.SetTenant("a", Quota{Running: 99, StartsPerSecond: 10})
	limit = 10
	take(100 * time.Millisecond)
	a.SetTenant("a", Quota{Running: 99})
	take(0)
	a.SetTenant("a", Quota{Running: 99, StartsPerSecond: 0.5})
	take(0)
	if _, err := a.Enter("a", alice); err == nil {
		t.Error("a burst of two with half a start in a second")
	}
	// A refusal for another reason takes no token.
	a.SetTenant("c", Quota{StartsPerSecond: 1})
	for range 3 {
		_, err := a.Enter("c", alice)
		if full, ok := errors.AsType[*QuotaError](err); !ok || full.Quota != Running {
			t.Errorf("got %v, want the quota of running executions", err)
		}
	}
}

// Calls have a bucket of their own, with room for the calls of a second. The calls of the next 5 seconds wait for their
// turn, and further calls are refused. Other tenants and the starts do not use the bucket.
func TestCallsPerSecond(t *testing.T) {
	c := newClock()
	a := New(Config{Slots: 9, Now: c.time, Jitter: func() float64 { return 0 }})
	a.SetTenant("a", Quota{Running: 9, StartsPerSecond: 1, CallsPerSecond: 2.5})
	a.SetTenant("b", Quota{Running: 9})
	enterFor(t, a, "a", alice)
	const each, waiting = 400 * time.Millisecond, 12 // 12 x 400 ms are less than maxCallWait, and 13 are more
	call := func(want time.Duration) {
		t.Helper()
		if wait, err := a.Call("a"); wait != want || err != nil {
			t.Errorf("got a wait of %s, %v; want %s", wait, err, want)
		}
		for _, name := range []string{"b", "unknown"} {
			if wait, err := a.Call(name); wait != 0 || err != nil {
				t.Errorf("%s: got a wait of %s, %v", name, wait, err)
			}
		}
	}
	for range 3 {
		call(0)
	}
	for n := range waiting {
		call(time.Duration(n+1) * each)
	}
	for range 2 {
		_, err := a.Call("a")
		if full, ok := errors.AsType[*QuotaError](err); !ok || full.Quota != Calls || full.Limit != 3 || full.Used != 3 || full.RetryAfter != (waiting+1)*each-maxCallWait {
			t.Errorf("got %+v, want the quota of calls", err)
		}
	}
	if burst, used := a.Calls("a"); burst != 3 || used != 3 {
		t.Errorf("got %d of %d, want 3 of 3", used, burst)
	}
	c.advance((waiting + 1) * each)
	if burst, used := a.Calls("a"); burst != 3 || used != 2 {
		t.Errorf("after a pause: got %d of %d, want 2 of 3", used, burst)
	}
	call(0)
	a.Uncall("a") // the call has started an execution
	a.Uncall("unknown")
	if burst, used := a.Calls("a"); burst != 3 || used != 2 {
		t.Errorf("after a start: got %d of %d, want 2 of 3", used, burst)
	}
	for range 5 {
		a.Uncall("a")
	}
	if burst, used := a.Calls("a"); burst != 3 || used != 0 {
		t.Errorf("after more starts: got %d of %d, want 0 of 3", used, burst)
	}
	for range 3 {
		call(0)
	}
	call(each) // the bucket had no more than 3
	if burst, used := a.Calls("b"); burst != 0 || used != 0 {
		t.Errorf("without a bound: got %d of %d", used, burst)
	}
}

// RetryAfter of a refusal is the time until the queue has room for all callers that were refused before.
func TestRetryAfterComesFromTheQueue(t *testing.T) {
	c := newClock()
	jitter := 0.0
	a := New(Config{Slots: 1, Now: c.time, Jitter: func() float64 { return jitter }})
	a.SetTenant("a", Quota{Running: 1, Queued: 4})
	running := []*Ticket{}
	for range 5 {
		running = append(running, enterFor(t, a, "a", alice))
	}
	told := func(want time.Duration) {
		t.Helper()
		_, err := a.Enter("a", alice)
		if full, ok := errors.AsType[*QuotaError](err); !ok || full.RetryAfter != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	told(time.Second) // nothing is known yet
	for i := range 3 {
		c.advance(200 * time.Millisecond)
		running[i].Release()
		running = append(running, enterFor(t, a, "a", alice))
	}
	told(200 * time.Millisecond)
	told(400 * time.Millisecond)
	jitter = 0.5
	told(750 * time.Millisecond)
	jitter = 0
	c.advance(200 * time.Millisecond)
	running[3].Release()
	enterFor(t, a, "a", alice)
	told(600 * time.Millisecond) // one of the three may have come back
	c.advance(10 * time.Second)  // the queue stands still
	told(40 * time.Second)
	told(50 * time.Second)
	told(time.Minute)
	told(time.Minute)
}

// An hour without waiting tickets does not change the estimate of the queue's pace.
func TestRetryAfterForgetsIdleTime(t *testing.T) {
	c := newClock()
	a := newMany(Config{Slots: 1, Now: c.time}, map[string]Quota{"a": {Running: 1, Queued: 1}})
	for range 2 {
		running, waiting := enterFor(t, a, "a", alice), enterFor(t, a, "a", alice)
		_, err := a.Enter("a", alice)
		if full, ok := errors.AsType[*QuotaError](err); !ok || full.RetryAfter > time.Second {
			t.Errorf("got %v, want at most a second", err)
		}
		c.advance(100 * time.Millisecond)
		running.Release()
		waiting.Release()
		c.advance(time.Hour)
	}
}

func TestErrorsNameTheQuota(t *testing.T) {
	for want, err := range map[string]error{
		// In milliseconds, as clients print the RetryInfo of the same error: skillrun leaves out a time that is said already.
		"the quota is used up: 3 of 4 queued executions; try again in 2.123s":      &QuotaError{Queued, 4, 3, 2_123_456_789},
		"the machine is saturated, and 3 of your executions wait; try again in 2s": &SaturatedError{3, 2_000_400_000},
	} {
		if err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
}

func TestPositionGoesRoundTheCallers(t *testing.T) {
	a := newOne(1, 9, 0)
	running := enter(t, a)
	k := []*Ticket{enter(t, a), enter(t, a), enter(t, a), enterAs(t, a, bob), enterAs(t, a, bob), enterAs(t, a, carol)}
	for len(k) > 0 {
		// Each release starts the first position, and moves all others up by one.
		before := map[*Ticket]int{}
		for _, x := range k {
			before[x] = x.Position()
		}
		running.Release()
		var rest []*Ticket
		for _, x := range k {
			if hasSlot(x) {
				running = x
			} else {
				rest = append(rest, x)
			}
			if got := x.Position(); got != before[x]-1 {
				t.Errorf("position %d became %d", before[x], got)
			}
		}
		if len(rest) != len(k)-1 {
			t.Fatalf("%d of %d started", len(k)-len(rest), len(k))
		}
		k = rest
	}
}

// A ticket that needs more than is free makes the tickets of other tenants wait, but not for longer than MaxBlock. Then
// they may pass for as long. A tenant can't begin the time anew with another ticket.
func TestLargeTicketsBlockForHalfTheTime(t *testing.T) {
	c := newClock()
	quota := Quota{Running: 9, Queued: 9}
	a := newMany(Config{Slots: 9, Resources: Resources{MemoryBytes: 100}, MaxBlock: time.Second, Now: c.time}, map[string]Quota{"long": quota, "large": quota, "small": quota})
	long := need(t, enterFor(t, a, "long", alice), 60, 0)
	c.advance(time.Millisecond)
	large := need(t, enterFor(t, a, "large", alice), 60, 0)
	first := need(t, enterFor(t, a, "small", alice), 10, 0)
	if hasSlot(large) || !hasSlot(first) { // the tenants have equal shares, and large had a slot for a moment
		t.Fatal("want the small one to run, and the large one to wait")
	}
	small := need(t, enterFor(t, a, "small", bob), 10, 0)
	if hasSlot(small) {
		t.Fatal("a small one passes at once, though its tenant has the larger share")
	}
	large.Release()
	large = need(t, enterFor(t, a, "large", alice), 60, 0)
	c.advance(time.Second)
	a.retry()
	if !hasSlot(small) || hasSlot(large) {
		t.Error("a small one waits for longer than MaxBlock")
	}
	c.advance(time.Second)
	late := need(t, enterFor(t, a, "small", alice), 10, 0)
	if hasSlot(late) {
		t.Error("small ones pass all the time")
	}
	long.Release()
	if !hasSlot(large) || !hasSlot(late) {
		t.Error("the large one does not start as soon as it fits")
	}
	for _, k := range []*Ticket{large, first, small, late} {
		k.Release()
	}
	wantEmpty(t, a)
}

// A waiting ticket passes without any other event.
func TestTicketsPassInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota := Quota{Running: 9, Queued: 9}
		a := newMany(Config{Slots: 9, Resources: Resources{MemoryBytes: 100}, MaxBlock: time.Second}, map[string]Quota{"long": quota, "large": quota, "small": quota})
		long, large := need(t, enterFor(t, a, "long", alice), 60, 0), need(t, enterFor(t, a, "large", alice), 80, 0)
		first, k := need(t, enterFor(t, a, "small", alice), 10, 0), enterFor(t, a, "small", alice)
		if err := k.Need(Resources{MemoryBytes: 10}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := k.Wait(t.Context(), time.Minute); err != nil || time.Since(began) > 2*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		for _, k := range []*Ticket{k, first, large, long} {
			k.Release()
		}
	})
}

// Without bounds on memory and processors, a tenant's share of the machine still counts them, and the sums may be more
// than the machine has.
func TestUnboundedResourcesCount(t *testing.T) {
	a := newMany(Config{Slots: 2, Capacity: Resources{MemoryBytes: 100, MilliCPUs: 100}, Now: newClock().time},
		map[string]Quota{"few": {Running: 2, Queued: 9}, "much": {Running: 2, Queued: 9}})
	much, few := need(t, enterFor(t, a, "much", alice), 300, 0), need(t, enterFor(t, a, "few", alice), 1, 1)
	more, next := need(t, enterFor(t, a, "much", alice), 300, 0), need(t, enterFor(t, a, "few", alice), 1, 1)
	few.Release()
	if hasSlot(more) || !hasSlot(next) {
		t.Error("the tenant with three times the machine's memory is next; both have run one execution")
	}
	next.Release()
	if !hasSlot(more) {
		t.Error("nothing else waits, and memory has no bound")
	}
	much.Release()
	more.Release()
	wantEmpty(t, a)
}
