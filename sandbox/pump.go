package sandbox

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
)

const (
	pumpBuffer = 32 << 10 // bytes per read; the kernel's pipe holds another 64 KiB (pipe(7))
	// A program that fills a pumpBuffer gets a larger pipe, if the kernel allows it
	// (pipe-user-pages-soft, pipe(7)), and is read in larger pieces. The whole process
	// has at most largeBuffers buffers for that. Without a free one, a stream is read
	// in smaller pieces.
	largePipe     = 1 << 20
	largeBuffer   = 256 << 10
	largeBuffers  = 16
	drainPatience = 1 * time.Second // for pipes after every process is dead
	// lineWait is how long a piece without a newline at its end waits for more bytes:
	// an unbuffered Python writes the newline separately.
	lineWait = 100 * time.Microsecond
)

// pipes are the daemon's and the sandbox's ends of the three streams.
type pipes struct {
	stdin          *os.File       // the daemon writes to it
	stdout, stderr *os.File       // the daemon reads from them
	inside         [3]*os.File    // the sandbox's ends, closed after its start
	output         sync.WaitGroup // the two goroutines that read output
	stdinOnce      sync.Once      // feed and finish both close stdin
}

// newPipes makes the pipes. After an error none of their descriptors stays open.
func newPipes() (*pipes, error) {
	p := &pipes{}
	for i, end := range []**os.File{&p.stdin, &p.stdout, &p.stderr} {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			p.close()
			return nil, os.NewSyscallError("pipe2", err)
		}
		ours, theirs := fds[0], fds[1]
		if i == 0 {
			ours, theirs = theirs, ours
		}
		// Go's runtime polls non-blocking files. The sandbox's end stays blocking.
		err := unix.SetNonblock(ours, true)
		*end, p.inside[i] = os.NewFile(uintptr(ours), "pipe"), os.NewFile(uintptr(theirs), "pipe")
		if err != nil {
			p.close()
			return nil, os.NewSyscallError("fcntl", err)
		}
	}
	return p, nil
}

// giveTo makes the script the owner of the pipes, so that it can open /dev/stdin,
// /dev/stdout and /dev/stderr. libcontainer has made init the owner.
func (p *pipes) giveTo(id uint32) error {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		if err := f.Chown(int(id), int(id)); err != nil {
			return err
		}
	}
	return nil
}

func (p *pipes) closeInside() {
	for _, f := range p.inside {
		if f != nil {
			f.Close()
		}
	}
}

// start starts the goroutines that copy the streams.
func (p *pipes) start(io IO) {
	go p.feed(io.Stdin)
	p.output.Add(2)
	go func() { defer p.output.Done(); drain(p.stdout, io.Stdout) }()
	go func() { defer p.output.Done(); drain(p.stderr, io.Stderr) }()
}

