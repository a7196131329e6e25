package network

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/internal/network/wire"
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
	sink      policy.DaemonSink
	late      bool // opened after the tenant's removal

	// Set by Attach. A second helper needs them, too.
	tenant     *tenant
	number     uint64
	cut        func() error
	request    wire.Request       // asks a helper to carry the network
	life       context.Context    // ends with Detach
	end        context.CancelFunc // ends life
	descriptor int32              // of device, for the watcher
	begun      chan struct{}      // closed when begin has returned, or won't be called; nil: not attached
	mu         sync.Mutex         // held while a helper attaches or detaches the network
	device     *os.File           // nil: not attached, or detached
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
	if n.begun == nil { // not attached
		return
	}
	n.endBegin()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.device != nil {
		n.tenant.detach(n)
		n.close()
	}
}

// endBegin ends the wait for the first packet. If the program has sent one, a helper reads it first, so that a refusal is
// reported; a helper that does not take the network within DetachTime is not waited for.
func (n *Network) endBegin() {
	defer n.end()
	removed := n.manager.watcher.remove(n)
	if removed && !n.hasPacket() {
		close(n.begun)
		return
	}
	defer time.AfterFunc(n.manager.config.DetachTime, n.end).Stop()
	if removed {
		go n.begin()
	}
	select {
	case <-n.begun:
	case <-n.life.Done(): // begin may wait for the start of a helper, and then finds that the network is detached
	}
}

// begin has a helper carry the network, because the program has sent a packet.
func (n *Network) begin() {
	defer close(n.begun)
	n.tenant.carryFirst(n)
}

// hasPacket reports whether a packet of the program waits in the device.
func (n *Network) hasPacket() bool {
	p := []unix.PollFd{{Fd: n.descriptor, Events: unix.POLLIN}}
	k, err := unix.Poll(p, 0)
	return err == nil && k > 0 && p[0].Revents&unix.POLLIN != 0
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
func (n *Network) newRequest(ctx context.Context) (r wire.Request, err error) {
	c := n.manager.config
	r = wire.Request{Kind: wire.Attach, Network: n.number, Limits: c.Limits, Credentials: n.secrets}
	// Resolvers and proxy are read now, not when the daemon started: they may have changed.
	r.Allow, r.Deny = n.rules.Strings()
	if r.Resolvers, err = c.resolvers(); err != nil {
		return r, err
	}
	if r.Proxy, err = c.Proxy.open(ctx); err != nil {
		return r, err
	}
	return r, r.CheckSize()
}

// needsRoots reports whether a helper needs the machine's authorities for the network.
func (n *Network) needsRoots() bool {
	p := n.request.Proxy
	return n.secrets != nil && n.secrets.NeedsRoots() || p != nil && p.Secure && p.CA == ""
}
