package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/toolview"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// executionHeader names the execution of a typed tool call. The results of these calls have the
// fields of the published contracts, the artifacts and the warnings.
const executionHeader = "skillrun-execution-id"

// toolCalls answers the calls of ToolService. Each typed call is one execution of a published
// contract's tool (package toolview). The result is the contract's object, without the daemon's
// own fields.
type toolCalls struct {
	pb.UnimplementedToolServiceServer
	*Server
	view *toolview.View
}

// artifactsBeside returns as many artifacts as fit into one message with these texts.
func artifactsBeside(id string, list []executor.Artifact, texts ...string) []*pb.Artifact {
	room := maxAnswerBytes
	for _, t := range texts {
		room -= len(t)
	}
	return fromArtifacts(&room, id, list)
}

// nameExecution tells the caller the execution of a result. An empty id names nothing.
func nameExecution(ctx context.Context, id string) error {
	if id == "" {
		return nil
	}
	return grpc.SetHeader(ctx, metadata.Pairs(executionHeader, id))
}
