package network

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/sandbox"
)

// A Network is the network of one sandbox. It implements sandbox.Network.
type Network struct {
	manager   *Manager
	name      string // of the tenant
	execution string
	rules     *policy.Rules
	secrets   *credential.Set // nil: no credentials
	sink      policy.Sink
	late      bool // opened after the tenant's removal

	// Set by Attach. A second helper needs them, too.
	tenant *tenant
	number uint64
	cut    func() error
	mu     sync.Mutex // held while a helper attaches or detaches the network
	device *os.File   // nil: not attached, or detached
}

// Attach returns when the tenant's helper carries the sandbox's packets.
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
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.device != nil {
		n.tenant.detach(n)
		n.close()
	}
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

// request returns the request that attaches the network.
func (n *Network) request(ctx context.Context) (r request, err error) {
	c := n.manager.config
	r = request{Kind: attach, Network: n.number, Limits: c.Limits, Credentials: n.secrets}
	// Resolvers and proxy are read now, not when the daemon started: they may have changed.
	r.Allow, r.Deny = n.rules.Strings()
	if r.Resolvers, err = c.resolvers(); err != nil {
		return r, err
	}
	r.Proxy, err = c.Proxy.open(ctx)
	return r, err
}
