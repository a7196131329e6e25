package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A portRange has the ports from first to last.
type portRange struct{ first, last uint16 }

// A portSet has ports as ranges in ascending order that don't touch each other.
type portSet []portRange

var (
	allPorts = portSet{{1, 65535}}
	// resolverPorts are the ports of name servers: DNS and DNS over TLS.
	resolverPorts = portSet{{53, 53}, {853, 853}}
	// quicPorts need a resolved name or a rule with the address: QUIC encrypts the server's name.
	quicPorts = portSet{{443, 443}}
)

// addressPorts are the ports that public opens for no address without a name.
func addressPorts(p Protocol) portSet {
	if p == UDP {
		return append(slices.Clone(resolverPorts), quicPorts...).merged()
	}
	return resolverPorts
}

// parsePorts parses "443", "80,443", "8000-8100" or "*".
func parsePorts(text string) (ports portSet, problem string) {
	if text == "*" {
		return allPorts, ""
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, fromOK := parsePort(first)
		to, toOK := parsePort(last)
		if !fromOK || !toOK {
			return nil, fmt.Sprintf("%q is no port; examples: 443, 80,443, 8000-8100 and *", part)
		}
		if to < from {
			return nil, fmt.Sprintf("the range %s goes downwards; write %d-%d", part, to, from)
		}
		ports = append(ports, portRange{from, to})
	}
	return ports.merged(), ""
}

func parsePort(text string) (uint16, bool) {
	if strings.Trim(text, "0123456789") != "" {
		return 0, false // ParseUint allows a sign
	}
	port, err := strconv.ParseUint(text, 10, 16)
	return uint16(port), err == nil && port > 0
}

// merged sorts the ranges and joins ranges that touch, so that equal sets have equal texts.
func (s portSet) merged() portSet {
	slices.SortFunc(s, func(a, b portRange) int { return int(a.first) - int(b.first) })
	// The result uses the array of s, which the sort has changed already.
	merged := s[:1]
	for _, one := range s[1:] {
		end := &merged[len(merged)-1]
		if int(one.first) <= int(end.last)+1 {
			end.last = max(end.last, one.last)
			continue
		}
		merged = append(merged, one)
	}
	return merged
}

func (s portSet) contains(port uint16) bool {
	return slices.ContainsFunc(s, func(r portRange) bool { return r.first <= port && port <= r.last })
}

func (s portSet) intersect(o portSet) (both portSet) {
	for _, a := range s {
		for _, b := range o {
			if r := (portRange{max(a.first, b.first), min(a.last, b.last)}); r.first <= r.last {
				both = append(both, r)
			}
		}
	}
	return both
}

// without returns the ports of s that are not in o.
func (s portSet) without(o portSet) portSet {
	rest := s
	// Neither bound overflows: no hole of this package begins at port 1 or ends at port 65535.
	for _, hole := range o {
		rest = rest.intersect(portSet{{1, hole.first - 1}, {hole.last + 1, 65535}})
	}
	return rest
}

func (s portSet) String() string {
	if slices.Equal(s, allPorts) {
		return "*"
	}
	var parts []string
	for _, r := range s {
		part := strconv.Itoa(int(r.first))
		if r.last != r.first {
			part += "-" + strconv.Itoa(int(r.last))
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}