// feed copies r to the program until r ends or the program closes its input. finish
// doesn't wait for feed, because a Read may block forever.
func (p *pipes) feed(r io.Reader) {
	defer p.closeStdin()
	if r == nil {
		return
	}
	b := make([]byte, pumpBuffer)
	for {
		n, err := r.Read(b)
		if n > 0 {
			// A program may close its input early; that is no error.
			if _, err := p.stdin.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *pipes) closeStdin() { p.stdinOnce.Do(func() { p.stdin.Close() }) }

// buffers are shared by all streams. A stream has a buffer only while it is read, so an
// execution without output takes none.
type buffers struct {
	small, large sync.Pool
	left         atomic.Int32 // large buffers that are free
}

func newBuffers() *buffers {
	b := &buffers{}
	b.small.New = func() any { return bufferOf(pumpBuffer) }
	b.large.New = func() any { return bufferOf(largeBuffer) }
	b.left.Store(largeBuffers)
	return b
}

func bufferOf(size int) *[]byte {
	b := make([]byte, size)
	return &b
}

var pumpBuffers = newBuffers()

// get returns a buffer: a large one if large is set and one is free, else a small one.
func (b *buffers) get(large bool) *[]byte {
	if large {
		if b.left.Add(-1) >= 0 {
			return b.large.Get().(*[]byte)
		}
		b.left.Add(1)
	}
	return b.small.Get().(*[]byte)
}

// put returns a buffer to its pool. The stream must not use it afterwards.
func (b *buffers) put(buffer *[]byte) {
	if len(*buffer) == largeBuffer {
		b.large.Put(buffer)
		b.left.Add(1)
		return
	}
	b.small.Put(buffer)
}

// drain copies f to w until f ends. After an error of w it reads on and drops the rest.
func drain(f *os.File, w io.Writer) {
	conn, err := f.SyscallConn()
	o := outlet{f: f, conn: conn, w: w}
	for err == nil {
		err = o.drainOnce()
	}
}

// An outlet is a stream of output while it is drained.
type outlet struct {
	f     *os.File
	conn  syscall.RawConn
	w     io.Writer // nil: the output is dropped
	large bool      // the last read filled a small buffer
	grown bool      // growPipe has run
}

// drainOnce waits for output and writes it to w. After an error of w it drops all further
// output.
func (o *outlet) drainOnce() error {
	buffer, n, err := o.readWhenReady()
	if buffer != nil {
		defer pumpBuffers.put(buffer)
		b := *buffer
		if 0 < n && n < len(b) && b[n-1] != '\n' {
			time.Sleep(lineWait)
			n += readNow(o.f, b[n:])
		}
		if o.large = n >= pumpBuffer; o.large {
			o.growPipe()
		}
		if n > 0 && o.w != nil {
			if _, werr := o.w.Write(b[:n]); werr != nil {
				o.w = nil
			}
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) { // finish has set a deadline
		drainRest(o.f, o.w)
	}
	return err
}

// growPipe enlarges the pipe, once (F_SETPIPE_SZ, fcntl(2)). If the kernel refuses, the
// small pipe still works.
func (o *outlet) growPipe() {
	if o.grown {
		return
	}
	o.grown = true
	_ = o.conn.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, largePipe) })
}

// readWhenReady waits for output, takes a buffer and reads once. The caller returns the
// buffer if it is not nil. At the end of the stream the error is io.EOF.
func (o *outlet) readWhenReady() (buffer *[]byte, n int, err error) {
	// The runtime calls the function again when the pipe has something to read. Only then is a
	// buffer taken: most streams are silent most of the time.
	werr := o.conn.Read(func(fd uintptr) bool {
		if buffer == nil {
			buffer = pumpBuffers.get(o.large)
		}
		n, err = pseudofs.ReadOnce(int(fd), *buffer)
		if err != unix.EAGAIN {
			return true
		}
		pumpBuffers.put(buffer)
		buffer, n, err = nil, 0, nil
		return false
	})
	switch {
	case werr != nil:
		return buffer, 0, werr
	case err != nil:
		return buffer, 0, os.NewSyscallError("read", err)
	case n == 0:
		return buffer, 0, io.EOF
	}
	return buffer, n, nil
}

// drainRest reads the rest from the pipe of a dead program. If w is slow, the deadline
// passes while the end of the output is still in the pipe.
func drainRest(f *os.File, w io.Writer) {
	if w == nil || f.SetReadDeadline(time.Time{}) != nil {
		return
	}
	buffer := pumpBuffers.get(true)
	defer pumpBuffers.put(buffer)
	b := *buffer
	for n := readNow(f, b); n > 0; n = readNow(f, b) {
		if _, err := w.Write(b[:n]); err != nil {
			return
		}
	}
}

// readNow reads without waiting. It ignores the end and errors; the next read finds them.
func readNow(f *os.File, b []byte) (n int) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	_ = conn.Read(func(fd uintptr) bool {
		n, _ = unix.Read(int(fd), b)
		return true
	})
	return max(n, 0)
}

// finish waits until the output is read, for at most drainPatience. The caller has
// made sure that every process is dead, so only a slow writer takes longer.
func (p *pipes) finish() {
	p.closeStdin()
	deadline := time.Now().Add(drainPatience)
	_ = p.stdout.SetReadDeadline(deadline)
	_ = p.stderr.SetReadDeadline(deadline)
	p.output.Wait()
}

func (p *pipes) close() {
	p.closeInside()
	for _, f := range []*os.File{p.stdout, p.stderr} {
		if f != nil {
			f.Close()
		}
	}
	if p.stdin != nil {
		p.closeStdin()
	}
}
