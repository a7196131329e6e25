package gateway

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/skillrun/skillrun/internal/network/policy"
)

// A nameServer answers the sandbox's DNS questions. It forwards no packet: it parses the question,
// asks the resolver a new one, and writes a new answer that has only addresses. So neither the
// question nor the answer carries other data.
type nameServer struct {
	gateway   *Gateway
	resolvers []netip.AddrPort
	cache     *cache
	queries   chan struct{} // has an element for each query that runs
}

func newNameServer(g *Gateway, resolvers []netip.AddrPort) *nameServer {
	return &nameServer{gateway: g, resolvers: resolvers, cache: newCache(g.entries.limits), queries: make(chan struct{}, maxQueries)}
}

const (
	largestQuery = 4096 // bytes; a question has at most 300
	oldAnswer    = 512  // bytes of an answer by UDP for a client without EDNS (RFC 1035)
	idleTCP      = 10 * time.Second
)

// listen opens port 53 for UDP on both addresses of the name server. TCP queries come to serveTCP by the forwarder.
func (n *nameServer) listen() error {
	for _, a := range []netip.Addr{NameServerIPv4, NameServerIPv6} {
		protocol := header.IPv4ProtocolNumber
		if a.Is6() {
			protocol = header.IPv6ProtocolNumber
		}
		local := tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFromSlice(a.AsSlice()), Port: 53}
		conn, err := gonet.DialUDP(n.gateway.stack, &local, nil, protocol)
		if err != nil {
			return err
		}
		go n.serveUDP(conn)
	}
	return nil
}

// serveUDP ends with the Gateway. Queries beyond the bound get no answer: programs ask again.
func (n *nameServer) serveUDP(conn *gonet.UDPConn) {
	stop := context.AfterFunc(n.gateway.life, func() { conn.Close() })
	defer stop()
	b := make([]byte, largestQuery)
	for {
		size, from, err := conn.ReadFrom(b)
		if err != nil {
			return
		}
		n.gateway.taken.Add(1)
		// Every packet counts, also one that gets no answer. serveUDP never waits for the throttle; the link stops
		// reading instead.
		n.gateway.throttle.charge(1)
		query := append([]byte(nil), b[:size]...) // the next read overwrites b
		select {
		case n.queries <- struct{}{}:
		default:
			continue
		}
		go func() {
			defer func() { <-n.queries }()
			if answer := n.answer(query, false); answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}()
	}
}

