package skillrun

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// repeatable are the calls with one request and one answer that may be sent again after a daemon has received
// them: they only read, or each repetition has the effect and the answer of the first call.
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

// waits are the streams that wait for a daemon here. The other streams belong to calls of this package that
// repeat them.
var waits = map[string]bool{
	pb.SkillService_ReadSkillFile_FullMethodName: true,
	pb.SkillService_PrepareSkill_FullMethodName:  true,
	pb.SkillService_PushSkill_FullMethodName:     true,
	pb.ToolService_CallTool_FullMethodName:       true,
}

// unary makes a call with one request and one answer, as often as it may and patience allows.
func (c *Client) unary(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	for t := (tries{}); ; {
		sent := &atomic.Bool{}
		err := call(context.WithValue(ctx, sentKey{}, sent), method, request, answer, conn, opts...)
		if err == nil || !c.mayAskAgain(method, sent.Load(), err) || !c.patience.wait(ctx, &t, err) {
			return err
		}
	}
}

// mayAskAgain is mayRepeat for a call with one answer.
func (c *Client) mayAskAgain(method string, sent bool, err error) bool {
	if reason := Reason(err); reason != "" {
		return reason == "DRAINING" && broken(err)
	}
	return c.mayReturn(err) && (repeatable[method] || !sent)
}

// stream begins a stream. gRPC begins one only on a connection, so after an error here nothing was sent.
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

// A waitingStream has one request. It begins again if the daemon refuses the request because it drains.
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
		// After an error of these two, RecvMsg has the status.
		_ = w.ClientStream.SendMsg(w.request)
		_ = w.ClientStream.CloseSend()
	}
}

// sentKey is the key of a *atomic.Bool in the context of a call, which becomes true when the call may reach a
// daemon.
type sentKey struct{}

// HandleRPC is called by gRPC for the steps of a call. It sends the headers of a call first, on an established
// connection.
func (r *reached) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.OutHeader); !ok {
		return
	}
	if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok {
		sent.Store(true)
	}
}
