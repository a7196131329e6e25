package skillrun

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A received message does not change when its buffer is reused.
func TestCodecKeepsMessages(t *testing.T) {
	c := newCodec()
	var sent, got []*pb.OutputChunk
	for _, size := range []int{5000, 100, 3 << 20, 0, 5001, 70_000} {
		m := &pb.OutputChunk{OffsetBytes: uint64(size), Data: bytes.Repeat([]byte{byte(size)}, size)}
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		half := len(data) / 2
		var g pb.OutputChunk
		if err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(data[:half]), mem.SliceBuffer(data[half:])}, &g); err != nil {
			t.Fatal(err)
		}
		sent, got = append(sent, m), append(got, &g)
	}
	for i := range sent {
		if !proto.Equal(got[i], sent[i]) {
			t.Errorf("message %d of %d bytes has changed", i, len(sent[i].Data))
		}
	}
	if err := c.Unmarshal(nil, "x"); err == nil {
		t.Error("a string was accepted as a message")
	}
}
