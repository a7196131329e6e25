package skillrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/skillrun/skillrun/internal/eventtest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// longRecord has 100 chunks of different lengths on two streams.
func longRecord() (r *record, stdout, stderr string) {
	r = newRecord().started()
	for i := range 100 {
		line := strings.Repeat(fmt.Sprint(i), i%7+1)
		if i%3 == 0 {
			stderr += line
			r.stderr(line)
		} else {
			stdout += line
			r.stdout(line)
		}
	}
	return r.exit(0), stdout, stderr
}

// TestBrokenStreamLosesNothing cuts the connection again and again while the program
// prints.
func TestBrokenStreamLosesNothing(t *testing.T) {
	r, wantOut, wantErr := longRecord()
	const every = 12 // events on one stream
	var executes, attaches atomic.Int32
	f := &fake{}
	f.execute = func(_ *pb.ExecuteRequest, s eventtest.Server) error {
		executes.Add(1)
		r.send(s, 0, every)
		<-s.Context().Done() // the reader cuts the connection after the last of these events
		return nil
	}
	f.attach = func(a *pb.AttachExecutionRequest, s eventtest.Server) error {
		upTo := a.GetAfterSequence() + every
		if upTo >= uint64(len(r.events)) {
			return r.send(s, a.GetAfterSequence(), 0)
		}
		r.send(s, a.GetAfterSequence(), upTo)
		switch attaches.Add(1) % 3 {
		case 0:
			<-s.Context().Done()
		case 1:
			return status.Error(codes.Unavailable, "going away")
		}
		return nil // the stream ends without an outcome
	}
	var stdout, stderr bytes.Buffer
	var sequences []uint64
	cmd := f.dial(t).Script("demo", "x.py")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.OnEvent = func(e *pb.ExecutionEvent) {
		sequences = append(sequences, e.GetSequence())
		if e.GetSequence()%every == 0 {
			f.cut()
		}
	}
	if err := cmd.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if stdout.String() != wantOut || stderr.String() != wantErr {
		t.Errorf("got %q and %q\nwant %q and %q", stdout.String(), stderr.String(), wantOut, wantErr)
	}
	for i, got := range sequences {
		if want := uint64(i + 1); got != want {
			t.Fatalf("event %d: got sequence %d, want %d", i, got, want)
		}
	}
	if got, want := len(sequences), len(r.events); got != want {
		t.Errorf("events: got %d, want %d", got, want)
	}
	if executes.Load() != 1 || attaches.Load() < 3 {
		t.Errorf("got %d requests and %d attaches, want 1 and more than 2", executes.Load(), attaches.Load())
	}
}

func TestAttachGivesUp(t *testing.T) {
	tests := []struct {
		name   string
		answer error
		tries  int32
		want   codes.Code
	}{
		{"unavailable", status.Error(codes.Unavailable, "away"), 1, codes.Unavailable},
		{"gone", status.Error(codes.NotFound, "retention"), 1, codes.NotFound},
		{"too old", status.Error(codes.Unimplemented, "no"), 1, codes.Unimplemented},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var tries atomic.Int32
			f := &fake{
				execute: func(_ *pb.ExecuteRequest, s eventtest.Server) error {
					return newRecord().send(s, 0, 0) // and no outcome
				},
				attach: func(*pb.AttachExecutionRequest, eventtest.Server) error {
					tries.Add(1)
					return test.answer
				},
			}
			err := f.impatient(t).Script("demo", "x.py").Run(t.Context())
			if got := status.Code(err); got != test.want {
				t.Errorf("code: got %v (%v), want %v", got, err, test.want)
			}
			if got := tries.Load(); got != test.tries {
				t.Errorf("tries: got %d, want %d", got, test.tries)
			}
		})
	}
}

