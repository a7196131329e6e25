package admission

import (
	"fmt"
	"testing"
)

// BenchmarkEnter has 1,000 tenants with 3,000 executions, which run in 500 slots or wait. Each turn releases the oldest
// one, so that the next one of some tenant can start, and enters another one.
func BenchmarkEnter(b *testing.B) {
	const tenants, slots, waiting = 1000, 500, 3
	a := New(Config{Slots: slots})
	var running []*Ticket
	for n := range tenants {
		name := fmt.Sprint("t", n)
		a.SetTenant(name, Quota{Running: 10, Queued: 10, StartsPerSecond: 1e9, CallsPerSecond: 1e9})
		for range waiting {
			k, err := a.Enter(name, "caller")
			if err != nil {
				b.Fatal(err)
			}
			if err := k.Need(Resources{1 << 20, 1000}); err != nil {
				b.Fatal(err)
			}
			running = append(running, k)
		}
	}
	for n := 0; b.Loop(); n++ {
		at := n % len(running)
		old := running[at]
		name := old.tenant.name
		old.Release()
		k, err := a.Enter(name, "caller")
		if err == nil {
			err = k.Need(Resources{1 << 20, 1000})
		}
		if err != nil {
			b.Fatal(err)
		}
		running[at] = k
	}
}
