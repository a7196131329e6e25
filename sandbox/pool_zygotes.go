package sandbox

import (
	"maps"
	"slices"
	"time"

	"github.com/skillrun/skillrun/sandbox/internal/pyzygote"
)

// The pool keeps a few Python zygotes, of the kinds that programs ask for. Each serves one group of
// sandboxes: it runs in the container of the group's zygote. A caller is an opaque string
// (Spec.Caller). Groups share the zygotes fairly, and so do the callers of a group: when no more
// may run, a group or a caller with its full share gives up one of its zygotes for a new one.

// maxCallers bounds how many callers a Python zygote remembers.
const maxCallers = 64

// slowModules make each forked child end slowly, whether its program uses them or not
// (_ACTING in exit.py).
var slowModules = pyzygote.NewSet("sqlite3")

// A pythonKey identifies a Python zygote: the group that it serves, and its kind. Without a kind
// it means that no Python zygote serves a program.
type pythonKey struct {
	group string
	pyzygote.Key
}

func (k pythonKey) none() bool { return k.Key == pyzygote.Key{} }

// same says whether two zygotes of one group differ at most in their modules.
func (k pythonKey) same(other pythonKey) bool { return k.group == other.group && k.Same(other.Key) }

// A pythonEntry is the pool's entry for one Python zygote, from the begin of its start.
type pythonEntry struct {
	zygote *pyzygote.Zygote     // nil: not started yet
	failed bool                 // it can't be started
	has    pyzygote.Set         // the modules that were asked for, and the modules that these import
	asked  map[string]time.Time // by caller: the time of its last request
}

// ask notes a request of a caller for this zygote.
func (e *pythonEntry) ask(caller string, now time.Time) {
	if _, known := e.asked[caller]; !known && len(e.asked) >= maxCallers {
		delete(e.asked, slices.MinFunc(slices.Collect(maps.Keys(e.asked)), func(a, b string) int { return e.asked[a].Compare(e.asked[b]) }))
	}
	e.asked[caller] = now
}

// last returns the time of the last request, of any caller.
func (e *pythonEntry) last() (last time.Time) {
	for _, at := range e.asked {
		if at.After(last) {
			last = at
		}
	}
	return last
}

// users returns the callers with a request within pythonIdle.
func (e *pythonEntry) users(now time.Time) (users []string) {
	for caller, at := range e.asked {
		if now.Sub(at) < pythonIdle {
			users = append(users, caller)
		}
	}
	return users
}

// askPythonZygote returns the Python zygote that serves k, and its key. The zygote has the
// modules of k, or more of them if this caller uses that zygote anyway. If k has no zygote of
// its own, askPythonZygote starts one when choose allows it. It returns a nil zygote if none
// can serve k now.
func (p *pool) askPythonZygote(k pythonKey, caller string) (pythonKey, *pyzygote.Zygote) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	at := p.serving(k, caller)
	if own := p.pythons[k]; own != nil {
		own.ask(caller, now)
	} else if p.zygoteOf(k.group) != nil {
		if start, ok := p.choose(k, caller, !at.none(), now); ok {
			p.startEntry(start, &pythonEntry{asked: map[string]time.Time{caller: now}, has: start.Imports()})
		}
	}
	if e := p.pythons[at]; e != nil { // nil if it was dropped in favor of the new one
		e.ask(caller, now)
		return at, e.zygote
	}
	return k, nil
}

// serving returns the key of the zygote that forks a program of k: the zygote of k itself,
// else the smallest one that has all modules of k and that this caller uses already. Zygotes
// of other callers are not considered, so that no caller sees which modules others import.
// To fork from a zygote with more modules takes a little longer; to start a Python takes
// much longer. The zero key means that no zygote can serve k. p.mu is held.
func (p *pool) serving(k pythonKey, caller string) (best pythonKey) {
	if e := p.pythons[k]; e != nil && e.zygote != nil {
		return k
	}
	for key, e := range p.pythons {
		_, uses := e.asked[caller]
		if e.zygote == nil || !uses || !key.same(k) || !e.has.Covers(k.Imports()) || e.has.And(slowModules) != k.Imports().And(slowModules) {
			continue
		}
		b := p.pythons[best]
		if b == nil || e.has.Count() < b.has.Count() || e.has.Count() == b.has.Count() && e.last().After(b.last()) {
			best = key
		}
	}
	return best
}

