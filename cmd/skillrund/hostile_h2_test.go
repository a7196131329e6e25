package main

import (
	"bytes"
	bits "encoding/binary"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// h2 is a client that writes single HTTP/2 frames, also ones that no gRPC library sends. It
// remembers the answers.
type h2 struct {
	t    *testing.T
	conn net.Conn

	writing sync.Mutex
	framer  *http2.Framer
	headers bytes.Buffer
	encoder *hpack.Encoder
	next    uint32

	mu      sync.Mutex
	changed *sync.Cond
	streams map[uint32]*h2Stream
	goAway  bool
	closed  bool
}

type h2Stream struct {
	header     map[string]string
	reset, end bool
}

// dialH2 opens a connection to the daemon's socket and sends the client preface.
func dialH2(t *testing.T, d *running) *h2 {
	t.Helper()
	return newH2(t, d, http2.ClientPreface)
}

// newH2 opens a connection and writes begin. After the client preface it also sends
// settings. It reads only after that, because read answers frames, and these answers must
// not be sent before the preface.
func newH2(t *testing.T, d *running, begin string) *h2 {
	t.Helper()
	conn, err := net.Dial("unix", d.dir+"/s.sock")
	if err != nil {
		t.Fatal(err)
	}
	h := &h2{t: t, conn: conn, framer: http2.NewFramer(conn, conn), next: 1, streams: map[uint32]*h2Stream{}}
	h.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	h.encoder = hpack.NewEncoder(&h.headers)
	h.changed = sync.NewCond(&h.mu)
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, begin); err != nil {
		t.Fatal(err)
	}
	if begin == http2.ClientPreface {
		h.write(func(f *http2.Framer) error { return f.WriteSettings() })
	}
	go h.read()
	return h
}

func (h *h2) read() {
	for {
		frame, err := h.framer.ReadFrame()
		h.mu.Lock()
		if err != nil {
			h.closed = true
			h.changed.Broadcast()
			h.mu.Unlock()
			return
		}
		s := h.streams[frame.Header().StreamID]
		if s == nil {
			s = &h2Stream{header: map[string]string{}}
			h.streams[frame.Header().StreamID] = s
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			for _, field := range f.Fields {
				s.header[field.Name] = field.Value
			}
			s.end = s.end || f.StreamEnded()
		case *http2.RSTStreamFrame:
			s.reset = true
		case *http2.GoAwayFrame:
			h.goAway = true
		}
		h.changed.Broadcast()
		h.mu.Unlock()
		switch f := frame.(type) { // without holding mu: a write may block
		case *http2.SettingsFrame:
			if !f.IsAck() {
				h.write(func(w *http2.Framer) error { return w.WriteSettingsAck() })
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				h.write(func(w *http2.Framer) error { return w.WritePing(true, f.Data) })
			}
		}
	}
}

// write writes a frame and reports whether the connection still took it.
func (h *h2) write(frame func(*http2.Framer) error) bool {
	h.writing.Lock()
	defer h.writing.Unlock()
	h.conn.SetWriteDeadline(time.Now().Add(patience))
	return frame(h.framer) == nil
}

// block returns the header block of a call. more has additional names and values in turn.
func (h *h2) block(path string, more ...string) []byte {
	h.headers.Reset()
	fields := append([]string{":method", "POST", ":scheme", "http", ":path", path, ":authority", "localhost", "content-type", "application/grpc", "te", "trailers"}, more...)
	for i := 0; i < len(fields); i += 2 {
		h.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return bytes.Clone(h.headers.Bytes())
}

// request opens a stream and returns its number; 0 if the connection is gone.
func (h *h2) request(path string, more ...string) uint32 {
	h.writing.Lock()
	id := h.next
	h.next += 2
	block := h.block(path, more...)
	h.conn.SetWriteDeadline(time.Now().Add(patience))
	err := h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:min(len(block), 16<<10)], EndHeaders: len(block) <= 16<<10})
	for rest := block[min(len(block), 16<<10):]; err == nil && len(rest) > 0; {
		n := min(len(rest), 16<<10)
		err = h.framer.WriteContinuation(id, len(rest) == n, rest[:n])
		rest = rest[n:]
	}
	h.writing.Unlock()
	if err != nil {
		return 0
	}
	return id
}

// message sends one gRPC message, at most 60 KiB of it, which the initial window lets through.
func (h *h2) message(stream uint32, flag byte, data []byte, end bool) {
	framed := append([]byte{flag, 0, 0, 0, 0}, data...)
	bits.BigEndian.PutUint32(framed[1:], uint32(len(data)))
	framed = framed[:min(len(framed), 60<<10)]
	for len(framed) > 0 {
		n := min(len(framed), 16<<10)
		chunk, last := framed[:n], len(framed) == n
		if !h.write(func(f *http2.Framer) error { return f.WriteData(stream, end && last, chunk) }) {
			return
		}
		framed = framed[n:]
	}
}

