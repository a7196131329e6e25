package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/network/wire"
)

// The machine may get an address at any time. Rules refuse the machine's addresses, so the kernel tells
// the Manager of each change (rtnetlink(7)), and the Manager tells all helpers.

// openAddresses returns a socket that can be read when an address of the machine has changed.
func openAddresses() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR})
		if err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("changes of the machine's addresses: %w", err)
	}
	return os.NewFile(uintptr(fd), "addresses"), nil
}

// watchAddresses runs until Close closes the socket. The messages are not read: each time, all
// addresses are, and all helpers get them. One that has started meanwhile may have others than the last that were sent.
func (m *Manager) watchAddresses() {
	for b := make([]byte, 64<<10); ; {
		_, err := m.addresses.Read(b)
		// ENOBUFS: the kernel had no room for a message. The deadline: the addresses could not be read before.
		if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		own, err := m.readAddresses()
		again := time.Time{}
		if err != nil {
			again = time.Now().Add(time.Second)
			m.config.Log.Error("the machine's addresses can't be read; a new one may be open to sandboxes", "err", err)
		}
		_ = m.addresses.SetReadDeadline(again)
		if err == nil {
			m.sendAddresses(own)
		}
	}
}

// readAddresses returns a request with the machine's addresses of now. A helper gets such requests from several
// goroutines, and keeps the addresses that were read last.
func (m *Manager) readAddresses() (wire.Request, error) {
	m.reading.Lock()
	defer m.reading.Unlock()
	m.readings++
	own, err := m.config.ownAddresses()
	return wire.Request{Kind: wire.Addresses, Reading: m.readings, Own: own}, err
}

// sendAddresses returns when all helpers know the addresses. A helper that starts later learns them before its first
// network.
func (m *Manager) sendAddresses(own wire.Request) {
	var all sync.WaitGroup
	defer all.Wait()
	// m.mu is held while the calls start, not while they run: the deferred Wait runs after the deferred Unlock.
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tenants {
		all.Go(func() { t.sendAddresses(own) })
	}
}

func (t *tenant) sendAddresses(own wire.Request) {
	t.mu.Lock()
	p := t.process
	t.mu.Unlock()
	if p == nil {
		return
	}
	// errDied needs no action: the next helper learns the addresses when it starts.
	if _, err := p.call(t.life, own, -1); err != nil && !errors.Is(err, errDied) && t.life.Err() == nil {
		p.kill() // rather than that it lets a sandbox reach the machine
	}
}

// sendFirstAddresses is for a helper that has just started. The tenant's process must be set: from then on, sendAddresses
// reaches the helper with each change, so no change falls between the two.
func (t *tenant) sendFirstAddresses(p *process) error {
	own, err := t.manager.readAddresses()
	if err == nil {
		_, err = p.call(t.life, own, -1)
	}
	return err
}

// ownAddresses returns the addresses of the machine's interfaces and the addresses in Config.Own.
func (c Config) ownAddresses() (all []netip.Addr, err error) {
	all = slices.Clone(c.Own)
	addresses, err := net.InterfaceAddrs()
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				all = append(all, ip.Unmap())
			}
		}
	}
	return all, err
}
