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

// codec is gRPC's own, which receives into buffers that nobody clears before each
// message: with much output that is a fifth of the work.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(grpcproto.Name)} }

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	message, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("a %T is no message", v)
	}
	if e, ok := v.(*pb.ExecutionEvent); ok && unmarshalOutput(data, e) {
		return nil
	}
	buf := data.MaterializeToBuffer(&received)
	defer buf.Free()
	return proto.Unmarshal(buf.ReadOnlyData(), message) // which copies
}

// received has the buffers of messages. The zero buffers is ready to use.
var received buffers

type buffers struct{ pool sync.Pool }

// maxKept bounds the buffers that are kept; larger messages are rare.
const maxKept = 1 << 20

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
