package admission

import (
	"math"

	"golang.org/x/time/rate"
)

// Usages returns the present Usage of each tenant, by its name.
func (a *Admission) Usages() map[string]Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make(map[string]Usage, len(a.tenants))
	for name, t := range a.tenants {
		all[name] = Usage{t.running, t.queued, t.used}
	}
	return all
}

// Starts returns the number of a tenant's executions that may start at once after a pause, and how many of
// them can't start now. Both are zero if starts have no quota.
func (a *Admission) Starts(name string) (burst, used int) {
	return a.tokens(name, func(t *tenant) *rate.Limiter { return t.bucket })
}

// Calls is Starts for the tenant's calls. Calls that wait for their turn don't count.
func (a *Admission) Calls(name string) (burst, used int) {
	return a.tokens(name, func(t *tenant) *rate.Limiter { return t.calls })
}

func (a *Admission) tokens(name string, of func(*tenant) *rate.Limiter) (burst, used int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tenants[name]
	if t == nil || of(t).Limit() == rate.Inf {
		return 0, 0
	}
	burst = of(t).Burst()
	return burst, burst - int(math.Floor(max(of(t).TokensAt(a.Now()), 0)))
}
