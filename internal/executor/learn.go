package executor

import (
	"net/netip"
	"strings"

	"github.com/skillrun/skillrun/internal/network/policy"
)

// maxLearned is how many different destinations an execution learns from.
const maxLearned = 1000

// Learned has the network rules that would have sufficed for an execution.
type Learned struct {
	Allow []string `json:"allow,omitempty"`
	// Incomplete: some connections were only counted, because there were too many.
	Incomplete bool `json:"incomplete,omitempty"`
}

// destinations are the different destinations of an execution that learns. The methods of nil do
// nothing. The caller holds the lock of the networkSink.
type destinations struct {
	known      map[destination]bool
	list       []policy.Connection
	incomplete bool
}

// A destination has the fields of a connection that make a rule.
type destination struct {
	protocol string
	to       netip.AddrPort
	names    string
	claimed  bool // the rule is for the address, see policy.Connection
}

// note adds the destination of an ended connection. A failed connection is left out: a rule for it would open an
// address at which no server answered.
func (l *destinations) note(c policy.Connection) {
	if l == nil || c.Error != "" {
		return
	}
	to := destination{c.Protocol, c.To, strings.Join(append([]string{c.Name}, c.Names...), " "), c.Claimed}
	if l.known[to] {
		return
	}
	if len(l.list) == maxLearned {
		l.incomplete = true
		return
	}
	if l.known == nil {
		l.known = map[destination]bool{}
	}
	l.known[to], l.list = true, append(l.list, c)
}

// miss notes connections that the helper has only counted.
func (l *destinations) miss(connections int64) {
	if l != nil && connections > 0 {
		l.incomplete = true
	}
}

func (l *destinations) rules() *Learned {
	if l == nil {
		return nil
	}
	return &Learned{Allow: policy.Learn(l.list), Incomplete: l.incomplete}
}
