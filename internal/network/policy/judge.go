package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A Verdict is the answer to a question about Rules.
type Verdict struct {
	Allowed bool
	// Rule decided: the text of a rule, or the name of a kind of addresses, for example "link-local".
	// Empty: no rule allows it.
	Rule string
	// Reason says in one sentence why something is not allowed.
	Reason string
	// Missing is the rule that would allow it; empty if none would.
	Missing string
}

// Name reports whether a name may be resolved to addresses. The name is as in a DNS question: ASCII,
// with or without the trailing dot.
func (r *Rules) Name(name string) Verdict {
	canonical, ok := canonicalName(name)
	if r == nil || !ok {
		return r.refuse("not a host name")
	}
	for _, one := range r.deny {
		if one.kind == nameRule && one.forAllPorts() && one.matchesName(canonical) {
			return deniedBy(one, canonical)
		}
	}
	for _, one := range r.allow {
		if one.kind == publicRule || one.kind == nameRule && one.matchesName(canonical) {
			return Verdict{Allowed: true, Rule: one.text}
		}
	}
	return Verdict{Reason: fmt.Sprintf("no rule allows the name %s", canonical), Missing: nameOnly(canonical)}
}

// Answer reports whether the sandbox may learn that a name has an address. It may if Dial allows a
// connection to this address with some protocol and port. So a name can't lead to a private address
// unless a rule opens this address.
func (r *Rules) Answer(name string, addr netip.Addr) Verdict {
	if v := r.Name(name); !v.Allowed {
		return v
	}
	canonical, _ := canonicalName(name)
	q := r.question(addr, []string{canonical})
	if !q.addr.IsValid() {
		return r.refuse("not an address")
	}
	for _, one := range r.deny {
		if one.forAllPorts() && q.denied(one) {
			return deniedBy(one, q.addr.String())
		}
	}
	for _, one := range r.allow {
		if q.allowed(one) {
			return Verdict{Allowed: true, Rule: one.text}
		}
	}
	// The question for an address has no port. A rule without ports is for the usual ones, 80 and 443.
	v := q.refuse(TCP, 443)
	if v.Missing != "" {
		v.Missing = bracket(q.addr.String())
	}
	return v
}

// Dial reports whether the sandbox may open a connection, or exchange UDP packets. names are the names
// for which this sandbox got the address.
func (r *Rules) Dial(p Protocol, to netip.AddrPort, names []string) Verdict {
	if r == nil || setOf(p) == 0 || !to.Addr().IsValid() || to.Port() == 0 {
		return r.refuse("not an address with a port")
	}
	return r.dial(r.question(to.Addr(), canonicalNames(names)), p, to.Port())
}

// dial judges a connection. The ports of name servers need a rule with the address. QUIC's port needs one, too,
// unless the sandbox has looked up a name for the address.
func (r *Rules) dial(q question, p Protocol, port uint16) Verdict {
	if v, denied := r.denied(q, p, port); denied {
		return v
	}
	needsAddress := addressPorts(p).contains(port) && (len(q.names) == 0 || resolverPorts.contains(port))
	for _, one := range r.allow {
		if one.matchesPort(p, port) && q.allowed(one) && (one.kind == prefixRule || !needsAddress) {
			return Verdict{Allowed: true, Rule: one.text}
		}
	}
	if needsAddress && q.block.isPublic() {
		return q.refuseUnnamed(p, port)
	}
	return q.refuse(p, port)
}

// Denies reports whether a deny rule is about a connection. names are all names for which this sandbox
// ever got the address.
func (r *Rules) Denies(p Protocol, to netip.AddrPort, names []string) (v Verdict, denied bool) {
	if r == nil {
		return Verdict{}, false
	}
	return r.denied(r.question(to.Addr(), canonicalNames(names)), p, to.Port())
}

// denied finds the first deny rule about a connection.
func (r *Rules) denied(q question, p Protocol, port uint16) (v Verdict, denied bool) {
	for _, one := range r.deny {
		if one.matchesPort(p, port) && q.denied(one) {
			return deniedBy(one, q.target(port)), true
		}
	}
	return Verdict{}, false
}

// DeniesNames reports whether a deny rule for a port has a name. Then the names that a client sends must be compared
// with the rules, even if a rule allows the address.
func (r *Rules) DeniesNames(p Protocol, port uint16) bool {
	return r != nil && slices.ContainsFunc(r.deny, func(one rule) bool { return one.kind == nameRule && one.matchesPort(p, port) })
}

// IsHost reports whether a name can name a host, or is an address. No deny rule can have any other name.
func IsHost(name string) bool {
	_, ok := canonicalName(name)
	_, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return ok || err == nil
}

// DeniesSome reports whether a deny rule is about a name that may be resolved: it denies some ports.
func (r *Rules) DeniesSome(name string) bool {
	canonical, ok := canonicalName(name)
	return ok && r != nil && slices.ContainsFunc(r.deny, func(one rule) bool { return one.kind == nameRule && one.matchesName(canonical) })
}

// refuse refuses an invalid question, and any question to nil Rules.
func (r *Rules) refuse(reason string) Verdict {
	if r == nil {
		reason = "the execution has no network"
	}
	return Verdict{Reason: reason}
}

// A question is about one address.
type question struct {
	addr  netip.Addr // plain
	inner []netip.Addr
	names []string // canonical
	block block
}

