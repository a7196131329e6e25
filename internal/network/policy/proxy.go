package policy

import "net/netip"

// ProxyNames are the addresses that stand for names which only a proxy looks up. They are reserved for
// benchmarks (RFC 2544), so no host of the internet has one.
var ProxyNames = netip.MustParsePrefix("198.18.0.0/15")

// DialName is Dial with TCP for a name whose addresses only a proxy looks up. No rule with an address is about
// it. anyName is true if the rules allow all public addresses on this port, whatever the name.
func (r *Rules) DialName(name string, port uint16) (v Verdict, anyName bool) {
	canonical, ok := canonicalName(name)
	if r == nil || port == 0 || !ok {
		return r.refuse("not a host name with a port"), false
	}
	if resolverPorts.contains(port) {
		return Verdict{Rule: KindResolver, Reason: "other name servers are refused unless a rule names their address"}, false
	}
	// The zero block of these questions is public. Which addresses the name really has, only the proxy learns.
	v = r.dial(question{names: []string{canonical}}, TCP, port)
	return v, v.Allowed && r.dial(question{}, TCP, port).Allowed
}
