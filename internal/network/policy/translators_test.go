package policy

import (
	"net/netip"
	"testing"
)

// The prefix of the network's translator is found in the resolver's answer, in each layout of RFC 6052 (2.4 has these
// examples, for 192.0.2.33). From then on, an address with the prefix is as private as the IPv4 address in it.
func TestTranslators(t *testing.T) {
	for _, tt := range []struct{ answer, private, public, other string }{
		{"2001:db8:c000:aa::", "2001:db8:a00:1::", "2001:db8:808:808::", "2001:db9:a00:1::"},
		{"2001:db8:1c0:0:aa::", "2001:db8:10a:0:1::", "2001:db8:108:808:8::", "2001:db8:20a:0:1::"},
		{"2001:db8:122:c000:0:aa00::", "2001:db8:122:a00:0:100::", "2001:db8:122:808:8:800::", "2001:db8:123:a00:0:100::"},
		{"2001:db8:122:3c0:0:aa::", "2001:db8:122:30a:0:1::", "2001:db8:122:308:8:808::", "2001:db8:122:40a:0:1::"},
		{"2001:db8:122:344:c0:0:aa00::", "2001:db8:122:344:a:0:100::", "2001:db8:122:344:8:808:800::", "2001:db8:122:345:a:0:100::"},
		{"2001:db8:122:344::192.0.0.171", "2001:db8:122:344::10.0.0.1", "2001:db8:122:344::8.8.8.8", "2001:db8:122:345::10.0.0.1"},
	} {
		// A documentation prefix is never public, so these are moved into public addresses.
		move := func(text string) netip.AddrPort {
			b := netip.MustParseAddr(text).As16()
			b[0] = 0x26
			return netip.AddrPortFrom(netip.AddrFrom16(b), 443)
		}
		var known Translators
		r := rules(t, []string{"public"}).WithTranslators(&known)
		if v := r.Dial(TCP, move(tt.private), nil); !v.Allowed {
			t.Errorf("%s before the answer: %+v", tt.private, v)
		}
		known.Learn([]netip.Addr{netip.MustParseAddr("192.0.0.170"), move(tt.answer).Addr()})
		if v := r.Dial(TCP, move(tt.private), nil); v.Allowed || v.Rule != "private" {
			t.Errorf("%s: %+v", tt.private, v)
		}
		for _, text := range []string{tt.public, tt.other} {
			if v := r.Dial(TCP, move(text), nil); !v.Allowed {
				t.Errorf("%s: %+v", text, v)
			}
		}
		exact := rules(t, []string{"[" + move(tt.private).Addr().String() + "]"}).WithTranslators(&known)
		if v := exact.Dial(TCP, move(tt.private), nil); !v.Allowed {
			t.Errorf("a rule with exactly %s: %+v", tt.private, v)
		}
		if v := rules(t, []string{"[2600::/8]"}).WithTranslators(&known).Dial(TCP, move(tt.private), nil); v.Allowed {
			t.Errorf("a CIDR opens %s: %+v", tt.private, v)
		}
		known.Learn(nil)
		if v := r.Dial(TCP, move(tt.private), nil); !v.Allowed {
			t.Errorf("%s after an answer without a prefix: %+v", tt.private, v)
		}
	}
}
