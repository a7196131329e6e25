package gateway

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/network/dial"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// Config describes a Gateway. Every field before Credentials but Resolvers is necessary.
type Config struct {
	TUN       *os.File // as sandbox.Link has it; New owns it, also after an error
	Rules     *policy.Rules
	Resolvers []netip.AddrPort // that the machine uses; without one, no name has an address
	Limits    policy.Limits
	Shared    *Shared     // the tenant's connections
	Sink      policy.Sink // called by one goroutine at a time; must not block
	// Credentials are added to the sandbox's requests; nil: none. Roots sign the certificates of the servers
	// that get a credential, and the proxy's certificate.
	Credentials *credential.Set
	Roots       *x509.CertPool
	Proxy       *dial.Proxy // nil: none
}

// A Gateway carries the packets of one sandbox.
type Gateway struct {
	rules    *policy.Rules
	names    *nameServer
	pins     *pins
	entries  *admission
	broker   *broker     // nil: no credentials
	relay    *dial.Relay // nil: no proxy
	report   *reporter
	throttle *throttle
	tun      *os.File
	link     *link
	taken    atomic.Uint64 // UDP packets that have left the stack's queues
	stack    *stack.Stack
	life     context.Context // ends with the Gateway
	end      context.CancelFunc

	entering sync.Mutex
	closed   bool           // enter admits no connection; guarded by entering
	sessions sync.WaitGroup // of connections, for their events

	closeTime time.Duration // bounds how long Close waits for connections to end
}

// nic is the number of the stack's only interface.
const nic tcpip.NICID = 1

// defaultCloseTime keeps a connection that does not end from holding up the end of its execution.
const defaultCloseTime = time.Second

// New carries packets from its return on.
func New(c Config) (*Gateway, error) {
	s, err := takeStack()
	if err != nil {
		return nil, errors.Join(err, c.TUN.Close())
	}
	g := &Gateway{
		rules: c.Rules.WithTranslators(&c.Shared.translators.Translators), pins: newPins(), entries: newAdmission(c.Limits, c.Shared), report: newReporter(c.Sink),
		throttle: newThrottle(), tun: c.TUN, stack: s, closeTime: defaultCloseTime,
	}
	g.life, g.end = context.WithCancel(context.Background())
	g.names = newNameServer(g, c.Resolvers)
	g.broker = newBroker(c.Credentials, c.Roots)
	if g.relay = dial.NewRelay(c.Proxy, c.Roots, c.Shared.ports.Dial); g.relay != nil {
		g.rules = g.rules.WithOwn(g.relay.Own())
	}
	g.link = newLink(c.TUN, g.refusePacket, func() { g.throttle.hold(g.life) })
	g.link.crowded = g.crowded
	if err := g.start(); err != nil {
		g.end()
		g.stack.Destroy()
		return nil, errors.Join(err, c.TUN.Close())
	}
	g.link.begin()
	return g, nil
}

// Close ends every connection. After it returns, the Gateway does not call the sink. The last close of a device takes the
// kernel about 20 ms, so another process should hold it open.
func (g *Gateway) Close() {
	g.end()
	// From here on enter admits nothing, so sessions only falls, and endSessions can wait for zero
	// (sync.WaitGroup: an Add at zero must come before Wait).
	g.entering.Lock()
	g.closed = true
	g.entering.Unlock()
	g.link.stop() // first, and wait: Destroy waits for the reader while it holds a lock that the reader needs
	g.endSessions()
	g.report.end()
	g.tun.Close()
	time.AfterFunc(destroyPause, g.stack.Destroy)
}

// destroyPause keeps the work of the end away from the answer of the execution, which is sent at the same time.
const destroyPause = 20 * time.Millisecond

// endSessions aborts the stack's connections until every session has reported its end. It repeats this,
// because a handshake can begin after the first round.
func (g *Gateway) endSessions() {
	ended := make(chan struct{})
	go func() { defer close(ended); g.sessions.Wait() }()
	late := time.After(g.closeTime)
	for {
		for _, e := range g.stack.RegisteredEndpoints() {
			e.Abort()
		}
		select {
		case <-ended:
			return
		case <-late:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// start gives the stack its interface. It answers for every address (promiscuous mode, spoofing), so that it can take the
// other end's part in each connection of the sandbox. The interface is enabled when all of this holds, and carries
// packets when the name server listens.
func (g *Gateway) start() error {
	g.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, g.attempts(int(g.entries.limits.Connections)+maxHandled))
	g.stack.SetTransportProtocolHandler(udp.ProtocolNumber, udp.NewForwarder(g.stack, g.udp).HandlePacket)
	// The interface takes packets for every address, and answers from it.
	err := g.stack.CreateNICWithOptions(nic, g.link, stack.NICOptions{Disabled: true})
	if err == nil {
		err = g.stack.SetPromiscuousMode(nic, true)
	}
	if err == nil {
		err = g.stack.SetSpoofing(nic, true)
	}
	if err == nil {
		err = g.stack.EnableNIC(nic)
	}
	if err != nil {
		return fmt.Errorf("network stack: %v", err)
	}
	return g.names.listen()
}

// setOptions sets the options of TCP, before the first connection. Sizes are bytes.
func setOptions(s *stack.Stack) tcpip.Error {
	// The stack scales windows for the largest buffer only if it chooses the sizes. See fixBuffers.
	sack, moderate := tcpip.TCPSACKEnabled(true), tcpip.TCPModerateReceiveBufferOption(true)
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4096, Default: smallWindow, Max: largeWindow}
	send := tcpip.TCPSendBufferSizeRangeOption{Min: 4096, Default: smallSend, Max: smallSend}
	// A forwarder has no listener, so a source port that comes again would meet the old
	// connection in TIME_WAIT, and wait for its 60 seconds.
	wait := tcpip.TCPTimeWaitTimeoutOption(time.Millisecond)
	for _, option := range []tcpip.SettableTransportProtocolOption{&sack, &moderate, &receive, &send, &wait} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, option); err != nil {
			return err
		}
	}
	return nil
}

// destination is where a connection of the sandbox goes: the stack's local end.
func destination(id stack.TransportEndpointID) netip.AddrPort {
	a, _ := netip.AddrFromSlice(id.LocalAddress.AsSlice())
	return netip.AddrPortFrom(a, id.LocalPort)
}

func isNameServer(a netip.Addr) bool { return a == NameServerIPv4 || a == NameServerIPv6 }
