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
	// muchBytes is from where on a message is looked at before it is decoded.
	muchBytes = 32 << 10
	// headBytes is where in it the bytes of an output begin at the latest.
	headBytes = 512
	// maxOutput bounds the buffers that are kept for output.
	maxOutput = 1 << 20
)

// The fields that lead to the bytes of an output.
var (
	outputField = fieldNumber(&pb.ExecutionEvent{}, "output")
	dataField   = fieldNumber(&pb.Output{}, "data")
)

func fieldNumber(m proto.Message, name protoreflect.Name) protowire.Number {
	return m.ProtoReflect().Descriptor().Fields().ByName(name).Number()
}

// unmarshalOutput decodes an event with much output that ends with the output's bytes,
// as daemons send it, with one copy of them. false: it is another message, or none.
func unmarshalOutput(data mem.BufferSlice, e *pb.ExecutionEvent) bool {
	size := data.Len()
	if size < muchBytes {
		return false
	}
	r := data.Reader()
	defer r.Close()
	head := make([]byte, headBytes)
	if _, err := io.ReadFull(r, head); err != nil {
		return false
	}
	outer, inner, ok := lastField(head, 0, size, outputField)
	if !ok {
		return false
	}
	innerEnd, begin, ok := lastField(head, inner, size, dataField)
	if !ok {
		return false
	}
	var output pb.Output
	if proto.Unmarshal(head[inner:innerEnd], &output) != nil || proto.Unmarshal(head[:outer], e) != nil {
		return false
	}
	output.Data = newOutput(size - begin)
	n := copy(output.Data, head[begin:])
	if _, err := io.ReadFull(r, output.Data[n:]); err != nil {
		return false
	}
	e.Event = &pb.ExecutionEvent_Output{Output: &output}
	return true
}

// lastField finds, among the fields that begin at from, the one with a number. It must
// be the last one, of bytes up to size: tag is where it begins and bytes where these do.
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

// outputs has the bytes of outputs that nobody needs any more.
var outputs sync.Pool

// newOutput returns n bytes with anything in them.
func newOutput(n int) []byte {
	// One that is far larger would be held by who keeps a little.
	if b, ok := outputs.Get().(*[]byte); ok && n <= cap(*b) && cap(*b) <= 2*n {
		return (*b)[:n]
	}
	return make([]byte, n)
}

// doneWith takes the bytes of an output that nobody has but the caller.
func doneWith(o *pb.Output) {
	if b := o.GetData(); cap(b) >= muchBytes && cap(b) <= maxOutput {
		o.Data = nil
		outputs.Put(&b)
	}
}
