package gateway

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/skillrun/skillrun/internal/network/policy"
)

// A decision is the rules' answer to a new connection.
type decision struct {
	allowed  bool
	name     string   // that the sandbox resolved to the address; for events
	names    []string // the client must name one of them; nil: a rule allows the address whatever the name
	denies   bool     // without names: deny rules have names, and the client's name must be none of these
	likely   []string // without names: the newest of several names that the sandbox resolved to the address
	rule     string
	reason   string
	missing  string
	protocol policy.Protocol
	to       netip.AddrPort
	proxied  string // the address or name, with the port, that the proxy connects to; empty: no proxy
}

// judge asks the rules for a destination, and decides whether the proxy is asked for it.
func (g *Gateway) judge(p policy.Protocol, to netip.AddrPort) decision {
	all, old := g.pins.names(to.Addr())
	name := g.relay.NameOf(to.Addr())
	d := decision{}
	if name != "" {
		d = g.judgeName(p, to, name)
	} else {
		d = g.judgeAddress(p, to, all, old)
	}
	if !d.allowed || name == "" && !g.relay.Carries(to.Addr(), all) {
		return d
	}
	if p != policy.TCP {
		return d.refuse(policy.Verdict{Reason: "the proxy carries no UDP; only destinations in network_proxy.no_proxy are reached without it"})
	}
	d.proxied = to.String()
	if name != "" {
		d.proxied = net.JoinHostPort(name, strconv.Itoa(int(to.Port())))
	}
	return d
}

// judgeName asks the rules for a name that only the proxy looks up. If they have the name, the client must send it.
func (g *Gateway) judgeName(p policy.Protocol, to netip.AddrPort, name string) decision {
	d := decision{protocol: p, to: to, name: name}
	// Through the proxy a sandbox could otherwise reach the proxy itself, perhaps its administration.
	if name == policy.NormalName(g.relay.Name) {
		return d.refuse(policy.Verdict{Rule: policy.KindOwn, Reason: name + " is the proxy of the daemon"})
	}
	v, anyName := g.rules.DialName(name, to.Port())
	if !v.Allowed {
		return d.refuse(v)
	}
	if d.allowed = true; !anyName {
		d.names = []string{name}
	}
	d.denies = g.rules.DeniesNames(p, to.Port())
	return d
}

// judgeAddress asks the rules for an address. all are its present names, old its former ones.
func (g *Gateway) judgeAddress(p policy.Protocol, to netip.AddrPort, all, old []string) decision {
	d := decision{protocol: p, to: to}
	if len(all) > 0 {
		d.name = all[len(all)-1] // most programs connect to the name that they asked for last
	}
	// Old names open nothing, but a deny rule stays valid for an address whose name the sandbox resolved an hour ago.
	if v, denied := g.rules.Denies(p, to, old); denied {
		return d.refuse(v)
	}
	if v := g.rules.Dial(p, to, all); !v.Allowed {
		return d.refuse(v)
	}
	// A rule that allows the address without any name, such as a CIDR, needs no name from the client.
	if d.allowed = true; g.rules.Dial(p, to, nil).Allowed {
		d.denies = g.rules.DeniesNames(p, to.Port())
		if len(all) > 1 {
			d.likely = all[max(0, len(all)-policy.MaxNames):]
		}
		return d
	}
	// Only rules with names allow it. Each name is judged alone, because the client will send one of them.
	for _, name := range all {
		if g.rules.Dial(p, to, []string{name}).Allowed {
			d.names = append(d.names, name)
		}
	}
	if len(d.names) == 0 { // a rule allows the address for all names together, but for no single name
		return d.refuse(policy.Verdict{Reason: "no rule allows one of its names"})
	}
	d.name = d.names[len(d.names)-1]
	return d
}

// refuse returns the decision as a refusal. The verdict has the reason, the rule that refused, and the rule that would
// allow it.
func (d decision) refuse(v policy.Verdict) decision {
	d.allowed, d.rule, d.reason, d.missing = false, v.Rule, v.Reason, v.Missing
	return d
}

