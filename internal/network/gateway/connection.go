package gateway

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/skillrun/skillrun/internal/network/dial"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// A connection carries data between a TCP connection of the sandbox and one to its destination. A slow
// reader stops the other side's sender: only the buffers of the stack and of the kernel hold data, see direct.go. With
// TLS to a proxy, and for requests that are checked, one more buffer for each direction holds data.
type connection struct {
	gateway  *Gateway
	decision decision
	queue    waiter.Queue
	endpoint tcpip.Endpoint
	in       *client    // to the sandbox
	out      *dial.Conn // to the destination
	start    time.Time  // of the dial

	// Of a connection whose names are checked, see retry.go.
	answered chan struct{} // closed after the server's first bytes
	retry    bool          // valid after answered

	credentials    []string // that were added to its requests, by name; valid after carry
	spoken         []string // names that the client has sent and that are allowed; valid after carry
	claimed        bool     // it has not resolved some of spoken to the address; valid after carry
	refusal        atomic.Pointer[string]
	sent, received atomic.Int64
	activity       activity
	large          atomic.Bool // it has large buffers
	aborted        sync.Once
	resets         atomic.Bool // set before abort resets a side
}

// A client is a connection of the sandbox. Bytes that were read to look at them are read again.
type client struct {
	*gonet.TCPConn
	again []byte
}

func (c *client) Read(b []byte) (int, error) {
	if len(c.again) > 0 {
		n := copy(b, c.again)
		c.again = c.again[n:]
		return n, nil
	}
	return c.TCPConn.Read(b)
}

// Sizes of a direction's buffer. A read that fills the buffer is followed by one into a large buffer, because
// more data waits: with fewer reads a connection carries more. After any other read no data waits, so the next
// buffer is a small one: an idle connection holds little memory.
const (
	smallCopy = 16 << 10
	largeCopy = 64 << 10
)

var (
	smallBuffers = sync.Pool{New: func() any { return newBuffer(smallCopy) }}
	largeBuffers = sync.Pool{New: func() any { return newBuffer(largeCopy) }}
)

func newBuffer(size int) *[]byte {
	b := make([]byte, size)
	return &b
}

// buffersAfter returns where the buffer comes from after a read of n bytes into one of size bytes.
func buffersAfter(n, size int) *sync.Pool {
	if n == size {
		return &largeBuffers
	}
	return &smallBuffers
}

// run carries the connection until both directions have ended, and reports it.
func (c *connection) run() {
	c.carry()
	done := c.decision.connection(c.start, policy.Connection{Names: c.decision.likely, Claimed: c.claimed,
		Sent: c.sent.Load(), Received: c.received.Load(), Credentials: c.credentials})
	// A client sends the name that it means. Before, only the names of the address were known.
	if len(c.spoken) > 0 {
		done.Name, done.Names = c.spoken[0], c.spoken[1:]
	}
	if reason := c.refusal.Load(); reason != nil && done.Sent == 0 {
		done.Error = *reason
	}
	c.gateway.report.closed(done)
}

// carry returns when both directions have ended.
func (c *connection) carry() {
	stop := c.activity.watch(c.gateway.life, c.gateway.entries.limits.Idle, c.abort)
	defer stop()
	defer c.shrink()
	if b, ok := c.brokered(); ok {
		b.serve()
		c.in.Close()
		c.out.Close()
		return
	}
	// One goroutine for each direction: this one sends.
	received := make(chan struct{})
	go func() {
		defer close(received)
		c.finish(c.receive(), c.in.CloseWrite)
	}()
	c.finish(c.send(), c.out.CloseWrite)
	<-received
	c.in.Close()
	c.out.Close()
}

// send carries the client's data. If some names are not allowed, it checks the client's name first.
func (c *connection) send() error {
	if !c.decision.reads() {
		return c.outward(nil)
	}
	return c.sendChecked()
}

