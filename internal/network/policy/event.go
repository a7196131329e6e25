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
	Rule     string         `json:"rule,omitempty"`    // Verdict.Rule
	Missing  string         `json:"missing,omitempty"` // Verdict.Missing
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
	// A rule that denies says enough. Without one, the reason is all there is.
	why := d.Rule
	if why == "" {
		why = d.Reason
	}
	return fmt.Sprintf("denied: %s %s, %s", d.Protocol, what, why)
}

// A Connection describes an allowed connection after its end, or an allowed connection that its destination did not
// accept.
type Connection struct {
	Start    time.Time      `json:"start"`
	Took     time.Duration  `json:"took"`
	Protocol string         `json:"protocol"` // tcp or udp
	To       netip.AddrPort `json:"to"`
	Name     string         `json:"name,omitempty"` // the name that the sandbox resolved to the address, or sent in TLS or HTTP
	// Names has further names for Learn. If the sandbox sent names, these are the other ones that it sent. Else they are the
	// newest names for the address, if it has several.
	Names []string `json:"names,omitempty"`
	// Claimed says that the sandbox sent one of the names without having resolved it to the address. So rules with the names
	// would not allow the connection.
	Claimed  bool  `json:"claimed,omitempty"`
	Sent     int64 `json:"sent"`     // bytes from the sandbox
	Received int64 `json:"received"` // bytes to the sandbox
	// Credentials are the names of the credentials that were added to its requests.
	Credentials []string `json:"credentials,omitempty"`
	// Error is the reason if the destination was not reached, such as "connection refused", or if the data that the
	// sandbox sent first was refused, such as a name that no rule allows. Empty: the connection was used.
	Error string `json:"error,omitempty"`
}

// MaxNames bounds Connection.Names.
const MaxNames = 16

// A Sink receives the events of the network of one execution. Its methods may be called concurrently
// and must not block.
type Sink interface {
	Denied(d Denial)
	Closed(c Connection)
	// Dropped is about events that were only counted, because there were too many.
	Dropped(d Dropped)
}

// Dropped has the sums of events that a Sink does not get one by one.
type Dropped struct {
	Denials     int64 `json:"denials,omitempty"`
	Connections int64 `json:"connections,omitempty"`
	Sent        int64 `json:"sent,omitempty"` // bytes of Connections
	Received    int64 `json:"received,omitempty"`
}

// Add adds the sums of other.
func (d *Dropped) Add(other Dropped) {
	d.Denials += other.Denials
	d.Connections += other.Connections
	d.Sent += other.Sent
	d.Received += other.Received
}

// Dropped returns the sums of this one connection.
func (c Connection) Dropped() Dropped {
	return Dropped{Connections: 1, Sent: c.Sent, Received: c.Received}
}

// A DaemonSink receives events in the daemon, which get there from a helper.
type DaemonSink interface {
	Sink
	// Lost says that a helper has ended without its last events. The connections that it carried are in none.
	Lost()
}
