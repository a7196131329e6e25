package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// parseRule parses TARGET[:PORTS][/tcp|/udp]. A deny rule that names no ports or no protocol is for all
// of them. problem says why the text is not a rule; empty: it is one.
func parseRule(text string, deny bool) (r rule, problem string) {
	r = rule{text: text, ports: webPorts, protocols: setTCP}
	if deny {
		r.ports, r.protocols = allPorts, setBoth
	}
	if problem := notARule(text, deny); problem != "" {
		return r, problem
	}
	rest, protocols := cutProtocol(text)
	if _, another := cutProtocol(rest); another != 0 {
		return r, "a rule has one protocol; write one rule with /tcp and one with /udp"
	}
	if protocols != 0 {
		r.protocols = protocols
	}
	target, ports, problem := cutPorts(rest)
	if problem != "" {
		return r, problem
	}
	if ports != "" {
		if _, protocol, found := strings.Cut(ports, "/"); found {
			return r, notAProtocol(protocol)
		}
		if r.ports, problem = parsePorts(ports); problem != "" {
			return r, problem
		}
	}
	if problem := r.setTarget(target); problem != "" {
		return r, problem
	}
	return r, r.checkUse(deny)
}

// notARule recognizes common mistakes, such as a URL, and says what to write instead.
func notARule(text string, deny bool) string {
	switch {
	case !utf8.ValidString(text):
		return "a rule is text in UTF-8"
	case text == "":
		return "an empty rule; write a domain, an address, a CIDR or " + public
	case strings.ContainsFunc(text, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }):
		return "a rule has no blanks"
	case strings.Contains(text, "://"):
		return "a rule has no scheme and no path; write the domain alone, such as example.com or example.com:443"
	case strings.ContainsRune(text, '@'):
		return "a rule has no user name; write the domain alone"
	case text == "*" || text == "*:*":
		return "write " + public + " for all public addresses"
	case text == Nothing && deny:
		return Nothing + " is no deny rule; write a destination, or leave it out to deny nothing more"
	case text == Nothing:
		return Nothing + " is in a list with other rules; write it alone"
	case strings.Trim(text, "0123456789,-") == "":
		return `ports without a target; quote a rule with a comma in a YAML list: ["example.com:80,443"]`
	}
	return ""
}

// cutProtocol divides "rest/tcp". A slash before something else belongs to a CIDR; 0 is no protocol.
func cutProtocol(text string) (rest string, protocols protocolSet) {
	i := strings.LastIndexByte(text, '/')
	if i < 0 {
		return text, 0
	}
	if set := setOf(Protocol(strings.ToLower(text[i+1:]))); set != 0 {
		return text[:i], set
	}
	return text, 0
}

// cutPorts divides "target:ports". IPv6 addresses are in brackets.
func cutPorts(text string) (target, ports, problem string) {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		target, rest, closed := strings.Cut(inner, "]")
		ports, hasPorts := strings.CutPrefix(rest, ":")
		switch {
		case !closed:
			return "", "", "the closing bracket is missing"
		case !strings.ContainsRune(target, ':'):
			return "", "", "brackets are for IPv6 addresses and IPv6 CIDRs"
		case rest != "" && (!hasPorts || ports == ""):
			return "", "", "after the bracket comes nothing, or a colon and ports: [2001:db8::/32]:443"
		}
		return target, ports, ""
	}
	target, ports, found := strings.Cut(text, ":")
	switch {
	case strings.ContainsRune(ports, ':') && strings.Trim(target, "0123456789abcdefABCDEF") == "":
		return "", "", "write an IPv6 address or CIDR in brackets: [2001:db8::1]:443 or [2001:db8::/32]"
	case strings.ContainsRune(ports, ':'):
		return "", "", "a rule has one destination and one colon, before its ports; write several ports with commas: example.com:80,443"
	case found && ports == "":
		return "", "", "ports are missing after the colon; leave the colon out for 80 and 443"
	}
	return target, ports, ""
}

// setTarget, setAddr, setPrefix and setName read a part of a rule. The problem is the end of a sentence about
// the rule, for the person who wrote it; "" means that the part is right.
func (r *rule) setTarget(target string) (problem string) {
	if target == public {
		r.kind = publicRule
		return ""
	}
	if addr, err := netip.ParseAddr(target); err == nil {
		return r.setAddr(addr)
	}
	if addr, bits, ok := strings.Cut(target, "/"); ok {
		if _, err := netip.ParseAddr(addr); err == nil {
			return r.setPrefix(target, bits)
		}
		if bits != "" && strings.Trim(bits, "0123456789") == "" {
			return fmt.Sprintf("%q is no address; an example of a CIDR is 10.0.0.0/8", addr)
		}
		return "only a CIDR has a slash (10.0.0.0/8), and the end of a rule (/tcp or /udp); a rule has no path"
	}
	return r.setName(target)
}

