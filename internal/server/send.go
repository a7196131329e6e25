package server

import (
	"bytes"
	"runtime"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/skillrun/skillrun/internal/ingress/budget"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// wholeBytes is the size from which output goes into a message without a copy. Copying fewer
// bytes is cheaper than handling two buffers.
const wholeBytes = 4 << 10

// The fields that lead to the bytes of an output.
var (
	eventField  = fieldNumber(&pb.ExecuteResponse{}, "event")
	outputField = fieldNumber(&pb.ExecutionEvent{}, "output")
	dataField   = fieldNumber(&pb.OutputChunk{}, "data")
)

// fieldNumber reads a number from the generated descriptor, so that no number stands here twice.
func fieldNumber(m proto.Message, name protoreflect.Name) protowire.Number {
	return m.ProtoReflect().Descriptor().Fields().ByName(name).Number()
}

// An outgoing is an event that is being sent as an ExecuteResponse, ExecuteInteractiveResponse or
// AttachExecutionResponse, which are the same on the wire. release is called when gRPC needs the
// event's output no more. If the event can't be sent, release may never be called. Nil: nothing.
type outgoing struct {
	event   *pb.ExecutionEvent
	release func()
}

// Get and Put make an outgoing the pool of a buffer that isn't used again here.
func (o outgoing) Get(length int) *[]byte { return mem.DefaultBufferPool().Get(length) }
func (o outgoing) Put(*[]byte)            { o.done() }

func (o outgoing) done() {
	if o.release != nil {
		o.release()
	}
}

// Marshal is gRPC's, except for events with much output: their bytes are not copied. They must
// not change until gRPC frees the buffer, which calls Put and so release.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if o, ok := v.(outgoing); ok {
		if len(o.event.GetOutput().GetData()) >= wholeBytes {
			return marshalOutput(o.event, func(data []byte) mem.Buffer { return mem.NewBuffer(&data, o) })
		}
		defer o.done()
		return c.CodecV2.Marshal(&pb.ExecuteResponse{Event: o.event})
	}
	if a, ok := v.(answer); ok {
		data, err := c.Marshal(a.message)
		if err != nil {
			return nil, err
		}
		return inPieces(data, a.counted), nil
	}
	if raw, ok := v.(*rawMessage); ok {
		return mem.BufferSlice{mem.SliceBuffer(raw.data)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// An answer is a large message that is being sent, and that the budget counts.
type answer struct {
	message any
	counted *budget.Outbound
}

// answerSize returns the bytes of a message, or 0 if it has few.
func answerSize(m any) int {
	switch m := m.(type) {
	case outgoing:
		if output := m.event.GetOutput(); output != nil {
			return len(output.GetData())
		}
		return proto.Size(m.event) // an outcome lists up to 1,000 artifacts
	case *rawMessage:
		return len(m.data)
	case proto.Message:
		return proto.Size(m)
	}
	return 0
}

// pieceBytes is how much of an answer gRPC must write so that the answer has not stalled.
const pieceBytes = 64 << 10

// pieces is the pool of the pieces of an answer, so gRPC calls Put after it has written a piece.
type pieces struct {
	whole   mem.BufferSlice
	left    atomic.Int64 // pieces that gRPC has not freed
	counted *budget.Outbound
}

func (p *pieces) Get(length int) *[]byte { return mem.DefaultBufferPool().Get(length) }

func (p *pieces) Put(*[]byte) {
	p.counted.Wrote()
	if p.left.Add(-1) == 0 {
		p.whole.Free()
		p.counted.Done()
	}
}

// inPieces returns the bytes of an encoded answer in pieces.
func inPieces(whole mem.BufferSlice, counted *budget.Outbound) mem.BufferSlice {
	p := &pieces{whole: whole, counted: counted}
	// gRPC drops the data of a stream that the client has reset, sometimes without a Free.
	runtime.AddCleanup(p, (*budget.Outbound).Done, counted)
	var out mem.BufferSlice
	for _, b := range whole {
		for data := range slices.Chunk(b.ReadOnlyData(), pieceBytes) {
			// NewBuffer would not call Put, so such data must not be whole's, which is free before it.
			if mem.IsBelowBufferPoolingThreshold(len(data)) {
				out = append(out, mem.SliceBuffer(bytes.Clone(data)))
				continue
			}
			p.left.Add(1)
			out = append(out, mem.NewBuffer(&data, p))
		}
	}
	return out
}

// marshalOutput encodes a response with an event with output: first the other fields, then the
// bytes. The order of fields is free, so the output comes last, and its bytes last in it.
func marshalOutput(e *pb.ExecutionEvent, whole func([]byte) mem.Buffer) (mem.BufferSlice, error) {
	data := e.GetOutput().GetData()
	output, err := proto.Marshal(&pb.OutputChunk{Stream: e.GetOutput().GetStream(), OffsetBytes: e.GetOutput().GetOffsetBytes()})
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
	front = append(front, output...)
	head := protowire.AppendTag(nil, eventField, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(len(front)+len(data)))
	return mem.BufferSlice{mem.SliceBuffer(append(head, front...)), whole(data)}, nil
}
