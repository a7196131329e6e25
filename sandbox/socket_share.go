package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
)

// All network namespaces share the machine's memory for TCP (net.ipv4.tcp_mem) and its number of orphans, closed
// connections with data that the peer has not taken (net.ipv4.tcp_max_orphans). When they are used up, the kernel slows
// down or resets the connections of every process (tcp(7)). The memory limits of all sandboxes together may be many
// times as large. So when the machine runs short, the daemon ends the programs that hold more than their share.

// tcpBounds are the uses from which on the machine is short of TCP memory, in pages, and of orphans.
type tcpBounds struct{ pages, orphans int64 }

// machineTCP returns the machine's bounds: three quarters of the memory at which the kernel begins to take room away from
// connections, and half of the orphans, since the kernel counts an orphan that sends again twice (tcp_out_of_resources in
// net/ipv4/tcp_timer.c). Without the settings, which only the first network namespace has, the bounds come from the
// kernel's defaults, tcp_init in net/ipv4/tcp.c.
var machineTCP = sync.OnceValues(func() (tcpBounds, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return tcpBounds{}, fmt.Errorf("size of memory: %w", err)
	}
	memory := int64(info.Totalram) * int64(info.Unit)
	pressure, err := setting("tcp_mem", 1, memory/16/int64(os.Getpagesize()))
	if err != nil {
		return tcpBounds{}, err
	}
	orphans, err := setting("tcp_max_orphans", 0, min(memory>>18, 1<<18))
	return tcpBounds{pages: pressure / 4 * 3, orphans: orphans / 2}, err
})

// setting reads one number of a setting of IPv4. If the network namespace does not have it, the result is other.
func setting(name string, at int, other int64) (int64, error) {
	text, err := pseudofs.Read("/proc/sys/net/ipv4/" + name)
	if errors.Is(err, fs.ErrNotExist) {
		return other, nil
	}
	if err != nil {
		return 0, err
	}
	words := strings.Fields(text)
	if len(words) <= at {
		return 0, fmt.Errorf("%s: got %q", name, text)
	}
	return strconv.ParseInt(words[at], 10, 64)
}

// short reports whether the machine is short of what it has for TCP.
func (b tcpBounds) short(s socketStat) bool { return s.pages > b.pages || s.orphans > b.orphans }

// overShare reports whether the sockets of one of so many programs hold more than its share of what is short.
func (b tcpBounds) overShare(s socketStat, sum socketSum, programs int) bool {
	n := int64(max(programs, 1))
	return s.pages > b.pages && sum.tcp > b.pages/n*int64(os.Getpagesize()) || s.orphans > b.orphans && sum.orphans > b.orphans/n
}

// programs is the number of programs that run.
func (h *Host) programs() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.running)
}
