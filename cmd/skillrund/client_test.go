package main

import (
	"context"

	"google.golang.org/grpc"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// executionClient is the client of ExecutionService for tests. Its calls return what their
// responses have: an event or an execution.
type executionClient struct{ pb.ExecutionServiceClient }

// eventStream is the receiving side of a call with events.
type eventStream interface {
	grpc.ClientStream
	Recv() (*pb.ExecutionEvent, error)
}

type responses[R interface{ GetEvent() *pb.ExecutionEvent }] struct {
	grpc.ClientStream
	recv func() (R, error)
}

func (s responses[R]) Recv() (*pb.ExecutionEvent, error) {
	r, err := s.recv()
	if err != nil {
		return nil, err
	}
	return r.GetEvent(), nil
}

type interactiveClient struct {
	eventStream
	send func(*pb.ExecuteInteractiveRequest) error
}

func (c interactiveClient) Send(m *pb.ExecuteInteractiveRequest) error { return c.send(m) }

func (c executionClient) Execute(ctx context.Context, m *pb.ExecuteRequest, opts ...grpc.CallOption) (eventStream, error) {
	s, err := c.ExecutionServiceClient.Execute(ctx, m, opts...)
	if err != nil {
		return nil, err
	}
	return responses[*pb.ExecuteResponse]{s, s.Recv}, nil
}

func (c executionClient) ExecuteInteractive(ctx context.Context, opts ...grpc.CallOption) (interactiveClient, error) {
	s, err := c.ExecutionServiceClient.ExecuteInteractive(ctx, opts...)
	if err != nil {
		return interactiveClient{}, err
	}
	return interactiveClient{responses[*pb.ExecuteInteractiveResponse]{s, s.Recv}, s.Send}, nil
}

func (c executionClient) AttachExecution(ctx context.Context, m *pb.AttachExecutionRequest, opts ...grpc.CallOption) (eventStream, error) {
	s, err := c.ExecutionServiceClient.AttachExecution(ctx, m, opts...)
	if err != nil {
		return nil, err
	}
	return responses[*pb.AttachExecutionResponse]{s, s.Recv}, nil
}

func (c executionClient) GetExecution(ctx context.Context, m *pb.GetExecutionRequest, opts ...grpc.CallOption) (*pb.Execution, error) {
	r, err := c.ExecutionServiceClient.GetExecution(ctx, m, opts...)
	return r.GetExecution(), err
}

func (c executionClient) CancelExecution(ctx context.Context, m *pb.CancelExecutionRequest, opts ...grpc.CallOption) (*pb.Execution, error) {
	r, err := c.ExecutionServiceClient.CancelExecution(ctx, m, opts...)
	return r.GetExecution(), err
}

// skillClient is the client of SkillService for tests. Its GetSkill returns the skill.
type skillClient struct{ pb.SkillServiceClient }

func (c skillClient) GetSkill(ctx context.Context, m *pb.GetSkillRequest, opts ...grpc.CallOption) (*pb.Skill, error) {
	r, err := c.SkillServiceClient.GetSkill(ctx, m, opts...)
	return r.GetSkill(), err
}
