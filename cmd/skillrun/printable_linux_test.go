package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A character may come in two pieces, with a piece of the other stream between them. A file gets the bytes unchanged.
func TestOutputInPieces(t *testing.T) {
	pieces := []*pb.OutputChunk{
		{Stream: pb.OutputStream_OUTPUT_STREAM_STDOUT, Data: []byte("a\xe2")},
		{Stream: pb.OutputStream_OUTPUT_STREAM_STDERR, Data: []byte("\x1b[31m\xf0\x9f")},
		{Stream: pb.OutputStream_OUTPUT_STREAM_STDOUT, Data: []byte("\x82")},
		{Stream: pb.OutputStream_OUTPUT_STREAM_STDOUT, Data: []byte("\xac\xe2")},
		{Stream: pb.OutputStream_OUTPUT_STREAM_STDERR, Data: []byte("\x98\x80 \xff\n")},
	}
	var raw bytes.Buffer
	for _, p := range pieces {
		raw.Write(p.GetData())
	}
	const shown = `a\x1b[31m€😀 \xff` + "\r\n" + `\xe2`
	f := &fake{
		callTool: func(_ *pb.CallToolRequest, s grpc.ServerStreamingServer[pb.CallToolResponse]) error {
			for _, p := range pieces {
				if err := s.Send(&pb.CallToolResponse{Event: &pb.CallToolResponse_Output{Output: p}}); err != nil {
					return err
				}
			}
			return s.Send(&pb.CallToolResponse{Event: &pb.CallToolResponse_Result{Result: &pb.ToolResult{}}})
		},
		prepare: func(_ *pb.PrepareSkillRequest, s prepareServer) error {
			for _, p := range pieces {
				if err := s.Send(&pb.PrepareSkillResponse{Event: &pb.PrepareSkillResponse_Output{Output: p}}); err != nil {
					return err
				}
			}
			return s.Send(&pb.PrepareSkillResponse{Event: &pb.PrepareSkillResponse_Environment{Environment: &pb.SkillEnvironment{}}})
		},
	}
	for _, line := range []string{"tool call -v hello", "prepare demo"} {
		if got := f.client(t, nil, strings.Fields(line)...); got.code != 0 || got.stderr != raw.String() {
			t.Errorf("%s to a file: got %+v, want %q", line, got, raw.String())
		}
		screen, all := openScreen(t)
		code := run(t.Context(), append([]string{"--address", f.address}, strings.Fields(line)...), nil, io.Discard, screen)
		if got := all(); code != 0 || got != shown {
			t.Errorf("%s on a terminal: got %d and %q, want %q", line, code, got, shown)
		}
	}
}
