package skillrun

import (
	"bytes"
	"slices"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

func outputEvent(size int) *pb.ExecutionEvent {
	return &pb.ExecutionEvent{
		ExecutionId: "0196", Sequence: 7, Time: &timestamppb.Timestamp{Seconds: 1, Nanos: 2},
		Event: &pb.ExecutionEvent_Output{Output: &pb.OutputChunk{
			Stream: pb.OutputStream_OUTPUT_STREAM_STDERR, OffsetBytes: 1 << 40, Data: bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7}, size/7+1)[:size],
		}},
	}
}

// inFrames splits a message into buffers as gRPC does.
func inFrames(message []byte) mem.BufferSlice {
	var s mem.BufferSlice
	for part := range slices.Chunk(message, 16<<10) {
		s = append(s, mem.SliceBuffer(part))
	}
	return s
}

// The client decodes every message as protobuf does, whatever the order of its fields.
func TestUnmarshalAnyMessage(t *testing.T) {
	encode := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	// response is the message with an event, or with several pieces of one.
	response := func(event []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, eventField, protowire.BytesType), event)
	}
	much := encode(outputEvent(256 << 10))
	stdout := encode(&pb.ExecutionEvent{Event: &pb.ExecutionEvent_Output{Output: &pb.OutputChunk{Stream: pb.OutputStream_OUTPUT_STREAM_STDOUT}}})
	front := func(n int) []byte {
		return encode(&pb.ExecutionEvent{ExecutionId: string(bytes.Repeat([]byte{'x'}, n)), Sequence: 9})
	}
	dataThenStream := protowire.AppendVarint(protowire.AppendTag(encode(&pb.OutputChunk{Data: make([]byte, muchBytes)}), 1, protowire.VarintType), 2)
	cases := map[string]unmarshalCase{ // the messages are events
		"empty":                        {nil, false},
		"little":                       {encode(outputEvent(100)), false},
		"much":                         {append(front(36), encode(&pb.ExecutionEvent{Event: outputEvent(muchBytes).Event})...), true},
		"of odd size":                  {append(front(36), encode(&pb.ExecutionEvent{Event: outputEvent(100_003).Event})...), true},
		"1 MiB":                        {append(front(36), encode(&pb.ExecutionEvent{Event: outputEvent(1 << 20).Event})...), true},
		"twice, which are merged":      {append(slices.Clone(stdout), encode(&pb.ExecutionEvent{Event: outputEvent(muchBytes).Event})...), false},
		"fields after the output":      {append(slices.Clone(much), front(36)...), false},
		"fields after the bytes":       {protowire.AppendBytes(protowire.AppendTag(nil, outputField, protowire.BytesType), dataThenStream), false},
		"the output beyond the head":   {append(front(headBytes), much...), false},
		"another output after it":      {append(slices.Clone(much), stdout...), false},
		"no output":                    {front(muchBytes), false},
		"an unknown field before":      {append(protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 5), encode(&pb.ExecutionEvent{Event: outputEvent(muchBytes).Event})...), true},
		"no message":                   {bytes.Repeat([]byte{0xff}, muchBytes), false},
		"a name that is not UTF-8":     {append([]byte{0x0a, 1, 0xff}, much...), false},
		"the head cut within a varint": {append(front(headBytes-10), encode(&pb.ExecutionEvent{Event: outputEvent(muchBytes).Event})...), false},
	}
	for name, c := range cases {
		cases[name] = unmarshalCase{response(c.message), c.ours}
	}
	cases["cut short"] = unmarshalCase{response(much)[:len(much)-1], false}
	cases["another response after it"] = unmarshalCase{append(response(much), response(stdout)...), false}
	cases["an unknown field of the response"] = unmarshalCase{append(protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 5), response(much)...), false}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var want pb.ExecuteResponse
			wantErr := proto.Unmarshal(c.message, &want)
			for _, got := range []proto.Message{&pb.ExecuteResponse{}, &pb.ExecuteInteractiveResponse{}, &pb.AttachExecutionResponse{}} {
				err := newCodec().Unmarshal(inFrames(c.message), got)
				if (err != nil) != (wantErr != nil) {
					t.Fatalf("got %v, protobuf has %v", err, wantErr)
				}
				if err == nil && !proto.Equal((*eventOf(got)), want.GetEvent()) {
					t.Error("got another event than protobuf")
				}
			}
			if ours := unmarshalOutput(inFrames(c.message)) != nil; ours != c.ours {
				t.Errorf("decoded here: %v, want %v", ours, c.ours)
			}
		})
	}
}

// An unmarshalCase is a message, and whether it is decoded without protobuf's decoder.
type unmarshalCase struct {
	message []byte
	ours    bool
}

// Bytes that a caller may have kept are not reused; others may be.
func TestKeptEventsStay(t *testing.T) {
	var kept []*pb.ExecutionEvent
	f := &follower{
		sinks: newSinks(nil, nil, true), shared: true,
		on: func(e *pb.ExecutionEvent) { kept = append(kept, e) },
	}
	for i := range 20 {
		if err := f.take(numbered(t, i)); err != nil {
			t.Fatal(err)
		}
	}
	for i, e := range kept {
		if b := e.GetOutput().GetData(); len(b) != muchBytes || b[0] != byte(i) || b[muchBytes-1] != byte(i) {
			t.Errorf("the bytes of event %d have changed", i)
		}
	}
	f.shared, f.on = false, nil
	e := numbered(t, 20)
	if err := f.take(e); err != nil {
		t.Fatal(err)
	}
	if e.GetOutput().GetData() != nil {
		t.Error("the bytes of an event that is not shared are not reused")
	}
}

// numbered returns the i-th event as received, with muchBytes times i bytes.
func numbered(t *testing.T, i int) *pb.ExecutionEvent {
	t.Helper()
	b, err := proto.Marshal(&pb.ExecuteResponse{Event: &pb.ExecutionEvent{Sequence: uint64(i + 1), Event: &pb.ExecutionEvent_Output{Output: &pb.OutputChunk{
		Stream: pb.OutputStream_OUTPUT_STREAM_STDOUT, OffsetBytes: uint64(i * muchBytes), Data: bytes.Repeat([]byte{byte(i)}, muchBytes),
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	var m pb.ExecuteResponse
	if err := newCodec().Unmarshal(inFrames(b), &m); err != nil {
		t.Fatal(err)
	}
	return m.GetEvent()
}
