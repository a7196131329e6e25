package helper

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/network/gateway"
	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/internal/network/wire"
)

// Run is the program. It serves its Manager until the Manager closes the socket. version is the program's; Run serves no
// Manager of another version. It returns the exit code of the process.
func Run(version string) int {
	time.Local = time.UTC // or the first time that is written would look for a file
	h := &helper{socket: wire.NewSocket(os.NewFile(wire.ManagerFD, "manager")), networks: map[uint64]*carried{}}
	h.queue = newQueue(h.socket)
	if err := h.begin(version); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go h.queue.run()
	for {
		var r wire.Request
		device, err := h.socket.Receive(&r)
		// The Manager has ended, or wants this helper to end. The process's end closes all connections.
		if errors.Is(err, os.ErrClosed) {
			return 0
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "a request:", err)
			return 1
		}
		// One request after the other: handle changes the helper's maps without a lock.
		h.handle(r, device)
	}
}

// A helper has the networks of one tenant.
type helper struct {
	socket   *wire.Socket
	queue    *queue
	shared   *gateway.Shared
	own      policy.Own     // for all networks
	reading  uint64         // of own; 0: none came
	roots    *x509.CertPool // authorities of the machine; nil: no request for trust came
	networks map[uint64]*carried
}

// carried is a network in the helper.
type carried struct {
	*gateway.Gateway
	sink *sink
}

// begin handles the first request: the helper confines itself before it takes any device.
func (h *helper) begin(version string) error {
	var text json.RawMessage
	if _, err := h.socket.Receive(&text); err != nil {
		return fmt.Errorf("the first request: %w; skillrund starts this program, and it does nothing for others", err)
	}
	unix.Close(wire.ProgramFD)
	// The version first: the other fields may have other types in another version.
	var daemon struct{ Version string }
	if err := json.Unmarshal(text, &daemon); err != nil {
		return fmt.Errorf("the first request: %w", err)
	}
	if daemon.Version != version {
		return fmt.Errorf("%s is version %s, but the daemon is version %s; install both from the same release", wire.Program, version, daemon.Version)
	}
	var r wire.Request
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("the first request: %w", err)
	}
	if r.Kind != wire.Start || r.Tenant == nil {
		return fmt.Errorf("the first request is %q", r.Kind)
	}
	if err := confine(r.ID); err != nil {
		return fmt.Errorf("confine the network helper: %w", err)
	}
	h.shared = gateway.NewShared(*r.Tenant, r.Ports)
	h.queue.push(wire.Report{Kind: wire.Reply, Number: r.Number})
	return nil
}

// handle answers one request. An unknown kind has an empty answer: Manager and helper are always of the same version.
func (h *helper) handle(r wire.Request, device *os.File) {
	answer := wire.Report{Kind: wire.Reply, Number: r.Number}
	switch r.Kind {
	case wire.Attach:
		if err := h.attach(r, device); err != nil {
			answer.Error = err.Error()
		}
	case wire.Addresses:
		if r.Reading > h.reading {
			h.own.Set(r.Own)
			h.reading = r.Reading
		}
	case wire.Trust:
		h.trust(r.Roots)
	case wire.Detach:
		h.detach(r.Network, answer)
		return
	}
	h.queue.push(answer)
}

// trust adds authorities. One that can't be parsed is left out, as crypto/x509 does with the files of the
// machine.
func (h *helper) trust(roots [][]byte) {
	if h.roots == nil {
		h.roots = x509.NewCertPool()
	}
	for _, der := range roots {
		if c, err := x509.ParseCertificate(der); err == nil {
			h.roots.AddCert(c)
		}
	}
}