// serveTCP answers the queries of one connection, one after the other. Beyond the bound a query waits, because a client
// does not send a query over TCP again.
func (n *nameServer) serveTCP(c net.Conn) {
	conn := &dns.Conn{Conn: c}
	stop := context.AfterFunc(n.gateway.life, func() { c.Close() })
	defer stop()
	for {
		_ = c.SetDeadline(time.Now().Add(idleTCP))
		query, err := conn.ReadMsgHeader(nil)
		if err != nil {
			return
		}
		n.gateway.throttle.charge(1)
		select {
		case n.queries <- struct{}{}:
		case <-n.gateway.life.Done():
			return
		}
		answer := n.answer(query, true)
		<-n.queries
		if answer == nil {
			return
		}
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

// answer returns the answer to a query. Nil: the packet is not a query, and gets no answer.
func (n *nameServer) answer(query []byte, tcp bool) []byte {
	var m dns.Msg
	if m.Unpack(query) != nil || m.Response {
		return nil
	}
	reply := new(dns.Msg)
	reply.SetReply(&m)
	reply.RecursionAvailable = true
	if m.Opcode != dns.OpcodeQuery || len(m.Question) != 1 || m.Question[0].Qclass != dns.ClassINET {
		// Programs ask one question of class IN. Other forms exist in the standard only (RFC 1035, 4.1.2 and RFC
		// 9619).
		reply.Rcode = dns.RcodeNotImplemented
	} else {
		n.fill(reply, m.Question[0])
	}
	if !tcp {
		// Truncate sets the bit TC if it removes addresses. The client then asks again over TCP.
		reply.Truncate(answerSize(&m))
	}
	b, err := reply.Pack()
	if err != nil {
		return nil
	}
	return b
}

// answerSize is the most bytes that the client of a query takes by UDP.
func answerSize(m *dns.Msg) int {
	if opt := m.IsEdns0(); opt != nil {
		return min(max(int(opt.UDPSize()), oldAnswer), largestQuery)
	}
	return oldAnswer
}

// fill answers a question, if the rules allow its name.
func (n *nameServer) fill(reply *dns.Msg, q dns.Question) {
	name := policy.NormalName(q.Name)
	v := n.gateway.rules.Name(name)
	switch {
	case !v.Allowed:
		n.refuse(reply, name, v)
	case q.Qtype == dns.TypeHTTPS || q.Qtype == dns.TypeSVCB:
		// Browsers and curl ask for these first. No answer means: go on without.
	case q.Qtype != dns.TypeA && q.Qtype != dns.TypeAAAA:
		n.refuse(reply, name, policy.Verdict{Reason: "only addresses are resolved, not " + dns.Type(q.Qtype).String()})
	default:
		n.resolve(reply, name, q.Qtype)
	}
}

func (n *nameServer) refuse(reply *dns.Msg, name string, v policy.Verdict) {
	reply.Rcode = dns.RcodeRefused
	n.gateway.report.denied(policy.Denial{Protocol: "dns", Name: name, Reason: v.Reason, Rule: v.Rule, Missing: v.Missing})
}

// resolve answers from the cache or asks a resolver, and pins the addresses to the name.
func (n *nameServer) resolve(reply *dns.Msg, name string, kind uint16) {
	found, ok := n.cache.get(name, kind)
	if !ok {
		if reached := n.cache.admit(name); reached != "" {
			n.refuse(reply, name, policy.Verdict{Reason: reached})
			return
		}
		if n.gateway.relay.Resolves(name) {
			found = n.stand(name, kind)
		} else {
			found = n.ask(name, kind)
			if kind == dns.TypeAAAA {
				n.learnTranslators()
			}
			found = n.judged(name, found)
		}
		n.cache.put(name, kind, found)
	}
	if reply.Rcode = found.code; len(found.addresses) == 0 {
		return
	}
	// The pin lives as long as the program may use the answer, so that it can dial until then.
	ttl := found.rest()
	if !n.gateway.pins.add(name, found.addresses, ttl, n.gateway.rules.DeniesSome(name)) {
		n.refuse(reply, name, policy.Verdict{Reason: "more addresses than an execution may resolve"})
		return
	}
	for _, a := range found.addresses {
		reply.Answer = append(reply.Answer, record(reply.Question[0].Name, a, ttl))
	}
}

// stand answers with the address that stands for a name which only the proxy looks up. It is an IPv4 address, so
// the name has no address of IPv6.
func (n *nameServer) stand(name string, kind uint16) resolved {
	found := resolved{code: dns.RcodeSuccess, ends: time.Now().Add(largestTTL)}
	if a, ok := n.gateway.relay.Stand(name); ok && kind == dns.TypeA {
		found.addresses = []netip.Addr{a}
	}
	return found
}

// judged removes addresses that the rules do not allow for the name, such as private ones. So a name
// never leads into a network that no rule opens.
func (n *nameServer) judged(name string, found resolved) resolved {
	kept := found.addresses[:0:0]
	for _, a := range found.addresses {
		v := n.gateway.rules.Answer(name, a)
		if v.Allowed {
			kept = append(kept, a)
			continue
		}
		n.gateway.report.denied(policy.Denial{Protocol: "dns", To: netip.AddrPortFrom(a, 0), Name: name, Reason: v.Reason, Rule: v.Rule, Missing: v.Missing})
	}
	found.addresses = kept
	return found
}

func record(name string, a netip.Addr, ttl time.Duration) dns.RR {
	h := dns.RR_Header{Name: name, Class: dns.ClassINET, Ttl: uint32(ttl / time.Second)}
	if a.Is4() {
		h.Rrtype = dns.TypeA
		return &dns.A{Hdr: h, A: a.AsSlice()}
	}
	h.Rrtype = dns.TypeAAAA
	return &dns.AAAA{Hdr: h, AAAA: a.AsSlice()}
}
