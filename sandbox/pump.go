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
)

const (
	pumpBuffer = 32 << 10 // for what is read at once; the kernel's pipe holds 64 KiB beside
	// A program that fills a pumpBuffer gets a larger pipe, if the kernel allows it
	// (fs.pipe-user-pages-soft), and is read in larger pieces. There is a bound on
	// buffers for them in the whole process: who finds none reads smaller pieces.
	largePipe     = 1 << 20
	largeBuffer   = 256 << 10
	largeBuffers  = 16
	drainPatience = 1 * time.Second // for pipes after every process is dead
	// lineWait is what a piece that doesn't end a line waits for its rest: an
	// unbuffered Python writes the end of a line apart from the line.
	lineWait = 100 * time.Microsecond
)

// pipes are the daemon's and the sandbox's ends of the three streams.
type pipes struct {
	stdin          *os.File    // written by us
	stdout, stderr *os.File    // read by us
	inside         [3]*os.File // the sandbox's ends, closed after its start
	output         sync.WaitGroup
	stdinOnce      sync.Once
}

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
		// Only ours is for the runtime's poller, which a non-blocking one goes to.
		err := unix.SetNonblock(ours, true)
		*end, p.inside[i] = os.NewFile(uintptr(ours), "pipe"), os.NewFile(uintptr(theirs), "pipe")
		if err != nil {
			p.close()
			return nil, os.NewSyscallError("fcntl", err)
		}
	}
	return p, nil
}

// giveTo makes the script the owner of the pipes, so that it can open
// /dev/stdout and its like. libcontainer gave them to init.
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

// start begins to pump.
func (p *pipes) start(io IO) {
	go p.feed(io.Stdin)
	p.output.Add(2)
	go func() { defer p.output.Done(); drain(p.stdout, io.Stdout) }()
	go func() { defer p.output.Done(); drain(p.stderr, io.Stderr) }()
}

// feed copies r to the program until one of them has enough. Not waited for:
// a Read may block for as long as it likes.
func (p *pipes) feed(r io.Reader) {
	defer p.closeStdin()
	if r == nil {
		return
	}
	b := make([]byte, pumpBuffer)
	for {
		n, err := r.Read(b)
		if n > 0 {
			// A program that doesn't want its input is nobody's error.
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

// buffers are for what is being read: an execution that says nothing has none.
type buffers struct {
	small, large sync.Pool
	left         atomic.Int32 // large ones that nobody has
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

// get returns a buffer, a large one if that is asked for and there is one.
func (b *buffers) get(large bool) *[]byte {
	if large {
		if b.left.Add(-1) >= 0 {
			return b.large.Get().(*[]byte)
		}
		b.left.Add(1)
	}
	return b.small.Get().(*[]byte)
}

func (b *buffers) put(buffer *[]byte) {
	if len(*buffer) == largeBuffer {
		b.large.Put(buffer)
		b.left.Add(1)
		return
	}
	b.small.Put(buffer)
}

// drain reads f to its end, and hands w what it takes.
func drain(f *os.File, w io.Writer) {
	conn, err := f.SyscallConn()
	o := outlet{f: f, conn: conn, w: w}
	for err == nil {
		err = o.drainOnce()
	}
}

// An outlet is a stream of output as it is drained.
type outlet struct {
	f     *os.File
	conn  syscall.RawConn
	w     io.Writer // nil: nobody gets it
	large bool      // the program has filled a buffer with what it printed last
	grown bool      // the pipe is a large one, or can't be
}

// drainOnce waits for something to read and hands it on. After an error of w's nobody gets
// what comes next.
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
	if errors.Is(err, os.ErrDeadlineExceeded) {
		drainRest(o.f, o.w)
	}
	return err
}

// growPipe makes the pipe a large one, once. One that stays as it is does as well.
func (o *outlet) growPipe() {
	if o.grown {
		return
	}
	o.grown = true
	_ = o.conn.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, largePipe) })
}

// readWhenReady reads once, into a buffer that it gets when there is something to
// read. At the end the error is io.EOF.
func (o *outlet) readWhenReady() (buffer *[]byte, n int, err error) {
	werr := o.conn.Read(func(fd uintptr) bool {
		if buffer == nil {
			buffer = pumpBuffers.get(o.large)
		}
		n, err = readOnce(int(fd), *buffer)
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

// drainRest takes what is in the pipe of a dead program. The deadline may have
// passed while w was slow, with the end of the output still in the pipe.
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

// readNow reads what is there already. Ends and errors are left to the next Read.
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

// finish waits until the output is read, at most for the drain's patience. It
// is called when no process is left, so only a slow writer can take longer.
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
