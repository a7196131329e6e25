package sandbox

import (
	"time"

	"github.com/skillrun/skillrun/sandbox/internal/zygote"
)

// The zygote of a group other than the default one starts with the group's first requests, if there
// is room for it, and ends when the group was idle for long or another group needs its place.
// libcontainer makes the group's sandboxes while no zygote runs, so no request waits for the start.

const (
	// zygoteIdle is how long a group without requests keeps its zygote.
	zygoteIdle = pythonIdle
	// zygoteKeep is how long a group without requests keeps it at least, if another group needs
	// the place.
	zygoteKeep = poolPeriod
)

// A zygoteEntry is the pool's entry for the zygote of one group, from the begin of its start.
type zygoteEntry struct {
	of     *group         // held until the zygote is destroyed
	zygote *zygote.Zygote // nil: not started yet
	asked  time.Time
}

// zygoteOf returns the zygote of a group; nil if none runs. p.mu is held.
func (p *pool) zygoteOf(group string) *zygote.Zygote {
	if group == "" {
		return p.zygote
	}
	if e := p.byGroup[group]; e != nil {
		return e.zygote
	}
	return nil
}

// zygoteFor is zygoteOf for a request. It starts the group's zygote if none runs and there is room.
// p.mu is held.
func (p *pool) zygoteFor(group string) *zygote.Zygote {
	if group == "" || p.zygote == nil { // without the default group's zygote, another one would fail too
		return p.zygote
	}
	now := time.Now()
	e := p.byGroup[group]
	if e == nil {
		if e = p.startZygoteOf(group, now); e == nil {
			return nil
		}
	}
	e.asked = now
	return e.zygote
}

// startZygoteOf starts a zygote in the background. If Config.GroupZygotes run already, the zygote of an idle
// group ends for it. startZygoteOf returns nil if no zygote may start now. One start is under way at a time.
// After a start that took T, a start that replaces a zygote waits 9 T: so tenants that come and go use at
// most a tenth of a processor. p.mu is held.
func (p *pool) startZygoteOf(name string, now time.Time) *zygoteEntry {
	if p.zygoteStarts || p.ended || p.frugal || p.zygotes == 0 || p.ending[name] {
		return nil
	}
	var old discarded
	if len(p.byGroup) >= p.zygotes {
		victim, ok := p.idleGroup(now.Add(-zygoteKeep))
		if !ok || now.Before(p.zygoteRest) {
			return nil
		}
		old = p.takeZygote(victim)
	}
	of, err := p.host.groups.hold(name)
	if err != nil { // its last process has just ended
		p.done.Go(func() { p.destroyZygote(old) })
		return nil
	}
	e := &zygoteEntry{of: of}
	p.byGroup[name], p.zygoteStarts = e, true
	p.done.Go(func() {
		p.destroyZygote(old)
		p.runZygoteOf(of, e)
	})
	return e
}

// runZygoteOf starts the zygote of a group and returns when it has ended.
func (p *pool) runZygoteOf(of *group, e *zygoteEntry) {
	begin := time.Now()
	z, err := p.host.startZygote(of)
	p.mu.Lock()
	p.zygoteStarts, p.zygoteRest = false, time.Now().Add(startShare*time.Since(begin))
	if err == nil && p.byGroup[of.name] == e {
		e.zygote = z
	}
	p.mu.Unlock()
	if err != nil {
		p.host.log().Error("the zygote of a group did not start; libcontainer makes its sandboxes", "group", of.name, "err", err)
		select { // the entry stays for a while: another start would fail as well
		case <-p.quit:
		case <-time.After(zygotePause):
		}
	} else if e.zygote == z {
		p.wakeUp()
		<-z.Gone()
	}
	p.mu.Lock()
	kept := p.byGroup[of.name] == e
	gone := discarded{of: of, zygote: z} // if the entry was removed during the start
	if kept {
		waiting := p.takeZygote(of.name).waiting
		gone.waiting = waiting
	} else if e.zygote != nil {
		gone = discarded{} // the one who removed the entry destroys it
	}
	p.mu.Unlock()
	p.destroyZygote(gone)
}

