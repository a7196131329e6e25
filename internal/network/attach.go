package network

import (
	"context"
	"errors"

	"github.com/skillrun/skillrun/internal/network/wire"
)

// attach gets a network ready that has joined.
func (t *tenant) attach(ctx context.Context, n *Network) error {
	t.events.Lock()
	// The account comes before a helper has the network, so every report finds it.
	t.accounts[n.number] = newAccount(n.sink, n.secrets.Names()...)
	t.events.Unlock()
	if err := t.ready(ctx, n); err != nil {
		t.leave(n)
		return err
	}
	t.manager.open.Add(1)
	return nil
}

// startTries is how many helpers may die during their start before an attachment fails.
const startTries = 3

// ready has a helper run, and finds the errors of the request now, so that no program starts with them.
func (t *tenant) ready(ctx context.Context, n *Network) error {
	p, err := t.helper()
	for try := 1; try < startTries && errors.Is(err, errDied); try++ {
		p, err = t.helper()
	}
	if err != nil {
		return err
	}
	if n.request, err = n.newRequest(ctx); err != nil {
		return err
	}
	if n.needsRoots() {
		// If the helper dies, the next one gets them with the first packet.
		if err := p.trust(ctx); err != nil && !errors.Is(err, errDied) {
			return err
		}
	}
	n.life, n.end = context.WithCancel(t.life)
	n.begun = make(chan struct{})
	if err := t.manager.watcher.add(n); err != nil {
		n.end()
		n.begun = nil
		return err
	}
	return nil
}

// carryFirst has a helper carry a network whose first packet is there, unless the network ends.
func (t *tenant) carryFirst(n *Network) {
	if t.enter(n) {
		t.restore(n.life, func() []*Network { return []*Network{n} })
	}
}

// enter has helpers carry n from now on. It returns false if n is already detached.
func (t *tenant) enter(n *Network) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.device == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.networks[n.number] = n
	return true
}

// carry tells a helper to attach a network, unless the network is already detached.
func (t *tenant) carry(p *process, n *Network) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.device == nil {
		return nil
	}
	if n.needsRoots() {
		if err := p.trust(n.life); err != nil {
			return err
		}
	}
	// Fd would make the device blocking, also for the helper: O_NONBLOCK belongs to the open file (fcntl(2)).
	conn, err := n.device.SyscallConn()
	if err != nil {
		return err
	}
	failed := conn.Control(func(fd uintptr) { _, err = p.call(n.life, n.request, int(fd)) })
	return errors.Join(failed, err)
}

// join announces a network: the helper stays. If the tenant is gone, it stays until the network has left.
func (t *tenant) join(n *Network, removed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removed = removed
	t.users++
	t.number++
	n.number = t.number
	t.rest()
}

// detach has the helper end a network that is attached, if the helper may have it. Its caller holds the network's lock.
func (t *tenant) detach(n *Network) {
	t.mu.Lock()
	p, carried := t.process, t.networks[n.number] != nil
	t.mu.Unlock()
	if p != nil && carried {
		// Not the caller's context: the end of an execution that was cancelled has events, too.
		ctx, cancel := context.WithTimeout(context.Background(), t.manager.config.DetachTime)
		_, err := p.call(ctx, wire.Request{Kind: wire.Detach, Network: n.number}, -1)
		cancel()
		if err != nil {
			t.miss(n)
		}
	}
	t.leave(n)
	t.manager.open.Add(-1)
}

func (t *tenant) leave(n *Network) {
	t.events.Lock()
	// No event after this: the sink belongs to an execution that ends now.
	delete(t.accounts, n.number)
	t.events.Unlock()
	t.mu.Lock()
	delete(t.networks, n.number)
	t.users--
	t.rest()
	t.mu.Unlock()
	// Without t.mu: the Manager's lock comes before a tenant's.
	t.manager.left(t)
}

// miss says that the last events of a network are lost.
func (t *tenant) miss(n *Network) {
	t.events.Lock()
	defer t.events.Unlock()
	if a := t.accounts[n.number]; a != nil {
		a.sink.Lost()
	}
}

// event passes a report to the sink of its network. Only event calls sinks. After leave, it does not
// call the network's sink.
func (t *tenant) event(r wire.Report) {
	t.events.Lock()
	defer t.events.Unlock()
	if a := t.accounts[r.Network]; a != nil {
		a.pass(r, &t.counts)
	}
}