func TestEventsInDisorder(t *testing.T) {
	whole := newRecord().stdout("ab").stdout("cd").stdout("ef").exit(0)
	tests := []struct {
		name  string
		order []int // indices into whole, in the order of the first stream
		want  string
		code  codes.Code
	}{
		{"repeated", []int{0, 1, 1, 0, 2, 3, 2, 4}, "abcdef", codes.OK},
		{"left out, then attached", []int{0, 1, 3}, "abcdef", codes.OK},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := whole.serve()
			f.execute = func(_ *pb.ExecuteRequest, s eventtest.Server) error {
				for _, i := range test.order {
					if err := s.Send(whole.events[i]); err != nil {
						return err
					}
				}
				return nil
			}
			out, err := f.dial(t).Script("demo", "x.py").Output(t.Context())
			if string(out) != test.want || status.Code(err) != test.code {
				t.Errorf("got %q, %v, want %q, %v", out, err, test.want, test.code)
			}
		})
	}
}

func TestOffsetsThatDoNotFit(t *testing.T) {
	r := newRecord().stdout("ab").stdout("cd").exit(0)
	r.events[2].GetOutput().OffsetBytes = 3
	out, err := r.serve().dial(t).Script("demo", "x.py").Output(t.Context())
	if got, want := status.Code(err), codes.DataLoss; got != want || string(out) != "ab" {
		t.Errorf("got %q, %v, want %q and %v", out, err, "ab", want)
	}
}

func TestKeepalivesAndUnknownStreams(t *testing.T) {
	r := newRecord().stdout("a").output(pb.OutputStream(9), "from the future").stdout("b").exit(0)
	keepalive := &pb.ExecutionEvent{ExecutionId: "e1", Sequence: 2, Event: &pb.ExecutionEvent_Keepalive{Keepalive: &pb.ExecutionKeepalive{State: pb.ExecutionState_EXECUTION_STATE_RUNNING}}}
	f := &fake{execute: func(_ *pb.ExecuteRequest, s eventtest.Server) error {
		r.send(s, 0, 2)
		s.Send(keepalive)
		s.Send(keepalive)
		return r.send(s, 2, 0)
	}}
	seen := 0
	cmd := f.dial(t).Script("demo", "x.py")
	cmd.OnEvent = func(e *pb.ExecutionEvent) {
		if e.GetKeepalive() != nil {
			seen++
		}
	}
	out, err := cmd.Output(t.Context())
	if string(out) != "ab" || err != nil || seen != 2 {
		t.Errorf("got %q, %v and %d keepalives, want %q, nil and 2", out, err, seen, "ab")
	}
}

// The position in the queue reaches OnEvent. It repeats the last sequence, so the stored events after it
// are complete, also after a break.
func TestQueued(t *testing.T) {
	r := newRecord().started().stdout("ab").exit(0)
	queued := func(s eventtest.Server, position uint32) {
		s.Send(&pb.ExecutionEvent{ExecutionId: "e1", Sequence: 1, Event: &pb.ExecutionEvent_Queued{Queued: &pb.ExecutionQueued{Position: position}}})
	}
	f := &fake{execute: func(_ *pb.ExecuteRequest, s eventtest.Server) error {
		r.send(s, 0, 1)
		queued(s, 3)
		queued(s, 2)
		return status.Error(codes.Unavailable, "away")
	}, attach: func(a *pb.AttachExecutionRequest, s eventtest.Server) error {
		queued(s, 1)
		return r.send(s, a.GetAfterSequence(), 0)
	}}
	var positions []uint32
	cmd := f.dial(t).Script("demo", "x.py")
	cmd.OnEvent = func(e *pb.ExecutionEvent) {
		if q := e.GetQueued(); q != nil {
			positions = append(positions, q.GetPosition())
		}
	}
	out, err := cmd.Output(t.Context())
	if string(out) != "ab" || err != nil || !slices.Equal(positions, []uint32{3, 2, 1}) {
		t.Errorf("got %q, %v and the positions %v", out, err, positions)
	}
}

