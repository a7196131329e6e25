package sandbox

import "sync/atomic"

// Stats are numbers about the sandboxes of a Host.
type Stats struct {
	// Starts by the source of their sandboxes: prewarmed in the pool, made on request by the zygote,
	// made on request by libcontainer.
	FromPool, FromZygote, FromLibcontainer uint64
	// Prewarmed sandboxes wait in the pool.
	Prewarmed int
	// Existing sandboxes run, wait in the pool, or wait for their teardown. At most Most may exist.
	Existing, Most int
	// Deferred sandboxes have ended and wait for their teardown.
	Deferred int
	// Zygote says whether the zygote runs.
	Zygote bool
	// PythonZygotes that run.
	PythonZygotes int
	// Groups, besides the default one, that hold ids and a cgroup, and those with a zygote.
	Groups, GroupZygotes int
}

// starts counts the starts of programs by the source of their sandboxes.
type starts struct{ pool, zygote, libcontainer atomic.Uint64 }

// count counts a start in a sandbox of the pool; nil: libcontainer makes it.
func (s *starts) count(c *sandbox) {
	switch {
	case c == nil:
		s.libcontainer.Add(1)
	case c.prewarmed:
		s.pool.Add(1)
	default:
		s.zygote.Add(1)
	}
}

// Stats returns the present numbers.
func (h *Host) Stats() Stats {
	s := Stats{FromPool: h.starts.pool.Load(), FromZygote: h.starts.zygote.Load(), FromLibcontainer: h.starts.libcontainer.Load()}
	s.Existing, s.Most = h.ids.count()
	h.groups.stats(&s)
	h.pool.stats(&s)
	return s
}

// stats adds the groups' sandboxes.
func (g *groups) stats(s *Stats) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, of := range g.named {
		if b := of.ids.Load(); b != nil {
			used, all := b.count()
			s.Existing, s.Most, s.Groups = s.Existing+used-1, s.Most+all-1, s.Groups+1 // the first pair is the zygote's
		}
	}
}

// stats fills in the pool's part.
func (p *pool) stats(s *Stats) {
	if p == nil {
		return
	}
	// The first pair of ids is the zygote's.
	s.Existing--
	s.Most--
	p.mu.Lock()
	s.Zygote = p.zygote != nil
	for _, e := range p.byGroup {
		if e.zygote != nil {
			s.GroupZygotes++
		}
	}
	for _, b := range p.buckets {
		s.Prewarmed += len(b.waiting)
	}
	for _, e := range p.pythons {
		if e.zygote != nil {
			s.PythonZygotes++
		}
	}
	p.mu.Unlock()
	p.deferredMu.Lock()
	s.Deferred = p.deferredCount
	p.deferredMu.Unlock()
}
