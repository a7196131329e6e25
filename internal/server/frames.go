package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/skillrun/skillrun/internal/ingress"
	"google.golang.org/grpc/tap"
)

// gRPC makes room for a whole message as soon as it has read the message's size, and
// has no hook before that. So the connection itself looks at what comes in: it
// follows HTTP/2's frames (RFC 9113, section 4.1) and gRPC's messages in them (five
// bytes before each: a flag, and the size), and asks the budget about each message.
// One that is refused is announced to gRPC as an empty one, and the handler, who
// knows better, answers with an error that says why. What follows of it is within
// the stream's window, and dropped with the stream.

const (
	prefaceBytes     = 24 // "PRI * HTTP/2.0 ...", section 3.4
	frameHeaderBytes = 9
	frameData        = 0x0
	flagPadded       = 0x8
	messageHeader    = 5
	readBuffer       = 32 << 10
)

// A meteredConn is a connection whose messages are counted. It must be read without
// a buffer between it and gRPC: then the frame that it has returned last is the one
// that gRPC is looking at, which is how a call finds its stream.
type meteredConn struct {
	net.Conn
	budget *budget
	in     *bufio.Reader

	// By the reader alone.
	preface int // bytes of it that are to come
	header  [frameHeaderBytes]byte
	at      int    // bytes of header that have been returned
	left    int    // bytes of the frame's payload that have not been read
	padding int    // of those; -1: its length is still to come
	ready   []byte // read and not yet returned
	small   [messageHeader]byte
	stream  uint32
	intake  *intake // of the frame, if it carries data of a call

	mu      sync.Mutex
	intakes map[uint32]*intake
}

func newMeteredConn(conn net.Conn, b *budget) *meteredConn {
	return &meteredConn{
		Conn: conn, budget: b, in: bufio.NewReaderSize(conn, readBuffer),
		preface: prefaceBytes, at: frameHeaderBytes, intakes: map[uint32]*intake{},
	}
}

// metered is what a connection's AuthInfo knows of it.
type metered struct{ conn *meteredConn }

func (m metered) meter() *meteredConn { return m.conn }

// connectionOf returns the connection of a call, or nil if none is counted.
func connectionOf(ctx context.Context) *ingress.Conn {
	if p, ok := peer.FromContext(ctx); ok {
		if auth, ok := p.AuthInfo.(interface{ meter() *meteredConn }); ok {
			conn, _ := auth.meter().Conn.(*ingress.Conn)
			return conn
		}
	}
	return nil
}

// tapped is called by a connection's reader for each call that comes in.
func tapped(ctx context.Context, _ *tap.Info) (context.Context, error) {
	if p, ok := peer.FromContext(ctx); ok {
		if auth, ok := p.AuthInfo.(interface{ meter() *meteredConn }); ok {
			return auth.meter().begin(ctx), nil
		}
	}
	return nil, status.Error(codes.Internal, "the connection is not counted")
}

// peer names who is at the other end.
func (m *meteredConn) peer() string {
	if conn, ok := m.Conn.(*ingress.Conn); ok {
		return conn.Peer()
	}
	return ""
}

// begin notes a call.
func (m *meteredConn) begin(ctx context.Context) context.Context {
	in := &intake{budget: m.budget, who: m.peer(), holders: 1, abandon: func() { m.Conn.Close() }}
	stream := m.stream
	m.mu.Lock()
	m.intakes[stream] = in
	m.mu.Unlock()
	context.AfterFunc(ctx, func() { // the stream is over
		m.mu.Lock()
		delete(m.intakes, stream)
		m.mu.Unlock()
		in.release()
	})
	return context.WithValue(ctx, intakeKey{}, in)
}

func (m *meteredConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if m.preface > 0 {
		n, err := m.in.Read(p[:min(len(p), m.preface)])
		m.preface -= n
		return n, err
	}
	if m.at == frameHeaderBytes && m.left == 0 && len(m.ready) == 0 {
		if err := m.nextFrame(); err != nil {
			return 0, err
		}
	}
	if m.at < frameHeaderBytes {
		n := copy(p, m.header[m.at:])
		m.at += n
		return n, nil
	}
	if len(m.ready) == 0 && m.intake != nil {
		if err := m.inspect(); err != nil {
			return 0, err
		}
	}
	if len(m.ready) > 0 {
		n := copy(p, m.ready)
		m.ready = m.ready[n:]
		return n, nil
	}
	return m.payload(p)
}