func (r *rule) setAddr(addr netip.Addr) (problem string) {
	if addr.Zone() != "" {
		return "a rule has no zone; write the address alone"
	}
	// Two texts for the same address would be two rules that are not equal.
	if addr.Is4In6() {
		return fmt.Sprintf("write the IPv4 address: %s", addr.Unmap())
	}
	r.kind, r.exact = prefixRule, true
	r.prefix = netip.PrefixFrom(addr, addr.BitLen())
	return ""
}

func (r *rule) setPrefix(target, bits string) (problem string) {
	prefix, err := netip.ParsePrefix(target)
	_, protocol, found := strings.Cut(bits, "/")
	switch {
	case found:
		return notAProtocol(protocol)
	case err != nil:
		return fmt.Sprintf("%q is no prefix length; an example of a CIDR is 10.0.0.0/8", bits)
	case prefix.Addr().Is4In6():
		return "write the IPv4 CIDR, such as 10.0.0.0/8"
	// 10.1.2.3/8 is a mistake of one part or the other, and the two readings open very different ranges.
	case prefix != prefix.Masked():
		return fmt.Sprintf("the address has bits beyond the prefix length; write %s or %s", bracket(prefix.Masked().String()), bracket(prefix.Addr().String()))
	}
	r.kind, r.prefix = prefixRule, prefix
	return ""
}

// toASCII converts names with other letters than ASCII to punycode, as browsers do.
var toASCII = idna.New(idna.MapForLookup(), idna.Transitional(false), idna.StrictDomainName(false), idna.BidiRule())

// setName sets a rule for a name, in its canonical form. It comes last in the attempts to read a target, so its problem
// must explain every text that is nothing else.
func (r *rule) setName(target string) (problem string) {
	name, below := strings.CutPrefix(target, "*.")
	if strings.ContainsRune(target, ',') {
		return "a rule has one destination; write one rule for each"
	}
	if strings.ContainsRune(target, '*') && strings.ContainsAny(target, "0123456789") && strings.Trim(target, "0123456789.*") == "" {
		return "addresses are written as a CIDR, without a *: 10.0.0.0/24 has the addresses that begin with 10.0.0"
	}
	if strings.ContainsRune(name, '*') {
		return "a * stands only at the beginning: *.example.com is every name below example.com"
	}
	ascii, err := toASCII.ToASCII(name)
	if err != nil {
		return fmt.Sprintf("not a domain name: %v", err)
	}
	// Parse must accept the rule's text again.
	if again, err := toASCII.ToASCII(ascii); err != nil || again != ascii {
		return fmt.Sprintf("not a domain name: %s is not valid punycode", ascii)
	}
	canonical, ok := canonicalName(ascii)
	if !ok {
		return "neither a domain name nor an address nor a CIDR; examples: example.com, *.example.com, 10.0.0.0/8:5432"
	}
	// "PUBLIC" and "none." are canonical forms of words with another meaning.
	if !below && (canonical == public || canonical == Nothing) {
		return fmt.Sprintf("write %s in lower case and without a dot", canonical)
	}
	r.kind, r.name, r.below = nameRule, canonical, below
	return ""
}

func notAProtocol(text string) (problem string) {
	return fmt.Sprintf("%q is no protocol; write /tcp or /udp", text)
}

// words are no names of hosts that someone means in a rule.
var words = map[string]string{
	"all": "for all public addresses, write public", "any": "for all public addresses, write public",
	"internet": "for all public addresses, write public",
	"true":     "for all public addresses, write public", "yes": "for all public addresses, write public",
	"false": "for no network, write none alone", "no": "for no network, write none alone",
	"private":   "for private addresses, write a CIDR such as 10.0.0.0/8",
	"localhost": "for the machine, write its address, such as 192.0.2.7",
}

// readRule is parseRule for a list of rules. It refuses words that someone takes for rules: as names of hosts they would
// allow or deny nothing. A Domain may be such a word.
func readRule(text string, deny bool) (r rule, problem string) {
	r, problem = parseRule(text, deny)
	if mean := words[r.name]; problem == "" && mean != "" && !r.below {
		problem = fmt.Sprintf("%s means nothing in a rule; %s", r.name, mean)
	}
	return r, problem
}

// checkUse refuses rules that could never allow anything.
func (r *rule) checkUse(deny bool) (problem string) {
	if deny {
		return ""
	}
	if r.kind != prefixRule {
		if len(r.ports.without(resolverPorts)) == 0 {
			return "ports 53 and 853 are for other name servers: name one by its address, such as 9.9.9.9:53/udp"
		}
		return ""
	}
	if b := blockAround(r.prefix); b.never {
		return fmt.Sprintf("%s addresses can't be allowed", b.name)
	}
	return ""
}
