package server

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress/budget"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A mute is a client that calls and lets no byte of an answer through: its windows are empty.
type mute struct {
	t      *testing.T
	conn   net.Conn
	framer *http2.Framer
	block  bytes.Buffer
	hpack  *hpack.Encoder
	next   uint32
}

func dialMute(t *testing.T, d *daemon) *mute {
	t.Helper()
	conn, err := net.Dial("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	m := &mute{t: t, conn: conn, framer: http2.NewFramer(conn, conn), next: 1}
	m.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	m.hpack = hpack.NewEncoder(&m.block)
	_, err = io.WriteString(conn, http2.ClientPreface)
	m.must(err)
	m.must(m.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	return m
}

func (m *mute) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// call sends a whole call on a new stream.
func (m *mute) call(method string, request proto.Message) (stream uint32) {
	m.t.Helper()
	m.block.Reset()
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "localhost"},
		{"content-type", "application/grpc"}, {"te", "trailers"}} {
		m.hpack.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	stream = m.next
	m.next += 2
	headers := http2.HeadersFrameParam{StreamID: stream, BlockFragment: m.block.Bytes(), EndHeaders: true}
	m.must(m.framer.WriteHeaders(headers))
	data, err := proto.Marshal(request)
	m.must(err)
	head := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data)))
	m.must(m.framer.WriteData(stream, true, append(head, data...)))
	return stream
}

// answered waits for the first headers of a stream, and returns its fields.
func (m *mute) answered(stream uint32) map[string]string {
	m.t.Helper()
	for {
		m.conn.SetReadDeadline(time.Now().Add(time.Minute))
		frame, err := m.framer.ReadFrame()
		m.must(err)
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				m.must(m.framer.WriteSettingsAck())
			}
		case *http2.MetaHeadersFrame:
			if f.StreamID != stream {
				continue
			}
			fields := map[string]string{}
			for _, field := range f.Fields {
				fields[field.Name] = field.Value
			}
			return fields
		}
	}
}

// describe asks for an answer of more than budget.SmallMessage.
var describe = &reflectionv1.ServerReflectionRequest{
	MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{
		FileContainingSymbol: "skillrun.v1.ToolService",
	},
}

// Answers count in the memory for requests until the client takes them, also after their handlers have returned.
// Without room a call is refused. The memory is free when the client resets its calls or closes the connection.
func TestUnreadAnswersAreBounded(t *testing.T) {
	d := startIdle(t, func(_ *executor.Config, c *Config) { c.MaxMessageBytes, c.Budget = 1<<20, newBudget(t, 1<<20) })
	method := reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName
	for name, end := range map[string]func(*mute){
		"reset": func(m *mute) {
			for stream := uint32(1); stream < m.next; stream += 2 {
				m.must(m.framer.WriteRSTStream(stream, http2.ErrCodeCancel))
			}
		},
		"closed": func(m *mute) { m.conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			m := dialMute(t, d)
			status := ""
			for range maxStreams {
				if status = m.answered(m.call(method, describe))["grpc-status"]; status != "" {
					break
				}
			}
			if status != strconv.Itoa(int(codes.Unavailable)) {
				t.Errorf("status %q before the last call, want UNAVAILABLE", status)
			}
			if used := d.budget.Used(); used < 1<<19 {
				t.Errorf("only %d bytes are counted", used)
			}
			end(m)
			waitFree(t, d.budget)
		})
	}
	if _, err := d.system.GetCapabilities(t.Context(), &pb.GetCapabilitiesRequest{}); err != nil {
		t.Error(err)
	}
}

// An answer that the client takes is free, and it is whole.
func TestReadAnswersAreFree(t *testing.T) {
	d := startIdle(t, func(_ *executor.Config, c *Config) { c.MaxMessageBytes, c.Budget = 1<<20, newBudget(t, 1<<20) })
	for range 40 {
		s, err := reflectionv1.NewServerReflectionClient(d.conn).ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Send(describe); err != nil {
			t.Fatal(err)
		}
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if size := proto.Size(m); size <= budget.SmallMessage {
			t.Fatalf("the answer has only %d bytes", size)
		}
		s.CloseSend()
	}
	waitFree(t, d.budget)
}

// The pieces of an answer are the answer, and the whole is free after the last piece.
func TestPieces(t *testing.T) {
	for _, size := range []int{1500, pieceBytes, pieceBytes + 1, pieceBytes + 1024, 3*pieceBytes + 2000} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(i % 251)
		}
		want := bytes.Clone(data)
		freed := 0
		pool := outgoing{release: func() { freed++; clear(data) }}
		whole := mem.BufferSlice{mem.SliceBuffer("head"), mem.NewBuffer(&data, pool)}
		got := mem.BufferSlice{}
		for _, b := range inPieces(whole, nil) {
			read := mem.SliceBuffer(bytes.Clone(b.ReadOnlyData()))
			got = append(got, read)
			b.Free()
		}
		if !bytes.Equal(got.Materialize(), append([]byte("head"), want...)) {
			t.Errorf("%d bytes: the pieces differ", size)
		}
		if freed != 1 {
			t.Errorf("%d bytes: freed %d times", size, freed)
		}
	}
}

// gRPC may drop an answer without Free. Then the garbage collector ends its count.
func TestDroppedAnswersAreFree(t *testing.T) {
	b := newBudget(t, 1<<20)
	conn, other := net.Pipe()
	defer other.Close()
	m := b.Meter(conn)
	defer m.Close()
	counted, err := budget.Of(m.Begin(t.Context())).Answer(100_000, false)
	if err != nil || b.Used() != 100_000 {
		t.Fatalf("%d bytes are counted, %v", b.Used(), err)
	}
	data := make([]byte, 100_000)
	inPieces(mem.BufferSlice{mem.NewBuffer(&data, mem.NopBufferPool{})}, counted)
	for late := time.After(time.Minute); b.Used() > 0; runtime.GC() {
		select {
		case <-late:
			t.Fatalf("%d bytes are still counted", b.Used())
		default:
		}
	}
}
