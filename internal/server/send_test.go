package server

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A sent event is a response of each of the three calls with events, whatever the size of its
// output. It has as many bytes as protobuf's own encoding.
func TestOutputIsSentAsItIs(t *testing.T) {
	for _, size := range []int{0, 1, wholeBytes - 1, wholeBytes, wholeBytes + 1, 16384, 1 << 20} {
		want := &pb.ExecutionEvent{
			ExecutionId: "x", Sequence: 7, Time: timestamppb.New(time.Unix(1, 2)),
			Event: &pb.ExecutionEvent_Output{Output: &pb.OutputChunk{
				Stream: pb.OutputStream_OUTPUT_STREAM_STDERR, OffsetBytes: 1 << 40, Data: bytes.Repeat([]byte{0xff, 0}, size)[:size],
			}},
		}
		data, err := newCodec().Marshal(outgoing{event: want})
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range []interface {
			proto.Message
			GetEvent() *pb.ExecutionEvent
		}{&pb.ExecuteResponse{}, &pb.ExecuteInteractiveResponse{}, &pb.AttachExecutionResponse{}} {
			if err := proto.Unmarshal(data.Materialize(), got); err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(got.GetEvent(), want) || data.Len() != proto.Size(got) {
				t.Errorf("%d bytes: got %v in %d bytes, want %d", size, got, data.Len(), proto.Size(got))
			}
		}
		data.Free()
	}
}

// marshalOutput would leave out a field that someone adds to an event or a response. This test
// then fails.
func TestOutputFieldsAreKnown(t *testing.T) {
	for message, known := range map[proto.Message]int{
		&pb.OutputChunk{}: 3, &pb.ExecutionEvent{}: 3,
		&pb.ExecuteResponse{}: 1, &pb.ExecuteInteractiveResponse{}: 1, &pb.AttachExecutionResponse{}: 1,
	} {
		fields := message.ProtoReflect().Descriptor().Fields()
		outside := 0 // of a oneof
		for i := range fields.Len() {
			if fields.Get(i).ContainingOneof() == nil {
				outside++
			}
		}
		if outside != known {
			t.Errorf("%s has %d fields, marshalOutput knows %d", message.ProtoReflect().Descriptor().Name(), outside, known)
		}
	}
}

// An outgoing releases its buffer once: with much output when gRPC is done with it, with
// little output at once, because that was copied.
func TestOutgoingIsReleased(t *testing.T) {
	for _, size := range []int{0, wholeBytes - 1, wholeBytes, 256 << 10} {
		released := 0
		e := &pb.ExecutionEvent{Sequence: 7, Event: &pb.ExecutionEvent_Output{Output: &pb.OutputChunk{Data: make([]byte, size)}}}
		data, err := newCodec().Marshal(outgoing{e, func() { released++ }})
		if err != nil {
			t.Fatal(err)
		}
		if early := released == 1; early != (size < wholeBytes) {
			t.Errorf("%d bytes: released %d times before they were sent", size, released)
		}
		data.Ref() // as a transport does
		data.Free()
		if size >= wholeBytes && released != 0 {
			t.Errorf("%d bytes: released while they were being sent", size)
		}
		var got pb.ExecuteResponse
		if err := proto.Unmarshal(data.Materialize(), &got); err != nil || !proto.Equal(got.GetEvent(), e) {
			t.Errorf("%d bytes: got %v, %v", size, &got, err)
		}
		data.Free()
		if released != 1 {
			t.Errorf("%d bytes: released %d times", size, released)
		}
	}
}

// An event without output counts with its whole size: an outcome may list many artifacts.
func TestAnswerSizeOfAnOutcome(t *testing.T) {
	outcome := &pb.ExecutionOutcome{}
	for range 1000 {
		outcome.Artifacts = append(outcome.Artifacts, &pb.Artifact{Path: strings.Repeat("x", 1000)})
	}
	e := &pb.ExecutionEvent{Event: &pb.ExecutionEvent_Outcome{Outcome: outcome}}
	if got, want := answerSize(outgoing{event: e}), proto.Size(e); got != want || got < 1_000_000 {
		t.Errorf("got %d bytes, want %d", got, want)
	}
	e = &pb.ExecutionEvent{Event: &pb.ExecutionEvent_Output{Output: &pb.OutputChunk{Data: make([]byte, 5000)}}}
	if got := answerSize(outgoing{event: e}); got != 5000 {
		t.Errorf("an output of 5000 bytes counts as %d", got)
	}
}