// The refusals and connections of the network are there after the end, each once, also if the stream breaks
// and repeats an event.
func TestNetworkOfAnExecution(t *testing.T) {
	r := newRecord().started()
	for _, port := range []uint32{80, 81} {
		r.add(&pb.ExecutionEvent{Event: &pb.ExecutionEvent_Denied{Denied: &pb.NetworkDenial{Protocol: "tcp", Address: "10.0.0.1", Port: port}}})
	}
	network := &pb.NetworkUsage{Connections: []*pb.NetworkConnection{{Name: "example.com", Port: 443}}}
	r.outcome(&pb.ExecutionOutcome{End: pb.ExecutionEnd_EXECUTION_END_EXITED, ExitCode: proto.Int32(0), Usage: &pb.ExecutionUsage{Network: network}})
	f := &fake{execute: func(_ *pb.ExecuteRequest, s eventtest.Server) error {
		r.send(s, 0, 3)
		return status.Error(codes.Unavailable, "away")
	}, attach: func(a *pb.AttachExecutionRequest, s eventtest.Server) error {
		return r.send(s, a.GetAfterSequence()-1, 0)
	}}
	cmd := f.dial(t).Script("demo", "x.py")
	if err := cmd.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	denied, connections := cmd.Execution.Denied(), cmd.Execution.Connections()
	if len(denied) != 2 || denied[0].GetPort() != 80 || denied[1].GetPort() != 81 || len(connections) != 1 || connections[0].GetName() != "example.com" {
		t.Errorf("got %v and %v", denied, connections)
	}
	r = newRecord().exit(0)
	if e := r.serve().dial(t).Attach(t.Context(), "e1", AttachOptions{}); e.Denied() != nil || e.Connections() != nil {
		t.Errorf("without a network: %v and %v", e.Denied(), e.Connections())
	}
}

func TestAttach(t *testing.T) {
	r := newRecord().stdout("ab").stderr("x").stdout("cd").exit(7)
	c := r.serve().dial(t)
	tests := []struct {
		after uint64
		want  string
	}{{0, "abcd"}, {2, "cd"}, {4, ""}}
	for _, test := range tests {
		var stdout bytes.Buffer
		e := c.Attach(t.Context(), "e1", AttachOptions{After: test.after, Stdout: &stdout})
		err, ok := e.Wait().(*ExitError)
		if !ok || err.ExitCode() != 7 || stdout.String() != test.want {
			t.Errorf("after %d: got %q, %v, want %q and code 7", test.after, stdout.String(), err, test.want)
		}
	}
}

// TestAttachBehindTheEnd: after the last event no more events come, but the outcome is
// known.
func TestAttachBehindTheEnd(t *testing.T) {
	r := newRecord().stdout("ab").exit(7)
	last := uint64(len(r.events))
	outcome := r.events[last-1].GetOutcome()
	tests := []struct {
		name     string
		now      *pb.Execution
		attaches int32
		code     int // 0: want an error of the connection
	}{
		{"ended", &pb.Execution{LastSequence: last, Outcome: outcome}, 1, 7},
		{"with more to come", &pb.Execution{LastSequence: last + 1, Outcome: outcome}, 2, 0},
		{"running", &pb.Execution{LastSequence: last}, 2, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := r.serve()
			var attaches atomic.Int32
			f.attach = func(*pb.AttachExecutionRequest, eventtest.Server) error {
				attaches.Add(1)
				return nil
			}
			f.get = func(*pb.GetExecutionRequest) (*pb.Execution, error) { return test.now, nil }
			e := f.impatient(t).Attach(t.Context(), "e1", AttachOptions{After: last})
			err := e.Wait()
			if exit := (*ExitError)(nil); errors.As(err, &exit) != (test.code != 0) || exit != nil && exit.ExitCode() != test.code {
				t.Errorf("got %v, want code %d", err, test.code)
			}
			if got := attaches.Load(); got != test.attaches {
				t.Errorf("attached %d times, want %d", got, test.attaches)
			}
		})
	}
}

