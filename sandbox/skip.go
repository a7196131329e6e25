package sandbox

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Skipper is a writer of output that can do without the content. A program may print without end, and to copy its
// output takes the daemon twice the processor time that the program takes to print it. The program's cgroup does not
// count this time. So the kernel drops output for a Skipper, and it is not copied (splice(2) to /dev/null). The program
// waits if it prints more than skipRate.
type Skipper interface {
	// Skips reports whether only the number of further bytes counts, and the last ones.
	Skips() bool
	// Skip is called instead of Write, with the number of bytes that were dropped. At least the last skipTail bytes of
	// the stream come by Write.
	Skip(n int64)
}

const (
	skipTail = 4 << 10
	// skipRate is the number of bytes that are dropped in a second. A MiB takes the daemon some 0.2 ms of a processor.
	skipRate = 256 << 20
)

// devNull is -1 if it can't be opened. Output is then copied and dropped.
var devNull = sync.OnceValue(func() int {
	fd, err := unix.Open(os.DevNull, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
})

// skips reports whether the writer skips.
func (o *outlet) skips() bool {
	s, ok := o.w.(Skipper)
	return ok && s.Skips()
}

// If the writer skips, skip drops the content of the pipe except the last skipTail bytes. The read that follows finds the
// errors.
func (o *outlet) skip(fd int) {
	if !o.skips() {
		return
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ) // FIONREAD
	if err != nil {
		return
	}
	if size, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0); err == nil {
		o.wait = time.Duration(size) * time.Second / skipRate // for a pipe that is full each time
	}
	null := devNull()
	if n <= skipTail || null < 0 {
		return
	}
	dropped, err := unix.Splice(fd, nil, null, nil, n-skipTail, unix.SPLICE_F_NONBLOCK)
	if err == nil && dropped > 0 {
		o.w.(Skipper).Skip(dropped)
	}
}
