package policy

import (
	"errors"
	"slices"
	"strings"
)

// A Domain is a name, or all names below a name.
type Domain struct{ rule rule }

// ParseDomain parses example.com, *.example.com, or one of them with a port: example.com:8443.
func ParseDomain(text string) (Domain, error) {
	r, problem := parseRule(text, false)
	switch {
	case problem != "" && text != "" && text != "*" && text != Nothing:
		return Domain{}, errors.New(problem)
	case problem != "" || r.kind != nameRule || r.protocols != setTCP:
		return Domain{}, errors.New("not a domain; write a name such as api.example.com or *.example.com")
	case strings.Contains(text, ":") && (len(r.ports) != 1 || r.ports[0].first != r.ports[0].last):
		return Domain{}, errors.New("more than one port; write one entry for each port")
	}
	return Domain{r}, nil
}

// Matches reports whether the Domain has a name. Case and a final dot do not count.
func (d Domain) Matches(name string) bool {
	canonical, ok := canonicalName(name)
	return ok && d.rule.matchesName(canonical)
}

// Name returns the name without "*." and port.
func (d Domain) Name() string { return d.rule.name }

// Port returns the port, or 0 if the text names no port.
func (d Domain) Port() uint16 {
	if len(d.rule.ports) != 1 {
		return 0
	}
	return d.rule.ports[0].first
}

// MayReach reports whether the rules may allow TCP connections to a port of some name of a domain. Which addresses the
// names have is not known yet, so a rule with any address counts for the port.
func (r *Rules) MayReach(d Domain, port uint16) bool {
	if r == nil {
		return false
	}
	for _, one := range r.deny {
		if one.kind == nameRule && one.matchesPort(TCP, port) {
			if both, ok := intersectNames(one, d.rule); ok && both.name == d.rule.name && both.below == d.rule.below {
				return false // the whole domain
			}
		}
	}
	about := func(one rule) bool {
		if one.kind == prefixRule {
			return false
		}
		_, ok := intersectTargets(one, d.rule)
		return ok
	}
	return slices.ContainsFunc(r.allow, about) && slices.ContainsFunc(r.allow, func(one rule) bool {
		return one.matchesPort(TCP, port) && (one.kind == prefixRule || about(one))
	})
}
