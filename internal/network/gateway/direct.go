package gateway

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/waiter"
)

// Most connections need no buffer for copying. The stack writes the client's data from its own buffer to the socket, and
// reads the destination's data from the socket into its own buffer. It reads only as much as the buffer has room for. So
// the data of a destination waits in the socket while the program does not read, and each byte is copied once less.
//
// The socket is used by system calls of this file, inside of RawConn, which waits with Go's poller.

// largestMove bounds how much is moved at once, in bytes: the payload of the largest packet that the stack sends. More
// would keep the stack from handling packets of the connection for too long.
const largestMove = largestRead - header.TCPTotalHeaderMaximumSize - 1

// outward moves the client's data to the destination. It moves read first, bytes that were read before.
func (c *connection) outward(read []byte) error {
	early := slices.Concat(read, c.in.again)
	if c.in.again = nil; len(early) > 0 {
		if err := c.pass(c.out, early, &c.sent); err != nil {
			return err
		}
	}
	if c.out.Conn != net.Conn(c.out.Socket) { // TLS to a proxy
		return c.copy(c.out, c.in, &c.sent)
	}
	w := &socketWriter{connection: c}
	return c.move(waiter.ReadableEvents, &c.sent, syscall.RawConn.Write, w.move)
}

// inward moves the destination's data to the client. It moves read first, bytes that were read before.
func (c *connection) inward(read []byte) error {
	early := slices.Concat(read, c.out.Early)
	if c.out.Early = nil; len(early) > 0 {
		if err := c.pass(c.in, early, &c.received); err != nil {
			return err
		}
	}
	if c.out.Conn != net.Conn(c.out.Socket) {
		return c.copy(c.in, c.out, &c.received)
	}
	r := &socketReader{connection: c}
	return c.move(waiter.WritableEvents, &c.received, syscall.RawConn.Read, r.move)
}

// move calls step until the end of the data. Before each step, it waits until the stack is ready for events, and with wait
// until the socket is ready. A step returns the number of bytes that it has moved, and EAGAIN if the socket was not ready.
func (c *connection) move(events waiter.EventMask, sum *atomic.Int64, wait func(syscall.RawConn, func(uintptr) bool) error, step func(fd int) (int, error)) error {
	socket, err := c.out.Socket.SyscallConn()
	if err != nil {
		return err
	}
	entry, ready := waiter.NewChannelEntry(events)
	c.queue.EventRegister(&entry)
	defer c.queue.EventUnregister(&entry)
	var n int
	var failed error
	once := func(fd uintptr) bool {
		n, failed = step(int(fd))
		return n > 0 || failed != unix.EAGAIN
	}
	for {
		for c.endpoint.Readiness(events) == 0 { // an endpoint that was reset is ready
			<-ready
		}
		if err := wait(socket, once); err != nil {
			return err
		}
		if n > 0 {
			c.activity.note()
			c.counted(sum, n)
			if err := c.gateway.entries.tenant.carry(c.gateway.life, n); err != nil {
				return err
			}
		}
		switch {
		case failed == nil || failed == unix.EAGAIN:
		case errors.Is(failed, io.EOF):
			return c.cut()
		default:
			return failed
		}
	}
}

// A socketWriter is the destination, to the stack. The stack calls Write while it holds the endpoint's lock, so Write does
// not wait.
type socketWriter struct {
	*connection
	fd    int
	moved int
	err   error
}

// move moves the data that the stack has received, at most about largestMove bytes.
func (w *socketWriter) move(fd int) (n int, err error) {
	w.fd, w.moved, w.err = fd, 0, nil
	_, failed := w.endpoint.Read(w, tcpip.ReadOptions{})
	if w.err != nil && w.err != errMoved {
		return w.moved, w.err
	}
	switch failed.(type) {
	case nil, *tcpip.ErrWouldBlock:
		return w.moved, nil
	case *tcpip.ErrClosedForReceive:
		return 0, io.EOF
	}
	return w.moved, errors.New(failed.String())
}

// errMoved ends a move, so that the stack handles the packets that have come.
var errMoved = errors.New("enough is moved")

// Write writes one buffer of the stack to the socket. The stack keeps the bytes that Write has not taken.
func (w *socketWriter) Write(b []byte) (int, error) {
	if w.moved > 0 && w.moved+len(b) > largestMove {
		w.err = errMoved
		return 0, w.err
	}
	if w.err = w.admit(len(b)); w.err != nil {
		return 0, w.err
	}
	var n int
	n, w.err = retried(unix.Write, w.fd, b)
	if n < len(b) {
		w.gateway.entries.count(n - len(b))
		if w.err == nil {
			w.err = unix.EAGAIN
		}
	}
	w.moved += n
	return n, w.err
}

// A socketReader is the destination's data, to the stack (tcpip.Payloader).
type socketReader struct {
	*connection
	fd      int
	waiting int    // bytes in head, or in the socket
	head    []byte // was read already
	one     [1]byte
	err     error
}

// move moves the data that waits in the socket, as far as the stack has room for it.
func (r *socketReader) move(fd int) (n int, err error) {
	r.fd, r.err = fd, nil
	if err := r.look(); err != nil {
		return 0, err
	}
	// Atomic: the stack reads while it holds the endpoint's lock. Without it, the stack could find after its read that the
	// buffer has become smaller, and would drop the bytes that it has read.
	moved, failed := r.endpoint.Write(r, tcpip.WriteOptions{Atomic: true})
	switch failed.(type) {
	case nil, *tcpip.ErrWouldBlock:
		return int(moved), r.err
	}
	if r.err != nil {
		return 0, r.err
	}
	return 0, errors.New(failed.String())
}

// look finds out how many bytes wait. If no byte waits, it reads one, to know whether the data has ended.
func (r *socketReader) look() (err error) {
	if r.waiting = len(r.head); r.waiting > 0 {
		return nil
	}
	if r.waiting, err = unix.IoctlGetInt(r.fd, unix.SIOCINQ); err != nil || r.waiting > 0 {
		r.waiting = min(r.waiting, largestMove)
		return err
	}
	if r.waiting, err = retried(unix.Read, r.fd, r.one[:]); err == nil && r.waiting == 0 {
		return io.EOF
	}
	r.head = r.one[:r.waiting]
	return err
}

func (r *socketReader) Len() int { return r.waiting }

// Read reads bytes that are known to be there, because move has looked.
func (r *socketReader) Read(b []byte) (n int, err error) {
	if len(b) == 0 { // the stack asks whether the end is reached
		return 0, nil
	}
	if n = copy(b, r.head); n > 0 {
		r.head = nil
	} else if n, err = retried(unix.Read, r.fd, b); err == nil && n == 0 {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = r.admit(n)
	}
	r.err = err
	return n, err
}

// retried calls a system call again if a signal has interrupted it. n is not negative.
func retried(call func(int, []byte) (int, error), fd int, b []byte) (n int, err error) {
	for {
		if n, err = call(fd, b); err != unix.EINTR {
			return max(n, 0), err
		}
	}
}