// until waits until is returns true or the connection is closed. It returns the last result
// of is.
func (h *h2) until(what string, is func() bool) bool {
	h.t.Helper()
	timer := time.AfterFunc(2*patience, func() {
		h.t.Errorf("not %s", what)
		h.conn.Close()
	})
	defer timer.Stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	for !is() && !h.closed {
		h.changed.Wait()
	}
	return is()
}

// status returns the status of a call. It is Unavailable if the stream was reset or its
// connection closed.
func (h *h2) status(stream uint32) codes.Code {
	h.t.Helper()
	var code codes.Code = codes.Unavailable
	h.until("answered", func() bool {
		s := h.streams[stream]
		if s == nil {
			return false
		}
		if n, err := strconv.Atoi(s.header["grpc-status"]); err == nil {
			code = codes.Code(n)
			return true
		}
		if s.header[":status"] != "" && s.header[":status"] != "200" {
			code = codes.Unknown
			return true
		}
		return s.reset || s.end
	})
	return code
}

// reset waits until a stream is refused, by a reset or a status, or the connection is closed,
// and reports whether the daemon refused the stream.
func (h *h2) reset(stream uint32) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	timer := time.AfterFunc(patience, func() { h.conn.Close() })
	defer timer.Stop()
	for {
		if s := h.streams[stream]; s != nil && (s.reset || s.header["grpc-status"] != "") {
			return true
		}
		if h.closed {
			return h.streams[stream] == nil
		}
		h.changed.Wait()
	}
}

// untilClosed waits until the daemon closes the connection.
func (h *h2) untilClosed(what string) {
	h.t.Helper()
	h.until(what+": closed", func() bool { return h.closed })
}

// slowLoris opens connections and requests and never completes them. The server closes them
// after its own timeouts: 5 seconds for a handshake, a minute for an idle connection. The
// test does not measure these times.
func slowLoris(t *testing.T, _ *running, _ hostileCase) {
	d := startHostile(t, "")
	d.works()
	before := d.held()
	// These connections wait at the same time.
	half := newH2(t, d, http2.ClientPreface[:10])
	open := dialH2(t, d) // HEADERS without END_HEADERS, then no CONTINUATION
	block := open.block("/skillrun.v1.ExecutionService/Execute")
	open.write(func(f *http2.Framer) error {
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: false})
	})
	idle := dialH2(t, d) // no request
	// These are many more connections than one caller may have. The daemon closes those above
	// the bound at once.
	var silent []net.Conn
	for range 600 {
		conn, err := net.Dial("unix", d.dir+"/s.sock")
		if err != nil {
			continue // the listen queue is full
		}
		silent = append(silent, conn)
	}
	if len(silent) < 200 {
		t.Fatalf("%d connections; nothing was tried", len(silent))
	}
	// Now, before the daemon closes them all for the lack of a hello.
	if most := d.heldNow(d.waitingBoxes()).files - before.files; most > 300 {
		t.Errorf("%d connections are open, want at most the bound of 128 for one user", most)
	}
	d.works() // on the connection of d
	for _, conn := range silent {
		conn.SetReadDeadline(time.Now().Add(2 * patience))
		if _, err := io.Copy(io.Discard, conn); os.IsTimeout(err) {
			t.Error("a silent connection stays open")
			break
		}
		conn.Close()
	}
	// An incomplete message holds a stream but no slot, and other requests still run. Its end
	// comes with the end of the connection.
	trickle := dialH2(t, d)
	stream := trickle.request("/skillrun.v1.ExecutionService/ExecuteInteractive")
	trickle.write(func(f *http2.Framer) error { return f.WriteData(stream, false, []byte{0, 0, 0, 1, 0, 10}) })
	list, err := d.runs.ListExecutions(t.Context(), &pb.ListExecutionsRequest{States: []pb.ExecutionState{pb.ExecutionState_EXECUTION_STATE_QUEUED, pb.ExecutionState_EXECUTION_STATE_RUNNING}})
	if err != nil || len(list.Executions) > 0 {
		t.Errorf("half a request takes a place: %v, %v", list, err)
	}
	d.works()
	half.untilClosed("half a preface")
	open.untilClosed("half a header block")
	idle.untilClosed("an idle connection")
	trickle.conn.Close()
	d.wantHeldAs(before)
	d.works()
}