// question collects the facts about an address that the rules are compared with. An IPv4 address inside of an
// IPv6 address counts, too, because a translator or a tunnel on the way delivers packets to it (RFC 6052,
// RFC 3056, RFC 4380).
func (r *Rules) question(addr netip.Addr, names []string) question {
	q := question{addr: plain(addr), names: names}
	q.inner = append(embedded(q.addr), r.translators.contained(q.addr)...)
	q.block = blockWith(q.addr, q.inner)
	// A block that no rule opens stays closed even if the machine has the address.
	if i := slices.IndexFunc(r.own, func(o *Own) bool { return slices.ContainsFunc(append(q.inner, q.addr), o.has) }); i >= 0 && !q.block.never {
		q.block = block{name: KindOwn, detail: cmp.Or(r.own[i].Service, "the daemon's machine"), exact: true, prefix: netip.PrefixFrom(q.addr, q.addr.BitLen()), closed: r.own[i].Service != ""}
	}
	return q
}

// target returns the destination of the question, for messages.
func (q question) target(port uint16) string {
	if !q.addr.IsValid() { // of DialName
		return fmt.Sprintf("%s:%d", q.names[0], port)
	}
	return netip.AddrPortFrom(q.addr, port).String()
}

// denied reports whether a deny rule is about the address. Ports are not considered.
func (q question) denied(by rule) bool {
	switch by.kind {
	case nameRule:
		return slices.ContainsFunc(q.names, by.matchesName)
	case prefixRule:
		return by.prefix.Contains(q.addr) || slices.ContainsFunc(q.inner, by.prefix.Contains)
	}
	return q.block.isPublic()
}

// allowed reports whether an allow rule is about the address. Ports are not considered.
func (q question) allowed(by rule) bool {
	switch by.kind {
	case nameRule:
		return q.block.isPublic() && slices.ContainsFunc(q.names, by.matchesName)
	case prefixRule:
		return by.prefix.Contains(q.addr) && by.opens(q.block)
	}
	return q.block.isPublic()
}

// opens reports whether a rule that contains an address opens the block of that address.
func (r rule) opens(b block) bool {
	switch {
	case b.isPublic():
		return true
	case b.never:
		return false
	case b.exact:
		return r.exact
	}
	// A CIDR that is larger than the block does not name it: 0.0.0.0/0 is not about private addresses.
	return contains(b.prefix, r.prefix)
}

// refuseUnnamed refuses a port that needs a rule with the address.
func (q question) refuseUnnamed(p Protocol, port uint16) Verdict {
	v := Verdict{Missing: ruleFor(q.addr.String(), p, port)}
	if resolverPorts.contains(port) {
		v.Rule, v.Reason = KindResolver, "other name servers are refused unless a rule names their address"
	} else {
		v.Reason = "QUIC goes only to addresses that were resolved for an allowed name, or that a rule names"
	}
	return v
}

// refuse says why no rule allows a connection, and which rule would. A block that no rule opens has no such rule.
func (q question) refuse(p Protocol, port uint16) Verdict {
	b := q.block
	if !b.isPublic() {
		v := Verdict{Rule: b.name, Reason: fmt.Sprintf("%s is %s address", q.addr, withArticle(b.name)), Missing: ruleFor(q.addr.String(), p, port)}
		if b.detail != "" {
			v.Reason += " (" + b.detail + ")"
		}
		if b.never || b.closed {
			v.Missing = ""
		}
		return v
	}
	target := q.addr.String()
	missing := ruleFor(target, p, port)
	if len(q.names) > 0 {
		target = q.names[len(q.names)-1] // the newest
		missing = nameOnly(ruleFor(target, p, port))
	}
	return Verdict{Reason: fmt.Sprintf("no rule allows %s port %d of %s", p, port, target), Missing: missing}
}

// nameOnly returns the text of a rule, or "" if it is not a rule about one name. The program chooses the name, and a
// host may be named "public" or "localhost".
func nameOnly(text string) string {
	if one, problem := readRule(text, false); problem != "" || one.kind != nameRule {
		return ""
	}
	return text
}

// IsNarrow reports whether a text is a rule about one name or one address.
func IsNarrow(text string) bool {
	one, problem := readRule(text, false)
	return problem == "" && (one.kind == nameRule && !one.below || one.kind == prefixRule && one.exact)
}

func withArticle(word string) string {
	if strings.ContainsAny(word[:1], "aeiou") {
		return "an " + word
	}
	return "a " + word
}

func deniedBy(one rule, what string) Verdict {
	return Verdict{Rule: one.text, Reason: fmt.Sprintf("the rule %q denies %s", one.text, what)}
}

// ruleFor returns the narrowest rule for a connection, in the form in which an operator can add it.
func ruleFor(target string, p Protocol, port uint16) string {
	text := bracket(target) + ":" + strconv.Itoa(int(port))
	if p == UDP {
		text += "/udp"
	}
	return text
}

// canonicalNames leaves out texts that are no names: no rule matches them.
func canonicalNames(names []string) (list []string) {
	for _, name := range names {
		if canonical, ok := canonicalName(name); ok {
			list = append(list, canonical)
		}
	}
	return list
}

// NormalName returns a name of DNS in lower case and without the trailing dot.
func NormalName(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// canonicalName returns an ASCII name in lower case and without the trailing dot. ok is false if it can't
// be the name of a host. Names whose last label is a number are refused: some programs read them as
// addresses.
func canonicalName(name string) (string, bool) {
	name = NormalName(name)
	if name == "" || len(name) > 253 {
		return "", false
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return "", false
		}
		last = label
	}
	// inet_aton(3) reads 10.1, 0x7f.1 and 2130706433 as addresses, and some programs call it for each name.
	isNumber := strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") && strings.Trim(last[2:], "0123456789abcdef") == ""
	return name, !isNumber
}
