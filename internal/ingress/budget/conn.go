package budget

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"

	"golang.org/x/net/http2"
)

// gRPC lets a client send a whole message as soon as gRPC has read the message's size. It
// has no hook between the size and the message, so a client who announces many large
// messages can fill the memory before any handler runs (docs/decisions/0013).
//
// So the connection looks at each frame before gRPC gets it. In the data of a call it
// finds gRPC's messages: five bytes (a flag and the size), then the message. It asks the
// budget about each size. If the budget refuses a message, the connection overwrites the
// size with zeros. gRPC then hands an empty message to the handler, and the handler
// answers with the budget's error. The rest of the refused message fits the stream's
// window, and gRPC drops it with the stream.

const (
	frameHeaderBytes = 9        // RFC 9113, section 4.1
	maxFrameBytes    = 16 << 10 // the payload; gRPC announces no more: RFC 9113, section 6.5.2
	messageHeader    = 5        // a flag and the size, big endian: gRPC over HTTP2, Length-Prefixed-Message
	readBuffer       = 32 << 10 // holds the largest frame
)

// A Conn is a connection whose messages are counted. gRPC must read it without a
// buffer in between. Then the frame that Read returned last is the frame that gRPC
// handles, and so Begin knows the stream of the call.
type Conn struct {
	net.Conn
	budget *Budget
	in     *bufio.Reader

	// Only the goroutine that reads uses these.
	began   bool   // the client's preface has been read
	passing int    // bytes of the frame that Read has still to return; in holds them all
	stream  uint32 // the frame's stream

	mu      sync.Mutex
	intakes map[uint32]*Intake // by stream

	// Guarded by the budget's mu.
	closed    bool
	abandoned bool // it is being closed because an answer has stalled
}

// Meter takes over a connection and counts the messages in it. The gRPC server must call Begin
// of the result for each call (tap.ServerInHandle).
func (b *Budget) Meter(conn net.Conn) *Conn {
	return &Conn{Conn: conn, budget: b, in: bufio.NewReaderSize(conn, readBuffer), intakes: map[uint32]*Intake{}}
}

// caller returns the peer at the other end, and its tenant if it is identified. All connections of a peer have the same
// name, so the peer's connections share one part of the budget.
func (m *Conn) caller() caller {
	if conn, ok := m.Conn.(interface {
		Peer() string
		Tenant() string
	}); ok {
		return caller{conn.Peer(), conn.Tenant()}
	}
	return caller{}
}

// Begin notes a call on the stream of the last frame, until ctx is done.
func (m *Conn) Begin(ctx context.Context) context.Context {
	in := &Intake{Budget: m.budget, conn: m, who: m.caller(), holders: 1, abandon: func() { m.Conn.Close() }}
	stream := m.stream
	m.mu.Lock()
	m.intakes[stream] = in
	m.mu.Unlock()
	// gRPC cancels a stream's context when the handler has returned or the connection is gone.
	context.AfterFunc(ctx, func() { // the stream has ended
		m.mu.Lock()
		delete(m.intakes, stream)
		m.mu.Unlock()
		in.release()
	})
	return context.WithValue(ctx, intakeKey{}, in)
}

// Read returns bytes of one frame at a time, and none before the whole frame has come.
func (m *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if m.passing == 0 {
		if err := m.next(); err != nil {
			return 0, err
		}
	}
	n, err := m.in.Read(p[:min(len(p), m.passing)])
	m.passing -= n
	return n, err
}

// next waits for the preface (RFC 9113, section 3.4) or for a frame, and counts the messages in
// it. When it returns nil, in holds m.passing bytes, which Read hands out.
func (m *Conn) next() error {
	if !m.began {
		preface, err := m.peek(len(http2.ClientPreface))
		m.began, m.passing = true, len(preface)
		return err
	}
	head, err := m.peek(frameHeaderBytes)
	if err != nil {
		return err
	}
	h, err := http2.ReadFrameHeader(bytes.NewReader(head))
	if err != nil {
		return err
	}
	// A client may send larger frames only after a SETTINGS_MAX_FRAME_SIZE that allows them.
	if h.Length > maxFrameBytes {
		return http2.ErrFrameTooLarge
	}
	frame, err := m.peek(frameHeaderBytes + int(h.Length))
	if err != nil {
		return err
	}
	m.stream, m.passing = h.StreamID, len(frame)
	if h.Type != http2.FrameData {
		return nil
	}
	m.mu.Lock()
	// nil: gRPC has refused the call or has finished it, and drops the data.
	in := m.intakes[h.StreamID]
	m.mu.Unlock()
	if in != nil {
		in.parse.data(withoutPadding(h, frame[frameHeaderBytes:]), in)
	}
	return nil
}

// peek returns the next n bytes, which stay in the buffer: a change of them changes the bytes
// that Read returns later. The end of the connection within them is io.ErrUnexpectedEOF.
func (m *Conn) peek(n int) ([]byte, error) {
	b, err := m.in.Peek(n)
	if errors.Is(err, io.EOF) && len(b) > 0 {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

// withoutPadding returns the data in the payload of a frame: RFC 9113, section 6.1. gRPC
// refuses a frame that has more padding than payload.
func withoutPadding(h http2.FrameHeader, payload []byte) []byte {
	if !h.Flags.Has(http2.FlagDataPadded) || len(payload) == 0 {
		return payload
	}
	padding, data := int(payload[0]), payload[1:]
	return data[:max(len(data)-padding, 0)]
}

// A messageParser follows the messages of one stream.
type messageParser struct {
	head     [messageHeader]byte
	have     int   // bytes of head
	body     int   // bytes of the message that are still to come
	messages int   // that were announced
	counted  int64 // bytes of the budget for the message
	empty    bool  // the message is refused: gRPC gets an empty one
	done     bool  // no later message matters
}

// data follows what one frame has of the stream.
func (p *messageParser) data(b []byte, in *Intake) {
	for len(b) > 0 && !p.done {
		n := min(p.body, len(b))
		p.body -= n
		if n == 0 {
			n = min(messageHeader-p.have, len(b))
			p.header(b[:n], in)
		}
		b = b[n:]
	}
	in.incomplete(p.body > 0)
}

// header takes bytes of a message's header. If the message is refused, it overwrites the size
// in them with zeros. A frame may end within the size. Those bytes pass on to gRPC before the
// size is known, so the message counts as the largest until then.
//
// b is a part of the frame in the buffer. gRPC sees the zeros because Read has not returned
// that part yet.
func (p *messageParser) header(b []byte, in *Intake) {
	first := p.have
	p.have += copy(p.head[p.have:], b)
	if p.have == 1 { // only the flag
		return
	}
	whole, size := p.have == messageHeader, int64(binary.BigEndian.Uint32(p.head[1:]))
	// No byte of the size has passed on to gRPC yet: this is the last chance to refuse.
	if first <= 1 {
		p.counted = in.maxMessage
		if whole {
			p.counted = size
		}
		p.empty = !in.admit(p.counted)
	}
	if p.empty {
		clear(b[max(1-first, 0):])
	}
	if !whole {
		return
	}
	if !p.empty {
		in.correct(p.counted, size)
	}
	p.have = 0
	p.messages++
	p.body = int(size)
	p.done = p.empty || size > in.maxMessage // gRPC refuses such a message, and reads no other
	if p.done {
		p.body = 0
	}
}

// correct counts size bytes for a message that was counted with taken bytes.
func (in *Intake) correct(taken, size int64) {
	if size >= taken {
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
