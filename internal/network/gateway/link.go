package gateway

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// Addresses of every sandbox with a network, and of the name server that it sees.
var (
	SandboxIPv4    = netip.MustParseAddr("192.0.0.2")
	SandboxIPv6    = netip.MustParseAddr("fd73:6b72::2")
	NameServerIPv4 = netip.MustParseAddr("192.0.0.1")
	NameServerIPv6 = netip.MustParseAddr("fd73:6b72::1")
)

const (
	mtu         = 65520
	vnetHeader  = 10    // struct virtio_net_hdr (linux/virtio_net.h)
	largestRead = 65535 // an IP packet; the kernel merges TCP segments up to this size
	deviceQueue = 128   // the most packets that wait in a device; package netdev sets it
)

// A link is the stack's end of a TUN device. It reads through Go's poller, so that an idle sandbox
// has a goroutine and no thread; gVisor's own fdbased takes a thread for each device.
type link struct {
	tun        *os.File
	refused    func(packet refusal)
	hold       func()      // returns when the next packet may be read
	crowded    func() bool // reports that UDP packets are dropped; nil: never
	dispatcher stack.NetworkDispatcher
	done       chan struct{} // closed after the last read; never without begin
}

func newLink(tun *os.File, refused func(refusal), hold func()) *link {
	return &link{tun: tun, refused: refused, hold: hold, done: make(chan struct{})}
}

// stop ends the reading. It returns after the packets that wait in the device are read. No other may come: the program
// has ended. The device stays open.
func (l *link) stop() {
	// A deadline in the past wakes a read that waits. Closing the device would do the same, and take about 20 ms.
	_ = l.tun.SetReadDeadline(time.Unix(1, 0))
	<-l.done
}

// Attach is called by the stack, with nil when it removes the link.
func (l *link) Attach(d stack.NetworkDispatcher) {
	if d != nil && l.dispatcher == nil {
		l.dispatcher = d
	}
}

// begin starts the reading of packets. Often the first one waits already, so the stack must be ready for it.
func (l *link) begin() { go l.read() }

// readBuffers have room for one UDP packet each. Idle sessions hold no buffer.
var readBuffers = sync.Pool{New: func() any { return new([vnetHeader + largestRead]byte) }}

// views have room for one packet of the device each. The stack's largest pieces of memory have this size. No packet is
// longer: the device has an MTU of 65,520 bytes, and the kernel merges TCP segments into packets that are a little
// shorter.
var views = sync.Pool{New: func() any { return buffer.NewViewSize(buffer.MaxChunkSize) }}

// largePacket is the size from which a packet goes to the stack in the memory that it was read into. A copy of it would
// take as much memory.
const largePacket = buffer.MaxChunkSize / 2

// read ends with the device: it is closed, or the sandbox's network namespace is gone. An idle sandbox holds no view.
func (l *link) read() {
	defer close(l.done)
	conn, err := l.tun.SyscallConn()
	var view *buffer.View
	var n int
	var failed error
	var again bool
	once := func(fd uintptr) bool {
		view = views.Get().(*buffer.View)
		if n, failed = unix.Read(int(fd), view.AsSlice()); failed == unix.EAGAIN {
			views.Put(view)
			return false
		}
		return true
	}
	pass := func() {
		switch {
		case n <= vnetHeader: // or an error
			views.Put(view)
		case n < largePacket:
			l.deliver(view.AsSlice()[vnetHeader:n])
			views.Put(view)
		default:
			view.CapLength(n)
			view.TrimFront(vnetHeader)
			l.deliverView(view)
		}
	}
	for err == nil {
		// Waiting here is the throttle: while nothing reads, the kernel's queue of the device fills, and further packets
		// are dropped in the sandbox.
		l.hold()
		if err = conn.Read(once); err != nil { // stop: a refusal of a last packet is reported, too
			for range deviceQueue {
				if err := conn.Control(func(fd uintptr) { again = once(fd) }); err != nil || !again {
					return
				}
				pass()
			}
			return
		}
		pass()
		err = failed
	}
}

