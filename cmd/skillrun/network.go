package main

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// networkText returns the rules of an execution's network in one line, or "none".
func networkText(r *pb.NetworkRules) string {
	// Without rules the execution had no network at all. An empty list of rules can't be: it has "none".
	if r == nil {
		return "none"
	}
	text := ""
	if r.GetLearn() {
		text = "learn: "
	}
	text += "allow " + strings.Join(r.GetAllow(), " ")
	if len(r.GetDeny()) > 0 {
		text += "; deny " + strings.Join(r.GetDeny(), " ")
	}
	return text
}

// addNetwork adds the network usage of an execution: sums, connections and refusals.
func addNetwork(t *table, o *pb.ExecutionOutcome) {
	u := o.GetUsage().GetNetwork()
	if u == nil {
		return
	}
	traffic := fmt.Sprintf("%d connections, %s sent, %s received", u.GetConnectionCount(), bytesText(u.GetSentBytes()), bytesText(u.GetReceivedBytes()))
	if u.GetIncomplete() {
		traffic += "; incomplete: the network's process died"
	}
	t.field("traffic", traffic)
	for _, c := range u.GetConnections() {
		text := fmt.Sprintf("%s %s, %s sent, %s received in %s", c.GetProtocol(),
			endOf(c.GetAddress(), c.GetPort(), c.GetName()), bytesText(c.GetSentBytes()), bytesText(c.GetReceivedBytes()), c.GetDuration().AsDuration())
		if c.GetError() != "" {
			text = fmt.Sprintf("%s %s failed: %s", c.GetProtocol(), endOf(c.GetAddress(), c.GetPort(), c.GetName()), c.GetError())
		}
		if used := c.GetCredentials(); len(used) > 0 {
			text += ", credentials " + strings.Join(used, " ")
		}
		t.field("connection", text)
	}
	for _, rule := range o.GetLearnedRules().GetAllow() {
		t.field("learned rule", rule)
	}
	for _, d := range u.GetDenials() {
		t.field("denied", denialText(d))
	}
	// The list of refusals is bounded, the count is not. A count below the list, from another daemon version, would wrap
	// around: the second condition leaves it out.
	if more := o.GetEvidence().GetNetworkDeniedCount() - uint64(len(u.GetDenials())); more > 0 && more < o.GetEvidence().GetNetworkDeniedCount() {
		t.field("denied", fmt.Sprintf("%d more", more))
	}
}

// denialText returns one refusal, and the rule that would allow the connection, if there is such a rule.
func denialText(d *pb.NetworkDenial) string {
	why := d.GetRule()
	// The reason of a refusal by a deny rule begins with the text of the rule. The name of a kind of addresses says enough.
	if why == "" || strings.HasPrefix(d.GetReason(), "the rule "+strconv.Quote(why)) {
		why = d.GetReason()
	}
	text := fmt.Sprintf("%s %s, %s", d.GetProtocol(), endOf(d.GetAddress(), d.GetPort(), d.GetName()), why)
	if d.GetMissingRule() != "" {
		text += fmt.Sprintf("; the rule %q would allow it", d.GetMissingRule())
	}
	return text
}

// endOf returns an address with its port and its name. It leaves out unknown parts.
func endOf(address string, port uint32, name string) string {
	text := address
	if port > 0 {
		text = net.JoinHostPort(address, strconv.Itoa(int(port)))
	}
	switch {
	case text == "":
		return name
	case name != "":
		return text + " (" + name + ")"
	}
	return text
}