func http2Abuse(t *testing.T, _ *running, _ hostileCase) {
	d := startHostile(t, "")
	d.works()
	before := d.held()
	resident := d.residentBytes()
	message, err := proto.Marshal(code("hostile", "print(1)"))
	if err != nil {
		t.Fatal(err)
	}
	const execute = "/skillrun.v1.ExecutionService/Execute"
	for _, abuse := range []struct {
		name string
		run  func(*h2)
		gone bool // the daemon must close the connection
	}{
		{"rapid reset", func(h *h2) {
			for range 20_000 {
				id := h.request(execute)
				if id == 0 || !h.write(func(f *http2.Framer) error { return f.WriteRSTStream(id, http2.ErrCodeCancel) }) {
					return
				}
			}
		}, false},
		{"rapid reset with a request", func(h *h2) {
			for range 300 {
				id := h.request(execute)
				if id == 0 {
					return
				}
				h.message(id, 0, message, true)
				h.write(func(f *http2.Framer) error { return f.WriteRSTStream(id, http2.ErrCodeCancel) })
			}
		}, false},
		{"CONTINUATION flood", func(h *h2) {
			h.write(func(f *http2.Framer) error {
				return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: h.block(execute)})
			})
			for range 10_000 {
				h.headers.Reset()
				h.encoder.WriteField(hpack.HeaderField{Name: "x-flood", Value: strings.Repeat("f", 8<<10), Sensitive: true})
				if !h.write(func(f *http2.Framer) error { return f.WriteContinuation(1, false, h.headers.Bytes()) }) {
					return
				}
			}
		}, true},
		{"ping flood", func(h *h2) {
			for range 10_000 {
				if !h.write(func(f *http2.Framer) error { return f.WritePing(false, [8]byte{1}) }) {
					return
				}
			}
		}, true},
		{"settings flood", func(h *h2) {
			for range 20_000 {
				if !h.write(func(f *http2.Framer) error {
					return f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 16})
				}) {
					return
				}
			}
		}, false},
		{"window updates of zero", func(h *h2) {
			for range 2_000 {
				id := h.request(execute)
				if id == 0 || !h.write(func(f *http2.Framer) error { return f.WriteRawFrame(http2.FrameWindowUpdate, 0, id, make([]byte, 4)) }) {
					return
				}
			}
		}, false},
		{"window overflow", func(h *h2) {
			for range 4 {
				h.write(func(f *http2.Framer) error { return f.WriteWindowUpdate(0, 1<<31-1) })
			}
		}, false},
		{"empty frames", func(h *h2) {
			id := h.request("/skillrun.v1.ExecutionService/ExecuteInteractive")
			for range 20_000 {
				if !h.write(func(f *http2.Framer) error { return f.WriteData(id, false, nil) }) {
					return
				}
			}
		}, false},
		{"frames of an unknown kind", func(h *h2) {
			for range 1000 {
				h.write(func(f *http2.Framer) error { return f.WriteRawFrame(0xee, 0xff, 1, make([]byte, 4096)) })
			}
		}, false},
		{"a frame larger than agreed", func(h *h2) {
			h.conn.Write([]byte{0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1})
		}, true},
		{"garbage for a preface", func(h *h2) { h.conn.Write(bytes.Repeat([]byte{0xff}, 4096)) }, true},
	} {
		t.Run(abuse.name, func(t *testing.T) {
			h := dialH2(t, d)
			abuse.run(h)
			if abuse.gone {
				h.untilClosed(abuse.name)
			}
			h.conn.Close()
			mine := *d
			mine.t = t
			mine.works()
		})
	}
	t.Run("many and large headers", func(t *testing.T) {
		for _, more := range [][]string{{"x-big", strings.Repeat("v", 1<<20)}, repeatPairs(10_000)} {
			h := dialH2(t, d)
			id := h.request("/skillrun.v1.SystemService/GetCapabilities", more...)
			if got := h.status(id); id != 0 && got != codes.Unavailable && got != codes.ResourceExhausted && got != codes.Internal && got != codes.Unknown {
				t.Errorf("%d headers: %v, want them refused", len(more)/2, got)
			}
			h.conn.Close()
		}
	})
	t.Run("path", func(t *testing.T) {
		for _, path := range []string{"skillrun.v1.SystemService/GetCapabilities", "/skillrun.v1.SystemService/../ExecutionService/Execute", "//skillrun.v1.SystemService/GetCapabilities", "", "/", "*",
			"/skillrun.v1.ExecutionService/execute", "/grpc.channelz.v1.Channelz/GetServers", "http://x/skillrun.v1.SystemService/GetCapabilities", "/skillrun.v1.ExecutionService/Execute/"} {
			h := dialH2(t, d)
			id := h.request(path)
			h.message(id, 0, nil, true)
			if got := h.status(id); got == codes.OK {
				t.Errorf("path %q was answered", path)
			}
			h.conn.Close()
		}
	})
	if grown := d.residentBytes() - resident; grown > heapSlack {
		t.Errorf("the daemon grew by %d MiB", grown>>20)
	}
	d.wantNothingLeft()
	d.wantHeldAs(before)
	if now := d.held(); now.threads > before.threads+4*slack {
		t.Errorf("%d threads, before %d", now.threads, before.threads)
	}
}

func repeatPairs(n int) (list []string) {
	for i := range n {
		list = append(list, "x-"+strconv.Itoa(i), "v")
	}
	return list
}
