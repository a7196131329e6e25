package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/sandbox"
)

// A Network is the network of one sandbox. It implements sandbox.Network.
//
// Attach, with the program's first packet, and Detach are its three steps. No helper has the network before the first
// packet: a helper takes longer for a network than package sandbox takes for a start, and many programs send nothing.
type Network struct {
	manager   *Manager
	name      string // of the tenant
	execution string
	rules     *policy.Rules
	secrets   *credential.Set // nil: no credentials
	sink      policy.Sink
	late      bool // opened after the tenant's removal

	// Set by Attach. A second helper needs them, too.
	tenant  *tenant
	number  uint64
	cut     func() error
	request request            // asks a helper to carry the network
	life    context.Context    // ends with Detach
	end     context.CancelFunc // ends life
	packets *os.File           // a copy of device, closed after the first packet
	begun   chan struct{}      // closed after the first packet, when a helper carries the network; or after packets
	mu      sync.Mutex         // held while a helper attaches or detaches the network
	device  *os.File           // nil: not attached, or detached
}

// Attach returns when the tenant's helper is ready to carry the sandbox's packets from the first one on.
func (n *Network) Attach(ctx context.Context, l sandbox.Link) error {
	if n.late {
		// Attach owns the device from its call on, so it closes it here.
		l.TUN.Close()
		return fmt.Errorf("network of tenant %s: %w", n.name, ErrRemoved)
	}
	n.device, n.cut = l.TUN, l.Cut
	n.tenant = n.manager.join(n)
	if err := n.tenant.attach(ctx, n); err != nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.close()
		return fmt.Errorf("network of tenant %s: %w", n.name, err)
	}
	return nil
}

// Detach returns after the last event of the network.
func (n *Network) Detach() {
	if n.begun != nil { // attached
		n.endBegin()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.device != nil {
		n.tenant.detach(n)
		n.close()
	}
}

// endBegin ends begin. If the program has sent a packet, a helper reads it first, so that a refusal is reported; a
// helper that is not ready within DetachTime is not waited for.
func (n *Network) endBegin() {
	late := time.AfterFunc(n.manager.config.DetachTime, func() { n.end(); n.packets.Close() })
	n.mu.Lock()
	idle := n.device == nil || !hasPacket(n.device)
	n.mu.Unlock()
	if idle {
		n.packets.Close()
	}
	<-n.begun
	late.Stop()
	n.end()
}

// begin waits for the first packet, and has a helper carry the network from then on.
func (n *Network) begin() {
	defer close(n.begun)
	conn, err := n.packets.SyscallConn()
	if err == nil {
		err = conn.Read(isReadable)
	}
	// Else each further packet would wake this process, too.
	n.packets.Close()
	if err == nil { // else Detach has closed it
		n.tenant.carryFirst(n)
	}
}

// copyDevice sets packets. The copy is in the poller of the Go runtime; the device is not.
func (n *Network) copyDevice() error {
	conn, err := n.device.SyscallConn()
	if err != nil {
		return err
	}
	var fd int
	var copyErr error
	err = conn.Control(func(device uintptr) { fd, copyErr = unix.FcntlInt(device, unix.F_DUPFD_CLOEXEC, 0) })
	if err := errors.Join(err, copyErr); err != nil {
		return err
	}
	n.packets = os.NewFile(uintptr(fd), n.device.Name())
	return nil
}

// hasPacket reports whether a packet of the program waits in a device.
func hasPacket(device *os.File) (has bool) {
	conn, err := device.SyscallConn()
	return err == nil && conn.Control(func(fd uintptr) { has = isReadable(fd) }) == nil && has
}

func isReadable(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} // #nosec G115 -- a descriptor is an int32
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents&unix.POLLIN != 0
}

// close gives the device to the goroutine that closes devices, or closes it if that one is busy.
// The caller holds mu.
func (n *Network) close() {
	device := n.device
	n.device = nil
	select {
	case n.manager.closer <- device:
	default:
		device.Close()
	}
}

// newRequest returns the request that attaches the network.
func (n *Network) newRequest(ctx context.Context) (r request, err error) {
	c := n.manager.config
	r = request{Kind: attach, Network: n.number, Limits: c.Limits, Credentials: n.secrets}
	// Resolvers and proxy are read now, not when the daemon started: they may have changed.
	r.Allow, r.Deny = n.rules.Strings()
	if r.Resolvers, err = c.resolvers(); err != nil {
		return r, err
	}
	if r.Proxy, err = c.Proxy.open(ctx); err != nil {
		return r, err
	}
	return r, r.checkSize()
}

// needsRoots reports whether a helper needs the machine's authorities for the network.
func (n *Network) needsRoots() bool {
	p := n.request.Proxy
	return n.secrets != nil && n.secrets.NeedsRoots() || p != nil && p.Secure && p.CA == ""
}
