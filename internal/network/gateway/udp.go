package gateway

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/skillrun/skillrun/internal/network/dial"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// udp handles the first packet from one port of the sandbox to one destination. The result false
// makes the stack answer with an ICMP error. The link's reader calls it, so it does not block.
func (g *Gateway) udp(r *udp.ForwarderRequest) bool {
	to := destination(r.ID())
	d := decision{protocol: policy.UDP, to: to}
	if isNameServer(to.Addr()) {
		d = d.refuse(policy.Verdict{Reason: "the name server answers on port 53 only"})
	} else {
		d = g.judge(policy.UDP, to)
	}
	if d.allowed {
		if reached := g.enter(); reached != "" {
			d = d.refuse(policy.Verdict{Reason: reached})
		}
	}
	if !d.allowed {
		g.deny(d)
		return false
	}
	s := &session{gateway: g, decision: d, start: time.Now()}
	ep, err := r.CreateEndpoint(&s.queue)
	if err != nil {
		g.leave()
		return false
	}
	ep.SocketOptions().SetReceiveBufferSize(sessionBuffer, false)
	s.endpoint, s.in = ep, gonet.NewUDPConn(&s.queue, ep)
	go s.run()
	return true
}

// A session copies packets between one port of the sandbox and one destination. UDP has no connections, so a session
// counts as one in limits and events.
type session struct {
	gateway  *Gateway
	decision decision
	start    time.Time
	queue    waiter.Queue   // wakes send when a packet has come from the sandbox
	endpoint tcpip.Endpoint // the stack's end, under in
	in       *gonet.UDPConn // to and from the sandbox
	out      net.Conn       // to and from the destination

	sent, received atomic.Int64
	activity       activity
	taken          uint64 // packets that send has read
}

// crowded reports whether so many UDP packets of the sandbox wait in the stack that the next one is dropped. The stack
// itself bounds only their bytes, for each session.
func (g *Gateway) crowded() bool {
	udp := g.stack.Stats().UDP
	// g.taken comes first: it never has a packet that PacketsReceived does not have.
	taken := g.taken.Load()
	return int64(udp.PacketsReceived.Value()-udp.ReceiveBufferErrors.Value()-taken) >= maxWaiting
}

// closeIn closes the sandbox's side. Packets that nothing has read wait no longer.
func (s *session) closeIn() {
	s.in.Close()
	stats, ok := s.endpoint.Stats().(*tcpip.TransportEndpointStats)
	if !ok {
		return
	}
	dropped := stats.ReceiveErrors.ReceiveBufferOverflow.Value() + stats.ReceiveErrors.ClosedReceiver.Value()
	s.gateway.taken.Add(stats.PacketsReceived.Value() - dropped - s.taken)
}

// run copies in both directions. It ends after an error on either side, or after limits.IdleUDP without a packet: no
// packet says that a UDP exchange is over.
func (s *session) run() {
	g := s.gateway
	defer g.leave()
	defer s.closeIn()
	if s.decision.to.Addr().Is6() { // udp could not wait for a resolver
		g.names.learnTranslators()
		if d := g.judge(policy.UDP, s.decision.to); !d.allowed {
			g.deny(d)
			return
		}
	}
	ctx, cancel := context.WithTimeout(g.life, g.entries.limits.Dial)
	out, err := g.entries.tenant.ports.Dial(ctx, "udp", s.decision.to.String())
	cancel()
	if err != nil {
		if reason := dial.Fault(err); reason != "" {
			g.deny(s.decision.refuse(policy.Verdict{Reason: reason}))
		}
		g.missed(s.start, s.decision, err)
		return
	}
	s.out = out
	// Closing both sides ends the reads of send and receive.
	end := func() { s.in.Close(); out.Close() }
	stop := s.activity.watch(g.life, g.entries.limits.IdleUDP, end)
	received := make(chan struct{})
	go func() {
		defer close(received)
		s.receive()
		end()
	}()
	s.send()
	end()
	<-received
	stop()
	g.report.closed(policy.Connection{Start: s.start, Took: time.Since(s.start), Protocol: "udp", To: s.decision.to,
		Name: s.decision.name, Names: s.decision.likely, Sent: s.sent.Load(), Received: s.received.Load()})
}

// send copies the sandbox's packets until a read fails. It takes a buffer only when a packet has come, so that idle
// sessions hold no memory.
func (s *session) send() {
	entry, ready := waiter.NewChannelEntry(waiter.ReadableEvents)
	s.queue.EventRegister(&entry)
	defer s.queue.EventUnregister(&entry)
	for {
		for s.endpoint.Readiness(waiter.ReadableEvents) == 0 { // a closed endpoint counts as readable, so the loop ends
			<-ready
		}
		b := readBuffers.Get().(*[vnetHeader + largestRead]byte)
		n, err := s.in.Read(b[:])
		if err == nil {
			s.taken++
			s.gateway.taken.Add(1)
		}
		ok := err == nil && s.pass(s.out, b[:n], &s.sent)
		readBuffers.Put(b)
		if !ok {
			return
		}
	}
}

// receive copies the destination's packets until a read fails. readPacket, too, holds a buffer only while a packet is
// there.
func (s *session) receive() {
	conn, err := s.out.(*net.UDPConn).SyscallConn()
	for ok := true; ok && err == nil; {
		err = readPacket(conn, func(b []byte) { ok = s.pass(s.in, b, &s.received) })
	}
}

// pass counts a packet and writes it. It returns false if a limit is reached or the Gateway has ended. A packet that
// can't be written is lost, which UDP permits.
func (s *session) pass(to net.Conn, b []byte, sum *atomic.Int64) bool {
	if !s.gateway.entries.count(len(b)) {
		s.gateway.deny(s.decision.refuse(policy.Verdict{Reason: s.gateway.entries.bytesReason()}))
		return false
	}
	if s.gateway.entries.tenant.carry(s.gateway.life, len(b)) != nil {
		return false
	}
	s.activity.note()
	if _, err := to.Write(b); err == nil {
		sum.Add(int64(len(b)))
	}
	return true
}
