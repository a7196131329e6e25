package gateway

import (
	"errors"
	"fmt"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"github.com/skillrun/skillrun/internal/network/policy"
)

// attempts returns the stack's handler for packets that belong to no connection. The handler calls tcp for each
// connection attempt, and for at most most attempts at a time. The stack silently drops further attempts, so a client
// would wait and try again. The handler refuses them instead.
func (g *Gateway) attempts(most int) func(stack.TransportEndpointID, *stack.PacketBuffer) bool {
	f := tcp.NewForwarder(g.stack, smallWindow, most, g.tcp)
	drops := g.stack.Stats().TCP.ForwardMaxInFlightDrop
	return func(id stack.TransportEndpointID, p *stack.PacketBuffer) bool {
		before := drops.Value() // only the link's reader calls this
		handled := f.HandlePacket(id, p)
		if drops.Value() == before {
			return handled
		}
		g.deny(decision{protocol: policy.TCP, to: destination(id)}.refuse(policy.Verdict{Reason: fmt.Sprintf("more than %d connection attempts at once", most)}))
		return false // a reset
	}
}

// tcp handles one connection attempt. The stack calls it in a new goroutine.
func (g *Gateway) tcp(r *tcp.ForwarderRequest) {
	to := destination(r.ID())
	if isNameServer(to.Addr()) {
		g.tcpNameServer(r)
		return
	}
	if to.Addr().Is6() {
		g.names.learnTranslators()
	}
	d := g.judge(policy.TCP, to)
	if d.allowed {
		if reached := g.enter(); reached != "" {
			d = d.refuse(policy.Verdict{Reason: reached})
		}
	}
	if !d.allowed {
		g.deny(d)        // first: after the reset the program may end, and the network with it
		r.Complete(true) // a reset
		return
	}
	c := g.open(r, d)
	if c == nil {
		g.leave()
		return
	}
	// In a new goroutine: the stack of this one has grown while it opened the connection, and would stay so until the end.
	go func() {
		defer g.leave()
		c.run()
	}()
}

// closing is the reason of a refusal while the Gateway closes. Such refusals are not reported as events.
const closing = "the network of the execution ends"

// enter admits one connection, which ends with leave. Close waits for it.
func (g *Gateway) enter() (reached string) {
	g.entering.Lock()
	if g.closed { // Close waits already, or has waited
		g.entering.Unlock()
		return closing
	}
	g.sessions.Add(1)
	g.entering.Unlock()
	if reached = g.entries.enter(); reached != "" {
		g.sessions.Done()
	}
	return reached
}

func (g *Gateway) leave() {
	g.entries.leave()
	g.sessions.Done()
}

// open dials first: if the destination refuses, the program sees that it refuses. Nil: the dial failed, and the
// program has its answer.
func (g *Gateway) open(r *tcp.ForwarderRequest, d decision) *connection {
	start := time.Now()
	out, err := g.dial(g.life, d)
	if err != nil {
		g.missed(start, d, err) // before the reset: the program may end at once after it, and the event would be late
		r.Complete(true)
		return nil
	}
	c, err := accept(r)
	if err != nil {
		out.Reset() // the client has not ended its data
		// The destination has seen the connection, so it counts.
		g.report.closed(d.connection(start, policy.Connection{Error: "the program ended the connection"}))
		return nil
	}
	c.gateway, c.decision, c.out, c.start = g, d, out, start
	return c
}

var errHandshake = errors.New("the client did not complete the handshake")

// accept completes the handshake with the client.
func accept(r *tcp.ForwarderRequest) (*connection, error) {
	c := &connection{answered: make(chan struct{})}
	// CreateEndpoint answers the client's SYN and waits for its ACK. Complete(false) ends the attempt without a reset.
	ep, err := r.CreateEndpoint(&c.queue)
	r.Complete(false)
	if err != nil {
		return nil, errHandshake
	}
	fixBuffers(ep, smallSend, smallWindow)
	c.endpoint, c.in = ep, &client{TCPConn: gonet.NewTCPConn(&c.queue, ep)}
	return c, nil
}

// tcpNameServer serves DNS over TCP. The name server has no other port.
func (g *Gateway) tcpNameServer(r *tcp.ForwarderRequest) {
	to := destination(r.ID())
	reached := ""
	if to.Port() != 53 {
		reached = "the name server answers on port 53 only"
	} else {
		reached = g.enter()
	}
	if reached != "" {
		g.deny(decision{protocol: policy.TCP, to: to}.refuse(policy.Verdict{Reason: reached}))
		r.Complete(true)
		return
	}
	defer g.leave()
	c, err := accept(r)
	if err != nil {
		return
	}
	g.names.serveTCP(c.in)
	c.in.Close()
}
