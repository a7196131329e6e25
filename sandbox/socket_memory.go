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
	pid  int                           // a process of the namespace, on the machine
	cpu  func() (time.Duration, error) // the processor time of all processes of the namespace so far
	stat int                           // the namespace's sockstat, or -1 until it is needed
	diag int                           // sock_diag socket in the namespace, or -1 until it is needed

	listed    time.Time     // of the last list; zero: none
	listedCPU time.Duration // cpu at that time
}

func newSocketMeter(pid int, cpu func() (time.Duration, error)) *socketMeter {
	return &socketMeter{pid: pid, cpu: cpu, stat: -1, diag: -1}
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

// exceeds reports whether the sockets together hold more than limit bytes, or are too many.
func (m *socketMeter) exceeds(limit int64) (bool, error) {
	used, err := m.count()
	if err != nil || used > maxSockets {
		return used > maxSockets, err
	}
	most, err := mostPerSocket()
	if err != nil {
		return false, err
	}
	if used*most <= limit { // the usual case: a few sockets or none
		return false, nil
	}
	if due, err := m.due(); !due || err != nil {
		return false, err
	}
	if m.diag < 0 {
		if m.diag, err = openDiagIn(m.pid); err != nil {
			return false, err
		}
	}
	sum, err := sumSockets(m.diag)
	return sum.held > limit, err
}

// due reports whether the program may have filled its sockets since the last list.
func (m *socketMeter) due() (bool, error) {
	cpu, err := m.cpu()
	if err != nil {
		return false, fmt.Errorf("processor time of %d: %w", m.pid, err)
	}
	used := cpu - m.listedCPU
	if !m.listed.IsZero() && (used == 0 || used < socketCPU && time.Since(m.listed) < socketPause) {
		return false, nil
	}
	m.listed, m.listedCPU = time.Now(), cpu
	return true, nil
}

// count is the number of sockets of the namespace, local ones included.
//
// Each running execution asks for it 20 times a second, so the file stays open: to read it
// again takes 3 microseconds, to open it as well takes 10. The buffer is small, because a larger
// one would double the stack of each execution's goroutine.
func (m *socketMeter) count() (int64, error) {
	if m.stat < 0 {
		fd, err := pseudofs.OpenFD(fmt.Sprintf("/proc/%d/net/sockstat", m.pid), unix.O_RDONLY)
		if err != nil {
			return 0, err
		}
		m.stat = fd
	}
	var b [64]byte
	n, err := unix.Pread(m.stat, b[:], 0)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Pread(m.stat, b[:], 0)
	}
	if err != nil {
		return 0, fmt.Errorf("read sockstat of %d: %w", m.pid, err)
	}
	first, _, whole := bytes.Cut(b[:n], []byte("\n"))
	number, ok := bytes.CutPrefix(first, []byte("sockets: used "))
	used, err := strconv.ParseInt(string(number), 10, 64)
	if !whole || !ok || err != nil {
		return 0, fmt.Errorf("sockstat of %d begins with %q", m.pid, b[:n])
	}
	return used, nil
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

// A socketSum is the number of sockets that sock_diag lists, and the bytes that they hold.
type socketSum struct{ listed, held int64 }

// sumSockets lists all sockets of the two families and two protocols of a sandbox.
func sumSockets(diag int) (sum socketSum, err error) {
	return sum, eachSocket(diag, everyState, sum.add)
}

// Layout of the attribute INET_DIAG_SKMEMINFO of linux/inet_diag.h and linux/sock_diag.h: an array
// of words of 32 bits.
const (
	diagMemory     = 7
	memoryReceived = 0 // SK_MEMINFO_RMEM_ALLOC: received, and the error queue
	memoryOptions  = 6 // SK_MEMINFO_OPTMEM
	memoryBacklog  = 7 // SK_MEMINFO_BACKLOG
	memoryWords    = 8 // at least
)

// add adds the socket of one message.
func (sum *socketSum) add(_ byte, body []byte) error {
	sum.listed++
	if binary.NativeEndian.Uint32(body[diagInodeAt:]) == 0 {
		sum.held += unacceptedBytes
	}
	sum.held += memoryOf(body[diagMessageSize:])
	return nil
}

// memoryOf finds the memory of a socket among the attributes of its message, in bytes.
func memoryOf(attributes []byte) (sum int64) {
	for len(attributes) >= unix.SizeofNlAttr {
		size, kind := int(binary.NativeEndian.Uint16(attributes)), binary.NativeEndian.Uint16(attributes[2:])
		if size < unix.SizeofNlAttr || size > len(attributes) {
			return sum
		}
		if value := attributes[unix.SizeofNlAttr:size]; kind == diagMemory && len(value) >= 4*memoryWords {
			for _, word := range []int{memoryReceived, memoryOptions, memoryBacklog} {
				sum += int64(binary.NativeEndian.Uint32(value[4*word:]))
			}
		}
		attributes = attributes[min(align4(size), len(attributes)):]
	}
	return sum
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
	own := newSocketMeter(os.Getpid(), nil)
	defer own.close()
	if _, err := own.count(); err != nil {
		return "", err
	}
	_, err = mostPerSocket()
	return "can be measured", err
}
