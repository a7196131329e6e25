package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
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
// addresses are.
func (m *Manager) watchAddresses() {
	var last []netip.Addr
	for b := make([]byte, 64<<10); ; {
		_, err := m.addresses.Read(b)
		if err != nil && !errors.Is(err, unix.ENOBUFS) { // without room for a message, the kernel says so
			return
		}
		own, err := m.config.ownAddresses()
		if err != nil {
			m.config.Log.Error("the machine's addresses can't be read; a new one may be open to sandboxes", "err", err)
		} else if !slices.Equal(own, last) {
			m.sendAddresses(own)
			last = own
		}
	}
}

// sendAddresses returns when all helpers know the addresses. A helper that starts later learns them with its first
// network.
func (m *Manager) sendAddresses(own []netip.Addr) {
	var all sync.WaitGroup
	defer all.Wait()
	// m.mu is held while the calls start, not while they run: the deferred Wait runs after the deferred Unlock.
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tenants {
		all.Go(func() { t.sendAddresses(own) })
	}
}

func (t *tenant) sendAddresses(own []netip.Addr) {
	t.mu.Lock()
	p := t.process
	t.mu.Unlock()
	if p == nil {
		return
	}
	// errDied needs no action: the next helper learns the addresses with each network.
	if _, err := p.call(t.life, request{Kind: addresses, Own: own}, -1); err != nil && !errors.Is(err, errDied) && t.life.Err() == nil {
		p.kill() // a helper with an old list would let a sandbox reach the machine
	}
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
