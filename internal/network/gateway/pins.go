package gateway

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// pins remember for which names this sandbox got an address. While the pin lives, a rule with the name
// allows the address. So a program can dial only an address that was judged when it was resolved.
type pins struct {
	mu    sync.Mutex
	named map[netip.Addr][]pin
	count int // of pins, in all lists of named
}

type pin struct {
	name string
	ends time.Time
	kept bool // prune leaves it: a deny rule is about some ports of the name
}

// pinTime is the least time that a pin lives, however short the answer's TTL: programs dial a
// moment after they have resolved.
const pinTime = time.Minute

func newPins() *pins { return &pins{named: map[netip.Addr][]pin{}} }

// add pins name to addresses, and reports whether there was room. A pin that is kept never makes room for
// another one.
func (p *pins) add(name string, addresses []netip.Addr, ttl time.Duration, kept bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.count+len(addresses) > maxPins {
		p.prune(now)
	}
	if p.count+len(addresses) > maxPins {
		return false
	}
	for _, a := range addresses {
		p.put(a, pin{name, now.Add(max(ttl, pinTime)), kept})
	}
	return true
}

// put adds a pin, or lets the pin of the same name live longer. The pin is the last of its address: the program has just
// asked for this name. p.mu is held.
func (p *pins) put(a netip.Addr, new pin) {
	list := p.named[a]
	if i := slices.IndexFunc(list, func(old pin) bool { return old.name == new.name }); i >= 0 {
		if new.ends.Before(list[i].ends) {
			new.ends = list[i].ends
		}
		list = slices.Delete(list, i, i+1)
		p.count--
	}
	p.named[a] = append(list, new)
	p.count++
}

// prune removes the pins that have ended.
func (p *pins) prune(now time.Time) {
	for a, list := range p.named {
		left := slices.DeleteFunc(list, func(old pin) bool { return old.ends.Before(now) && !old.kept })
		p.count -= len(list) - len(left)
		if p.named[a] = left; len(left) == 0 {
			delete(p.named, a)
		}
	}
}

// names returns the names for which the sandbox got an address, in the order of the answers. old are
// names whose pins have ended: they open nothing, but deny rules still apply to them.
func (p *pins) names(a netip.Addr) (names, old []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, pin := range p.named[a] {
		if pin.ends.After(now) {
			names = append(names, pin.name)
		} else {
			old = append(old, pin.name)
		}
	}
	return names, old
}
