package skillrun

import (
	"io"
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

const (
	// muchBytes is the minimum size of a message for unmarshalOutput.
	muchBytes = 32 << 10
	// headBytes is the length of the head of such a message. The output's bytes must begin
	// within it.
	headBytes = 512
	// maxOutput is the maximum size of a buffer that is reused for output.
	maxOutput = 1 << 20
)

// Numbers of the fields that hold the output's bytes. The generated code has them only in its
// descriptor.
var (
	eventField  = fieldNumber(&pb.ExecuteResponse{}, "event")
	outputField = fieldNumber(&pb.ExecutionEvent{}, "output")
	dataField   = fieldNumber(&pb.OutputChunk{}, "data")
)

func fieldNumber(m proto.Message, name protoreflect.Name) protowire.Number {
	return m.ProtoReflect().Descriptor().Fields().ByName(name).Number()
}

// unmarshalOutput decodes the event of a response (see eventOf) with much output and copies the
// output's bytes only once. It handles messages that begin with the event and end with these bytes,
// as daemons send them, and returns nil for any other message. It checks no more of the bytes than their length.
// proto.Unmarshal would not either, since data is of type bytes.
func unmarshalOutput(data mem.BufferSlice) *pb.ExecutionEvent {
	size := data.Len()
	if size < muchBytes {
		return nil
	}
	r := data.Reader()
	defer r.Close()
	head := make([]byte, headBytes)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil
	}
	first, outer, ok := lastField(head, 0, size, eventField)
	if !ok || first != 0 {
		return nil
	}
	outerEnd, inner, ok := lastField(head, outer, size, outputField)
	if !ok {
		return nil
	}
	innerEnd, begin, ok := lastField(head, inner, size, dataField)
	if !ok {
		return nil
	}
	var event pb.ExecutionEvent
	var output pb.OutputChunk
	if proto.Unmarshal(head[inner:innerEnd], &output) != nil || proto.Unmarshal(head[outer:outerEnd], &event) != nil {
		return nil
	}
	output.Data = newOutput(size - begin)
	n := copy(output.Data, head[begin:])
	if _, err := io.ReadFull(r, output.Data[n:]); err != nil {
		return nil
	}
	event.Event = &pb.ExecutionEvent_Output{Output: &output}
	return &event
}

// lastField finds the field with a number among the fields that begin at from. That field
// must be of type bytes and end at size. tag is the offset of the field, bytes the offset of
// its content.
func lastField(head []byte, from, size int, field protowire.Number) (tag, bytes int, ok bool) {
	for at := from; at < len(head); {
		number, kind, n := protowire.ConsumeTag(head[at:])
		if n < 0 {
			return 0, 0, false
		}
		if number == field && kind == protowire.BytesType {
			length, m := protowire.ConsumeVarint(head[at+n:])
			bytes = at + n + max(m, 0)
			return at, bytes, m > 0 && length == uint64(size-bytes)
		}
		m := protowire.ConsumeFieldValue(number, kind, head[at+n:])
		if m < 0 {
			return 0, 0, false
		}
		at += n + m
	}
	return 0, 0, false
}

// outputs holds buffers of outputs that are no longer used.
var outputs sync.Pool

// newOutput returns n bytes with arbitrary content.
func newOutput(n int) []byte {
	// A much larger buffer would stay in memory if the caller keeps a small output.
	if b, ok := outputs.Get().(*[]byte); ok && n <= cap(*b) && cap(*b) <= 2*n {
		return (*b)[:n]
	}
	return make([]byte, n)
}

// doneWith reuses the bytes of an output. Only the caller may have a reference to them.
func doneWith(o *pb.OutputChunk) {
	if b := o.GetData(); cap(b) >= muchBytes && cap(b) <= maxOutput {
		o.Data = nil
		outputs.Put(&b)
	}
}