// attach takes over the device, also if it fails.
func (h *helper) attach(r wire.Request, device *os.File) error {
	if device == nil {
		return errors.New("the request has no device")
	}
	// The rules come as text and are parsed again here. Only the Manager sends them, and it has parsed the same text.
	rules, err := policy.Parse(policy.Config{Allow: r.Allow, Deny: r.Deny})
	if err != nil || h.networks[r.Network] != nil {
		return errors.Join(err, device.Close())
	}
	if h.reading == 0 { // its rules would allow the machine's addresses
		return errors.Join(errors.New("the machine's addresses did not come"), device.Close())
	}
	s := &sink{network: r.Network, queue: h.queue}
	// New owns the device from here on, also after an error.
	g, err := gateway.New(gateway.Config{TUN: device, Rules: rules.WithOwn(&h.own), Resolvers: r.Resolvers, Limits: r.Limits, Shared: h.shared, Sink: s,
		Credentials: r.Credentials, Roots: h.roots, Proxy: r.Proxy})
	if err != nil {
		return err
	}
	h.networks[r.Network] = &carried{g, s}
	return nil
}

// detach ends a network. Its last events are in the queue before the reply is. Other requests do not
// wait for it.
func (h *helper) detach(network uint64, answer wire.Report) {
	n := h.networks[network]
	delete(h.networks, network)
	go func() {
		if n != nil {
			n.Close()
			n.sink.flush()
		}
		h.queue.push(answer)
	}()
}

// maxEvents bounds the events of all networks that wait for a slow Manager.
const maxEvents = 1024

// eventPause is how long an event waits for others. A program that opens one connection after the other would otherwise
// share the processors with a daemon that wakes for each.
const eventPause = 10 * time.Millisecond

// A queue has the packets that wait for the socket, so that no network waits for the Manager.
type queue struct {
	mu      sync.Mutex
	due     *sync.Cond
	isDue   bool // the packets are to be sent now
	socket  *wire.Socket
	packets []wire.Report
}

func newQueue(s *wire.Socket) *queue {
	q := &queue{socket: s}
	q.due = sync.NewCond(&q.mu)
	return q
}

// push appends a packet. For an event beyond the bound, the result is false. There are as many
// replies as requests, so they need no bound.
func (q *queue) push(r wire.Report) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	event := r.Kind == wire.Denied || r.Kind == wire.Closed
	if event && len(q.packets) >= maxEvents {
		return false
	}
	q.packets = append(q.packets, r)
	switch {
	case !event || len(q.packets) >= maxEvents/2: // the Manager waits for a reply
		q.send()
	case len(q.packets) == 1:
		time.AfterFunc(eventPause, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.send()
		})
	}
	return true
}

// send has run send all packets. The caller holds mu.
func (q *queue) send() {
	q.isDue = true
	q.due.Signal()
}

// run sends until the process ends. When the Manager is gone, Run ends it.
func (q *queue) run() {
	for {
		q.mu.Lock()
		for !q.isDue {
			q.due.Wait()
		}
		// All waiting packets at once: send may block, and must not hold the lock while it does.
		packets := q.packets
		q.packets, q.isDue = nil, false
		q.mu.Unlock()
		for _, p := range packets {
			err := q.socket.Send(p, -1)
			// A name or a reason is too long for a packet. The event then counts without its text.
			if errors.Is(err, wire.ErrLong) {
				err = q.socket.Send(p.WithoutText(), -1)
			}
			if err != nil {
				return
			}
		}
	}
}

// A sink is the policy.Sink of a network in the helper.
type sink struct {
	network uint64 // its number, from the Manager
	queue   *queue
	mu      sync.Mutex
	lost    policy.Dropped // events that the Gateway only counted, or that the queue had no room for
}

func (s *sink) Denied(d policy.Denial) {
	if !s.queue.push(wire.Report{Kind: wire.Denied, Network: s.network, Denial: &d}) {
		s.Dropped(policy.Dropped{Denials: 1})
	}
}

func (s *sink) Closed(c policy.Connection) {
	if !s.queue.push(wire.Report{Kind: wire.Closed, Network: s.network, Connection: &c}) {
		s.Dropped(c.Dropped())
	}
}

// Dropped only counts: one packet at the end has the sums.
func (s *sink) Dropped(d policy.Dropped) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost.Add(d)
}

// flush queues the sums of Dropped. It comes after the Gateway's end, so that no event follows.
func (s *sink) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost != (policy.Dropped{}) {
		s.queue.push(wire.Report{Kind: wire.Dropped, Network: s.network, Dropped: &s.lost})
	}
}