func TestAttachUnknown(t *testing.T) {
	f := &fake{attach: func(*pb.AttachExecutionRequest, eventtest.Server) error {
		return refusal(codes.NotFound, "EXECUTION_NOT_FOUND", "no such execution")
	}}
	err := f.dial(t).Attach(t.Context(), "nope", AttachOptions{}).Wait()
	if got, want := Reason(err), "EXECUTION_NOT_FOUND"; got != want {
		t.Errorf("reason: got %q (%v), want %q", got, err, want)
	}
}

func TestEndOfContextLeavesAnAttachedExecution(t *testing.T) {
	following := make(chan struct{})
	f := &fake{
		attach: func(_ *pb.AttachExecutionRequest, s eventtest.Server) error {
			newRecord().send(s, 0, 0)
			close(following)
			<-s.Context().Done()
			return nil
		},
		cancel: func(*pb.CancelExecutionRequest) (*pb.Execution, error) {
			t.Error("the execution was cancelled")
			return &pb.Execution{}, nil
		},
	}
	ctx, end := context.WithCancel(t.Context())
	e := f.dial(t).Attach(ctx, "e1", AttachOptions{})
	<-following
	end()
	if err := e.Wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestCloseEndsTheFollowing(t *testing.T) {
	f := &fake{execute: func(_ *pb.ExecuteRequest, s eventtest.Server) error {
		newRecord().send(s, 0, 0)
		<-s.Context().Done()
		return nil
	}}
	c := f.dial(t)
	cmd := c.Script("demo", "x.py")
	if err := cmd.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := cmd.Wait(); !errors.Is(err, errClosed) {
		t.Errorf("got %v, want %v", err, errClosed)
	}
}

// TestRequestIsSentTwiceOnlyWithAKey breaks the connection before the header.
func TestRequestIsSentTwiceOnlyWithAKey(t *testing.T) {
	for _, key := range []string{"", "k"} {
		var requests atomic.Int32
		f := &fake{}
		f.execute = func(_ *pb.ExecuteRequest, s eventtest.Server) error {
			if requests.Add(1) == 1 {
				f.cut()
				<-s.Context().Done()
				return nil
			}
			return newRecord().stdout("ok").exit(0).send(s, 0, 0)
		}
		cmd := f.dial(t).Script("demo", "x.py")
		cmd.IdempotencyKey = key
		out, err := cmd.Output(t.Context())
		if key == "" && (status.Code(err) != codes.Unavailable || requests.Load() != 1) {
			t.Errorf("without a key: got %v after %d requests, want UNAVAILABLE after 1", err, requests.Load())
		}
		if key != "" && (err != nil || string(out) != "ok" || requests.Load() != 2) {
			t.Errorf("with a key: got %q, %v after %d requests, want \"ok\" after 2", out, err, requests.Load())
		}
	}
}

func TestNoDaemonIsSaidAtOnce(t *testing.T) {
	c, err := Dial("unix:///nonexistent/skillrun.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.patience.OnWait = func(err error) { t.Errorf("it waits after %v", err) }
	cmd := c.Script("demo", "x.py")
	cmd.IdempotencyKey = "k"
	if got, want := status.Code(cmd.Run(t.Context())), codes.Unavailable; got != want {
		t.Errorf("code: got %v, want %v", got, want)
	}
}

func TestFirstEventMustBeAHeader(t *testing.T) {
	f := &fake{execute: func(_ *pb.ExecuteRequest, s eventtest.Server) error {
		return newRecord().started().send(s, 1, 0)
	}}
	if err := f.dial(t).Script("demo", "x.py").Run(t.Context()); err == nil || !strings.Contains(err.Error(), "header") {
		t.Errorf("got %v, want an error about the header", err)
	}
}
