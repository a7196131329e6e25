package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/netdev"
)

// A sandbox without a network has a network namespace with only loopback. With a network, its
// namespace has one more interface, eth0, and a Network carries the packets. The package knows
// nothing of rules: the Network reads every packet of the sandbox, and decides about each.
//
// Making the interface would add 2 ms to a start, so prewarmed sandboxes have it before their program is
// known (profile.network). The program starts after Attach has returned.

// A Network carries the packets of one sandbox. The Spec of one start has it, and no other.
type Network interface {
	// Attach takes the sandbox's interface into service, and returns when the first packet will be carried.
	// It owns l.TUN from then on, also after an error. Start calls it at most once, before the
	// program starts. An error is the error of Start.
	Attach(ctx context.Context, l Link) error
	// Detach ends every connection and releases the interface. Each Start with the Network calls it
	// once, even if it did not call Attach: after the program's last process is gone, and before
	// Process.Wait returns or Start fails. Init may still be there; it has no socket. Detach must not
	// wait until the interface is closed, which takes about 20 ms.
	Detach()
}

// A Link is the interface of one sandbox, as its Network gets it.
type Link struct {
	// TUN gives and takes packets, each with a struct virtio_net_hdr of LinkHeaderBytes in front:
	// IFF_TUN, IFF_NO_PI and IFF_VNET_HDR, with the offloads CSUM, TSO4 and TSO6, in native byte
	// order. A packet has at most LinkMTU bytes, but segments that belong together come as one
	// packet of up to 64 KiB. The file is non-blocking and not in the Go runtime's poller.
	TUN *os.File
	// Cut ends at once all sockets of the sandbox that are connected to the outside; the program gets
	// an error. A Network that has lost the state of the connections calls it. It may be called at any
	// time; after Detach it does nothing.
	Cut func() error
}

// What a Link has.
const (
	LinkMTU         = netdev.MTU
	LinkHeaderBytes = netdev.HeaderBytes
)

// Addresses of every sandbox with a network. The name servers are the only ones in the sandbox's
// /etc/resolv.conf; the Network answers there.
var (
	SandboxIPv4    = netdev.IPv4
	SandboxIPv6    = netdev.IPv6
	NameServerIPv4 = netdev.NameServerIPv4
	NameServerIPv6 = netdev.NameServerIPv6
)

// resolvConf is the /etc/resolv.conf of a sandbox with a network.
var resolvConf = "nameserver " + NameServerIPv4.String() + "\nnameserver " + NameServerIPv6.String() + "\n"

// unassigned stands for the network of a sandbox that is made before its program is known. It carries
// nothing.
type unassigned struct{}

func (unassigned) Attach(_ context.Context, l Link) error {
	return errors.Join(errors.New("the sandbox has no program yet"), l.TUN.Close())
}

func (unassigned) Detach() {}

// A device is the interface of a sandbox. Nil: the sandbox has only loopback.
type device struct {
	tun  *os.File
	diag int // sock_diag socket in the namespace
}

func makeDevice(namespace *os.File) (*device, error) {
	d := &device{}
	var err error
	d.tun, err = netdev.Make(namespace, func() (err error) {
		d.diag, err = openDiag()
		return err
	})
	if err != nil {
		return nil, &SetupError{Step: networkStep, Err: err}
	}
	return d, nil
}

// close takes the kernel about 20 ms.
func (d *device) close() {
	if d != nil {
		unix.Close(d.diag)
		d.tun.Close()
	}
}

const networkStep = "network"

// An attachment connects one start with its Network. Nil: the sandbox has no network.
type attachment struct {
	network  Network
	cancel   context.CancelFunc // ends Attach
	ended    chan struct{}      // closed when Attach has returned; nil: it was not called
	err      error              // of Attach, valid after ended
	detached sync.Once

	mu   sync.Mutex
	diag int // sock_diag socket in the namespace, or -1: none, or detached
}

func newAttachment(n Network) *attachment {
	if n == nil {
		return nil
	}
	return &attachment{network: n, diag: -1}
}

// begin calls Attach in a goroutine, and takes the device from the sandbox. ctx bounds the call.
func (a *attachment) begin(ctx context.Context, c *sandbox) {
	if a == nil {
		return
	}
	d := c.device
	c.device, a.diag = nil, d.diag
	ctx, a.cancel = context.WithCancel(ctx)
	a.ended = make(chan struct{})
	go func() {
		defer close(a.ended)
		a.err = a.network.Attach(ctx, Link{TUN: d.tun, Cut: a.cut})
	}()
}

// wait returns the error of Attach after its end.
func (a *attachment) wait() error {
	if a == nil || a.ended == nil {
		return nil
	}
	<-a.ended
	return step(networkStep, a.err)
}

// cut is Link.Cut.
func (a *attachment) cut() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.diag < 0 {
		return nil
	}
	return cutSockets(a.diag)
}

// detach ends the network, after the program's last process is gone. Only the first call does
// something; another call waits for the first.
func (a *attachment) detach() {
	if a != nil {
		a.detached.Do(a.end)
	}
}

// beginDetach has a goroutine call detach, so that the network ends at the same time as the sandbox.
func (a *attachment) beginDetach() {
	if a != nil {
		go a.detach()
	}
}

func (a *attachment) end() {
	if a.ended != nil {
		a.cancel()
		<-a.ended
	}
	a.network.Detach()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.diag >= 0 {
		unix.Close(a.diag)
		a.diag = -1
	}
}

// tryNetwork tries the features of the kernel that a sandbox with a network needs: the interface, and
// sock_diag(7), which ends the connections of a dead helper. They would otherwise stay open.
func tryNetwork() error {
	return netdev.Try(func() error {
		diag, err := openDiag()
		if err != nil {
			return err
		}
		defer unix.Close(diag)
		// Connecting a UDP socket sends nothing.
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		peer := &unix.SockaddrInet4{Port: 53, Addr: NameServerIPv4.As4()}
		if err := errors.Join(unix.Connect(fd, peer), cutSockets(diag)); err != nil {
			return err
		}
		if _, err := unix.Getpeername(fd); !errors.Is(err, unix.ENOTCONN) {
			return fmt.Errorf("sock_diag: a connection stays open (%v)", err)
		}
		return nil
	})
}
