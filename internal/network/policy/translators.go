package policy

import (
	"net/netip"
	"slices"
	"sync/atomic"
)

// Translators are the IPv6 prefixes whose addresses a network translates to IPv4 (NAT64), besides the well-known ones. An
// address with such a prefix is judged by the IPv4 address in it, too: it can lead to a private address. The prefixes may
// change while Rules use them.
type Translators struct {
	prefixes atomic.Pointer[[]netip.Prefix]
}

// WithTranslators returns Rules that know these prefixes.
func (r *Rules) WithTranslators(t *Translators) *Rules {
	if r == nil {
		return nil
	}
	with := *r
	with.translators = t
	return &with
}

// contained returns the IPv4 addresses in an IPv6 address.
func (t *Translators) contained(addr netip.Addr) (all []netip.Addr) {
	if t == nil || t.prefixes.Load() == nil {
		return nil
	}
	for _, p := range *t.prefixes.Load() {
		if p.Contains(addr) {
			all = append(all, translated(p.Bits(), addr))
		}
	}
	return all
}

// Learn replaces the prefixes by the ones in a resolver's IPv6 addresses for ipv4only.arpa (RFC 7050). This
// name has two IPv4 addresses, so a translator's prefix is the rest of an answer in which one of them stands.
func (t *Translators) Learn(answer []netip.Addr) {
	var prefixes []netip.Prefix
	for _, a := range answer {
		for _, bits := range []int{32, 40, 48, 56, 64, 96} {
			p, err := a.Prefix(bits)
			if err == nil && a.Is6() && slices.Contains(wellKnown, translated(bits, a)) && !slices.Contains(prefixes, p) {
				prefixes = append(prefixes, p)
			}
		}
	}
	t.prefixes.Store(&prefixes)
}

// wellKnown are the IPv4 addresses of ipv4only.arpa (RFC 7050, 8.2).
var wellKnown = []netip.Addr{netip.MustParseAddr("192.0.0.170"), netip.MustParseAddr("192.0.0.171")}

// translated returns the IPv4 address behind a prefix of so many bits. It leaves out bits 64 to 71 (RFC 6052, 2.2).
func translated(bits int, addr netip.Addr) netip.Addr {
	b := addr.As16()
	rest := slices.Clone(b[bits/8:])
	if bits <= 64 {
		rest = slices.Delete(rest, 8-bits/8, 9-bits/8)
	}
	return netip.AddrFrom4([4]byte(rest[:4]))
}
