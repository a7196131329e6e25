package skillrun

import (
	"fmt"
	"sync"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// codec is gRPC's codec, but it receives into reused buffers. gRPC would clear a buffer
// before each message, which takes a fifth of the time if there is much output.
//
// Only a client's calls use this codec (grpc.ForceCodecV2). Other gRPC connections of the program
// keep theirs.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(grpcproto.Name)} }

// Unmarshal decodes a message. Large output events are decoded without an extra copy of
// their bytes, see unmarshalOutput.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	message, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a protobuf message", v)
	}
	if event := eventOf(v); event != nil {
		if e := unmarshalOutput(data); e != nil {
			*event = e
			return nil
		}
	}
	buf := data.MaterializeToBuffer(&received)
	defer buf.Free()
	return proto.Unmarshal(buf.ReadOnlyData(), message) // copies the data
}

// eventOf returns the field with the event of a response that has one. Nil: v is another message.
func eventOf(v any) **pb.ExecutionEvent {
	switch m := v.(type) {
	case *pb.ExecuteResponse:
		return &m.Event
	case *pb.ExecuteInteractiveResponse:
		return &m.Event
	case *pb.AttachExecutionResponse:
		return &m.Event
	}
	return nil
}

// received holds the buffers of received messages.
var received buffers

// buffers is a mem.BufferPool. Its buffers keep the content of their last use. That is safe,
// because gRPC fills a buffer to its length and Unmarshal copies from it.
type buffers struct{ pool sync.Pool }

// maxKept is the maximum size of a buffer that is reused. Larger messages are rare.
const maxKept = 1 << 20

// Get returns length bytes with arbitrary content (mem.BufferPool).
func (p *buffers) Get(length int) *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok && cap(*b) >= length {
		*b = (*b)[:length]
		return b
	}
	b := make([]byte, length)
	return &b
}

func (p *buffers) Put(b *[]byte) {
	if cap(*b) <= maxKept {
		p.pool.Put(b)
	}
}