// A discarded is a zygote that the pool has given up, with the sandboxes that waited.
type discarded struct {
	of      *group         // nil: nothing was discarded, or the zygote's start has not ended
	zygote  *zygote.Zygote // nil: it did not start
	waiting []*sandbox
}

// takeZygote removes the entry of a group's zygote, with its buckets and its Python zygotes. The
// caller calls destroyZygote without p.mu. If the zygote is being started, runZygoteOf destroys it
// later. Until then the group gets no other zygote. p.mu is held.
func (p *pool) takeZygote(name string) discarded {
	e := p.byGroup[name]
	delete(p.byGroup, name)
	p.ending[name] = true
	d := discarded{waiting: p.emptyGroup(name)}
	if e.zygote != nil {
		d.of, d.zygote = e.of, e.zygote
	}
	return d
}

// destroyZygote destroys what takeZygote has removed, and lets go of the group. The zero value is
// nothing.
func (p *pool) destroyZygote(d discarded) {
	for _, c := range d.waiting {
		c.discard()
	}
	if d.of == nil {
		return
	}
	if d.zygote != nil {
		if err := d.zygote.Destroy(); err != nil {
			// The group stays held, so that no other group gets its ids.
			p.host.log().Error("the zygote of a group was not removed", "group", d.of.name, "err", err)
			return
		}
	}
	p.mu.Lock()
	delete(p.ending, d.of.name)
	p.mu.Unlock()
	p.host.groups.release(d.of)
}

// idleGroup returns the group whose zygote was asked for least recently, of those without running
// programs and without a request since then. p.mu is held.
func (p *pool) idleGroup(since time.Time) (oldest string, ok bool) {
	for name, e := range p.byGroup {
		if e.asked.After(since) || p.host.groups.busy(name) {
			continue
		}
		if !ok || e.asked.Before(p.byGroup[oldest].asked) {
			oldest, ok = name, true
		}
	}
	return oldest, ok
}

// dropIdleZygotes ends the zygotes of groups that have been idle for the given time. p.mu is held.
func (p *pool) dropIdleZygotes(idle time.Duration) {
	for {
		name, ok := p.idleGroup(time.Now().Add(-idle))
		if !ok {
			return
		}
		old := p.takeZygote(name)
		p.done.Go(func() { p.destroyZygote(old) })
	}
}

// evictZygote ends the least recently used zygote of an idle group and waits until it is gone, so
// that another group can have its ids. It reports whether there was one.
func (p *pool) evictZygote() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	name, ok := p.idleGroup(time.Now())
	var old discarded
	if ok {
		old = p.takeZygote(name)
	}
	p.mu.Unlock()
	p.destroyZygote(old)
	return ok
}

// dropZygoteOf ends the zygote of a group that was removed, unless the group's programs still run.
func (p *pool) dropZygoteOf(name string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byGroup[name] != nil && !p.host.groups.busy(name) {
		old := p.takeZygote(name)
		p.done.Go(func() { p.destroyZygote(old) })
	}
}

// endGroups ends the zygotes of all groups. Later none starts.
func (p *pool) endGroups() {
	p.mu.Lock()
	p.ended = true
	var all []discarded
	for name := range p.byGroup {
		all = append(all, p.takeZygote(name))
	}
	p.mu.Unlock()
	for _, d := range all {
		p.destroyZygote(d)
	}
}

// notPrewarmed is called with the error of a sandbox that the pool could not make. A sandbox of a
// group that has used up its own limits, or whose zygote the pool has ended since, is no failure of
// the daemon's.
func (p *pool) notPrewarmed(at profile, b *bucket, err error) {
	p.mu.Lock()
	kept := p.buckets[at] == b
	if kept && at.group != "" {
		b.want = len(b.waiting) // until the next request
	}
	p.mu.Unlock()
	switch {
	case at.group == "":
		p.host.log().Error("a sandbox could not be prewarmed", "err", err)
	case kept:
		p.host.log().Warn("a sandbox of a group could not be prewarmed", "group", at.group, "err", err)
	}
}
