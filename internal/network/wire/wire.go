// Package wire has the packets that the Manager and a helper exchange: JSON on a SOCK_SEQPACKET socket. The socket keeps
// the borders of packets, and a packet can carry the descriptor of a device.
package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/network/dial"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// Program is the name of a helper's program and of its processes.
const Program = "skillrun-network"

// Descriptors of a helper, in the order of exec.Cmd's ExtraFiles.
const (
	ManagerFD = 3 // its socket
	ProgramFD = 4 // its program, by which it is executed
)

// A Kind says which fields of a packet are set.
type Kind string

const (
	Start  Kind = "start"  // the first request
	Attach Kind = "attach" // has the device
	Detach Kind = "detach"
	Trust  Kind = "trust"
	Ping   Kind = "ping"

	Addresses Kind = "addresses" // has Own; comes before the first attach

	Reply   Kind = "reply" // to any request, with its number
	Denied  Kind = "denied"
	Closed  Kind = "closed"
	Dropped Kind = "dropped"
)

// A Request goes from the Manager to a helper. Each gets one reply.
type Request struct {
	Kind   Kind   `json:"kind"`
	Number uint64 `json:"number"` // of the request; its reply has the same

	Network   uint64           `json:"network,omitempty"` // of attach and detach
	Allow     []string         `json:"allow,omitempty"`
	Deny      []string         `json:"deny,omitempty"`
	Resolvers []netip.AddrPort `json:"resolvers,omitempty"`
	Limits    policy.Limits    `json:"limits"`
	// Credentials has secrets. No request is logged.
	Credentials *credential.Set `json:"credentials,omitempty"`
	Proxy       *dial.Proxy     `json:"proxy,omitempty"` // has a secret, too

	Roots [][]byte `json:"roots,omitempty"` // of trust: certificates of authorities

	Own     []netip.Addr `json:"own,omitempty"`     // of addresses: the machine's
	Reading uint64       `json:"reading,omitempty"` // of addresses: a later reading has a larger number

	// Of start: the daemon's version, the helper's user and group, its local ports and its tenant's limits.
	Version string               `json:"version,omitempty"`
	ID      int                  `json:"id,omitempty"`
	Ports   dial.Ports           `json:"ports"`
	Tenant  *policy.TenantLimits `json:"tenant,omitempty"`
}

// A Report goes from a helper to the Manager.
type Report struct {
	Kind   Kind   `json:"kind"`
	Number uint64 `json:"number,omitempty"`
	Error  string `json:"error,omitempty"`

	Network    uint64             `json:"network,omitempty"`
	Denial     *policy.Denial     `json:"denial,omitempty"`
	Connection *policy.Connection `json:"connection,omitempty"`
	Dropped    *policy.Dropped    `json:"dropped,omitempty"`
}

// Check returns an error for a report that no helper makes.
func (r Report) Check() error {
	switch {
	case r.Kind == Reply, r.Kind == Dropped && r.Dropped != nil, r.Kind == Denied && r.Denial != nil, r.Kind == Closed && r.Connection != nil:
		return nil
	}
	return fmt.Errorf("a report of kind %.20q without what belongs to it", r.Kind)
}

// Reports that the Manager reads from a helper, in bytes in a second and at once. A small one counts as
// smallReport. A helper with 1,000 busy networks sends a tenth of it; beyond, it waits.
const (
	reportRate  = 8 << 20
	reportBurst = 4 << 20
	smallReport = 512
)

// WithoutText shortens a report that is too long for a packet.
func (r Report) WithoutText() Report {
	short := Report{Kind: r.Kind, Number: r.Number, Network: r.Network}
	switch r.Kind {
	case Reply:
		short.Error = ErrLong.Error()
	case Denied:
		short.Kind, short.Dropped = Dropped, &policy.Dropped{Denials: 1}
	case Closed:
		sums := r.Connection.Dropped()
		short.Kind, short.Dropped = Dropped, &sums
	}
	return short
}

// ErrLong is the error of a packet that is longer than MaxPacket.
// Only the rules of a request can be so long.
var ErrLong = errors.New("the network rules are too long; use fewer rules")

// MaxPacket is the kernel's default bound on a packet (net.core.wmem_default), in bytes. A network
// whose rules need more is not attached.
const MaxPacket = 208 << 10

// CheckSize returns ErrLong for a request that Send would refuse. A request gets its number later.
func (r Request) CheckSize() error {
	b, err := json.Marshal(r)
	if err == nil && len(b) > MaxPacket-len("18446744073709551615") {
		err = ErrLong
	}
	return err
}

// A Socket is one end. Only one goroutine may call Receive; several may call Send.
type Socket struct {
	File   *os.File
	buffer []byte
	limit  *rate.Limiter // of received bytes; nil: none
}

// NewSocket returns the Socket of one end.
func NewSocket(f *os.File) *Socket { return &Socket{File: f, buffer: make([]byte, MaxPacket)} }

// SocketPair returns our end, and the end of a process that is to start.
func SocketPair() (ours *Socket, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socket of a network helper: %w", err)
	}
	ours = NewSocket(os.NewFile(uintptr(fds[0]), "helper"))
	ours.limit = rate.NewLimiter(reportRate, reportBurst)
	return ours, os.NewFile(uintptr(fds[1]), "manager"), nil
}

// Send sends a packet, with a descriptor if fd is not negative.
func (s *Socket) Send(packet any, fd int) error {
	b, err := json.Marshal(packet)
	if err != nil {
		return err
	}
	if len(b) > MaxPacket { // the receiver's buffer
		return ErrLong
	}
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	conn, err := s.File.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Write(func(to uintptr) bool {
		// MSG_NOSIGNAL: a write to a dead helper is EPIPE, and no SIGPIPE ends the daemon (send(2)).
		failed = unix.Sendmsg(int(to), b, rights, nil, unix.MSG_NOSIGNAL)
		return failed != unix.EAGAIN
	})
	if errors.Is(failed, unix.EMSGSIZE) {
		return ErrLong
	}
	return errors.Join(err, failed)
}

// Receive receives a packet and at most one descriptor; without one, device is nil.
func (s *Socket) Receive(packet any) (device *os.File, err error) {
	conn, err := s.File.SyscallConn()
	if err != nil {
		return nil, err
	}
	rights := make([]byte, unix.CmsgSpace(4))
	var n, nr int
	var failed error
	err = conn.Read(func(from uintptr) bool {
		// The kernel closes descriptors that have no room in rights (unix(7), MSG_CTRUNC).
		n, nr, _, _, failed = unix.Recvmsg(int(from), s.buffer, rights, unix.MSG_CMSG_CLOEXEC)
		return failed != unix.EAGAIN
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, err
	}
	if device, err = deviceOf(rights[:nr]); err != nil {
		return nil, err
	}
	if s.limit != nil {
		// While this waits, the socket's buffer fills and the helper's Send blocks. So a helper pays for its reports
		// itself.
		_ = s.limit.WaitN(context.Background(), max(n, smallReport))
	}
	if n == 0 { // the other end is closed: neither side sends empty packets
		err = os.ErrClosed
	} else {
		err = json.Unmarshal(s.buffer[:n], packet)
	}
	if err != nil && device != nil {
		device.Close()
		device = nil
	}
	return device, err
}

// deviceOf returns the descriptor of a control message, ready for Go's poller.
func deviceOf(rights []byte) (*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) == 0 {
		return nil, err
	}
	for _, more := range fds[1:] { // the space of one descriptor holds two
		unix.Close(more)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		return nil, err
	}
	return os.NewFile(uintptr(fds[0]), "tun"), nil
}