// readPacket waits for one packet and calls use with it.
func readPacket(conn syscall.RawConn, use func([]byte)) error {
	var b *[vnetHeader + largestRead]byte
	var n int
	var failed error
	err := conn.Read(func(fd uintptr) bool {
		b = readBuffers.Get().(*[vnetHeader + largestRead]byte)
		// A Read of a TUN device returns one whole packet, and drops the bytes that have no room.
		if n, failed = unix.Read(int(fd), b[:]); failed == unix.EAGAIN {
			readBuffers.Put(b)
			b = nil
			return false
		}
		return true
	})
	if b != nil {
		defer readBuffers.Put(b)
	}
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	use(b[:n])
	return nil
}

// deliver gives the stack a copy of a packet.
func (l *link) deliver(packet []byte) {
	if len(packet) > 0 {
		l.deliverView(buffer.NewViewWithData(packet))
	}
}

// deliverView gives a packet to the stack, if the stack handles such packets.
func (l *link) deliverView(packet *buffer.View) {
	protocol, refused := inspect(packet.AsSlice())
	if refused != (refusal{}) {
		packet.Release()
		l.refused(refused)
		return
	}
	if l.crowded != nil && isUDP(packet.AsSlice()) && l.crowded() {
		packet.Release()
		return
	}
	p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithView(packet)})
	l.dispatcher.DeliverNetworkPacket(protocol, p)
	p.DecRef()
}

// WritePackets writes packets to the sandbox. The device takes each whole or drops it.
func (l *link) WritePackets(packets stack.PacketBufferList) (n int, failed tcpip.Error) {
	conn, err := l.tun.SyscallConn()
	if err != nil {
		return 0, &tcpip.ErrClosedForSend{}
	}
	err = conn.Control(func(fd uintptr) {
		for _, p := range packets.AsSlice() {
			// One writev is one packet: the header comes first (IFF_VNET_HDR, linux/if_tun.h).
			h := headerOf(p)
			if _, err := unix.Writev(int(fd), append([][]byte{h[:]}, p.AsSlices()...)); err != nil {
				failed = &tcpip.ErrNoBufferSpace{}
				return
			}
			n++
		}
	})
	if err != nil {
		return n, &tcpip.ErrClosedForSend{}
	}
	return n, failed
}

// headerOf asks the kernel for the checksum, and for the segments of a packet that is larger than
// one (linux/virtio_net.h). The fields are little-endian, as the processors that this builds for.
func headerOf(p *stack.PacketBuffer) (h [vnetHeader]byte) {
	gso := p.GSOOptions
	if gso.Type == stack.GSONone || !gso.NeedsCsum {
		return h
	}
	// The kernel computes the checksum over the bytes from csum_start on, and writes it at csum_start + csum_offset.
	h[0] = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM
	binary.LittleEndian.PutUint16(h[2:], uint16(p.HeaderSize()))
	binary.LittleEndian.PutUint16(h[6:], gso.L3HdrLen)
	binary.LittleEndian.PutUint16(h[8:], gso.CsumOffset)
	if p.Data().Size() > int(gso.MSS) {
		h[1] = unix.VIRTIO_NET_HDR_GSO_TCPV4
		if gso.Type == stack.GSOTCPv6 {
			h[1] = unix.VIRTIO_NET_HDR_GSO_TCPV6
		}
		binary.LittleEndian.PutUint16(h[4:], gso.MSS)
	}
	return h
}

// Capabilities: the kernel does not fill in the checksums of packets that it hands to a TUN device
// with offloads. Without this flag, the stack drops them as damaged.
func (l *link) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload
}

func (l *link) MTU() uint32                             { return mtu }
func (l *link) SetMTU(uint32)                           {}
func (l *link) MaxHeaderLength() uint16                 { return 0 }
func (l *link) LinkAddress() tcpip.LinkAddress          { return "" }
func (l *link) SetLinkAddress(tcpip.LinkAddress)        {}
func (l *link) IsAttached() bool                        { return l.dispatcher != nil }
func (l *link) Wait()                                   { <-l.done }
func (l *link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }
func (l *link) AddHeader(*stack.PacketBuffer)           {}
func (l *link) ParseHeader(*stack.PacketBuffer) bool    { return true }
func (l *link) Close()                                  {}
func (l *link) SetOnCloseAction(func())                 {}
func (l *link) GSOMaxSize() uint32                      { return largestRead }
func (l *link) SupportedGSO() stack.SupportedGSO        { return stack.HostGSOSupported }
