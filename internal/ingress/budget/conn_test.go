package budget

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

func newBudget(t *testing.T, limit, maxMessage int64) *Budget {
	t.Helper()
	b, err := New(limit, maxMessage)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// wire writes frames as a client would, after its preface.
type wire struct {
	bytes.Buffer
	*http2.Framer
}

func newWire() *wire {
	w := &wire{}
	w.WriteString(http2.ClientPreface)
	w.Framer = http2.NewFramer(&w.Buffer, nil)
	return w
}

// message is a message as gRPC frames it.
func message(size int) []byte {
	m := make([]byte, messageHeader, messageHeader+size)
	binary.BigEndian.PutUint32(m[1:], uint32(size))
	for i := range size {
		m = append(m, byte(i|1))
	}
	return m
}

// played is a connection on which a client has sent only the bytes sent.
type played struct {
	net.Conn
	sent   io.Reader
	closed chan struct{}
}

func (p *played) Read(b []byte) (int, error) { return p.sent.Read(b) }
func (p *played) Close() error               { close(p.closed); return nil }

// readMetered reads a client's bytes as gRPC does. It begins a call at each frame of headers.
// It returns the bytes that gRPC gets, and the calls by stream.
func readMetered(t *testing.T, b *Budget, sent []byte) ([]byte, map[uint32]*Intake) {
	t.Helper()
	m := b.Meter(&played{sent: bytes.NewReader(sent)})
	got := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(m, got); err != nil {
		t.Fatal(err)
	}
	calls := map[uint32]*Intake{}
	for {
		header := make([]byte, frameHeaderBytes)
		if _, err := io.ReadFull(m, header); errors.Is(err, io.EOF) {
			return got, calls
		} else if err != nil {
			t.Fatal(err)
		}
		payload := make([]byte, int(header[0])<<16|int(header[1])<<8|int(header[2]))
		if n, err := io.ReadFull(m, payload); err != nil {
			t.Fatalf("%d bytes of %d: %v", n, len(payload), err)
		}
		if http2.FrameType(header[3]) == http2.FrameHeaders {
			id := binary.BigEndian.Uint32(header[5:])
			calls[id] = Of(m.Begin(t.Context()))
		}
		got = append(append(got, header...), payload...)
	}
}

// An admitted message arrives unchanged and counts with its size, wherever the client cuts it
// into frames.
func TestMessagesAreCountedAsTheyCome(t *testing.T) {
	three := slices.Concat(message(0), message(70_000), message(3))
	short := slices.Concat(message(0), message(7_000), message(3))
	for _, tt := range []struct {
		name  string
		write func(*wire)
		want  int64
	}{
		{"one frame", func(w *wire) { w.WriteData(1, true, message(100)) }, 100},
		{"several messages in one frame", func(w *wire) { w.WriteData(1, true, short) }, 7_003},
		{"one message in many frames", func(w *wire) {
			for chunk := range slices.Chunk(three, 1000) {
				w.WriteData(1, false, chunk)
			}
		}, 70_003},
		{"frames of one byte", func(w *wire) {
			for chunk := range slices.Chunk(slices.Concat(message(7), message(0), message(9)), 1) {
				w.WriteData(1, false, chunk)
			}
		}, 16},
		{"headers cut everywhere", func(w *wire) {
			for cut := 1; cut < 5; cut++ {
				w.WriteData(1, false, message(10)[:cut])
				w.WriteData(1, false, message(10)[cut:])
			}
		}, 40},
		{"padding", func(w *wire) {
			w.WriteDataPadded(1, false, message(20)[:9], make([]byte, 255))
			w.WriteDataPadded(1, false, message(20)[9:], make([]byte, 1))
			w.WriteDataPadded(1, true, nil, make([]byte, 9))
		}, 20},
		{"more padding than frame", func(w *wire) { w.WriteRawFrame(http2.FrameData, http2.FlagDataPadded, 1, []byte{9, 0, 0}) }, 0},
		{"no data", func(w *wire) { w.WriteData(1, true, nil) }, 0},
		{"other frames between", func(w *wire) {
			w.WritePing(false, [8]byte{1})
			w.WriteData(1, false, message(20)[:3])
			w.WriteWindowUpdate(1, 1)
			w.WriteData(1, false, message(20)[3:])
			w.WriteRawFrame(0xfa, 0xff, 1, message(50))
		}, 20},
		{"a stream that is no call", func(w *wire) { w.WriteData(7, false, message(50)) }, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWire()
			w.WriteSettings()
			w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true})
			tt.write(w)
			b := newBudget(t, 2<<20, 1<<20)
			got, calls := readMetered(t, b, w.Bytes())
			if !bytes.Equal(got, w.Bytes()) {
				t.Errorf("what arrived is not what was sent")
			}
			if b.used != tt.want {
				t.Errorf("counted %d bytes, want %d", b.used, tt.want)
			}
			if len(b.receiving) != 0 {
				t.Errorf("%d messages are incomplete, want none", len(b.receiving))
			}
			calls[1].release()
			if b.used != 0 {
				t.Errorf("%d bytes are counted after the end, want 0", b.used)
			}
		})
	}
}