// A refusedError is a decision to refuse a connection because of the data that the client sent.
type refusedError decision

func (e refusedError) Error() string { return e.reason }

// finish ends one direction. After an error or a reset it ends both. Otherwise it passes on the end of
// the data.
func (c *connection) finish(err error, closeWrite func() error) {
	var refused refusedError
	if errors.As(err, &refused) {
		c.gateway.deny(decision(refused))
		c.refusal.Store(&refused.reason)
	}
	// closeWrite ends one direction (shutdown(2)). The peer then sees the end of the data, and can still answer.
	if err != nil || closeWrite() != nil {
		c.abort()
	}
}

// abort resets both sides, so that neither peer takes a truncated stream for a complete one.
func (c *connection) abort() {
	c.aborted.Do(func() {
		c.resets.Store(true)
		c.endpoint.Abort()
		c.out.Reset()
	})
}

// copy carries data through a buffer. It returns nil at the end of the data.
func (c *connection) copy(to io.Writer, from io.Reader, sum *atomic.Int64) error {
	buffers := &smallBuffers
	b := buffers.Get().(*[]byte)
	defer func() { buffers.Put(b) }()
	for {
		n, err := from.Read(*b)
		if n > 0 {
			if err := c.pass(to, (*b)[:n], sum); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return c.cut()
		}
		if err != nil {
			return err
		}
		if next := buffersAfter(n, len(*b)); next != buffers {
			buffers.Put(b)
			buffers = next
			b = buffers.Get().(*[]byte)
		}
	}
}

// cut returns an error if the Gateway itself ended the data. The stack reports an aborted side like a
// side that has sent everything.
func (c *connection) cut() error {
	if c.resets.Load() || c.gateway.life.Err() != nil {
		return net.ErrClosed
	}
	return nil
}

// pass writes b and counts it.
func (c *connection) pass(to io.Writer, b []byte, sum *atomic.Int64) error {
	if err := c.admit(len(b)); err != nil {
		return err
	}
	if err := c.gateway.entries.tenant.carry(c.gateway.life, len(b)); err != nil {
		return err
	}
	c.activity.note()
	_, err := to.Write(b)
	c.counted(sum, len(b))
	return err
}

// admit counts n bytes. It returns a refusal if they are more than the limit allows.
func (c *connection) admit(n int) error {
	if c.gateway.entries.count(n) {
		return nil
	}
	return refusedError(c.decision.refuse(policy.Verdict{Reason: c.gateway.entries.bytesReason()}))
}

// counted adds n bytes to a sum. Beyond growAfter bytes the connection asks for large buffers.
func (c *connection) counted(sum *atomic.Int64, n int) {
	switch all := sum.Add(int64(n)); {
	case c.large.Load():
		// The stack reads the size and stores it again, without a lock (updateSndBufferUsage in gVisor). So it may
		// have undone grow.
		c.endpoint.SocketOptions().SetSendBufferSize(largeSend, false)
	case all >= growAfter:
		c.grow()
	}
}

// grow gives a busy connection large buffers, unless maxLarge connections of the tenant have such buffers.
func (c *connection) grow() {
	large := &c.gateway.entries.tenant.large
	if !large.take() {
		return
	}
	if !c.large.CompareAndSwap(false, true) { // the other direction was quicker
		large.give()
		return
	}
	fixBuffers(c.endpoint, largeSend, largeWindow)
	dial.UnlimitBuffers(c.out.Socket)
}

// shrink gives the large buffers back after the connection's end, so that another connection can have such buffers.
func (c *connection) shrink() {
	if c.large.Load() {
		c.gateway.entries.tenant.large.give()
	}
}

// fixBuffers sets the sizes of the buffers to and from the sandbox. The stack no longer chooses them.
func fixBuffers(e tcpip.Endpoint, send, window int64) {
	e.SocketOptions().SetSendBufferSize(send, true)
	e.SocketOptions().SetReceiveBufferSize(window, true)
}
