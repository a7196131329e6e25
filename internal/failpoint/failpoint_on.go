//go:build skillrun_faults

package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var (
	deadly, passes = parse(os.Getenv(KillVar))
	reached        atomic.Int64 // how often deadly was reached
)

func parse(text string) (Point, int64) {
	name, times, _ := strings.Cut(text, ":")
	n, _ := strconv.ParseInt(times, 10, 64)
	return Point(name), n
}

// Reach kills the daemon with SIGKILL at the point that KillVar names. No deferred function runs and
// nothing is flushed, as if the kernel or an operator had killed it.
func Reach(p Point) {
	if p != deadly || reached.Add(1) <= passes {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way: no instruction after the point may run
}