// A refused message arrives as an empty one, wherever its header was cut, and its handler
// learns the reason.
func TestRefusedMessagesArriveEmpty(t *testing.T) {
	for _, tt := range []struct {
		name string
		size int
		want error
	}{
		{"no room", 900_000, &FullError{1 << 20}},
		{"too large", 1<<20 + 1, &SizeError{1<<20 + 1, 1 << 20}},
	} {
		for cut := range 6 {
			if _, large := tt.want.(*SizeError); large && cut > 1 && cut < 5 {
				continue // it counts as the largest message, which has no room
			}
			w := newWire()
			w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true})
			w.WriteData(1, false, message(tt.size)[:cut])
			w.WriteData(1, false, message(tt.size)[cut:30])
			want := slices.Clone(w.Bytes())
			first := bytes.Index(want, message(tt.size)[cut:30])
			if cut > 0 {
				first -= frameHeaderBytes + cut
			}
			for i := 1; i < messageHeader; i++ { // of the message's header
				at := first + i
				if cut > 0 && i >= cut {
					at += frameHeaderBytes
				}
				want[at] = 0
			}
			b := newBudget(t, 1<<20, 1<<20)
			b.used = 500_000 // of others
			got, calls := readMetered(t, b, w.Bytes())
			if !bytes.Equal(got, want) {
				t.Errorf("%s, cut after %d: got\n%x, want\n%x", tt.name, cut, got[len(http2.ClientPreface):], want[len(http2.ClientPreface):])
			}
			if err := calls[1].Received(); err == nil || err.Error() != tt.want.Error() {
				t.Errorf("%s, cut after %d: got %v, want %v", tt.name, cut, err, tt.want)
			}
			if b.used != 500_000 {
				t.Errorf("%s, cut after %d: counted %d, want 500000", tt.name, cut, b.used)
			}
		}
	}
}

// A size that comes in two parts counts as the largest until it is there.
func TestAMessageOfUnknownSizeCountsAsTheLargest(t *testing.T) {
	w := newWire()
	w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true})
	w.WriteData(1, false, message(10)[:3])
	b := newBudget(t, 1<<20, 1<<19)
	readMetered(t, b, w.Bytes())
	if b.used != 1<<19 {
		t.Errorf("counted %d, want %d", b.used, 1<<19)
	}
}

// A client whose stalled message keeps other messages out loses its connection. A client that
// is only slow keeps it.
func TestAStalledMessageMakesRoom(t *testing.T) {
	w := newWire()
	w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true})
	w.WriteData(1, false, message(900_000)[:100])
	b := newBudget(t, 1<<20, 1<<20)
	conn := &played{sent: bytes.NewReader(w.Bytes()), closed: make(chan struct{})}
	m := b.Meter(conn)
	io.ReadFull(m, make([]byte, len(http2.ClientPreface)))
	io.ReadFull(m, make([]byte, frameHeaderBytes))
	ctx, cancel := context.WithCancel(t.Context())
	in := Of(m.Begin(ctx))
	io.ReadFull(m, make([]byte, frameHeaderBytes+100))

	if b.take(caller{peer: "one"}, 500_000) {
		t.Fatal("there is room for another")
	}
	b.mu.Lock()
	since, ok := b.receiving[in]
	b.receiving[in] = since.Add(-stalledAfter)
	b.mu.Unlock()
	if !ok {
		t.Fatal("the message is not known as incomplete")
	}
	if b.take(caller{peer: "one"}, 500_000) {
		t.Fatal("there is room before it has ended")
	}
	<-conn.closed
	release := in.Hold() // by its handler
	cancel()             // as gRPC does for the calls of a connection that is gone
	release()
	for late := time.After(time.Minute); b.Used() > 0; runtime.Gosched() { // ctx's end is noticed in a goroutine
		select {
		case <-late:
			t.Fatalf("%d bytes are still counted", b.Used())
		default:
		}
	}
	if !b.take(caller{peer: "one"}, 500_000) {
		t.Error("there is no room after it has ended")
	}
}

