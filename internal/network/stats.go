package network

import (
	"maps"

	"github.com/skillrun/skillrun/internal/network/policy"
)

// Stats are figures of a Manager.
type Stats struct {
	Helpers  int   // that run
	Networks int64 // that are attached
	Deaths   int64 // of helpers that the daemon did not end
	OOMs     int64 // deaths because the helper's memory ran out
	Tenants  map[string]TenantStats
}

// TenantStats count the events of a tenant's networks since the tenant's first network. They start again if
// the tenant is removed and comes back.
type TenantStats struct {
	Connections    int64 // that have ended
	Sent, Received int64 // bytes
	// Denied counts the reported refusals by policy.Denial.Kind, Repeated the refusals that were only counted.
	Denied   map[string]int64
	Repeated int64
}

// Stats returns the figures of now.
func (m *Manager) Stats() Stats {
	s := Stats{Networks: m.open.Load(), Deaths: m.deaths.Load(), OOMs: m.ooms.Load(), Tenants: map[string]TenantStats{}}
	m.mu.Lock()
	tenants := maps.Clone(m.tenants)
	m.mu.Unlock()
	for name, t := range tenants {
		if t.running() {
			s.Helpers++
		}
		s.Tenants[name] = t.counted()
	}
	return s
}

// counted returns a copy of the tenant's counters, with each kind of refusal.
func (t *tenant) counted() TenantStats {
	t.events.Lock()
	defer t.events.Unlock()
	c := t.counts
	c.Denied = map[string]int64{}
	for _, kind := range policy.Kinds {
		c.Denied[kind] = t.counts.Denied[kind]
	}
	return c
}

func (s *TenantStats) denied(d policy.Denial) {
	if s.Denied == nil {
		s.Denied = map[string]int64{}
	}
	s.Denied[d.Kind()]++
}

func (s *TenantStats) closed(c policy.Connection) {
	if c.Error == "" {
		s.Connections++
	}
	s.Sent += c.Sent
	s.Received += c.Received
}

func (s *TenantStats) dropped(d policy.Dropped) {
	s.Repeated += d.Denials
	s.Connections += d.Connections
	s.Sent += d.Sent
	s.Received += d.Received
}