// nextFrame reads a frame's header.
func (m *meteredConn) nextFrame() error {
	if _, err := io.ReadFull(m.in, m.header[:]); err != nil {
		return err
	}
	h := m.header
	m.at, m.left, m.padding = 0, int(h[0])<<16|int(h[1])<<8|int(h[2]), 0
	m.stream, m.intake = binary.BigEndian.Uint32(h[5:])&(1<<31-1), nil
	if h[3] == frameData {
		m.mu.Lock()
		m.intake = m.intakes[m.stream]
		m.mu.Unlock()
		if h[4]&flagPadded != 0 {
			m.padding = -1
		}
	}
	return nil
}

// inspect reads, into ready, what has to be looked at before the rest of a frame of
// data: how much padding it has, and the header of a message.
func (m *meteredConn) inspect() error {
	n := 0
	switch {
	case m.left == 0:
	case m.padding < 0:
		n = 1
	case m.left > m.padding:
		n = min(m.intake.parse.wants(), m.left-m.padding)
	}
	if n == 0 {
		return nil
	}
	b := m.small[:n]
	if _, err := io.ReadFull(m.in, b); err != nil {
		return unexpected(err)
	}
	m.left -= n
	m.ready = b
	if m.padding < 0 {
		m.padding = min(int(b[0]), m.left) // more is an error, which gRPC finds
		return nil
	}
	m.intake.parse.header(b, m.intake)
	m.noteIncomplete()
	return nil
}

// payload returns what needs no look.
func (m *meteredConn) payload(p []byte) (int, error) {
	n := min(len(p), m.left)
	body := m.intake != nil && m.padding >= 0 && m.left > m.padding
	if body {
		n = min(n, m.left-m.padding, m.intake.parse.room())
	}
	n, err := m.in.Read(p[:n])
	m.left -= n
	if body {
		m.intake.parse.skip(n)
		m.noteIncomplete()
	}
	return n, unexpected(err)
}

// noteIncomplete tells, at the end of a frame's data, whether its message is whole.
func (m *meteredConn) noteIncomplete() {
	p := &m.intake.parse
	if yes := p.body > 0; m.left == m.padding && yes != p.listed {
		p.listed = yes
		m.intake.incomplete(yes)
	}
}

// unexpected is the error of a connection that ends within a frame.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// A messageParser follows the messages of one stream.
type messageParser struct {
	head     [messageHeader]byte
	have     int   // bytes of head
	body     int64 // bytes of the message that are to come
	messages int   // admitted ones
	guessed  int64 // taken for a message before its size was known whole
	empty    bool  // what is refused is announced as an empty message
	done     bool  // what comes is of no interest
	listed   bool  // as incomplete
}

// wants returns how many bytes of a message's header are to come next.
func (p *messageParser) wants() int {
	if p.done || p.body > 0 {
		return 0
	}
	return messageHeader - p.have
}

// room returns how many bytes can pass without a look.
func (p *messageParser) room() int {
	if p.done {
		return 1 << 30
	}
	return int(p.body)
}

// skip says that n bytes have passed.
func (p *messageParser) skip(n int) {
	if !p.done {
		p.body -= int64(n)
	}
}

// header takes bytes of a message's header, and makes zeros of the size that they
// announce if the message is refused. A size of which only a part has come, at the end
// of a frame, has to pass before it is known: it counts as the largest there is.
func (p *messageParser) header(b []byte, in *intake) {
	first := p.have
	p.have += copy(p.head[p.have:], b)
	whole := p.have == messageHeader
	size := int64(binary.BigEndian.Uint32(p.head[1:]))
	switch {
	case p.have == 1: // the flag alone
		return
	case first <= 1 && whole:
		p.empty = !in.admit(size)
	case first <= 1:
		p.guessed = in.maxMessage
		p.empty = !in.admit(p.guessed)
	}
	if p.empty {
		for i := max(first, 1); i < p.have; i++ {
			b[i-first] = 0
		}
	}
	if !whole {
		return
	}
	p.have = 0
	if p.guessed > 0 && !p.empty {
		in.correct(p.guessed, size)
	}
	p.guessed = 0
	p.messages++
	p.body = size
	p.done = p.empty || size > in.maxMessage // which gRPC refuses, without reading on
	if p.done {
		p.body = 0
	}
}

// correct replaces what was taken for a message by its size.
func (in *intake) correct(taken, size int64) {
	if size > taken {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.holders == 0 {
		return
	}
	in.free(taken - size)
	if n := len(in.later); n > 0 {
		in.later[n-1] = size
	}
}
