package netdev

import (
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Name is the name of the interface.
const Name = "eth0"

// The addresses of every sandbox, and of its name server. They are the same everywhere: the
// carrier tells sandboxes apart by their files. 192.0.0.0/29 is for such uses (RFC 7335); the
// IPv6 addresses are unique local ones (RFC 4193).
var (
	IPv4           = netip.MustParseAddr("192.0.0.2")
	IPv6           = netip.MustParseAddr("fd73:6b72::2")
	NameServerIPv4 = netip.MustParseAddr("192.0.0.1")
	NameServerIPv6 = netip.MustParseAddr("fd73:6b72::1")
)

const (
	// MTU is nearly the largest that a TUN device can have (65535): few large packets are
	// faster than many small ones.
	MTU = 65520
	// HeaderBytes is the size of struct virtio_net_hdr, which precedes each packet.
	HeaderBytes = 10
	// queue is the number of packets that may wait for the carrier. The kernel charges them to no
	// cgroup, so a program could hold queue * 64 KiB = 8 MiB beyond its memory limit.
	queue = 128
)

// device is a variable for tests of a machine without it.
var device = "/dev/net/tun"

// Make makes the interface in a network namespace, and then calls also there. When Make returns,
// the interface is up, and of the other interfaces in the namespace only loopback is up. The file is
// non-blocking, but not in the Go runtime's poller: otherwise every packet of the program would wake
// this process.
func Make(namespace *os.File, also func() error) (tun *os.File, err error) {
	err = In(namespace, func() error {
		if tun, err = makeHere(); err != nil {
			return err
		}
		if err = also(); err != nil {
			tun.Close()
			tun = nil
		}
		return err
	})
	return tun, err
}

// makeHere makes the interface in the namespace of the calling thread.
func makeHere() (*os.File, error) {
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", device, err)
	}
	f := os.NewFile(uintptr(fd), device) // blocking until now, so the poller doesn't get it
	err = create(fd)
	if err == nil {
		err = configure()
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// create makes the device. Each packet has a header that says which checksums and segments its sender
// left out. So neither side computes them: the packet never leaves the machine in this form.
func create(fd int) error {
	r, err := unix.NewIfreq(Name)
	if err != nil {
		return err
	}
	// IFF_TUN: packets of IP, without Ethernet. IFF_NO_PI: no further header in front of them. IFF_TUN_EXCL: an error
	// if the name exists, instead of a second user of that device.
	r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_TUN_EXCL)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, r); err != nil {
		return fmt.Errorf("make %s: %w", Name, err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, HeaderBytes); err != nil {
		return fmt.Errorf("%s: size of headers: %w", Name, err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6); err != nil {
		return fmt.Errorf("%s: offloads: %w", Name, err)
	}
	return nil
}

// configure gives the interface its addresses and routes, and brings it up. A kernel without
// IPv6 gets IPv4 alone.
func configure() error {
	c, err := dial()
	if err != nil {
		return err
	}
	defer c.close()
	index, err := c.index(Name)
	if err != nil {
		return fmt.Errorf("%s: index: %w", Name, err)
	}
	families := []netip.Addr{IPv4}
	if hasIPv6() {
		families = append(families, IPv6)
	}
	batch := []message{settings(index, len(families) > 1), up(index)}
	for _, a := range families {
		batch = append(batch, address(index, a), defaultRoute(index, a))
	}
	if len(families) > 1 {
		batch = append(batch, localRoute(index, IPv6), noMulticastRoute(index))
	}
	if err := c.do(batch); err != nil {
		return fmt.Errorf("%s: %w", Name, err)
	}
	return c.checkUp()
}

// hasIPv6 reports whether the kernel has IPv6. Without it socket(2) fails with EAFNOSUPPORT.
func hasIPv6() bool {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

// checkUp returns an error if any interface is up other than loopback and eth0.
func (c *conn) checkUp() error {
	links, err := c.links()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	for name, up := range links {
		if want := name == "lo" || name == Name; up != want {
			return fmt.Errorf("interface %s: up is %t, want %t", name, up, want)
		}
	}
	if len(links) < 2 {
		return fmt.Errorf("interfaces: got %d, want lo and %s", len(links), Name)
	}
	return nil
}

// Try makes an interface in a new network namespace, and calls also there. Its error says why sandboxes
// can't have one.
func Try(also func() error) error {
	namespace, err := newNamespace()
	if err != nil {
		return err
	}
	defer namespace.Close()
	tun, err := Make(namespace, also)
	if err != nil {
		return err
	}
	return tun.Close()
}

// newNamespace returns a new network namespace in which loopback is up, as in a sandbox.
func newNamespace() (namespace *os.File, err error) {
	home, err := own()
	if err != nil {
		return nil, err
	}
	err = In(home, func() error { // In returns the thread to the daemon's namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("network namespace: %w", err)
		}
		c, err := dial()
		if err != nil {
			return err
		}
		defer c.close()
		index, err := c.index("lo")
		if err != nil {
			return fmt.Errorf("lo: %w", err)
		}
		if err := c.do([]message{up(index)}); err != nil {
			return fmt.Errorf("lo: %w", err)
		}
		namespace, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	return namespace, err
}
