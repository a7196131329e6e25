package skillrun_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

func Example() {
	address, stop := serveCalculator() // in production: "unix:///run/skillrun/skillrun.sock"
	defer stop()

	c, err := skillrun.Dial(address)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	cmd := c.Script("calculator", "scripts/calc.py", "2+2")
	cmd.Stdout = os.Stdout
	err = cmd.Run(context.Background())

	var exit *skillrun.ExitError
	switch {
	case err == nil:
		fmt.Println("the program succeeded")
	case errors.As(err, &exit):
		fmt.Println("the program failed:", exit, exit.Outcome.GetAdvice())
	default:
		fmt.Println("skillrun failed:", err, skillrun.Reason(err))
	}
	// Output:
	// 4
	// the program succeeded
}

func ExampleExitError() {
	address, stop := serveCalculator()
	defer stop()
	c, err := skillrun.Dial(address)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	_, err = c.Script("calculator", "scripts/calc.py", "2+").Output(context.Background())
	var exit *skillrun.ExitError
	if errors.As(err, &exit) {
		fmt.Printf("%v, code %d: %s", exit, exit.ExitCode(), exit.Stderr)
	}
	// Output:
	// exit status 2, code 2: calc: cannot parse "2+"
}

// calculator replaces a daemon with one skill, so that the examples run everywhere.
type calculator struct {
	pb.UnimplementedExecutionServiceServer
}

func (calculator) Execute(r *pb.ExecuteRequest, s grpc.ServerStreamingServer[pb.ExecuteResponse]) error {
	stream, text, code := pb.OutputStream_OUTPUT_STREAM_STDOUT, "4\n", int32(0)
	if r.GetArgs()[0] != "2+2" {
		stream, text, code = pb.OutputStream_OUTPUT_STREAM_STDERR, fmt.Sprintf("calc: cannot parse %q\n", r.GetArgs()[0]), 2
	}
	for i, event := range []*pb.ExecutionEvent{
		{Event: &pb.ExecutionEvent_Header{Header: &pb.ExecutionHeader{Skill: r.GetSkill()}}},
		{Event: &pb.ExecutionEvent_Started{Started: &pb.ExecutionStarted{}}},
		{Event: &pb.ExecutionEvent_Output{Output: &pb.OutputChunk{Stream: stream, Data: []byte(text)}}},
		{Event: &pb.ExecutionEvent_Outcome{Outcome: &pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_EXITED, ExitCode: proto.Int32(code)}}},
	} {
		event.ExecutionId, event.Sequence = "e1", uint64(i+1)
		if err := s.Send(&pb.ExecuteResponse{Event: event}); err != nil {
			return err
		}
	}
	return nil
}

func serveCalculator() (address string, stop func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		log.Fatal(err)
	}
	s := grpc.NewServer()
	pb.RegisterExecutionServiceServer(s, calculator{})
	go s.Serve(l)
	return "unix://" + l.Addr().String(), func() {
		s.Stop()
		os.RemoveAll(dir)
	}
}
