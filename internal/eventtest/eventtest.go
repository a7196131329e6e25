// Package eventtest has the server side of the calls with events, for daemons that tests make up.
package eventtest

import (
	"context"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A Server is the server side of Execute, ExecuteInteractive and AttachExecution: it sends an event
// as the response of its call.
type Server struct {
	stream interface{ Context() context.Context }
	send   func(*pb.ExecutionEvent) error
}

// Context returns the context of the call.
func (s Server) Context() context.Context { return s.stream.Context() }

// Send sends an event.
func (s Server) Send(e *pb.ExecutionEvent) error { return s.send(e) }

// An Interactive is the server side of ExecuteInteractive.
type Interactive struct {
	Server
	recv func() (*pb.ExecuteInteractiveRequest, error)
}

// Recv returns the client's next message.
func (s Interactive) Recv() (*pb.ExecuteInteractiveRequest, error) { return s.recv() }

// Execute returns the Server of a call of Execute.
func Execute(s pb.ExecutionService_ExecuteServer) Server {
	return Server{s, func(e *pb.ExecutionEvent) error { return s.Send(&pb.ExecuteResponse{Event: e}) }}
}

// Attach returns the Server of a call of AttachExecution.
func Attach(s pb.ExecutionService_AttachExecutionServer) Server {
	return Server{s, func(e *pb.ExecutionEvent) error { return s.Send(&pb.AttachExecutionResponse{Event: e}) }}
}

// Interact returns the Interactive of a call of ExecuteInteractive.
func Interact(s pb.ExecutionService_ExecuteInteractiveServer) Interactive {
	return Interactive{Server{s, func(e *pb.ExecutionEvent) error { return s.Send(&pb.ExecuteInteractiveResponse{Event: e}) }}, s.Recv}
}
