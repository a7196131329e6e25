package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/netdev"
)

// By sock_diag(7) the kernel lists the sockets of a network namespace, and ends them.

// openDiagIn opens a sock_diag socket in the network namespace of a process. A socket
// stays in the namespace in which it was made.
func openDiagIn(pid int) (fd int, err error) {
	ns, err := openNamespace(pid, "net")
	if err != nil {
		return -1, err
	}
	defer ns.Close()
	err = netdev.In(ns, func() (err error) {
		fd, err = openDiag()
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("network namespace of %d: %w", pid, err)
	}
	return fd, nil
}

func openDiag() (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return -1, fmt.Errorf("sock_diag: %w", err)
	}
	// The kernel answers at once, or not at all.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("sock_diag: %w", err)
	}
	return fd, nil
}

// Layouts of linux/inet_diag.h and linux/sock_diag.h, in bytes.
const (
	diagRequestSize = 56 // struct inet_diag_req_v2
	diagMessageSize = 72 // struct inet_diag_msg
	diagIDSize      = 48 // struct inet_diag_sockid, of which the message and the request each have one
	diagIDInMessage = 4
	diagIDInRequest = 8
	diagStateAt     = 1  // offset of idiag_state in a message
	diagInodeAt     = 68 // offset of idiag_inode in a message: 0 if the socket has no file
)

// Sets of states, by bit: net/tcp_states.h. TIME_WAIT (6) holds nothing. A UDP socket with a peer
// counts as established.
const (
	everyState     = math.MaxUint32 &^ (1 << 6)
	connectedState = everyState &^ (1<<7 | 1<<10) // neither CLOSE nor LISTEN
)

// eachSocket calls each for the messages of all sockets in the given states, of the two families
// and two protocols of a sandbox. A message has at least diagMessageSize bytes.
func eachSocket(diag int, states uint32, each func(protocol byte, body []byte) error) error {
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		for _, protocol := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
			err := listSockets(diag, family, protocol, states, func(body []byte) error { return each(protocol, body) })
			if err != nil {
				return fmt.Errorf("sock_diag: family %d, protocol %d: %w", family, protocol, err)
			}
		}
	}
	return nil
}

// listSockets asks for all sockets of a kind.
func listSockets(diag int, family, protocol byte, states uint32, each func([]byte) error) error {
	var body [diagRequestSize]byte
	body[0], body[1], body[2] = family, protocol, 1<<(diagMemory-1) // idiag_ext asks for attributes, by bit
	binary.NativeEndian.PutUint32(body[4:], states)
	if err := sendDiag(diag, unix.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP, body); err != nil {
		return err
	}
	answer := make([]byte, 64<<10)
	for {
		n, err := receiveDiag(diag, answer)
		if err != nil {
			return err
		}
		if done, err := parseDiag(answer[:n], each); done || err != nil {
			return err
		}
	}
}

func sendDiag(diag int, kind, flags uint16, body [diagRequestSize]byte) error {
	request := make([]byte, unix.SizeofNlMsghdr, unix.SizeofNlMsghdr+diagRequestSize)
	binary.NativeEndian.PutUint32(request[0:], uint32(cap(request)))
	binary.NativeEndian.PutUint16(request[4:], kind)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|flags)
	return unix.Sendto(diag, append(request, body[:]...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

func receiveDiag(diag int, answer []byte) (int, error) {
	n, _, err := unix.Recvfrom(diag, answer, 0)
	for errors.Is(err, unix.EINTR) {
		n, _, err = unix.Recvfrom(diag, answer, 0)
	}
	return n, err
}

var errDiagAnswer = errors.New("malformed answer")

// parseDiag calls each for the sockets of one packet, and reports whether it is the last packet.
func parseDiag(packet []byte, each func(body []byte) error) (done bool, err error) {
	for len(packet) >= unix.SizeofNlMsghdr {
		size, kind := int(binary.NativeEndian.Uint32(packet)), binary.NativeEndian.Uint16(packet[4:])
		if size < unix.SizeofNlMsghdr || size > len(packet) {
			return false, errDiagAnswer
		}
		body := packet[unix.SizeofNlMsghdr:size]
		switch {
		case kind == unix.NLMSG_DONE:
			return true, nil
		case kind == unix.NLMSG_ERROR && len(body) >= 4:
			return false, unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
		case kind != unix.SOCK_DIAG_BY_FAMILY || len(body) < diagMessageSize:
			return false, errDiagAnswer
		}
		if err := each(body); err != nil {
			return false, err
		}
		packet = packet[min(align4(size), len(packet)):]
	}
	return false, nil
}

// align4 rounds up as NLMSG_ALIGN does.
func align4(n int) int { return (n + 3) &^ 3 }

// sockDestroy is SOCK_DESTROY of linux/sock_diag.h.
const sockDestroy = 21

// cutSockets ends the sockets whose peer is outside of the sandbox. A program that reads or writes
// such a socket gets ECONNABORTED at once. Sockets that listen stay, and connections within the
// sandbox. It needs a kernel with CONFIG_INET_DIAG_DESTROY.
func cutSockets(diag int) error {
	// First the whole list, then the requests: answers to requests would come between the packets of the list.
	var requests [][diagRequestSize]byte
	err := eachSocket(diag, connectedState, func(protocol byte, body []byte) error {
		id := body[diagIDInMessage : diagIDInMessage+diagIDSize]
		if !outside(body[0], id) {
			return nil
		}
		var r [diagRequestSize]byte
		r[0], r[1] = body[0], protocol
		copy(r[diagIDInRequest:], id)
		requests = append(requests, r)
		return nil
	})
	for _, r := range requests {
		if derr := destroySocket(diag, r); derr != nil {
			err = errors.Join(err, fmt.Errorf("sock_diag: end a socket: %w", derr))
		}
	}
	return err
}

// outside reports whether the peer of a socket is an address outside of the sandbox. The id has the
// ports of both ends, then 16 bytes for each address.
func outside(family byte, id []byte) bool {
	peer, _ := netip.AddrFromSlice(id[20:36])
	if family == unix.AF_INET {
		peer, _ = netip.AddrFromSlice(id[20:24])
	}
	peer = peer.Unmap()
	return !peer.IsLoopback() && peer != SandboxIPv4 && peer != SandboxIPv6
}

// destroySocket ends one socket. It may have ended before. The kernel acknowledges with NLMSG_ERROR and the number 0
// (netlink(7)).
func destroySocket(diag int, request [diagRequestSize]byte) error {
	if err := sendDiag(diag, sockDestroy, unix.NLM_F_ACK, request); err != nil {
		return err
	}
	answer := make([]byte, 4<<10)
	n, err := receiveDiag(diag, answer)
	if err != nil {
		return err
	}
	_, err = parseDiag(answer[:n], func([]byte) error { return errDiagAnswer })
	if err == unix.Errno(0) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
