package skillrun

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// Start asks the daemon to run the command. It returns when the daemon has recorded the
// execution, and sets Execution; the program may still wait for a slot. Call Wait after
// Start, unless you call [Execution.Detach]. After an error, [MayHaveStarted] says whether the program
// may run nevertheless.
//
// If ctx ends before Wait has returned, the execution is cancelled. The cause of ctx is the
// reason.
func (c *Cmd) Start(ctx context.Context) error {
	if c.started {
		return errors.New("command: already started")
	}
	c.started = true
	call, err := c.call(ctx)
	if err != nil {
		return fmt.Errorf("run %s: %w", c.Skill, err)
	}
	// The streams do not end with ctx, so that the last output and the outcome of a
	// cancelled execution still arrive.
	life := newLifetime(ctx)
	o, err := c.client.open(ctx, life, call)
	if err != nil {
		life.end(nil)
		call.close()
		return fmt.Errorf("run %s: %w", c.Skill, err)
	}
	e := &Execution{
		ID:      o.header.GetExecutionId(),
		Header:  o.header.GetHeader(),
		client:  c.client,
		started: make(chan struct{}),
		done:    make(chan struct{}),
		end:     life.end,
		chunked: len(call.uploads) > 0,
	}
	e.owned.Store(true)
	if call.stdin != nil {
		e.pump = &pump{}
		go e.pump.feed(o, call.stdin)
	}
	f := e.follower(newSinks(c.Stdout, c.Stderr, true), c.OnEvent)
	go func() {
		defer call.close()
		e.run(ctx, life, f, &replay{event: o.header, stream: o.stream})
	}()
	c.Execution = e
	return nil
}

// lifetime is a context with the function that ends it.
type lifetime struct {
	context.Context
	end context.CancelCauseFunc
}

// newLifetime returns a context with the values of ctx that does not end with ctx. end must be
// called, or its streams stay open.
func newLifetime(ctx context.Context) lifetime {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	return lifetime{life, end}
}

// replay is a stream whose first event was already read.
type replay struct {
	event  *pb.ExecutionEvent
	stream eventStream
}

// Recv returns the event that was read first, then the events of the stream.
func (r *replay) Recv() (*pb.ExecutionEvent, error) {
	if event := r.event; event != nil {
		r.event = nil
		return event, nil
	}
	return r.stream.Recv()
}

// opened is a stream whose header has arrived.
type opened struct {
	stream      eventStream
	interactive interactiveStream // nil for Execute
	header      *pb.ExecutionEvent
	sent        chan bool // receives one value: whether start and files were sent
}

// open sends the call until its header arrives, as often as it may and patience allows.
func (c *Client) open(ctx context.Context, life lifetime, call *call) (*opened, error) {
	mayHaveStarted := false // in any try
	for t := (tries{}); ; {
		o, sent, err := c.openOnce(ctx, life, call)
		if err == nil {
			return o, nil
		}
		if sent && (unanswered(err) || ctx.Err() != nil && Reason(err) == "") {
			mayHaveStarted = true
		}
		if !c.mayRepeat(call, sent, err) || !c.patience.wait(ctx, &t, err) {
			if mayHaveStarted {
				err = &startError{err}
			}
			return nil, err
		}
	}
}

// mayRepeat reports whether a call without a header may be sent again: its program cannot have started,
// or the key prevents a second start. Standard input was not read yet. sent says that a daemon may have
// received the call.
func (c *Client) mayRepeat(call *call, sent bool, err error) bool {
	switch {
	case Reason(err) != "":
		return Reason(err) == "DRAINING" // the one answer that another daemon does not repeat
	case !unanswered(err):
		return false
	case !sent:
		return c.mayReturn(err)
	}
	return call.request.GetIdempotencyKey() != ""
}

// openOnce sends the call and waits for the header. sent reports whether anything may
// have reached a daemon. The stream ends with life, or with ctx until the header is there.
func (c *Client) openOnce(ctx context.Context, life lifetime, call *call) (_ *opened, sent bool, err error) {
	streamCtx, end := context.WithCancelCause(life)
	stop := context.AfterFunc(ctx, func() { end(ctx.Err()) })
	defer stop()
	o := &opened{sent: make(chan bool, 1)}
	if call.interactive() {
		o.interactive, err = c.executions.ExecuteInteractive(streamCtx)
		o.stream = responses[*pb.ExecuteInteractiveResponse]{o.interactive}
	} else {
		var s grpc.ServerStreamingClient[pb.ExecuteResponse]
		s, err = c.executions.Execute(streamCtx, call.request)
		o.stream = responses[*pb.ExecuteResponse]{s}
	}
	sent = err == nil // gRPC creates a stream only on an established connection
	if err == nil && call.interactive() {
		go func() {
			err := sendCall(o.interactive, call)
			// io.EOF means that the daemon ended the stream; Recv returns the status.
			if err != nil && err != io.EOF {
				life.end(err)
			}
			if err == nil && call.stdin == nil {
				o.interactive.CloseSend()
			}
			o.sent <- err == nil
		}()
	}
	if err == nil {
		o.header, err = o.stream.Recv()
	}
	if err == nil && o.header.GetHeader() == nil {
		err = errors.New("protocol: the first event is not a header")
	}
	if err == nil {
		return o, true, nil
	}
	if cause := context.Cause(streamCtx); cause != nil {
		err = cause // the cause, not the status that it led to
	}
	end(nil)
	return nil, sent, sized(err)
}
