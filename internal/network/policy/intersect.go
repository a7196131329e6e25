package policy

// intersect returns an allow rule for the connections that both rules allow. ok is false if there are
// no such connections. A result that equals a or b keeps that rule's text.
func intersect(a, b rule) (both rule, ok bool) {
	// The order of kinds is public, name, prefix: after this, half of the pairs need no case.
	if a.kind > b.kind {
		a, b = b, a
	}
	both, ok = intersectTargets(a, b)
	if !ok {
		return rule{}, false
	}
	both.protocols = a.protocols & b.protocols
	both.ports = a.ports.intersect(b.ports)
	if a.kind == publicRule && b.kind == prefixRule {
		both.ports = both.ports.without(addressPorts(both.protocol())) // which only b opens
	}
	if both.protocols == 0 || len(both.ports) == 0 {
		return rule{}, false
	}
	// The common ports may be those of name servers, which only a rule with an address opens. Such a rule with a name
	// allows nothing, and Parse refuses its text.
	if both.checkUse(false) != "" {
		return rule{}, false
	}
	switch {
	case both.equal(a):
		both.text = a.text
	case both.equal(b):
		both.text = b.text
	default:
		both.text = both.write()
	}
	return both, true
}

// intersectTargets ignores ports and protocols. The caller has ordered the rules: a.kind <= b.kind.
func intersectTargets(a, b rule) (both rule, ok bool) {
	switch {
	case a.kind == publicRule && b.kind == prefixRule:
		// Without exact: the daemon's own addresses are not public.
		both = rule{kind: prefixRule, prefix: b.prefix}
		return both, blockAround(b.prefix).isPublic()
	// b has names: public allows every name, so all of b is in both.
	case a.kind == publicRule:
		return rule{kind: b.kind, name: b.name, below: b.below}, true
	case a.kind == nameRule && b.kind == nameRule:
		return intersectNames(a, b)
	case a.kind == prefixRule:
		return intersectPrefixes(a, b)
	}
	// A name and an address: the rule with the address lets no name be resolved.
	return rule{}, false
}

// intersectNames returns the narrower of two rules with names, if one has all names of the other.
func intersectNames(a, b rule) (both rule, ok bool) {
	switch {
	case a.name == b.name && a.below == b.below:
	case b.below && b.matchesName(a.name): // a is b's, or further below
	case a.below && a.matchesName(b.name):
		a = b
	default:
		return rule{}, false
	}
	return rule{kind: nameRule, name: a.name, below: a.below}, true
}

// intersectPrefixes returns the narrower of two rules with addresses. Both must open the block around it: a rule
// with 0.0.0.0/0 does not open 10.0.0.0/8, whatever the other rule has.
func intersectPrefixes(a, b rule) (both rule, ok bool) {
	inner, outer := a, b
	if b.prefix.Bits() > a.prefix.Bits() {
		inner, outer = b, a
	}
	if !contains(outer.prefix, inner.prefix) {
		return rule{}, false
	}
	both = rule{kind: prefixRule, prefix: inner.prefix, exact: a.exact && b.exact}
	around := blockAround(inner.prefix)
	return both, outer.opens(around) && both.opens(around)
}
