package executor

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/skillrun/skillrun/internal/network/policy"
)

// An execution that learns has open rules, and its outcome has the rules for its connections. Names are
// not in the usage.
func TestLearnedRules(t *testing.T) {
	n := &testNetwork{happens: func(to policy.DaemonSink) {
		for i := range MaxListedConnections + 5 { // the list of the usage is shorter
			to.Closed(policy.Connection{Protocol: "tcp", To: netip.MustParseAddrPort("20.1.0.1:443"), Name: fmt.Sprintf("h%03d.example", i%(MaxListedConnections+5)), Sent: 1})
		}
		to.Closed(policy.Connection{Protocol: "tcp", To: netip.MustParseAddrPort("20.1.0.1:22"), Name: "failed.example", Error: "connection refused"})
		to.Closed(policy.Connection{Protocol: "tcp", To: netip.MustParseAddrPort("20.1.0.1:80"), Name: "h000.example", Names: []string{"h000.example", "z.example"}})
	}}
	x := networked(t, n, 0)
	req := scriptRequest()
	req.Network = &policy.Config{Learn: true, Deny: []string{"x.example"}}
	events := follow(t, x, execute(t, x, req))
	if allow, deny := n.rules.Strings(); !slices.Equal(allow, []string{"public:*", "public:*/udp"}) || !slices.Equal(deny, []string{"x.example"}) {
		t.Errorf("opened with %q, %q", allow, deny)
	}
	if h := events[0].Header.Network; h == nil || !h.Learn {
		t.Errorf("header: %+v", h)
	}
	out := events[len(events)-1].Outcome
	got := out.Learned
	if got == nil || got.Incomplete || len(got.Allow) != MaxListedConnections+6 || got.Allow[0] != "h000.example" || got.Allow[len(got.Allow)-1] != "z.example:80" {
		t.Errorf("learned %+v", got)
	}
	for _, c := range out.Usage.Network.Connections {
		if c.Names != nil {
			t.Errorf("usage: %+v", c)
		}
	}
}

// The rules are incomplete if connections were counted but not reported one by one.
func TestLearnedRulesAreBounded(t *testing.T) {
	for _, tt := range []struct {
		connections int
		missed      int64
		incomplete  bool
	}{{maxLearned, 0, false}, {maxLearned + 1, 0, true}, {1, 1, true}} {
		l := &destinations{}
		for range 2 { // a repeated destination is known
			for i := range tt.connections {
				l.note(policy.Connection{Protocol: "tcp", To: netip.AddrPortFrom(netip.MustParseAddr("20.1.0.1"), uint16(i+1000))})
			}
		}
		l.miss(tt.missed)
		if got := l.rules(); got.Incomplete != tt.incomplete || len(got.Allow) != 1 {
			t.Errorf("%d connections, %d missed: %+v", tt.connections, tt.missed, got)
		}
	}
	// The address is claimed in one of two connections, which then need different rules.
	l := &destinations{}
	for _, claimed := range []bool{true, false} {
		l.note(policy.Connection{Protocol: "tcp", To: netip.MustParseAddrPort("20.1.0.1:443"), Name: "h.example", Names: []string{"h.example"}, Claimed: claimed})
	}
	if got := l.rules().Allow; !slices.Equal(got, []string{"20.1.0.1:443", "h.example:443"}) {
		t.Errorf("learned %q", got)
	}
	var none *destinations
	none.note(policy.Connection{})
	none.miss(1)
	if none.rules() != nil {
		t.Error("an execution that does not learn has rules")
	}
}
