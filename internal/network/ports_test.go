package network

import (
	"testing"

	"github.com/skillrun/skillrun/internal/network/dial"
)

// The reserves are within the machine's range, do not overlap, and leave half of it to all.
func TestPortsOf(t *testing.T) {
	for _, machine := range []dial.PortRange{{First: 32768, Last: 60999}, {First: 1, Last: 65535}, {First: 50000, Last: 51023}} {
		owner := map[uint16]int{}
		all := int(machine.Last) - int(machine.First) + 1
		for reserve := range reserves {
			p := portsOf(machine, reserve)
			if n := int(p.Common.Last) - int(p.Common.First) + 1; p.Common.First != machine.First || n < all/2 || n > all/2+reserves {
				t.Errorf("%v: common %v", machine, p.Common)
			}
			if p.Reserve.First <= p.Common.Last || p.Reserve.Last > machine.Last || p.Reserve.First > p.Reserve.Last {
				t.Errorf("%v: reserve %v beside %v", machine, p.Reserve, p.Common)
			}
			for port := int(p.Reserve.First); port <= int(p.Reserve.Last); port++ {
				if other, taken := owner[uint16(port)]; taken {
					t.Fatalf("%v: port %d is in the reserves %d and %d", machine, port, other, reserve)
				}
				owner[uint16(port)] = reserve
			}
		}
	}
	if p := portsOf(dial.PortRange{First: 40000, Last: 40100}, 0); p != (dial.Ports{}) {
		t.Errorf("a small range: %v", p)
	}
}

// Tenants have different reserves as long as there are enough, and a removed tenant gives its reserve back.
func TestReserves(t *testing.T) {
	m := newManager(t)
	of := func(name string) int {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.tenant(name).reserve
	}
	seen := map[int]bool{}
	for i := range reserves {
		seen[of(string(rune('a'+i)))] = true
	}
	if len(seen) != reserves {
		t.Errorf("%d different reserves of %d tenants", len(seen), reserves)
	}
	gone := of("c")
	m.Remove("c")
	if got := of("new"); got != gone {
		t.Errorf("reserve %d, want %d, which is free", got, gone)
	}
}
