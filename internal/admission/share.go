package admission

import (
	"cmp"
	"math"
	"time"
)

// memory is the time constant of the average: the weight of a past share falls to 1/e in 5 s. Most
// executions are much shorter, so weights hold with few slots, too. The default queue timeout (30 s)
// is much longer: a tenant that had the whole machine gets no slot for at most 5 s * ln 2 = 3.5 s,
// until a newcomer of the same weight has caught up.
const memory = 5 * time.Second

// present is the weight of the present share, which is added to the average. With the average alone,
// a tenant with a slightly smaller average would take every free slot until its average has caught
// up, and then the next tenant would. In a simulation of two equal tenants with 16 slots and
// executions of 0.4 s, the standard deviation of a share is 0.30 without the present share, and 0.12
// with it.
// A large weight favours small tenants, because slots are whole: of 4 slots for the weights 1, 2
// and 5, the shares are 13 % from their weights with 1/8, and 3 % with 1/64.
const present = 1.0 / 64

// A tenant's average share u(t) is the exponentially weighted average of its dominant share s(t):
//
//	u(t) = integral over x <= t of s(x) * exp((x-t)/memory) dx / memory
//
// While s is constant, u(t) * g(t) = base + s * g(t), with g(t) = exp((t-epoch)/memory). The base
// changes only with s. All tenants have the same g(t), so a comparison needs a multiplication and an
// addition for each tenant, and one exp for all. A heap can't keep the order: u changes with time, at
// another speed for each tenant.

// maxGrowth bounds g: beyond it growth moves the epoch. Its square is still a finite float64.
const maxGrowth = 1e100

// growth returns g(now). a.mu is held.
func (a *Admission) growth(now time.Time) float64 {
	g := math.Exp(float64(now.Sub(a.epoch)) / float64(memory))
	if g <= maxGrowth {
		return g
	}
	// After hours without a call, g may be infinite; then every average becomes zero.
	for _, t := range a.tenants {
		t.base /= g
	}
	a.epoch = now
	return 1
}

// share computes the tenant's dominant share again, after a change of its use or its weight. a.mu
// is held.
func (a *Admission) share(t *tenant, now time.Time) {
	s := fraction(int64(t.running), int64(a.Slots+a.Reserved))
	s = max(s, fraction(t.used.MemoryBytes, cmp.Or(a.MemoryBytes, a.Capacity.MemoryBytes)),
		fraction(t.used.MilliCPUs, cmp.Or(a.MilliCPUs, a.Capacity.MilliCPUs)))
	s /= float64(t.quota.Weight)
	t.base += (t.share - s) * a.growth(now)
	t.share = s
}

// fraction returns part / of, and 0 if of is 0: a resource with neither a bound nor a capacity does not count.
func fraction(part, of int64) float64 {
	if of == 0 {
		return 0
	}
	return float64(part) / float64(of)
}

// first returns the tenant that gets the next slot, or nil. This is the tenant with the smallest recent
// share (average and present share). Among equals it is the tenant whose last start is longest ago. A
// reserved slot is only for tenants with nothing running. If fitting is set, only tenants count whose next ticket fits.
// a.mu is held.
func (a *Admission) first(now time.Time, fitting bool) *tenant {
	if len(a.ready) == 0 || a.running >= a.Slots+a.Reserved {
		return nil
	}
	g := a.growth(now)
	both := g * (1 + present)
	var best *tenant
	var least float64
	for _, t := range a.ready {
		if a.running >= a.Slots && t.running > 0 || fitting && !a.fits(t.next.need) {
			continue
		}
		u := t.base + t.share*both
		if best == nil || u < least || u == least && t.lastStart < best.lastStart {
			best, least = t, u
		}
	}
	return best
}
