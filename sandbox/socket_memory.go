package sandbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/mount"
	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
)

// The kernel charges the data of a connection to a cgroup from accept() on
// (inet_csk_accept in net/ipv4/inet_connection_sock.c). It charges error queues to no
// cgroup (sock_queue_err_skb in net/core/skbuff.c). A script could hold any amount there.
// While a program runs, the daemon therefore asks the kernel what all sockets of the
// sandbox's network namespace hold together, by sock_diag(7), and ends a program whose
// sockets hold more than its memory limit. The kernel does not list TCP and UDP sockets
// without an address. docs/security.md lists the attacks that remain for that reason.

// socketPeriod is how often the daemon looks. In that time a processor fills about 100 MiB.
const socketPeriod = 50 * time.Millisecond

// socketRest is how much longer than a look the daemon waits until the next one: many
// sockets take long to list.
const socketRest = 4

// A list of the sockets takes the kernel about 2 ms, even of a few sockets: it searches the whole machine's table of TCP
// connections. Only a running program fills its sockets, so a program that sleeps costs no lists. A program
// that holds too much is found after socketCPU of its processor time, and after socketPause at the latest.
const (
	socketCPU   = 10 * time.Millisecond
	socketPause = time.Second
)

// maxSockets bounds the sockets of a sandbox, including sockets without a file. It keeps a
// look below about 20 ms.
const maxSockets = 16384

// unacceptedBytes is the size of an empty TCP socket: 2,432 bytes in Linux 6.18, rounded
// up. Before accept() it is not charged either.
const unacceptedBytes = 4096

// A socketMeter measures the sockets of one network namespace. The zero socketMeter is
// not usable: see newSocketMeter. One goroutine uses it.
type socketMeter struct {
	pid      int                           // a process of the namespace, on the machine
	cpu      func() (time.Duration, error) // the processor time of all processes of the namespace so far
	programs func() int                    // that run on this machine
	bounds   func() (machineStat, error)   // of the machine

	stat int       // the namespace's sockstat, or -1 until it is needed
	text [192]byte // read from stat
	diag int       // sock_diag socket in the namespace, or -1 until it is needed

	listed    time.Time     // of the last list; zero: none
	listedCPU time.Duration // cpu at that time
}

func newSocketMeter(pid int, cpu func() (time.Duration, error), programs func() int) *socketMeter {
	return &socketMeter{pid: pid, cpu: cpu, programs: programs, bounds: machineBounds, stat: -1, diag: -1}
}

// close releases the namespace. The meter may be nil.
func (m *socketMeter) close() {
	if m == nil {
		return
	}
	for _, fd := range []*int{&m.stat, &m.diag} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
}

// exceeds reports whether the sockets together hold more than limit bytes, or are too many, or hold more than their share
// of what the machine is short of.
func (m *socketMeter) exceeds(limit int64) (bool, error) {
	s, err := m.count()
	if err != nil || s.used > maxSockets {
		return s.used > maxSockets, err
	}
	most, err := mostPerSocket()
	if err != nil {
		return false, err
	}
	bounds, err := m.bounds()
	if err != nil {
		return false, err
	}
	short := bounds.short(s.machine)
	if !short && s.used*most <= limit { // the usual case: a few sockets or none
		return false, nil
	}
	if due, err := m.due(short); !due || err != nil {
		return false, err
	}
	if m.diag < 0 {
		if m.diag, err = openDiagIn(m.pid); err != nil {
			return false, err
		}
	}
	sum, err := sumSockets(m.diag)
	return sum.held > limit || short && bounds.overShare(s.machine, sum, m.programs()), err
}

// due reports whether the program may have filled its sockets since the last list. If the machine is short, the
// program's share can become smaller, too.
func (m *socketMeter) due(short bool) (bool, error) {
	cpu, err := m.cpu()
	if err != nil {
		return false, fmt.Errorf("processor time of %d: %w", m.pid, err)
	}
	used := cpu - m.listedCPU
	if !m.listed.IsZero() && (used == 0 && !short || used < socketCPU && time.Since(m.listed) < socketPause) {
		return false, nil
	}
	m.listed, m.listedCPU = time.Now(), cpu
	return true, nil
}

// A socketStat has the first numbers of sockstat (proc(5)).
type socketStat struct {
	used    int64 // sockets of the namespace, local ones included
	machine machineStat
}

// count reads sockstat.
//
// Each running execution asks for it 20 times a second, so the file stays open: to read it
// again takes 3 microseconds, to open it as well takes 10. The buffer is small, and not on the
// stack of each execution's goroutine, because it would double that.
func (m *socketMeter) count() (s socketStat, err error) {
	if m.stat < 0 {
		fd, err := pseudofs.OpenFD(fmt.Sprintf("/proc/%d/net/sockstat", m.pid), unix.O_RDONLY)
		if err != nil {
			return s, err
		}
		m.stat = fd
	}
	n, err := unix.Pread(m.stat, m.text[:], 0)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Pread(m.stat, m.text[:], 0)
	}
	if err != nil {
		return s, fmt.Errorf("read sockstat of %d: %w", m.pid, err)
	}
	if s, err = parseStat(m.text[:n]); err != nil {
		return s, fmt.Errorf("sockstat of %d begins with %q: %w", m.pid, m.text[:n], err)
	}
	return s, nil
}

