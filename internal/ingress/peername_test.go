package ingress

import (
	"net"
	"testing"
)

// All addresses in a network of 64 bits are one peer. The audit log has the address.
func TestPeerNames(t *testing.T) {
	for _, tt := range []struct{ ip, peer string }{
		{"192.0.2.7", "192.0.2.7"}, {"::ffff:192.0.2.7", "192.0.2.7"}, {"127.0.0.1", "127.0.0.1"}, {"::1", "::1"},
		{"2001:db8:1:2::7", "2001:db8:1:2::/64"}, {"2001:db8:1:2:aaaa::9", "2001:db8:1:2::/64"}, {"2001:db8:1:3::7", "2001:db8:1:3::/64"},
	} {
		addr := &net.TCPAddr{IP: net.ParseIP(tt.ip), Port: 7}
		if got := peerName(addr); got != tt.peer {
			t.Errorf("%s: got %s, want %s", tt.ip, got, tt.peer)
		}
		if got := addressName(addr); got != addr.IP.String() {
			t.Errorf("%s: the audit log has %s", tt.ip, got)
		}
	}
}
