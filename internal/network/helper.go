package network

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/skillrun/skillrun/internal/network/gateway"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// HelperArg is the argument that makes the daemon's program a helper.
const HelperArg = "skillrun-network"

// managerFD is the helper's socket: the first of exec.Cmd's ExtraFiles.
const managerFD = 3

// Helper runs a helper until its Manager closes the socket. It returns the exit code of the process.
func Helper() int {
	time.Local = time.UTC // or the first time that is written would look for a file
	h := &helper{socket: newSocket(os.NewFile(managerFD, "manager")), networks: map[uint64]*carried{}}
	h.queue = newQueue(h.socket)
	if err := h.begin(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go h.queue.run()
	for {
		var r request
		device, err := h.socket.receive(&r)
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
	socket   *socket
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
func (h *helper) begin() error {
	var r request
	if _, err := h.socket.receive(&r); err != nil {
		return fmt.Errorf("the first request: %w", err)
	}
	if r.Kind != start || r.Tenant == nil {
		return fmt.Errorf("the first request is %q", r.Kind)
	}
	if err := confine(r.ID); err != nil {
		return fmt.Errorf("confine the network helper: %w", err)
	}
	h.shared = gateway.NewShared(*r.Tenant)
	h.queue.push(report{Kind: reply, Number: r.Number})
	return nil
}

// handle answers one request. An unknown kind has an empty answer: Manager and helper are always the same program.
func (h *helper) handle(r request, device *os.File) {
	answer := report{Kind: reply, Number: r.Number}
	switch r.Kind {
	case attach:
		if err := h.attach(r, device); err != nil {
			answer.Error = err.Error()
		}
	case addresses:
		if r.Reading > h.reading {
			h.own.Set(r.Own)
			h.reading = r.Reading
		}
	case trust:
		h.trust(r.Roots)
	case detach:
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
func (h *helper) attach(r request, device *os.File) error {
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
func (h *helper) detach(network uint64, answer report) {
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
	socket  *socket
	packets []report
}

func newQueue(s *socket) *queue {
	q := &queue{socket: s}
	q.due = sync.NewCond(&q.mu)
	return q
}

// push appends a packet. For an event beyond the bound, the result is false. There are as many
// replies as requests, so they need no bound.
func (q *queue) push(r report) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	event := r.Kind == denied || r.Kind == closed
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

// run sends until the process ends. When the Manager is gone, Helper ends it.
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
			err := q.socket.send(p, -1)
			// A name or a reason is too long for a packet. The event then counts without its text.
			if errors.Is(err, errLong) {
				err = q.socket.send(p.withoutText(), -1)
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
	lost    [2]int64 // denials and connections that the queue had no room for
}

func (s *sink) Denied(d policy.Denial) {
	if !s.queue.push(report{Kind: denied, Network: s.network, Denial: &d}) {
		s.Dropped(1, 0)
	}
}

func (s *sink) Closed(c policy.Connection) {
	if !s.queue.push(report{Kind: closed, Network: s.network, Connection: &c}) {
		s.Dropped(0, 1)
	}
}

// Dropped only counts: one packet at the end has the sums.
func (s *sink) Dropped(denials, connections int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost[0] += denials
	s.lost[1] += connections
}

// flush queues the sums of Dropped. It comes after the Gateway's end, so that no event follows.
func (s *sink) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost != [2]int64{} {
		s.queue.push(report{Kind: dropped, Network: s.network, Denials: s.lost[0], Connections: s.lost[1]})
	}
}