// parseStat reads "sockets: used 2", then "TCP: inuse 0 orphan 0 tw 0 alloc 75 mem 48" and "UDP: inuse 1 mem 21". It
// allocates nothing: with a thousand executions it runs 20,000 times a second.
func parseStat(text []byte) (s socketStat, err error) {
	sockets, rest, _ := bytes.Cut(text, []byte("\n"))
	tcp, rest, _ := bytes.Cut(rest, []byte("\n"))
	udp, _, whole := bytes.Cut(rest, []byte("\n"))
	if !whole {
		return s, errors.New("too few lines")
	}
	s.used, err = numberAfter(sockets, "used")
	if err == nil {
		s.machine.orphans, err = numberAfter(tcp, "orphan")
	}
	if err == nil {
		s.machine.tcp, err = numberAfter(tcp, "mem")
	}
	if err == nil {
		s.machine.udp, err = numberAfter(udp, "mem")
	}
	return s, err
}

// numberAfter returns the word after name as a number.
func numberAfter(line []byte, name string) (int64, error) {
	found := false
	for word := range bytes.FieldsSeq(line) {
		if found {
			return strconv.ParseInt(string(word), 10, 64)
		}
		found = string(word) == name
	}
	return 0, errors.New("no " + name)
}

// mostPerSocket is the largest receive buffer of a sandbox in bytes: the larger of the maximum
// of SO_RCVBUF (socket(7)) and the maximum of TCP's own choice (tcp(7)). A new network namespace
// has the machine's values, which may differ from the values in the daemon's container.
var mostPerSocket = sync.OnceValues(func() (most int64, err error) {
	err = mount.OnThrowawayThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("network namespace: %w", err)
		}
		asked, err := largestAsked()
		if err != nil {
			return fmt.Errorf("largest receive buffer: %w", err)
		}
		chosen, err := largestChosen()
		most = max(asked, chosen)
		return err
	})
	return most, err
})

// largestAsked is the largest buffer that a program can ask for. The kernel reduces a larger
// one to twice net.core.rmem_max. Older kernels, such as Linux 6.1, show that setting in the
// machine's own network namespace only.
func largestAsked() (int64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	unasked, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return 0, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, math.MaxInt32); err != nil {
		return 0, err
	}
	asked, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	return int64(max(unasked, asked)), err
}

// largestChosen is the largest buffer that TCP chooses.
func largestChosen() (most int64, err error) {
	const path = "/proc/sys/net/ipv4/tcp_rmem"
	text, err := pseudofs.Read(path)
	if err != nil {
		return 0, err
	}
	for word := range strings.FieldsSeq(text) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		most = max(most, n)
	}
	return most, nil
}

// A socketSum is what sock_diag lists.
type socketSum struct {
	listed int64 // sockets
	held   int64 // bytes that no cgroup may be charged with
	// Bytes of the machine's memory for TCP and UDP, also those that a cgroup is charged with.
	tcp, udp int64
	orphans  int64
}

// sumSockets lists all sockets of the two families and two protocols of a sandbox.
func sumSockets(diag int) (sum socketSum, err error) {
	return sum, eachSocket(diag, everyState, sum.add)
}

// Layout of the attribute INET_DIAG_SKMEMINFO of linux/inet_diag.h and linux/sock_diag.h: an array
// of words of 32 bits.
const (
	diagMemory     = 7
	memoryReceived = 0 // SK_MEMINFO_RMEM_ALLOC: received, and the error queue
	memoryForward  = 4 // SK_MEMINFO_FWD_ALLOC: taken in advance
	memorySent     = 5 // SK_MEMINFO_WMEM_QUEUED: not yet taken by the peer
	memoryOptions  = 6 // SK_MEMINFO_OPTMEM
	memoryBacklog  = 7 // SK_MEMINFO_BACKLOG
	memoryWords    = 8 // at least
)

// orphaned are the states of a connection that its program has closed, by bit: FIN_WAIT1, FIN_WAIT2, LAST_ACK and CLOSING
// (net/tcp_states.h). A connection before accept() has no file either, but is in none of these.
const orphaned = 1<<4 | 1<<5 | 1<<9 | 1<<11

// add adds the socket of one message.
func (sum *socketSum) add(protocol byte, body []byte) error {
	sum.listed++
	memory := memoryOf(body[diagMessageSize:])
	sum.held += memory[memoryReceived] + memory[memoryOptions] + memory[memoryBacklog]
	if protocol == unix.IPPROTO_TCP {
		sum.tcp += memory[memoryReceived] + memory[memoryForward] + memory[memorySent] + memory[memoryBacklog]
	} else {
		sum.udp += memory[memoryReceived] + memory[memoryForward]
	}
	if binary.NativeEndian.Uint32(body[diagInodeAt:]) == 0 {
		sum.held += unacceptedBytes
		if protocol == unix.IPPROTO_TCP && orphaned>>body[diagStateAt]&1 == 1 {
			sum.orphans++
		}
	}
	return nil
}

// memoryOf finds the memory of a socket among the attributes of its message, in bytes.
func memoryOf(attributes []byte) (memory [memoryWords]int64) {
	for len(attributes) >= unix.SizeofNlAttr {
		size, kind := int(binary.NativeEndian.Uint16(attributes)), binary.NativeEndian.Uint16(attributes[2:])
		if size < unix.SizeofNlAttr || size > len(attributes) {
			return memory
		}
		if value := attributes[unix.SizeofNlAttr:size]; kind == diagMemory && len(value) >= 4*memoryWords {
			for i := range memory {
				memory[i] = int64(binary.NativeEndian.Uint32(value[4*i:]))
			}
		}
		attributes = attributes[min(align4(size), len(attributes)):]
	}
	return memory
}

// trySocketMemory lists the daemon's own sockets. It returns the finding for the preflight.
func trySocketMemory() (string, error) {
	fd, err := openDiag()
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	if _, err := sumSockets(fd); err != nil {
		return "", err
	}
	own := newSocketMeter(os.Getpid(), nil, nil)
	defer own.close()
	if _, err := own.count(); err != nil {
		return "", err
	}
	_, err = mostPerSocket()
	if err == nil {
		_, err = machineBounds()
	}
	return "can be measured", err
}
