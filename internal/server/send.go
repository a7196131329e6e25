package server

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// wholeBytes is the size from which output goes into a message without a copy. Copying fewer
// bytes is cheaper than handling two buffers.
const wholeBytes = 4 << 10

// The fields that lead to the bytes of an output.
var (
	outputField = fieldNumber(&pb.ExecutionEvent{}, "output")
	dataField   = fieldNumber(&pb.Output{}, "data")
)

// fieldNumber reads a number from the generated descriptor, so that no number stands here twice.
func fieldNumber(m proto.Message, name protoreflect.Name) protowire.Number {
	return m.ProtoReflect().Descriptor().Fields().ByName(name).Number()
}

// An outgoing is an event that is being sent. release is called when gRPC needs its
// output no more; if it can't be sent, perhaps never.
type outgoing struct {
	event   *pb.ExecutionEvent
	release func()
}

// Get and Put make an outgoing the pool of a buffer that isn't used again here.
func (o outgoing) Get(length int) *[]byte { return mem.DefaultBufferPool().Get(length) }
func (o outgoing) Put(*[]byte)            { o.release() }

// Marshal is gRPC's, except for events with much output: their bytes are not copied. They must
// not change until gRPC frees the buffer, which calls Put and so release.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if o, ok := v.(outgoing); ok {
		if len(o.event.GetOutput().GetData()) >= wholeBytes {
			return marshalOutput(o.event, func(data []byte) mem.Buffer { return mem.NewBuffer(&data, o) })
		}
		defer o.release()
		return c.CodecV2.Marshal(o.event)
	}
	if e, ok := v.(*pb.ExecutionEvent); ok && len(e.GetOutput().GetData()) >= wholeBytes {
		return marshalOutput(e, func(data []byte) mem.Buffer { return mem.SliceBuffer(data) })
	}
	return c.CodecV2.Marshal(v)
}

// marshalOutput encodes an event with output: first the other fields, then the bytes. The
// order of fields is free, so the output comes last, and its bytes last in it.
func marshalOutput(e *pb.ExecutionEvent, whole func([]byte) mem.Buffer) (mem.BufferSlice, error) {
	data := e.GetOutput().GetData()
	output, err := proto.Marshal(&pb.Output{Stream: e.GetOutput().GetStream(), OffsetBytes: e.GetOutput().GetOffsetBytes()})
	if err != nil {
		return nil, err
	}
	output = protowire.AppendTag(output, dataField, protowire.BytesType)
	output = protowire.AppendVarint(output, uint64(len(data)))
	front, err := proto.Marshal(&pb.ExecutionEvent{ExecutionId: e.GetExecutionId(), Sequence: e.GetSequence(), Time: e.GetTime()})
	if err != nil {
		return nil, err
	}
	front = protowire.AppendTag(front, outputField, protowire.BytesType)
	front = protowire.AppendVarint(front, uint64(len(output)+len(data)))
	return mem.BufferSlice{mem.SliceBuffer(append(front, output...)), whole(data)}, nil
}
