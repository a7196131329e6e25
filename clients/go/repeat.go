package skillrun

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// repeatable has the calls with one request and one answer that may be sent again even if a daemon has received
// them. Such a call only reads, or a repetition has the same effect and the same answer as the first call.
var repeatable = map[string]bool{
	pb.ExecutionService_GetExecution_FullMethodName:      true,
	pb.ExecutionService_ListExecutions_FullMethodName:    true,
	pb.ExecutionService_ListArtifacts_FullMethodName:     true,
	pb.ExecutionService_CancelExecution_FullMethodName:   true,
	pb.SessionService_GetSession_FullMethodName:          true,
	pb.SessionService_ListSessions_FullMethodName:        true,
	pb.SessionService_ListSessionVersions_FullMethodName: true,
	pb.SessionService_ListSessionFiles_FullMethodName:    true,
	pb.SessionService_UpdateSession_FullMethodName:       true,
	pb.SkillService_ListSkills_FullMethodName:            true,
	pb.SkillService_GetSkill_FullMethodName:              true,
	pb.SkillService_ActivateSkill_FullMethodName:         true,
	pb.SkillService_CheckCommand_FullMethodName:          true,
	pb.SkillService_ValidateSkill_FullMethodName:         true,
	pb.SkillService_ListSkillVersions_FullMethodName:     true,
	pb.SystemService_GetCapabilities_FullMethodName:      true,
	pb.SystemService_GetBudget_FullMethodName:            true,
	pb.SystemService_ListTenants_FullMethodName:          true,
	pb.ToolService_ListTools_FullMethodName:              true,
	pb.ToolService_ValidateScriptPath_FullMethodName:     true,
}

// waits has the streams that wait for a daemon in this file. The calls of this package that use the other streams
// repeat them themselves.
var waits = map[string]bool{
	pb.SkillService_ReadSkillFile_FullMethodName: true,
	pb.SkillService_PrepareSkill_FullMethodName:  true,
	pb.SkillService_PushSkill_FullMethodName:     true,
	pb.ToolService_CallTool_FullMethodName:       true,
}

// unary makes a call with one request and one answer. After a failure it makes the call again, if the call may be repeated
// and patience allows it.
func (c *Client) unary(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	for t := (tries{}); ; {
		sent := &atomic.Bool{}
		err := call(context.WithValue(ctx, sentKey{}, sent), method, request, answer, conn, opts...)
		if err == nil || !c.mayAskAgain(method, sent.Load(), err) || !c.patience.wait(ctx, &t, err) {
			return err
		}
	}
}

// mayAskAgain is mayRepeat for a call with one request and one answer.
func (c *Client) mayAskAgain(method string, sent bool, err error) bool {
	if reason := Reason(err); reason != "" {
		return reason == "DRAINING" && broken(err)
	}
	return c.mayReturn(err) && (repeatable[method] || !sent)
}

// stream begins a stream. gRPC begins a stream only on a connection. So after an error the daemon has received nothing,
// and any stream may begin again.
func (c *Client) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, begin grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if !waits[method] {
		return begin(ctx, desc, conn, method, opts...)
	}
	w, t := &waitingStream{}, tries{}
	w.wait = func(err error) bool { return c.patience.wait(ctx, &t, err) }
	w.begin = func() (s grpc.ClientStream, err error) {
		for {
			if s, err = begin(ctx, desc, conn, method, opts...); err == nil || !c.mayReturn(err) || !w.wait(err) {
				return s, err
			}
		}
	}
	s, err := w.begin()
	if err != nil || desc.ClientStreams {
		return s, err
	}
	w.ClientStream = s
	return w, nil
}

// A waitingStream is a stream with one request. It begins again if the daemon refuses the request with DRAINING.
type waitingStream struct {
	grpc.ClientStream
	begin    func() (grpc.ClientStream, error)
	wait     func(error) bool
	request  any
	answered bool
}

func (w *waitingStream) SendMsg(request any) error {
	w.request = request
	return w.ClientStream.SendMsg(request)
}

// RecvMsg returns the next answer. Before the first answer it begins the stream again after DRAINING, which says that the
// daemon has started nothing. After it, an error is for the caller.
func (w *waitingStream) RecvMsg(answer any) error {
	for {
		err := w.ClientStream.RecvMsg(answer)
		if w.answered || Reason(err) != "DRAINING" || !w.wait(err) {
			w.answered = true
			return err
		}
		next, err := w.begin()
		if err != nil {
			return err
		}
		w.ClientStream = next
		// If SendMsg or CloseSend fails, RecvMsg returns the status.
		_ = w.ClientStream.SendMsg(w.request)
		_ = w.ClientStream.CloseSend()
	}
}

// sentKey is the key of a *atomic.Bool in the context of a call, which becomes true when the call may reach a
// daemon.
type sentKey struct{}

// HandleRPC implements stats.Handler: gRPC calls it at each step of a call. The first step that can reach a daemon sends
// the headers, on an established connection.
func (r *reached) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.OutHeader); !ok {
		return
	}
	if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok {
		sent.Store(true)
	}
}
