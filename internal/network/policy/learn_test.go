package policy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// connection parses "tcp 20.1.0.1:80 name,name".
func connection(t *testing.T, text string) Connection {
	t.Helper()
	parts := strings.Split(text+" ", " ")
	c := Connection{Protocol: parts[0], To: addrPort(t, parts[1])}
	if names := strings.Split(parts[2], ","); len(names) > 1 {
		c.Name, c.Names = names[0], names
	} else {
		c.Name = parts[2]
	}
	return c
}

// Learn makes no rule from a connection that its destination did not accept.
func TestLearnNothingFromFailures(t *testing.T) {
	c := connection(t, "tcp 20.1.0.1:443 a.example")
	c.Error = "connection refused"
	if got := Learn([]Connection{c}); len(got) > 0 {
		t.Errorf("got %q", got)
	}
}

// A name that the client sent without having resolved it opens nothing, so the rule has the address.
func TestLearnClaimedNames(t *testing.T) {
	c := connection(t, "tcp 20.1.0.1:443 bank.example")
	c.Claimed = true
	if got := Learn([]Connection{c}); !slices.Equal(got, []string{"20.1.0.1:443"}) {
		t.Errorf("got %q", got)
	}
	c.To = addrPort(t, "198.18.0.1:443") // of a proxy that resolves names: no rule with an address helps
	if got := Learn([]Connection{c}); len(got) > 0 {
		t.Errorf("behind a proxy: got %q", got)
	}
}

// Each list of connections gives the rules, and the rules allow the connections.
func TestLearn(t *testing.T) {
	for _, tt := range []struct {
		what              string
		connections, want []string
	}{
		{"nothing", nil, nil},
		{"a name", []string{"tcp 20.1.0.1:443 a.example"}, []string{"a.example:443"}},
		{"both ports of the web", []string{"tcp 20.1.0.1:443 a.example", "tcp 20.1.0.2:80 A.example."}, []string{"a.example"}},
		{"ports side by side", []string{"tcp 20.1.0.1:8001 a.example", "tcp 20.1.0.1:8000 a.example", "tcp 20.1.0.1:22 a.example"}, []string{"a.example:22,8000-8001"}},
		{"QUIC", []string{"udp 20.1.0.1:443 a.example", "tcp 20.1.0.1:443 a.example"}, []string{"a.example:443", "a.example:443/udp"}},
		{"names of one address", []string{"tcp 20.1.0.1:443 a.example,b.example"}, []string{"a.example:443", "b.example:443"}},
		{"an address", []string{"tcp 20.1.0.1:443", "tcp 20.1.0.1:80", "tcp [2600::1]:22"}, []string{"20.1.0.1", "[2600::1]:22"}},
		{"an address with and without its name", []string{"tcp 20.1.0.1:443 a.example", "tcp 20.1.0.1:443"}, []string{"20.1.0.1:443", "a.example:443"}},
		{"IPv4 in IPv6", []string{"tcp [::ffff:20.1.0.1]:443"}, []string{"20.1.0.1:443"}},
		{"a name server", []string{"udp 9.9.9.9:53 dns.example"}, []string{"9.9.9.9:53/udp"}},
		{"a host with the name of a keyword", []string{"tcp 20.1.0.1:443 public", "tcp 20.1.0.2:80 none"}, []string{"20.1.0.1:443", "20.1.0.2:80"}},
		{"a name that no rule can have", []string{"tcp 20.1.0.1:443 xn--a"}, []string{"20.1.0.1:443"}},
		{"text that is no name", []string{"tcp 20.1.0.1:443 *.example", "tcp 20.1.0.2:443 a.example\n-"}, []string{"20.1.0.1:443", "20.1.0.2:443"}},
	} {
		var list []Connection
		for _, text := range tt.connections {
			list = append(list, connection(t, text))
		}
		got := Learn(list)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.what, got, tt.want)
			continue
		}
		learned := rules(t, got)
		for _, c := range list {
			names := append(slices.Clone(c.Names), c.Name)
			if v := learned.Dial(Protocol(c.Protocol), c.To, names); !v.Allowed {
				t.Errorf("%s: the rules %q refuse %s: %s", tt.what, got, c.To, v.Reason)
			}
		}
	}
}

// A helper in the hands of an attacker can't have a rule learned for an address that is not public.
func TestLearnOnlyPublic(t *testing.T) {
	list := []Connection{{}, {Protocol: "icmp", To: addrPort(t, "20.1.0.1:80")}, {Protocol: "tcp", To: addrPort(t, "20.1.0.1:0")}}
	for _, text := range []string{"tcp 10.0.0.1:80", "tcp 169.254.169.254:80 a.example", "tcp 127.0.0.1:80", "udp [ff02::1]:80", "tcp [64:ff9b::a00:1]:80"} {
		list = append(list, connection(t, text))
	}
	if got := Learn(list); len(got) > 0 {
		t.Errorf("got %q", got)
	}
}

func TestLearning(t *testing.T) {
	if (*Rules)(nil).Learning() != nil {
		t.Error("no rules learn")
	}
	own := &Own{}
	own.Set([]netip.Addr{addrPort(t, "20.9.0.9:1").Addr()})
	r := rules(t, []string{"a.example", "10.0.0.1"}, "b.example", "20.2.0.0/16").WithOwn(own).Learning()
	for _, tt := range []struct {
		connection string
		want       bool
	}{
		{"tcp 20.1.0.1:22", true}, {"udp 20.1.0.1:123", true}, {"udp 20.1.0.1:443 c.example", true}, {"tcp 20.1.0.1:443 b.example", false},
		{"tcp 20.2.0.1:443", false}, {"tcp 10.0.0.1:80", false}, {"tcp 169.254.169.254:80", false}, {"tcp 20.9.0.9:80", false}, {"tcp 9.9.9.9:53", false},
	} {
		c := connection(t, tt.connection)
		var names []string
		if c.Name != "" {
			names = []string{c.Name}
		}
		if got := r.Dial(Protocol(c.Protocol), c.To, names).Allowed; got != tt.want {
			t.Errorf("%s: allowed is %v", tt.connection, got)
		}
	}
}
