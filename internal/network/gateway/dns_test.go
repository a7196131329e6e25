package gateway

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/skillrun/skillrun/internal/network/networktest"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// A zone is a resolver with made-up answers. It counts the questions.
type zone struct {
	mu    sync.Mutex
	asked map[string]int
}

// questions returns the number of questions for each name.
func (z *zone) questions() map[string]int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return maps.Clone(z.asked)
}

func (z *zone) ServeDNS(w dns.ResponseWriter, m *dns.Msg) {
	q := m.Question[0]
	z.mu.Lock()
	z.asked[q.Name]++
	z.mu.Unlock()
	reply := new(dns.Msg)
	reply.SetReply(m)
	for _, text := range zoneRecords(q, w.RemoteAddr().Network()) {
		if text == "truncated" {
			reply.Truncated = true
			continue
		}
		r, err := dns.NewRR(text)
		if err != nil {
			panic(err)
		}
		reply.Answer = append(reply.Answer, r)
	}
	if q.Name == "missing.test." {
		reply.Rcode = dns.RcodeNameError
	}
	if q.Name == "other.test." {
		reply.Question[0].Name = "www.test."
	}
	_ = w.WriteMsg(reply)
}

func zoneRecords(q dns.Question, network string) []string {
	public := q.Name + " 60 IN A " + networktest.Public
	switch {
	case q.Qtype == dns.TypeAAAA && q.Name == "www.test.":
		return []string{q.Name + " 60 IN AAAA " + networktest.Public6}
	case q.Qtype == dns.TypeAAAA && q.Name == "ipv4only.arpa.":
		return []string{q.Name + " 60 IN AAAA 2600:64::192.0.0.170", q.Name + " 60 IN AAAA 2600:64::192.0.0.171"}
	case q.Qtype == dns.TypeAAAA && q.Name == "translated.test.":
		return []string{q.Name + " 60 IN AAAA 2600:64::" + networktest.Private, q.Name + " 60 IN AAAA 2600:64::" + networktest.Public}
	case q.Qtype != dns.TypeA:
		return nil
	case q.Name == "alias.test.":
		return []string{q.Name + " 60 IN CNAME www.test.", "www.test. 60 IN A " + networktest.Public}
	case q.Name == "rebind.test.":
		return []string{public, q.Name + " 60 IN A " + networktest.Private, q.Name + " 60 IN A 127.0.0.1"}
	case q.Name == "inside.test.":
		return []string{q.Name + " 60 IN A " + networktest.Private}
	case q.Name == "large.test." && network == "udp":
		return []string{"truncated"}
	case q.Name == "large.test.":
		var all []string
		for i := range 200 {
			all = append(all, fmt.Sprintf("%s 60 IN A 20.2.0.%d", q.Name, i))
		}
		return all
	}
	return []string{public}
}

// newZone starts the resolver of newBox.
func newZone(t testing.TB) *zone {
	t.Helper()
	z := &zone{asked: map[string]int{}}
	packets, err := net.ListenPacket("udp", networktest.Resolver+":53")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", networktest.Resolver+":53")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: z}, {Listener: listener, Handler: z}} {
		started, ended := make(chan struct{}), make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() { defer close(ended); _ = s.ActivateAndServe() }()
		<-started
		t.Cleanup(func() { _ = s.Shutdown(); <-ended })
	}
	return z
}

// ask sends a question from inside to the sandbox's name server.
func (b *box) ask(t testing.TB, network, name string, kind uint16) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), kind)
	return b.exchange(t, network, NameServerIPv4, m)
}

