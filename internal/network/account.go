package network

import (
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/internal/network/wire"
)

// A helper may be in the hands of an attacker. So the Manager accepts only possible reports: a report is
// about a network that the helper has, its texts are short and printable, its times are within the life
// of the network, and its numbers are possible for a machine in this time. A report that a helper
// never makes ends the helper (process.read), and a bound on the rate keeps reports from taking the
// daemon's time. A helper can still lie about the networks that it carries: all of them are of one tenant.

// Bounds on the numbers in reports. They are far above the rates of a real machine: they only keep sums
// from overflowing.
const (
	mostBytes  = 64 << 30   // in a second
	mostEvents = 10_000_000 // in a second, of refused packets and of connections
	mostText   = 1200       // bytes; a quoted name that a client sent has 1,014
)

// protocols are the values of Protocol in a Denial and a Connection.
var protocols = []string{"tcp", "udp", "dns", "icmp", "ip"}

// An account has the reports about one network.
type account struct {
	sink  policy.DaemonSink
	since time.Time
	names []string // of the network's credentials

	bytes, events int64
}

// newAccount makes the account of a network whose credentials have these names.
func newAccount(sink policy.DaemonSink, names ...string) *account {
	return &account{sink: sink, since: time.Now(), names: names}
}

// pass corrects a report, counts it and passes it on.
func (a *account) pass(r wire.Report, counts *TenantStats) {
	switch r.Kind {
	case wire.Denied:
		d := a.denial(*r.Denial)
		counts.denied(d)
		a.sink.Denied(d)
	case wire.Closed:
		c := a.connection(*r.Connection)
		counts.closed(c)
		a.sink.Closed(c)
	case wire.Dropped:
		d := a.dropped(*r.Dropped)
		counts.dropped(d)
		a.sink.Dropped(d)
	}
}

// denial returns a reported refusal with possible values.
func (a *account) denial(d policy.Denial) policy.Denial {
	d.Time, d.Protocol, d.To = a.time(d.Time), protocol(d.Protocol), destination(d.To)
	d.Name, d.Reason, d.Rule = text(d.Name), text(d.Reason), text(d.Rule)
	// The advice of an outcome tells operators to allow it.
	if !policy.IsNarrow(d.Missing) || text(d.Missing) != d.Missing {
		d.Missing = ""
	}
	return d
}

// connection returns a reported connection with possible values. It drops credentials that the daemon has not
// sent for this network.
func (a *account) connection(c policy.Connection) policy.Connection {
	c.Start, c.Protocol, c.To, c.Name = a.time(c.Start), protocol(c.Protocol), destination(c.To), text(c.Name)
	c.Error = text(c.Error)
	c.Names = c.Names[:min(len(c.Names), policy.MaxNames)]
	for i, name := range c.Names {
		c.Names[i] = text(name)
	}
	c.Took = max(0, min(c.Took, time.Since(c.Start)))
	c.Sent, c.Received = a.carried(c.Sent), a.carried(c.Received)
	// The list of the daemon decides the names and their order. The helper can only say which of them were used.
	reported := c.Credentials
	c.Credentials = nil
	for _, name := range a.names {
		if slices.Contains(reported, name) {
			c.Credentials = append(c.Credentials, name)
		}
	}
	return c
}

// dropped returns possible sums of the events that were not reported one by one.
func (a *account) dropped(d policy.Dropped) policy.Dropped {
	return policy.Dropped{Denials: a.count(d.Denials), Connections: a.count(d.Connections), Sent: a.carried(d.Sent), Received: a.carried(d.Received)}
}

func (a *account) count(n int64) int64   { return a.take(&a.events, n, mostEvents) }
func (a *account) carried(n int64) int64 { return a.take(&a.bytes, n, mostBytes) }

// take adds n to a sum, as far as the sum stays below rate for each second of the network's life.
func (a *account) take(sum *int64, n, rate int64) int64 {
	// A network that has just begun counts as one second old, so that its first report is not cut to 0.
	seconds := min(time.Since(a.since)/time.Second+1, 1<<26) // two years: the product does not overflow
	n = max(0, min(n, int64(seconds)*rate-*sum))
	*sum += n
	return n
}

// time moves a time into the life of the network.
func (a *account) time(t time.Time) time.Time {
	if now := time.Now(); t.After(now) {
		return now
	}
	if t.Before(a.since) {
		return a.since
	}
	return t
}

// protocol replaces a protocol that no gateway reports: events and the audit log show it.
func protocol(p string) string {
	if slices.Contains(protocols, p) {
		return p
	}
	return "ip"
}

// destination is a without its zone, which may be any text.
func destination(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().WithZone(""), a.Port())
}

// text returns a short text of printable characters.
func text(s string) string {
	// The text is cut before the loop over it, and again after it: a replacement character takes three bytes.
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s[:min(len(s), mostText)])
	return strings.ToValidUTF8(s[:min(len(s), mostText)], "")
}
