package main

import (
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

func TestToolList(t *testing.T) {
	const definition = `{"type": "function", "function": {"name": "bash"}}`
	f := answers("ListTools", func(*pb.ListToolsRequest) (*pb.ListToolsResponse, error) {
		return &pb.ListToolsResponse{Tools: []*pb.Tool{{Name: "bash", Description: "Run it. In a sandbox.", DefinitionJson: definition}, {Name: "x", Description: "One."}}}, nil
	})
	if got := f.client(t, nil, "tool", "list"); got.code != 0 || !strings.HasPrefix(got.stdout, "bash  Run it\n") || !strings.HasSuffix(got.stdout, "One\n") {
		t.Errorf("got %+v", got)
	}
	if got := f.client(t, nil, "--json", "tool", "list"); !strings.HasPrefix(got.stdout, definition+"\n") {
		t.Errorf("json: %+v", got)
	}
}

func TestToolCall(t *testing.T) {
	f := &fake{callTool: func(r *pb.CallToolRequest, s grpc.ServerStreamingServer[pb.CallToolResponse]) error {
		if r.Name == "nothing" {
			return nil
		}
		if r.Name == "none" {
			return refusal(codes.NotFound, "UNKNOWN_TOOL", "there is no tool")
		}
		if err := s.Send(&pb.CallToolResponse{Event: &pb.CallToolResponse_Output{Output: &pb.OutputChunk{Data: []byte("live\n")}}}); err != nil {
			return err
		}
		return s.Send(&pb.CallToolResponse{Event: &pb.CallToolResponse_Result{Result: &pb.ToolResult{Content: r.Name + r.ArgumentsJson, IsError: r.Name == "fails"}}})
	}}
	for _, c := range []struct {
		args  []string
		stdin string
		want  result
	}{
		{[]string{"works"}, "", result{0, "works\n", ""}},
		{[]string{"works", `{"a": 1}`}, "", result{0, "works{\"a\": 1}\n", ""}},
		{[]string{"works", "-"}, `{"b": 2}`, result{0, "works{\"b\": 2}\n", ""}},
		{[]string{"-v", "works"}, "", result{0, "works\n", "live\n"}},
		{[]string{"fails"}, "", result{1, "fails\n", ""}},
	} {
		if got := f.client(t, strings.NewReader(c.stdin), append([]string{"tool", "call"}, c.args...)...); got != c.want {
			t.Errorf("%q: got %+v, want %+v", c.args, got, c.want)
		}
	}
	if got := f.client(t, nil, "--json", "tool", "call", "fails"); got.code != 1 || !strings.Contains(got.stdout, `"isError":true`) {
		t.Errorf("json: %+v", got)
	}
	if got := f.client(t, nil, "tool", "call", "none"); got.code != 127 || !strings.Contains(got.stderr, "there is no tool") {
		t.Errorf("no such tool: %+v", got)
	}
	if got := f.client(t, nil, "tool", "call", "nothing"); got.code != 125 || !strings.Contains(got.stderr, "without a result") {
		t.Errorf("no result: %+v", got)
	}
	if got := f.client(t, nil, "tool", "call"); got.code != 125 {
		t.Errorf("no name: %+v", got)
	}
}
