package gateway

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/skillrun/skillrun/internal/network/policy"
)

// A decision is the rules' answer to a new connection.
type decision struct {
	allowed  bool
	name     string   // that the sandbox resolved to the address; for events
	names    []string // the client must name one of them; nil: a rule allows the address whatever the name
	likely   []string // without names: the newest of several names that the sandbox resolved to the address
	rule     string
	reason   string
	missing  string
	protocol policy.Protocol
	to       netip.AddrPort
}

// judge asks the rules for a destination.
func (g *Gateway) judge(p policy.Protocol, to netip.AddrPort) decision {
	all, old := g.pins.names(to.Addr())
	d := decision{protocol: p, to: to}
	if len(all) > 0 {
		d.name = all[0]
	}
	if v, denied := g.rules.Denies(p, to, old); denied {
		return d.refuse(v)
	}
	if v := g.rules.Dial(p, to, all); !v.Allowed {
		return d.refuse(v)
	}
	if d.allowed = true; g.rules.Dial(p, to, nil).Allowed {
		if len(all) > 1 {
			d.likely = all[max(0, len(all)-policy.MaxNames):]
		}
		return d
	}
	for _, name := range all {
		if g.rules.Dial(p, to, []string{name}).Allowed {
			d.names = append(d.names, name)
		}
	}
	if len(d.names) == 0 { // a rule allows the address for all names together, but for no single name
		return d.refuse(policy.Verdict{Reason: "no rule allows one of its names"})
	}
	d.name = d.names[0]
	return d
}

func (d decision) refuse(v policy.Verdict) decision {
	d.allowed, d.rule, d.reason, d.missing = false, v.Rule, v.Reason, v.Missing
	return d
}

// deny reports d, a refusal.
func (g *Gateway) deny(d decision) {
	g.report.denied(policy.Denial{Protocol: string(d.protocol), To: d.to, Name: d.name, Reason: d.reason, Rule: d.rule, Missing: d.missing})
}

// refusePacket reports a packet that the link refused.
func (g *Gateway) refusePacket(r refusal) {
	g.report.denied(policy.Denial{Protocol: r.protocol, To: netip.AddrPortFrom(r.to, 0), Reason: r.reason})
}

// spoken judges the name that a client sent. d allows the connection for some names only.
func (g *Gateway) spoken(d decision, name, what string) (decision, bool) {
	name = normal(name)
	for _, n := range d.names {
		if name == normal(n) {
			return d, true
		}
	}
	if d.name = shown(name); name == "" {
		return d.refuse(policy.Verdict{Reason: "the client sent no " + what}), false
	}
	v := g.rules.Dial(d.protocol, d.to, []string{name})
	if v.Allowed {
		v = policy.Verdict{Reason: fmt.Sprintf("the %s was not resolved to this address", what)}
	}
	return d.refuse(v), false
}

// maxShown is the longest name that a host can have, in bytes.
const maxShown = 253

// shown returns a name for an event. A client may send any bytes, and many. The result has no control
// bytes for a terminal, and fits into a packet to the Manager.
func shown(name string) string {
	name = name[:min(len(name), maxShown)]
	if quoted := strconv.QuoteToASCII(name); quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

// normal is a name without case and final dot.
func normal(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }
