package server

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress/budget"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

type interactiveStream = grpc.BidiStreamingServer[pb.ExecuteInteractiveRequest, pb.ExecuteInteractiveResponse]

// ExecuteInteractive has two directions. The stream's first messages are the request: start,
// then the chunks of streamed files. From then on a feed reads the caller's messages in a
// goroutine, and this one sends events. Only one goroutine receives and only one sends at any
// time, as gRPC requires of a stream.
func (c executionCalls) ExecuteInteractive(stream interactiveStream) error {
	ctx := stream.Context()
	first, err := stream.Recv()
	if err != nil {
		return receiveError(err, "start")
	}
	start := first.GetStart()
	if start == nil {
		return invalid("start", "must be the first message")
	}
	if err := checkLearn(ctx, start); err != nil {
		return err
	}
	req, err := newRequest(caller(ctx), start, true)
	if err != nil {
		return err
	}
	in := newStdin()
	keyed := req.Key != ""
	if keyed { // two streams can't be compared: with a key, stdin is what start has
		in.Close()
	} else {
		req.Stdin.Stream = in
	}
	id, duplicate, err := c.executeUploaded(stream, start, req)
	if err != nil {
		return err
	}
	// A signal in the first messages must not come before the program: see feed.take.
	started := make(chan struct{})
	f := follow{
		Server: c.Server, id: id, duplicate: duplicate, send: stream.SendMsg,
		started: sync.OnceFunc(func() { close(started) }),
	}
	// It ends when this method has returned and the input is closed, if not before.
	input := &feed{Server: c.Server, stream: stream, id: id, stdin: in, ended: keyed, started: started}
	c.spawn(input.run)
	// The input ends after the cancellation. Otherwise a program could take a broken stream
	// for the end of its input, and succeed with half of it.
	return c.orCancel(ctx, f, start.GetOnDisconnect(), in)
}

// executeUploaded receives the streamed files of a request, if it has any, and
// executes it. The files are gone when it returns: the executor has its own.
func (c executionCalls) executeUploaded(stream interactiveStream, start *pb.ExecuteRequest, req executor.Request) (id string, duplicate bool, err error) {
	up, err := c.uploads.open(req.Principal, start.GetFiles())
	if err != nil {
		return "", false, err
	}
	defer func() {
		if err := up.remove(); err != nil {
			c.log.Error("streamed files were not removed", "dir", up.dir, "err", err)
		}
	}()
	if up.open > 0 {
		defer c.unforwardable.Begin()()
		// Better now than after a gigabyte.
		if _, err := c.skills.For(req.Principal.Tenant).Resolve(start.GetSkill()); err != nil {
			return "", false, err
		}
		if err := c.inUploadTime(func() error { return receiveChunks(stream, up) }); err != nil {
			return "", false, err
		}
	}
	up.fill(&req)
	return c.execute(stream.Context(), req)
}

// inUploadTime receives the messages of an upload. It gives up after maxUploadTime.
func (s *Server) inUploadTime(receive func() error) error {
	// A goroutine, because Recv has no deadline and the stream's context ends with this call.
	// After the timeout the goroutine ends in Recv, when the handler has returned.
	done := make(chan error, 1)
	s.spawn(func() {
		defer close(done)
		done <- receive()
	})
	timer := time.NewTimer(maxUploadTime)
	defer timer.Stop()
	select {
	case err, ok := <-done:
		// The goroutine panicked; spawn has logged it.
		if !ok {
			return errBrokeOff
		}
		return err
	case <-timer.C:
		return &uploadTimeError{maxUploadTime}
	}
}

// receiveChunks returns when every announced file is complete, or at the first message that does
// not belong there.
func receiveChunks(stream interactiveStream, up *upload) error {
	for up.open > 0 {
		m, err := stream.Recv()
		if err != nil {
			return receiveError(err, "file_chunk")
		}
		if err := receiveFile(m, up); err != nil {
			return err
		}
	}
	return nil
}

// receiveFile takes one message before the header. Stdin and signals would have no execution yet.
func receiveFile(m *pb.ExecuteInteractiveRequest, up *upload) error {
	switch m := m.GetMessage().(type) {
	case *pb.ExecuteInteractiveRequest_FileChunk:
		return up.add(m.FileChunk)
	}
	return invalid("message", "%s before the announced files are complete", messageName(m))
}

// receiveError turns the end of the stream into an error about the field that was expected.
func receiveError(err error, field string) error {
	if errors.Is(err, io.EOF) {
		return invalid(field, "missing: the sending side was closed before it")
	}
	return err
}

// A feed passes a caller's messages on to a program.
type feed struct {
	*Server
	stream  interactiveStream
	id      string
	stdin   *stdin
	ended   bool // no more standard input may come
	started <-chan struct{}
}

// run runs until the caller has no more to send, or is gone. A misplaced message cancels the
// execution, because after the header the call cannot refuse it.
func (f *feed) run() {
	ctx := f.stream.Context()
	for {
		m, err := f.stream.Recv()
		if errors.Is(err, io.EOF) {
			f.stdin.Close()
			return
		}
		received := err == nil
		if received {
			err = f.take(ctx, m)
		}
		if misplaced(err) {
			f.cancel(caller(ctx), f.id, caller(ctx).Name, "protocol: "+err.Error())
			return
		}
		if !received {
			return // the follow sees the error too, and decides about the execution
		}
		if err != nil {
			f.log.Error("input", "execution", f.id, "err", err)
		}
	}
}

// misplaced reports whether an error refuses a message: it does not belong here, or the budget
// has no room for it.
func misplaced(err error) bool {
	return errors.As(err, new(*executor.RequestError)) || errors.As(err, new(*messageError)) ||
		errors.As(err, new(*budget.SizeError)) || errors.As(err, new(*budget.FullError))
}

// take passes on one message. A signal waits until the program has started, and the messages
// after the signal wait with it. A signal for a program that has ended is dropped. A signal counts in the quota of
// calls, as SignalExecution does.
func (f *feed) take(ctx context.Context, m *pb.ExecuteInteractiveRequest) error {
	switch m := m.GetMessage().(type) {
	case *pb.ExecuteInteractiveRequest_Stdin:
		if f.ended {
			return invalid("stdin", "comes after close_stdin, or with an idempotency_key, whose request must be complete in start")
		}
		// Blocks while the program does not read. The stream's window then fills, and holds up
		// the sender.
		f.stdin.Write(m.Stdin) // fails only when this call is over
		return nil
	case *pb.ExecuteInteractiveRequest_CloseStdin:
		f.ended = true
		return f.stdin.Close()
	case *pb.ExecuteInteractiveRequest_Signal:
		sig, err := newSignal(m.Signal.GetSignal())
		if err != nil {
			return err
		}
		select {
		case <-f.started:
		case <-ctx.Done():
			return nil
		}
		if count := ctx.Value(callKey{}).(*call).count; count != nil {
			// Beyond the quota the signal is only late: the call has no answer to a message that could refuse it.
			_ = count(ctx)
			if ctx.Err() != nil {
				return nil
			}
		}
		err = f.x.Signal(ctx, caller(ctx), f.id, sig)
		if errors.Is(err, executor.ErrNotRunning) || ofCaller(ctx, err) {
			return nil
		}
		return err
	}
	return invalid("message", "%s after the start", messageName(m))
}

// messageName returns the contract's name of the field that a message sets.
func messageName(m *pb.ExecuteInteractiveRequest) string {
	d := m.ProtoReflect().WhichOneof(m.ProtoReflect().Descriptor().Oneofs().ByName("message"))
	if d == nil {
		return "an empty message"
	}
	return string(d.Name())
}
