// Package networktest makes network namespaces for tests. The test binary has one whose loopback
// interface has the addresses of all hosts. Each sandbox has one with a TUN device. All of them end
// with the process.
package networktest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The hosts of a test. Public addresses lead only to the test binary: its namespace has no other
// interface.
const (
	Public   = "20.1.0.1"
	Public2  = "20.1.0.2"
	Public6  = "2600::1"
	Resolver = "20.1.0.53"
	Private  = "10.5.0.1"
	Metadata = "169.254.169.254"
)

const insideVar = "SKILLRUN_TEST_NETWORK"

// Main runs the tests of a package in a child process in a new network namespace, because a Go process
// can't move all of its threads into one. Without root it skips all tests.
func Main(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Println("all tests skipped: they make network namespaces and TUN devices, which needs root")
		os.Exit(0)
	}
	if os.Getenv(insideVar) == "" {
		os.Exit(again())
	}
	if err := addHosts(); err != nil {
		fmt.Fprintln(os.Stderr, "network of the tests:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// again runs the test binary in a new network namespace, and returns its exit code for go test. The child ends with
// the thread that starts it (PR_SET_PDEATHSIG, prctl(2)), so that thread must not end before the process.
func again() int {
	runtime.LockOSThread()
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.Env = append(os.Environ(), insideVar+"=inside")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	err := c.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "network of the tests (needs root):", err)
		return 1
	}
	return 0
}

// addHosts gives loopback the addresses of all hosts. So connections to them stay in the namespace, although most
// of them are public.
func addHosts() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	for _, host := range []string{Public, Public2, Resolver, Private, Metadata} {
		err = errors.Join(err, addAddress(lo, host+"/32"))
	}
	return errors.Join(err, addAddress(lo, Public6+"/128"), netlink.LinkSetUp(lo))
}

// AddAddress gives the test binary's machine an address. remove takes it away; else it stays until the end
// of the test.
func AddAddress(t testing.TB, cidr string) (remove func()) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = addAddress(lo, cidr)
	}
	if err != nil {
		t.Fatal(err)
	}
	remove = sync.OnceFunc(func() {
		if a, err := netlink.ParseAddr(cidr); err != nil || netlink.AddrDel(lo, a) != nil {
			t.Errorf("the address %s stays", cidr)
		}
	})
	t.Cleanup(remove)
	return remove
}

// addAddress adds an address that can be bound at once: without IFA_F_NODAD an IPv6 address may first be tentative
// (ip-address(8), nodad).
func addAddress(l netlink.Link, cidr string) error {
	a, err := netlink.ParseAddr(cidr)
	if err != nil {
		return err
	}
	a.Flags |= unix.IFA_F_NODAD
	return netlink.AddrReplace(l, a) // a fuzz worker shares the namespace of its parent, which has added it
}

// Serve gives the connections to an address to handle, until the test ends.
func Serve(t testing.TB, address string, handle func(net.Conn)) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { l.Close(); all.Wait() })
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { defer c.Close(); handle(c) })
		}
	})
}

// A Sandbox is a network namespace with the interface that a sandbox has. Its thread ends with the
// test.
type Sandbox struct {
	TUN  *os.File
	jobs chan func()
}

// NewSandbox makes a Sandbox. The caller owns its TUN.
func NewSandbox(t testing.TB) *Sandbox {
	t.Helper()
	s := &Sandbox{jobs: make(chan func())}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var err error
		s.TUN, err = enter()
		made <- err
		for job := range s.jobs {
			job()
		}
	}()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(s.jobs) })
	return s
}

// Do calls f on a thread of the sandbox. Sockets and processes that f makes are the sandbox's.
func (s *Sandbox) Do(f func()) {
	done := make(chan struct{})
	s.jobs <- func() { defer close(done); f() }
	<-done
}

// Dial connects from inside.
func (s *Sandbox) Dial(network, to string) (c net.Conn, err error) {
	s.Do(func() { c, err = net.Dial(network, to) })
	return c, err
}

// enter makes a namespace and the interface.
func enter() (*os.File, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	tun, err := openTUN()
	if err != nil {
		return nil, err
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	return tun, configure(handle)
}

// openTUN makes the interface with the same features as sandbox/internal/netdev: a struct virtio_net_hdr of 10
// bytes before each packet, checksums and TCP segments left to the reader, and no link-local address.
func openTUN() (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	r, err := unix.NewIfreq("eth0")
	if err != nil {
		return nil, err
	}
	r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_TUN_EXCL)
	err = errors.Join(
		unix.IoctlIfreq(fd, unix.TUNSETIFF, r),
		unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, 10),
		unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6),
		os.WriteFile("/proc/sys/net/ipv6/conf/eth0/addr_gen_mode", []byte("1"), 0),
	)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "tun"), nil
}

// configure gives the interface the addresses of a sandbox, and routes everything to it.
func configure(h *netlink.Handle) error {
	lo, err := h.LinkByName("lo")
	if err != nil {
		return err
	}
	eth0, err := h.LinkByName("eth0")
	if err != nil {
		return err
	}
	v4, _ := netlink.ParseAddr("192.0.0.2/32")
	v6, _ := netlink.ParseAddr("fd73:6b72::2/128")
	v6.Flags |= unix.IFA_F_NODAD
	index := eth0.Attrs().Index
	_, all4, _ := net.ParseCIDR("0.0.0.0/0")
	_, all6, _ := net.ParseCIDR("::/0")
	return errors.Join(
		h.LinkSetUp(lo), h.LinkSetMTU(eth0, 65520), h.AddrAdd(eth0, v4), h.AddrAdd(eth0, v6), h.LinkSetUp(eth0),
		h.RouteAdd(&netlink.Route{LinkIndex: index, Dst: all4, Scope: netlink.SCOPE_LINK}),
		h.RouteAdd(&netlink.Route{LinkIndex: index, Dst: all6}),
		// The kernel adds this route itself, but later, and drops packets to the address until then.
		h.RouteAdd(&netlink.Route{LinkIndex: index, Dst: v6.IPNet, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL}),
	)
}

// SetDown sets the interface of the calling thread's sandbox down: no packet reaches the sandbox.
func SetDown(t testing.TB) {
	t.Helper()
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	eth0, err := h.LinkByName("eth0")
	if err == nil {
		err = h.LinkSetDown(eth0)
	}
	if err != nil {
		t.Error(err)
	}
}