// choose returns the key of the zygote to start for k, and makes room for it. It returns
// false if the next start must wait, or if no zygote may be dropped. served: another zygote
// serves k. p.mu is held.
func (p *pool) choose(k pythonKey, caller string, served bool, now time.Time) (start pythonKey, ok bool) {
	if p.frugal {
		return k, false
	}
	if now.Before(p.rest) {
		if caller != p.starter {
			p.turnEnds = now.Add(poolIdle)
		}
		return k, false
	}
	if caller == p.starter && now.Before(p.turnEnds) {
		return k, false
	}
	if len(p.pythons) >= p.pythonZygotes {
		old, ok := p.victim(k.group, caller, served, now)
		if !ok {
			return k, false
		}
		if all := (pythonKey{k.group, k.With(old.Key)}); p.mayMerge(k, old, caller, now) && p.pythons[all] == nil {
			k = all
		}
		p.drop(old)
	}
	p.starter, p.turnEnds = caller, time.Time{}
	p.rest = now.Add(pyzygote.ImportPatience) // one at a time
	return k, true
}

// mayMerge says whether the new zygote for k may also import the modules of old, the zygote
// that it replaces. The new one then serves the programs of both. p.mu is held.
func (p *pool) mayMerge(k, old pythonKey, caller string, now time.Time) bool {
	e := p.pythons[old]
	return e.zygote != nil && old.same(k) && k.Imports().And(slowModules) == old.Imports().And(slowModules) && slices.Equal(e.users(now), []string{caller})
}

// victim returns the zygote to drop in favor of a new one for a caller of a group: of the zygotes
// without running programs, the one with the oldest last request. A group with less than its share
// takes from the group with the most, if that has more than its share; a group without any also takes
// a zygote without a request within poolIdle. Any other group takes from its own zygotes, by the same
// rule for callers: a caller with less than its share takes from callers with more than theirs, and
// any other caller from its own. served: the caller has a zygote already, so that only a zygote
// without a request within poolIdle may be dropped. p.mu is held.
func (p *pool) victim(group, caller string, served bool, now time.Time) (oldest pythonKey, ok bool) {
	held := map[string]int{group: 0}
	for key := range p.pythons {
		held[key.group]++
	}
	share := max(1, p.pythonZygotes/len(held))
	find := func(may func(key pythonKey, e *pythonEntry) bool) bool {
		for key, e := range p.pythons {
			if p.running(key) > 0 || served && now.Sub(e.last()) < poolIdle || !may(key, e) {
				continue
			}
			larger := held[key.group] - held[oldest.group]
			if !ok || larger > 0 || larger == 0 && e.last().Before(p.pythons[oldest].last()) {
				oldest, ok = key, true
			}
		}
		return ok
	}
	if held[group] < share && find(func(key pythonKey, _ *pythonEntry) bool { return key.group != group && held[key.group] > share }) {
		return oldest, true
	}
	if held[group] == 0 {
		find(func(_ pythonKey, e *pythonEntry) bool { return now.Sub(e.last()) >= poolIdle })
		return oldest, ok
	}
	byCaller := map[string]int{caller: 0}
	for key, e := range p.pythons {
		if key.group != group {
			continue
		}
		for _, user := range e.users(now) {
			byCaller[user]++
		}
	}
	share = max(1, held[group]/len(byCaller))
	all := func(may func(user string) bool) func(pythonKey, *pythonEntry) bool {
		return func(key pythonKey, e *pythonEntry) bool {
			return key.group == group && !slices.ContainsFunc(e.users(now), func(user string) bool { return !may(user) })
		}
	}
	if byCaller[caller] < share && find(all(func(user string) bool { return user != caller && byCaller[user] > share })) {
		return oldest, true
	}
	return oldest, find(all(func(user string) bool { return user == caller }))
}

// startEntry adds e to the pool and starts its Python zygote in the background. p.mu is held.
func (p *pool) startEntry(k pythonKey, e *pythonEntry) {
	p.pythons[k] = e
	z := p.zygoteOf(k.group)
	p.done.Go(func() {
		begin := time.Now()
		python, err := p.host.startPythonZygote(z, k.Key)
		p.mu.Lock()
		p.rest = time.Now().Add(startShare * time.Since(begin))
		p.mu.Unlock()
		if err != nil {
			// The entry stays for a while, because another start would often fail as well. The cause
			// may also be over: a kill, or memory that was short.
			p.host.log().Warn("a Python zygote did not start; its scripts are executed", "program", k.Name(), "imports", k.Modules(), "err", err)
			p.mu.Lock()
			e.failed = true
			p.mu.Unlock()
			select {
			case <-p.quit:
			case <-time.After(pythonPause):
				p.forgetPythonZygote(k, e)
			}
			return
		}
		p.mu.Lock()
		if p.pythons[k] != e { // the zygote or the pool ended during the start
			p.mu.Unlock()
			python.Close()
			return
		}
		e.zygote, e.has = python, e.has.Or(python.Has())
		p.mu.Unlock()
		p.wakeUp()
		<-python.Gone()
		p.forgetPythonZygote(k, e)
	})
}
