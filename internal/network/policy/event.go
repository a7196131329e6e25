package policy

import (
	"fmt"
	"net/netip"
	"time"
)

// A Denial is one refusal: of a connection, a packet or the resolving of a name.
type Denial struct {
	Time     time.Time      `json:"time"`
	Protocol string         `json:"protocol"` // tcp, udp, dns, icmp or ip
	To       netip.AddrPort `json:"to"`       // zero for dns
	Name     string         `json:"name,omitempty"`
	Reason   string         `json:"reason,omitempty"`
	Rule     string         `json:"rule,omitempty"`    // what decided, see Verdict
	Missing  string         `json:"missing,omitempty"` // the rule that would allow it, see Verdict
}

// String returns the refusal as one line, without what would allow it.
func (d Denial) String() string {
	what := d.Name
	if d.To.IsValid() {
		what = d.To.String()
		if d.To.Port() == 0 {
			what = d.To.Addr().String()
		}
		if d.Name != "" {
			what += " (" + d.Name + ")"
		}
	}
	why := d.Rule
	if why == "" {
		why = d.Reason
	}
	return fmt.Sprintf("denied: %s %s, %s", d.Protocol, what, why)
}

// A Connection is one that was allowed, at its end.
type Connection struct {
	Start    time.Time      `json:"start"`
	Took     time.Duration  `json:"took"`
	Protocol string         `json:"protocol"` // tcp or udp
	To       netip.AddrPort `json:"to"`
	Name     string         `json:"name,omitempty"` // that the sandbox resolved to the address, or the one that it named in TLS or HTTP
	Sent     int64          `json:"sent"`           // bytes from the sandbox
	Received int64          `json:"received"`       // bytes to the sandbox
}

// A Sink is told what happens in the network of one execution. Its methods may be called concurrently
// and do not block.
type Sink interface {
	Denied(d Denial)
	Closed(c Connection)
	// Dropped says how many events were not told one by one, because there were too many.
	Dropped(denials, connections int64)
}
