package gateway

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/skillrun/skillrun/internal/network/networktest"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// Behind a translator of the network (NAT64), an IPv6 address is as private as the IPv4 address in it: for lookups, TCP
// and UDP. The resolvers are asked once for the translator's prefix.
func TestTranslatorOfTheNetwork(t *testing.T) {
	const private = "2600:64::" + networktest.Private
	to := netip.AddrPortFrom(netip.MustParseAddr(private), 80)
	isPrivate := func(protocol string) func(policy.Denial) bool {
		return func(d policy.Denial) bool {
			return d.Protocol == protocol && d.To.Addr() == to.Addr() && d.Rule == "private"
		}
	}
	for name, try := range map[string]func(*testing.T, *box){
		"dns": func(t *testing.T, b *box) {
			want := netip.MustParseAddr("2600:64::" + networktest.Public).String()
			if m := b.ask(t, "udp", "translated.test", dns.TypeAAAA); addresses(m) != want {
				t.Errorf("got %q, want %s", addresses(m), want)
			}
		},
		"tcp": func(t *testing.T, b *box) {
			if c, err := b.Dial("tcp", to.String()); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("got %v, %v", c, err)
			}
		},
		"udp": func(t *testing.T, b *box) {
			c, err := b.Dial("udp", to.String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Write([]byte("x")); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			z := newZone(t)
			b := newBox(t, []string{"public", "[2600::/16]:80/udp"}, nil)
			try(t, b)
			b.awaitDenial(t, isPrivate(name))
			if c, err := b.Dial("tcp", to.String()); err == nil {
				c.Close()
				t.Error("connected")
			}
			if asked := z.questions()["ipv4only.arpa."]; asked != 1 {
				t.Errorf("asked %d times for the prefix", asked)
			}
		})
	}
}

// While the resolvers do not answer, what was known of translators counts.
func TestTranslatorsStayKnown(t *testing.T) {
	b := newBox(t, nil, nil) // its resolver does not run
	known := &b.gateway.entries.tenant.translators
	known.Learn([]netip.Addr{netip.MustParseAddr("2600:64::192.0.0.170")})
	b.gateway.names.learnTranslators()
	if v := b.gateway.rules.Dial(policy.TCP, netip.MustParseAddrPort("[2600:64::a05:1]:80"), nil); v.Allowed {
		t.Error("the prefix is forgotten")
	}
	if rest := time.Until(known.ends); rest <= 0 || rest > translatorFailure {
		t.Errorf("the next question comes in %v", rest)
	}
}
