package network

import (
	"context"
	"errors"
	"fmt"
)

// carry tells a helper to attach a network, unless the network is already detached.
func (t *tenant) carry(ctx context.Context, p *process, n *Network) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.device == nil {
		return nil
	}
	r, err := n.request(ctx)
	if err != nil {
		return err
	}
	if n.secrets != nil && n.secrets.NeedsRoots() || r.Proxy != nil && r.Proxy.Secure && r.Proxy.CA == "" {
		if err := p.trust(ctx); err != nil {
			return err
		}
	}
	// Fd would make the device blocking, also for the helper: O_NONBLOCK belongs to the open file (fcntl(2)).
	conn, err := n.device.SyscallConn()
	if err != nil {
		return err
	}
	failed := conn.Control(func(fd uintptr) { _, err = p.call(ctx, r, int(fd)) })
	return errors.Join(failed, err)
}

// attachTries is how many helpers may die before an attachment fails.
const attachTries = 3

// attach attaches a network that has joined for the first time. If the helper dies before it answers,
// attach tries the next one.
func (t *tenant) attach(ctx context.Context, n *Network) error {
	t.events.Lock()
	// The account comes before the helper has the network, so every report finds it.
	t.accounts[n.number] = newAccount(n.sink, n.secrets.Names()...)
	t.events.Unlock()
	err := errDied
	for try := 0; try < attachTries && errors.Is(err, errDied); try++ {
		err = t.attachOnce(ctx, n)
	}
	if err == nil {
		t.manager.open.Add(1)
		return nil
	}
	t.release(n) // the helper may have it, if the caller went away
	if errors.Is(err, errDied) {
		return fmt.Errorf("%w: %w", ErrHelper, err)
	}
	return err
}

// attachOnce returns errDied if the helper died before it could be entered as the network's.
func (t *tenant) attachOnce(ctx context.Context, n *Network) error {
	p, err := t.helper()
	if err != nil {
		return err
	}
	if err = t.carry(ctx, p, n); err == nil && t.enter(p, n) {
		return nil
	}
	if err == nil || errors.Is(err, errDied) {
		err = errDied
		select {
		// The tenant must know of the death before the next try. Otherwise helper would return the dead process again.
		case <-p.noted:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return err
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

// enter has n attached again if p dies. It reports whether p still runs.
func (t *tenant) enter(p *process, n *Network) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.process != p {
		return false
	}
	t.networks[n.number] = n
	return true
}

// detach ends a network that is attached. Its caller holds the network's lock.
func (t *tenant) detach(n *Network) {
	t.release(n)
	t.manager.open.Add(-1)
}

// release has the helper end a network, and forgets it.
func (t *tenant) release(n *Network) {
	t.mu.Lock()
	p := t.process
	t.mu.Unlock()
	if p != nil {
		// Not the caller's context: the end of an execution that was cancelled has events, too.
		ctx, cancel := context.WithTimeout(context.Background(), t.manager.config.DetachTime)
		_, _ = p.call(ctx, request{Kind: detach, Network: n.number}, -1)
		cancel()
	}
	t.leave(n)
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

// event passes a report to the sink of its network. Only event calls sinks. After leave, it does not
// call the network's sink.
func (t *tenant) event(r report) {
	t.events.Lock()
	defer t.events.Unlock()
	if a := t.accounts[r.Network]; a != nil {
		a.pass(r, &t.counts)
	}
}