func (b *box) exchange(t testing.TB, network string, server netip.Addr, m *dns.Msg) *dns.Msg {
	t.Helper()
	c, err := b.Dial(network, netip.AddrPortFrom(server, 53).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answer, _, err := (&dns.Client{Net: network, Timeout: 30 * time.Second}).ExchangeWithConn(m, &dns.Conn{Conn: c})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func addresses(m *dns.Msg) string {
	var all []string
	for _, r := range m.Answer {
		if a, ok := addressOf(r); ok {
			all = append(all, a.String())
		} else {
			all = append(all, r.String())
		}
	}
	return strings.Join(all, " ")
}

// Allowed names have their addresses, by both protocols of DNS and both of IP. Names that no rule
// allows are refused without a question to the resolver.
func TestDNS(t *testing.T) {
	z := newZone(t)
	b := newBox(t, []string{"www.test", "alias.test", "rebind.test", "missing.test", "large.test", "other.test"}, nil)
	for _, c := range []struct {
		name string
		kind uint16
		code int
		want string
	}{
		{"www.test", dns.TypeA, dns.RcodeSuccess, networktest.Public},
		{"WWW.Test", dns.TypeA, dns.RcodeSuccess, networktest.Public},
		{"www.test", dns.TypeAAAA, dns.RcodeSuccess, networktest.Public6},
		{"www.test", dns.TypeHTTPS, dns.RcodeSuccess, ""},
		{"www.test", dns.TypeTXT, dns.RcodeRefused, ""},
		{"www.test", dns.TypeANY, dns.RcodeRefused, ""},
		{"alias.test", dns.TypeA, dns.RcodeSuccess, networktest.Public},
		{"rebind.test", dns.TypeA, dns.RcodeSuccess, networktest.Public},
		{"missing.test", dns.TypeA, dns.RcodeNameError, ""},
		{"other.test", dns.TypeA, dns.RcodeServerFailure, ""},
		{"secret.evil.test", dns.TypeA, dns.RcodeRefused, ""},
		{"secret.evil.test", dns.TypeTXT, dns.RcodeRefused, ""},
	} {
		for _, network := range []string{"udp", "tcp"} {
			if m := b.ask(t, network, c.name, c.kind); m.Rcode != c.code || addresses(m) != c.want {
				t.Errorf("%s %s by %s: %s, %q", dns.TypeToString[c.kind], c.name, network, dns.RcodeToString[m.Rcode], addresses(m))
			}
		}
	}
	d := b.awaitDenial(t, func(d policy.Denial) bool { return d.Name == "secret.evil.test" })
	if d.Protocol != "dns" || d.Missing != "secret.evil.test" {
		t.Errorf("event: %+v", d)
	}
	b.awaitDenial(t, func(d policy.Denial) bool {
		return d.Name == "rebind.test" && d.To.Addr().String() == networktest.Private
	})
	b.awaitDenial(t, func(d policy.Denial) bool { return d.Name == "rebind.test" && d.To.Addr().IsLoopback() })
	if asked := z.questions(); asked["secret.evil.test."] != 0 || asked["www.test."] != 2 {
		t.Errorf("the resolver was asked %v", asked)
	}
}

// Odd questions have no answer or an error; a large answer comes by TCP, and is bounded.
func TestDNSForms(t *testing.T) {
	newZone(t)
	b := newBox(t, nil, nil)
	m := b.ask(t, "udp", "large.test", dns.TypeA)
	if !m.Truncated {
		t.Errorf("%d addresses, not truncated", len(m.Answer))
	}
	if m := b.ask(t, "tcp", "large.test", dns.TypeA); len(m.Answer) != maxAnswer {
		t.Errorf("%d addresses", len(m.Answer))
	}
	edns := new(dns.Msg)
	edns.SetQuestion("large.test.", dns.TypeA)
	edns.SetEdns0(4096, false)
	if m := b.exchange(t, "udp", NameServerIPv6, edns); len(m.Answer) != maxAnswer {
		t.Errorf("with EDNS: %d addresses", len(m.Answer))
	}
	chaos := new(dns.Msg)
	chaos.SetQuestion("version.bind.", dns.TypeTXT)
	chaos.Question[0].Qclass = dns.ClassCHAOS
	if m := b.exchange(t, "udp", NameServerIPv4, chaos); m.Rcode != dns.RcodeNotImplemented {
		t.Errorf("CHAOS: %v", m)
	}
	for _, junk := range [][]byte{nil, []byte("junk"), make([]byte, 12)} {
		if a := b.gateway.names.answer(junk, false); len(a) > 12 {
			t.Errorf("answer to %q: %q", junk, a)
		}
	}
}

// A sandbox can't ask for ever new names.
func TestDNSNames(t *testing.T) {
	newZone(t)
	b := newBox(t, nil, nil)
	for i := range policy.DefaultLimits().Names {
		b.gateway.names.cache.admit(fmt.Sprint(i))
	}
	if m := b.ask(t, "udp", "www.test", dns.TypeA); m.Rcode != dns.RcodeRefused {
		t.Errorf("got %v", m)
	}
	d := b.awaitDenial(t, func(d policy.Denial) bool { return d.Name == "www.test" })
	if d.Missing != "" || !strings.Contains(d.Reason, "network_limits.names") {
		t.Errorf("event: %+v", d)
	}
}

// If no resolver answers, an event says so. A resolver that fails has answered.
func TestSilentResolvers(t *testing.T) {
	newZone(t)
	silent, fails := netip.MustParseAddrPort(networktest.Public+":53"), netip.MustParseAddrPort(networktest.Resolver+":53")
	for _, tt := range []struct {
		resolvers []netip.AddrPort
		want      int
	}{{[]netip.AddrPort{silent, silent}, 1}, {[]netip.AddrPort{silent, fails}, 0}, {[]netip.AddrPort{fails, silent}, 0}} {
		b := newBox(t, []string{"*.test"}, nil, func(c *Config) { c.Resolvers = tt.resolvers })
		if m := b.ask(t, "udp", "other.test", dns.TypeA); m.Rcode != dns.RcodeServerFailure {
			t.Errorf("%v: %v", tt.resolvers, m)
		}
		b.gateway.Close()
		if len(b.denials) != tt.want || tt.want > 0 && (b.denials[0].Name != "other.test" || !strings.Contains(b.denials[0].Reason, "no name server answers")) {
			t.Errorf("%v: %+v", tt.resolvers, b.denials)
		}
	}
}

// Other resolvers are refused, and the name server has no other service.
func TestDNSOther(t *testing.T) {
	newZone(t)
	b := newBox(t, []string{"public:*", "public:*/udp"}, nil)
	for _, to := range []string{"udp " + networktest.Resolver + ":53", "tcp " + networktest.Resolver + ":53", "tcp " + networktest.Public + ":853", "udp 192.0.0.1:54", "tcp 192.0.0.1:443"} {
		network, address, _ := strings.Cut(to, " ")
		c, err := b.Dial(network, address)
		if err == nil {
			_, _ = c.Write([]byte("question"))
			_, err = c.Read(make([]byte, 1))
			c.Close()
		}
		if err == nil {
			t.Errorf("%s answers", to)
		}
		b.awaitDenial(t, func(d policy.Denial) bool { return d.To.String() == address && d.Protocol == network })
	}
}
