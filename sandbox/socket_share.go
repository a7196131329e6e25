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

// All network namespaces share the machine's memory for TCP and UDP (net.ipv4.tcp_mem, udp_mem) and its number of orphans,
// closed connections with data that the peer has not taken (net.ipv4.tcp_max_orphans). When they are used up, the kernel
// slows down or resets the connections of every process, and drops their datagrams (tcp(7), udp(7)). The memory limits of
// all sandboxes together may be many times as large. So when the machine runs short, the daemon ends the programs that
// hold more than their share.

// A machineStat is what the sockets of the whole machine hold, or the bounds from which on it is short.
type machineStat struct {
	tcp, udp int64 // pages
	orphans  int64
}

// machineBounds returns the bounds: three quarters of the memory at which the kernel begins to take room away from
// connections, and half of the orphans, since the kernel counts an orphan that sends again twice (tcp_out_of_resources in
// net/ipv4/tcp_timer.c). Without the settings, which only the first network namespace has, the bounds come from the
// kernel's defaults: tcp_init in net/ipv4/tcp.c, udp_init in net/ipv4/udp.c.
var machineBounds = sync.OnceValues(func() (b machineStat, err error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return b, fmt.Errorf("size of memory: %w", err)
	}
	memory := int64(info.Totalram) * int64(info.Unit)
	pages := memory / int64(os.Getpagesize())
	for _, s := range []struct {
		name  string
		at    int   // its word
		other int64 // without the setting
		bound *int64
	}{{"tcp_mem", 1, pages / 16, &b.tcp}, {"udp_mem", 1, pages / 8, &b.udp}, {"tcp_max_orphans", 0, min(memory>>18, 1<<18), &b.orphans}} {
		if *s.bound, err = setting(s.name, s.at, s.other); err != nil {
			return b, err
		}
	}
	b.tcp, b.udp, b.orphans = b.tcp/4*3, b.udp/4*3, b.orphans/2
	return b, nil
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

// short reports whether the machine holds more than one of the bounds b.
func (b machineStat) short(m machineStat) bool {
	return m.tcp > b.tcp || m.udp > b.udp || m.orphans > b.orphans
}

// overShare reports whether the sockets of one of so many programs hold more than its share of what is short.
func (b machineStat) overShare(m machineStat, sum socketSum, programs int) bool {
	n, page := int64(max(programs, 1)), int64(os.Getpagesize())
	return m.tcp > b.tcp && sum.tcp/page > b.tcp/n || m.udp > b.udp && sum.udp/page > b.udp/n || m.orphans > b.orphans && sum.orphans > b.orphans/n
}

// programs is the number of programs that run.
func (h *Host) programs() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.running)
}
