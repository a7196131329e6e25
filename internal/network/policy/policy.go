// Package policy decides which names a sandbox may resolve and which addresses it may reach. It does no
// I/O.
//
// Theory of operation. Someone writes rules as text: in the daemon's configuration, for a tenant, for
// a skill or in a request. [Parse] makes them [Rules], which never change. [Rules.Tighten] combines
// the rules of two of those places and allows what both allow. The result can be written as text
// again, so that another process can parse it.
//
// Two questions are asked of Rules: may a name be resolved ([Rules.Name], [Rules.Answer]), and may a
// connection be made ([Rules.Dial])? An allow rule is one of three kinds:
//
//   - public: every public address, and every name
//   - a name: public addresses that this sandbox got by resolving such a name
//   - an address or a CIDR: these addresses
//
// Some addresses are not public: private networks, link-local addresses and so on. The blocks in
// special.go list them. Only a rule with an address or CIDR that lies inside of the same block opens
// them. So 10.0.0.0/8 opens private addresses, and 0.0.0.0/0 does not. An address of the daemon's
// machine or of a metadata service needs a rule with exactly this address, without a prefix length.
//
// A deny rule wins over every allow rule.
package policy

import (
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
)

// A Protocol is the transport protocol of a connection.
type Protocol string

// The protocols of connections.
const (
	TCP Protocol = "tcp"
	UDP Protocol = "udp"
)

// A Config has the text of rules. docs/network.md describes the language.
type Config struct {
	// Allow has the allow rules. Nil means {"public"}; an empty list that is not nil allows nothing.
	Allow []string `yaml:"allow" json:"allow"`
	// Deny has the deny rules. A deny rule without ports or protocol denies all of them.
	Deny []string `yaml:"deny" json:"deny,omitempty"`
	// Learn is only of a request, and Parse ignores it: see [Rules.Learning].
	Learn bool `yaml:"-" json:"learn,omitempty"`
}

// Rules decide about the network of a sandbox. They don't change. Nil Rules allow nothing.
type Rules struct {
	allow []rule
	deny  []rule
	own   []*Own

	translators *Translators // nil: none
}

// Nothing is the text of an empty list of allow rules. An empty list could become nil on its way to
// another process, and nil means public.
const Nothing = "none"

// Parse makes Rules. The error has all mistakes, joined; each is a *Mistake.
func Parse(c Config) (*Rules, error) {
	allow := c.Allow
	if allow == nil {
		allow = []string{public}
	}
	if len(allow) == 1 && allow[0] == Nothing {
		allow = nil
	}
	r := &Rules{}
	var allowErr, denyErr error
	r.allow, allowErr = parseList("allow", allow)
	r.deny, denyErr = parseList("deny", c.Deny)
	if err := errors.Join(allowErr, denyErr); err != nil {
		return nil, err
	}
	return r, nil
}

func parseList(list string, texts []string) ([]rule, error) {
	var rules []rule
	var mistakes []error
	for _, text := range texts {
		one, problem := readRule(text, list == "deny")
		if problem != "" {
			mistakes = append(mistakes, &Mistake{List: list, Rule: text, Problem: problem})
			continue
		}
		rules = append(rules, one)
	}
	return rules, errors.Join(mistakes...)
}

// Strings returns the rules as text. Parse makes equal Rules from them, apart from WithOwn. The list of
// allow rules is never empty: Rules that allow nothing have "none".
func (r *Rules) Strings() (allow, deny []string) {
	if r == nil || len(r.allow) == 0 {
		allow = []string{Nothing}
	}
	if r == nil {
		return allow, nil
	}
	return append(allow, texts(r.allow)...), texts(r.deny)
}

func texts(rules []rule) (list []string) {
	for _, one := range rules {
		list = append(list, one.text)
	}
	return list
}

// WithOwn returns Rules that also refuse these addresses. An allow rule with exactly such an address still opens
// it.
func (r *Rules) WithOwn(own *Own) *Rules {
	if r == nil {
		return nil
	}
	with := *r
	with.own = append(slices.Clone(r.own), own)
	return &with
}

// Own has the addresses of the daemon's machine, or of a service that works for the daemon. They may change while
// Rules use them. The zero Own is empty, so it forbids no address.
type Own struct {
	// Service names the service in the reason of a refusal. Empty: the addresses are the machine's. The refusal of a
	// service's address does not suggest the rule that would open it, because such a rule is hardly ever right.
	Service   string
	addresses atomic.Pointer[[]netip.Addr]
}

// Set replaces all addresses.
func (o *Own) Set(addresses []netip.Addr) {
	all := make([]netip.Addr, len(addresses))
	for i, a := range addresses {
		all[i] = plain(a)
	}
	o.addresses.Store(&all)
}

func (o *Own) has(addr netip.Addr) bool {
	all := o.addresses.Load()
	return all != nil && slices.Contains(*all, addr)
}

// Tighten returns Rules that allow what both r and by allow, and deny what either denies.
func (r *Rules) Tighten(by *Rules) *Rules {
	if r == nil || by == nil {
		return nil
	}
	t := &Rules{own: append(slices.Clone(r.own), by.own...)}
	// Each pair, because each rule of r may allow a part of each rule of by. The number of rules of a request is
	// bounded, so the product is.
	for _, a := range r.allow {
		for _, b := range by.allow {
			if both, ok := intersect(a, b); ok {
				t.allow = add(t.allow, both)
			}
		}
	}
	t.deny = slices.Clone(r.deny)
	for _, one := range by.deny {
		if !slices.ContainsFunc(t.deny, one.equal) {
			t.deny = append(t.deny, one)
		}
	}
	return t
}

// Denying returns Rules with these deny rules added. It returns the same errors as Parse.
func (r *Rules) Denying(deny []string) (*Rules, error) {
	more, err := parseList("deny", deny)
	if err != nil || r == nil {
		return nil, err
	}
	with := *r
	with.deny = append(slices.Clone(r.deny), more...)
	return &with, nil
}

// add appends a rule, and drops each rule that allows nothing beyond another one.
func add(rules []rule, one rule) []rule {
	if slices.ContainsFunc(rules, one.within) {
		return rules
	}
	rules = slices.DeleteFunc(rules, func(old rule) bool { return old.within(one) })
	return append(rules, one)
}

// AllowsNothing reports whether no allow rule is left.
func (r *Rules) AllowsNothing() bool { return r == nil || len(r.allow) == 0 }
