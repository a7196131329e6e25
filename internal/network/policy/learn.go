package policy

import (
	"net/netip"
	"slices"
)

// Learning returns Rules that allow every public address, with all ports and protocols. The deny rules
// stay.
func (r *Rules) Learning() *Rules {
	if r == nil {
		return nil
	}
	learning := *r
	learning.allow, _ = parseList("allow", []string{public + ":*", public + ":*/udp"})
	return &learning
}

// Learn returns the shortest list of allow rules for these connections, sorted: one rule for each name
// with a protocol, and one for each address that had no name. If the sandbox had looked up several names
// for an address, each of them gets a rule.
//
// The names come from a program, and the connections from a process that an attacker may have taken over.
// So no rule opens more than public names and public addresses, and each has the form that it
// has in a configuration.
func Learn(connections []Connection) []string {
	var learned []rule
	for _, c := range connections {
		for _, one := range needed(c) {
			learned = widen(learned, one)
		}
	}
	list := []string{}
	for _, one := range learned {
		list = append(list, one.write())
	}
	slices.Sort(list)
	return list
}

// needed returns the rules for one connection.
func needed(c Connection) (rules []rule) {
	addr, port, protocols := plain(c.To.Addr()), c.To.Port(), setOf(Protocol(c.Protocol))
	proxied := ProxyNames.Contains(addr) // of interest is only the name
	if c.Error != "" || !addr.IsValid() || port == 0 || protocols == 0 || !blockOf(addr).isPublic() && !proxied {
		return nil
	}
	one := rule{ports: portSet{{port, port}}, protocols: protocols}
	// A rule with a name opens neither a port of a name server nor an address that was not resolved from the name. There only
	// a rule with the address helps.
	if !resolverPorts.contains(port) && !c.Claimed {
		one.kind = nameRule
		for _, one.name = range canonicalNames(append(slices.Clone(c.Names), c.Name)) {
			if one.isWritable() {
				rules = append(rules, one)
			}
		}
	}
	if len(rules) == 0 && !proxied {
		// Names come first, because addresses of a service change.
		one.kind, one.name, one.prefix, one.exact = prefixRule, "", netip.PrefixFrom(addr, addr.BitLen()), true
		rules = append(rules, one)
	}
	return rules
}

// isWritable reports whether the text of the rule means this rule. The host name "public" is an example of
// one that can't be written.
func (r rule) isWritable() bool {
	read, problem := readRule(r.write(), false)
	return problem == "" && read.equal(r)
}

// widen adds a rule, or its ports to the rule for the same target and protocol.
func widen(rules []rule, by rule) []rule {
	for i, one := range rules {
		if one.kind == by.kind && one.name == by.name && one.prefix == by.prefix && one.protocols == by.protocols {
			rules[i].ports = append(one.ports, by.ports...).merged()
			return rules
		}
	}
	return append(rules, by)
}