// Of a stream of messages the first counts to the end, and two of the others.
func TestAStreamHoldsTwoMessages(t *testing.T) {
	b := newBudget(t, 1000, 1000)
	in := &Intake{Budget: b, holders: 1}
	for i, want := range []int64{100, 110, 120, 120, 120, 120} {
		size := int64(10)
		if i == 0 {
			size = 100
		}
		if !in.admit(size) {
			t.Fatal("refused")
		}
		in.parse.messages++
		if err := in.Received(); err != nil {
			t.Fatal(err)
		}
		if b.used != want {
			t.Errorf("after %d: %d bytes, want %d", i+1, b.used, want)
		}
	}
	in.release()
	if b.used != 0 {
		t.Errorf("%d bytes after the end", b.used)
	}
	if !in.admit(10) || b.used != 0 {
		t.Errorf("%d bytes of a call that is over", b.used)
	}
}

// Small messages have room that large ones can't take, and tiny ones always have.
func TestLargeMessagesLeaveRoomForSmallOnes(t *testing.T) {
	b := newBudget(t, 1<<20, 1<<20)
	for _, step := range []struct {
		size int64
		want bool
	}{
		{1 << 20, true}, {SmallMessage + 1, false}, {SmallMessage, true}, {1, true},
		{1<<19 - SmallMessage - 1, false}, {1 << 15, true},
	} {
		if got := b.take(caller{peer: "one"}, step.size); got != step.want {
			t.Errorf("%d: got %v, want %v", step.size, got, step.want)
		}
	}
	b.add(caller{peer: "one"}, 1<<40)
	if !b.take(caller{peer: "one"}, TinyMessage) || b.take(caller{peer: "one"}, TinyMessage+1) {
		t.Error("beyond all bounds: want what is tiny, and no more")
	}
}

// If one caller has taken the whole budget, each other caller still has a share. All shares together
// are bounded, too.
func TestOneCallerLeavesRoomForOthers(t *testing.T) {
	const limit = 1 << 20
	b := newBudget(t, limit, limit)
	for b.take(caller{peer: "hog"}, SmallMessage+1) {
	}
	for b.take(caller{peer: "hog"}, SmallMessage) {
	}
	const half = limit / share / 2
	for i := range limit / 2 / half / 2 {
		who := fmt.Sprint("other", i)
		for range 2 {
			if !b.take(caller{peer: who}, half) {
				t.Fatalf("%s has no room for its share", who)
			}
		}
		if b.take(caller{peer: who}, half) {
			t.Errorf("%s has more than its share of a full budget", who)
		}
	}
	if b.take(caller{peer: "one more"}, half) {
		t.Error("the budget has no end")
	}
	if b.used > 2*limit {
		t.Errorf("%d bytes are used, at most %d may be", b.used, 2*limit)
	}
}

// A tenant that takes the shares of many addresses leaves room for each other tenant, also at the same address.
func TestOneTenantLeavesRoomForOthers(t *testing.T) {
	const limit = 1 << 20
	b := newBudget(t, limit, limit)
	for i := range 3 * share {
		for b.take(caller{fmt.Sprint("address", i), "hog"}, TinyMessage+1) {
		}
	}
	for i := range share/2 - 1 {
		who := caller{"address0", fmt.Sprint("tenant", i)}
		for range 2 {
			if !b.take(who, limit/share/2) {
				t.Fatalf("%v has no room for its share", who)
			}
		}
		if b.take(who, limit/share/2) {
			t.Errorf("%v has more than its share of a full budget", who)
		}
	}
	if b.used > 2*limit+limit/2 {
		t.Errorf("%d bytes are used, at most %d may be", b.used, 2*limit+limit/2)
	}
}

