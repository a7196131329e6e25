package helper

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/internal/network/wire"
)

// Requests with the machine's addresses may reach a helper in another order than the addresses were read in. Without
// addresses, a helper attaches nothing: the rules would allow them.
func TestOrderOfAddresses(t *testing.T) {
	h := &helper{queue: newQueue(nil)}
	device, other, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := h.attach(wire.Request{Kind: wire.Attach}, device); err == nil || !strings.Contains(err.Error(), "addresses") {
		t.Errorf("attached without the machine's addresses: %v", err)
	}
	early, late := netip.MustParseAddr("20.7.7.7"), netip.MustParseAddr("20.7.7.8")
	h.handle(wire.Request{Kind: wire.Addresses, Reading: 2, Own: []netip.Addr{late}}, nil)
	h.handle(wire.Request{Kind: wire.Addresses, Reading: 1, Own: []netip.Addr{early}}, nil)
	rules, err := policy.Parse(policy.Config{Allow: []string{"public"}})
	if err != nil {
		t.Fatal(err)
	}
	rules = rules.WithOwn(&h.own)
	for a, want := range map[netip.Addr]bool{early: true, late: false} {
		if got := rules.Dial(policy.TCP, netip.AddrPortFrom(a, 443), nil).Allowed; got != want {
			t.Errorf("%v: allowed is %t, want %t", a, got, want)
		}
	}
}
