package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// A Mistake is a rule that can't be parsed.
type Mistake struct {
	List    string // "allow" or "deny"
	Rule    string
	Problem string // the mistake, and how to mend it
}

func (m *Mistake) Error() string { return fmt.Sprintf("%s: %q: %s", m.List, m.Rule, m.Problem) }

// public is the target that means all public addresses.
const public = "public"

type kind int

const (
	publicRule kind = iota
	nameRule
	prefixRule
)

// A rule is one rule, parsed.
type rule struct {
	text string // from the configuration or the request
	kind kind

	name  string // of a nameRule: lower case, punycode, without a trailing dot
	below bool   // of a nameRule: all names below name, but not name

	prefix netip.Prefix // of a prefixRule
	exact  bool         // of a prefixRule: an address without a prefix length

	ports     portSet
	protocols protocolSet
}

// A protocolSet has some protocols, as bits.
type protocolSet uint8

const (
	setTCP protocolSet = 1 << iota
	setUDP
	setBoth = setTCP | setUDP
)

func setOf(p Protocol) protocolSet {
	switch p {
	case TCP:
		return setTCP
	case UDP:
		return setUDP
	}
	return 0
}

// protocol is the protocol of an allow rule, which has one.
func (r rule) protocol() Protocol {
	if r.protocols == setUDP {
		return UDP
	}
	return TCP
}

// webPorts are the ports of an allow rule that names none.
var webPorts = portSet{{80, 80}, {443, 443}}

// matchesName reports whether a nameRule is about a canonical name.
func (r rule) matchesName(name string) bool {
	if !r.below {
		return name == r.name
	}
	return strings.HasSuffix(name, r.name) && len(name) > len(r.name) && name[len(name)-len(r.name)-1] == '.'
}

// matchesPort reports whether the rule is about a protocol and port.
func (r rule) matchesPort(p Protocol, port uint16) bool {
	return r.protocols&setOf(p) != 0 && r.ports.contains(port)
}

// forAllPorts reports whether the rule is about every protocol and port.
func (r rule) forAllPorts() bool {
	return r.protocols == setBoth && slices.Equal(r.ports, allPorts)
}

func (r rule) equal(o rule) bool {
	return r.kind == o.kind && r.name == o.name && r.below == o.below && r.prefix == o.prefix && r.exact == o.exact &&
		r.protocols == o.protocols && slices.Equal(r.ports, o.ports)
}

// within reports whether r allows only what o allows.
func (r rule) within(o rule) bool {
	both, ok := intersect(r, o)
	return ok && both.equal(r)
}

// write makes the text of an allow rule from its other fields.
func (r rule) write() string {
	text := public
	switch {
	case r.kind == nameRule && r.below:
		text = "*." + r.name
	case r.kind == nameRule:
		text = r.name
	case r.kind == prefixRule && r.exact:
		text = bracket(r.prefix.Addr().String())
	case r.kind == prefixRule:
		text = bracket(r.prefix.String())
	}
	if !slices.Equal(r.ports, webPorts) {
		text += ":" + r.ports.String()
	}
	if r.protocols == setUDP {
		text += "/udp"
	}
	return text
}

func bracket(address string) string {
	if strings.ContainsRune(address, ':') {
		return "[" + address + "]"
	}
	return address
}