// The bytes of a call count for the tenant of the caller as soon as the caller is identified.
func TestIdentifiedCallsCountForTheirTenant(t *testing.T) {
	b := newBudget(t, 1000, 1000)
	in := &Intake{Budget: b, holders: 1, who: caller{peer: "one"}}
	in.admit(100)
	in.Identified("acme")
	in.admit(10)
	if b.tenants["acme"] != 110 || b.peers["one"] != 110 || b.used != 110 {
		t.Errorf("%v, %v, %d", b.tenants, b.peers, b.used)
	}
	in.release()
	if len(b.tenants)+len(b.peers) != 0 || b.used != 0 {
		t.Errorf("after the end: %v, %v, %d", b.tenants, b.peers, b.used)
	}
}

// Requests that did not come by gRPC count in the same budget, once.
func TestHold(t *testing.T) {
	b := newBudget(t, 1<<20, 1<<20)
	release, ok := b.Hold("one", "acme", 1<<20)
	if !ok {
		t.Fatal("there is no room at first")
	}
	if _, ok := b.Hold("one", "acme", 1<<20); ok || b.take(caller{peer: "one"}, 1<<19+1) {
		t.Error("there is room for more than there may be")
	}
	release()
	release()
	if b.Used() != 0 || len(b.peers)+len(b.tenants) != 0 {
		t.Errorf("%d bytes of %v are still counted", b.Used(), b.peers)
	}
}

// A budget that could never admit the largest message is an error.
func TestTooSmallBudget(t *testing.T) {
	if _, err := New(1<<20-1, 1<<20); err == nil {
		t.Error("want an error")
	}
}

// wholeFrames returns how many of a client's bytes are the preface and whole frames. A frame
// that is too large ends them.
func wholeFrames(sent []byte) int {
	n := 0
	for next := len(http2.ClientPreface); next <= len(sent); {
		n = next
		if len(sent)-n < frameHeaderBytes {
			break
		}
		payload := int(sent[n])<<16 | int(sent[n+1])<<8 | int(sent[n+2])
		if payload > maxFrameBytes {
			break
		}
		next += frameHeaderBytes + payload
	}
	return n
}

// FuzzFrames: the connection passes every whole frame on to gRPC, whatever is in it, and
// counts no message of a call that has ended.
func FuzzFrames(f *testing.F) {
	w := newWire()
	w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true})
	w.WriteDataPadded(1, false, message(300)[:3], make([]byte, 7))
	w.WriteData(1, true, message(300)[3:])
	f.Add(w.Bytes(), uint16(20))
	f.Add([]byte(http2.ClientPreface), uint16(1))
	f.Fuzz(func(t *testing.T, sent []byte, step uint16) {
		b := newBudget(t, 1000, 1000)
		m := b.Meter(&played{sent: bytes.NewReader(sent)})
		ctx, cancel := context.WithCancel(t.Context())
		got, buf := 0, make([]byte, int(step)+1)
		for {
			n, err := m.Read(buf)
			got += n
			if err != nil {
				if got < len(sent) && errors.Is(err, io.EOF) {
					t.Errorf("an end in the middle of a frame is a clean one")
				}
				break
			}
			if n == 0 || n > len(buf) {
				t.Fatalf("read %d bytes into %d", n, len(buf))
			}
			if got > len(http2.ClientPreface) && m.passing == 0 && m.stream%2 == 1 && len(m.intakes) < 100 {
				m.Begin(ctx)
			}
		}
		if whole := wholeFrames(sent); got != whole {
			t.Errorf("%d bytes of whole frames came, %d were passed on", whole, got)
		}
		cancel()
		for late := time.After(time.Minute); b.Used() > 0; runtime.Gosched() { // ctx's end is noticed in a goroutine
			select {
			case <-late:
				t.Fatalf("%d bytes are still counted", b.Used())
			default:
			}
		}
	})
}
