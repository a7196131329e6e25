package server

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/toolview"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// ListTools returns the function tools for models with their schemas. definition_json is the tool
// in the form that platforms take (Tool.Definition).
func (c toolCalls) ListTools(context.Context, *pb.ListToolsRequest) (*pb.ListToolsResponse, error) {
	out := &pb.ListToolsResponse{}
	for _, t := range c.view.Tools() {
		parameters, err := newStruct(t.Parameters)
		if err != nil {
			return nil, fmt.Errorf("tool %s: %w", t.Name, err)
		}
		out.Tools = append(out.Tools, &pb.Tool{
			Name: t.Name, Description: t.Description, Parameters: parameters, DefinitionJson: string(t.Definition()),
		})
	}
	return out, nil
}

// CallTool sends output as fast as the caller reads. The script doesn't wait for the caller,
// because its output goes to disk. The last message has the result. A tool that fails is a result
// with is_error; a status means that nothing ran or that the daemon failed.
func (c toolCalls) CallTool(m *pb.CallToolRequest, stream grpc.ServerStreamingServer[pb.CallToolResponse]) error {
	ctx := stream.Context()
	if role := roleOf(ctx); !toolview.OnlyReads(m.GetName()) && !role.Covers(identity.Invoke) {
		return &roleError{identity.Identity{Principal: caller(ctx), Role: role}, identity.Invoke}
	}
	send := func(o executor.Output) error {
		return stream.Send(&pb.CallToolResponse{Event: &pb.CallToolResponse_Output{Output: fromOutput(o)}})
	}
	r, err := c.view.Call(ctx, toolview.ToolCall{Who: caller(ctx), Tool: m.GetName(), Arguments: json.RawMessage(m.GetArgumentsJson()), Sink: send})
	// The status names the execution, so that its caller can attach to it, and an operator can find it.
	if err != nil && r.ExecutionID != "" {
		return &executionError{r.ExecutionID, err}
	}
	if err != nil {
		return err
	}
	result, err := fromToolResult(r)
	if err != nil {
		return fmt.Errorf("tool %s: %w", m.GetName(), err)
	}
	return stream.Send(&pb.CallToolResponse{Event: &pb.CallToolResponse_Result{Result: result}})
}

// fromToolResult leaves out what would make the message too large for a client.
func fromToolResult(r toolview.Result) (*pb.ToolResult, error) {
	m := &pb.ToolResult{Content: text(r.Content), IsError: r.IsError, ExecutionId: r.ExecutionID, Warnings: texts(r.Warnings)}
	room := maxAnswerBytes - len(m.Content)
	// The text comes first, because models read it. The object has the same facts, so it is left out if there is no room
	// for both.
	if r.Structured != nil && len(r.Structured) <= room {
		object, err := newStruct(r.Structured)
		if err != nil {
			return nil, err
		}
		m.Structured = object
		room -= proto.Size(object)
	}
	m.Artifacts = fromArtifacts(&room, r.ExecutionID, r.Artifacts)
	return m, nil
}

// newStruct reads the text of a JSON object.
func newStruct(object json.RawMessage) (*structpb.Struct, error) {
	m := &structpb.Struct{}
	return m, protojson.Unmarshal(object, m)
}