// connection returns c with what the decision says about it. It begins at start and ends now.
func (d decision) connection(start time.Time, c policy.Connection) policy.Connection {
	c.Start, c.Took, c.Protocol, c.To, c.Name = start, time.Since(start), string(d.protocol), d.to, d.name
	return c
}

// deny reports d, a refusal.
func (g *Gateway) deny(d decision) {
	if d.reason == closing {
		return
	}
	g.throttle.charge(1)
	g.report.denied(policy.Denial{Protocol: string(d.protocol), To: d.to, Name: d.name, Reason: d.reason, Rule: d.rule, Missing: d.missing})
}

// refusePacket counts a packet that the link refused, and reports it. A refusal without a reason is not reported: such
// packets, for example the kernel's own multicasts, are of no interest.
func (g *Gateway) refusePacket(r refusal) {
	if g.throttle.charge(1); r.reason == "" {
		return
	}
	d := policy.Denial{Protocol: r.protocol, To: r.to, Reason: r.reason}
	if r.protocol == string(policy.UDP) { // to a multicast address, which no rule opens: the rules say why
		v := g.rules.Dial(policy.UDP, r.to, nil)
		d.Reason, d.Rule = v.Reason, v.Rule
	}
	g.report.denied(d)
}

// reads reports whether the Gateway must read the names that the client sends, to compare them with the rules.
func (d decision) reads() bool { return d.names != nil || d.denies }

// names judges a name that the client sent, and keeps it if it is allowed. what describes it in the reason of a refusal.
func (c *connection) names(name, what string) error {
	d, ok := c.gateway.spoken(c.decision, name, what)
	if !ok {
		return refusedError(d)
	}
	if name = policy.NormalName(name); name != "" && len(c.spoken) < policy.MaxNames && !slices.Contains(c.spoken, name) {
		c.spoken = append(c.spoken, name)
		c.claimed = c.claimed || !c.gateway.resolved(c.decision.to.Addr(), name)
	}
	return nil
}

// resolved reports whether this sandbox has got the address as an answer for the name.
func (g *Gateway) resolved(a netip.Addr, name string) bool {
	names, _ := g.pins.names(a)
	return includes(append(names, g.relay.NameOf(a)), name)
}

// includes reports whether a list has a name in the form of policy.NormalName.
func includes(list []string, name string) bool {
	return slices.ContainsFunc(list, func(n string) bool { return policy.NormalName(n) == name })
}

// spoken judges a name that the client sent, such as a TLS server name.
func (g *Gateway) spoken(d decision, name, what string) (decision, bool) {
	name = policy.NormalName(name)
	if d.names == nil {
		return g.undenied(d, name, what)
	}
	if includes(d.names, name) {
		return d, true
	}
	if d.name = shown(name); name == "" {
		return d.refuse(policy.Verdict{Reason: "the client sent no " + what}), false
	}
	v := g.rules.Dial(d.protocol, d.to, []string{name})
	if g.relay.NameOf(d.to.Addr()) != "" { // the address stands for a name, and no rule has it
		v, _ = g.rules.DialName(name, d.to.Port())
	}
	if v.Allowed {
		v = policy.Verdict{Reason: fmt.Sprintf("the %s was not resolved to this address", what)}
	}
	return d.refuse(v), false
}

// undenied judges a name that the client sent over a connection that is open for every name that no deny rule has.
func (g *Gateway) undenied(d decision, name, what string) (decision, bool) {
	refused := d
	refused.name = shown(name)
	if name != "" && !policy.IsHost(name) {
		return refused.refuse(policy.Verdict{Reason: "the " + what + " is not valid"}), false
	}
	if v, denied := g.rules.Denies(d.protocol, d.to, []string{name}); denied {
		return refused.refuse(v), false
	}
	return d, true
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
