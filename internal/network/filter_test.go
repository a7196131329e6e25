package network

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/skillrun/skillrun/internal/network/networktest"
)

// serveAll answers by every protocol that a helper speaks: TCP, UDP, and DNS by both.
func serveAll(t *testing.T) {
	t.Helper()
	serveEcho(t)
	six, err := net.Listen("tcp", "["+networktest.Public6+"]:7000")
	if err != nil {
		t.Fatal(err)
	}
	packets, err := net.ListenPacket("udp", networktest.Public+":7000")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := six.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(c, c)
			c.Close()
		}
	})
	all.Go(func() {
		b := make([]byte, 1500)
		for {
			n, from, err := packets.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = packets.WriteTo(b[:n], from)
		}
	})
	udp, err := net.ListenPacket("udp", networktest.Resolver+":53")
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", networktest.Resolver+":53")
	if err != nil {
		t.Fatal(err)
	}
	answer := func(truncated bool) dns.HandlerFunc {
		return func(w dns.ResponseWriter, q *dns.Msg) {
			a := new(dns.Msg).SetReply(q)
			if a.Truncated = truncated; !truncated {
				record, _ := dns.NewRR(q.Question[0].Name + " 60 IN A 20.9.9.9")
				a.Answer = append(a.Answer, record)
			}
			_ = w.WriteMsg(a)
		}
	}
	servers := []*dns.Server{{PacketConn: udp, Handler: answer(true)}, {Listener: tcp, Handler: answer(false)}}
	for _, s := range servers {
		all.Go(func() { _ = s.ActivateAndServe() })
	}
	t.Cleanup(func() { six.Close(); packets.Close(); udp.Close(); tcp.Close(); all.Wait() })
}

// A helper inside its filter carries every protocol: the filter refuses nothing that a gateway needs.
func TestFilterAllowsAllProtocols(t *testing.T) {
	serveAll(t)
	m := newManager(t, func(c *Config) {
		c.Resolvers = []netip.AddrPort{netip.MustParseAddrPort(networktest.Resolver + ":53")}
	})
	b, l := link(t, m, "a", "20.1.0.1:*", "20.1.0.1:*/udp", "[2600::1]:*", "*.example.com")
	if err := b.network.Attach(context.Background(), l); err != nil {
		t.Fatal(err)
	}
	defer b.network.Detach()
	for _, to := range [][2]string{{"tcp", echoAddress}, {"udp", echoAddress}, {"tcp", "[" + networktest.Public6 + "]:7000"}} {
		c, err := b.Dial(to[0], to[1])
		if err != nil {
			t.Fatal(to, err)
		}
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err := c.Write([]byte("x")); err != nil {
			t.Error(to, err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Error(to, err)
		}
		c.Close()
	}
	for _, transport := range []string{"udp", "tcp"} {
		b.Do(func() {
			q := new(dns.Msg).SetQuestion("a.example.com.", dns.TypeA)
			a, _, err := (&dns.Client{Net: transport, Timeout: 30 * time.Second}).Exchange(q, "192.0.0.1:53")
			if err != nil || len(a.Answer) != 1 {
				t.Errorf("DNS by %s: %v, %v", transport, a, err)
			}
		})
	}
	if s := m.Stats(); s.Deaths > 0 {
		t.Errorf("%+v", s)
	}
}
