package server

import (
	"context"
	"errors"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress/budget"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/permission"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// executionCalls answers the calls of ExecutionService.
type executionCalls struct {
	pb.UnsafeExecutionServiceServer // every method is here
	*Server
}

// Execute starts an execution and follows it. An error before the header is the call's status.
// After the header the outcome is an event, and an error says only that following failed.
func (c executionCalls) Execute(m *pb.ExecuteRequest, stream grpc.ServerStreamingServer[pb.ExecuteResponse]) error {
	ctx := stream.Context()
	if err := checkLearn(ctx, m); err != nil {
		return err
	}
	req, err := newRequest(caller(ctx), m, false)
	if err != nil {
		return err
	}
	id, duplicate, err := c.execute(ctx, req)
	if err != nil {
		return err
	}
	f := follow{Server: c.Server, id: id, duplicate: duplicate, send: stream.SendMsg}
	return c.orCancel(ctx, f, m.GetOnDisconnect(), nil)
}

// execute executes a request. The request's bytes count until the execution has ended, even if
// the call ends before. The bytes of its files stop counting at once: they are on disk.
func (s *Server) execute(ctx context.Context, req executor.Request) (id string, duplicate bool, err error) {
	in := budget.Of(ctx)
	// Before Execute, which may end the execution, and call release, before it returns.
	release := in.Hold()
	req.Ended = release
	// In both cases the executor never calls req.Ended.
	if id, duplicate, err = s.x.Execute(ctx, req); err != nil || duplicate {
		release()
		return id, duplicate, err
	}
	// stdin and code stay in memory, so their bytes still count.
	for _, f := range req.Files {
		in.Forget(int64(len(f.Content)))
	}
	return id, duplicate, nil
}

// byDisconnect is who cancels when a stream breaks.
const byDisconnect = "disconnect"

// orCancel follows an execution that this call started. If its stream breaks
// before the outcome, and the caller wants it so, the execution is cancelled.
// in ends when nothing more comes from the caller and the execution has
// ended or goes on without it. Nil: the caller sends no input.
// If the earlier daemon of a takeover has ended, which forwarded the stream, the execution goes on: its caller can
// attach to it here. But it does not if its input is not complete.
func (c executionCalls) orCancel(ctx context.Context, f follow, policy pb.OnDisconnect, in *stdin) (err error) {
	// If f.run panics, the deferred function sees this error and cancels as for a broken
	// stream.
	err = errBrokeOff
	defer func() {
		goesOn := policy == pb.OnDisconnect_ON_DISCONNECT_CONTINUE || connectionOf(ctx).Abandoned() && in.complete()
		if err == nil || f.duplicate || goesOn {
			in.Close()
			return
		}
		// The handler does not wait: Cancel takes until the end of the execution.
		c.spawn(func() {
			defer in.Close()
			c.cancel(caller(ctx), f.id, byDisconnect, "the stream that started it broke")
		})
	}()
	err = f.run(ctx)
	return err
}

// errBrokeOff stands for the error of what panics.
var errBrokeOff = errors.New("broke off")

// cancel cancels an execution, whatever has become of the call that asks for it. It returns after
// the end of the execution.
func (s *Server) cancel(who permission.Principal, id, by, reason string) {
	// Not with the call's context, which is done by now.
	if _, err := s.x.Cancel(context.Background(), who, id, by, reason, defaultGrace); err != nil {
		s.log.Error("cancel", "execution", id, "by", by, "err", err)
	}
}

// AttachExecution sends the events after a sequence number, from the stored ones to the outcome. The
// execution goes on if the stream breaks: only the break of the stream that started it cancels it.
// Every caller of the tenant may cancel it.
func (c executionCalls) AttachExecution(m *pb.AttachExecutionRequest, stream grpc.ServerStreamingServer[pb.AttachExecutionResponse]) error {
	ctx := stream.Context()
	who, err := c.subject(ctx, m.GetExecutionId(), false)
	if err != nil {
		return err
	}
	e, err := c.x.Get(ctx, who, m.GetExecutionId())
	if err != nil {
		return err
	}
	// A reader that waits for an event with such a number would miss the outcome.
	if m.GetAfterSequence() > e.LastSeq {
		return &sequenceError{m.GetAfterSequence(), e.LastSeq}
	}
	f := follow{Server: c.Server, who: &who, id: e.ID, after: m.GetAfterSequence(), send: stream.SendMsg}
	return f.run(ctx)
}

// subject returns whose execution a call is about: the caller, or, for an operator, a principal of the tenant that
// has the execution. An operator may call all methods for one execution with the executions of all tenants.
func (s *Server) subject(ctx context.Context, id string, cancels bool) (permission.Principal, error) {
	if roleOf(ctx) != identity.Operator {
		return caller(ctx), nil
	}
	return s.x.Across(ctx, caller(ctx), id, cancels)
}

// GetExecution returns an execution of the caller's tenant, or, for an operator, of every tenant. The outcome
// lists only the first artifacts. An execution of another tenant is NOT_FOUND, as in every call here.
func (c executionCalls) GetExecution(ctx context.Context, m *pb.GetExecutionRequest) (*pb.GetExecutionResponse, error) {
	who, err := c.subject(ctx, m.GetExecutionId(), false)
	if err != nil {
		return nil, err
	}
	e, err := c.x.Get(ctx, who, m.GetExecutionId())
	if err != nil {
		return nil, err
	}
	return &pb.GetExecutionResponse{Execution: fromExecution(e)}, nil
}

// ListExecutions returns the executions of the caller's tenant. If the executions of a page are too
// large for one answer, the page is shorter than asked.
func (c executionCalls) ListExecutions(ctx context.Context, m *pb.ListExecutionsRequest) (*pb.ListExecutionsResponse, error) {
	filter := executor.Filter{
		Principal: m.GetPrincipal(), Skill: m.GetSkill(), Labels: m.GetLabels(), PageToken: m.GetPageToken(),
		OldestFirst: m.GetOrder() == pb.ExecutionOrder_EXECUTION_ORDER_OLDEST_FIRST,
	}
	if _, ok := pb.ExecutionOrder_name[int32(m.GetOrder())]; !ok {
		return nil, invalid("order", "%d has no meaning", m.GetOrder())
	}
	var err error
	if filter.States, err = words("states", m.GetStates(), stateWords); err != nil {
		return nil, err
	}
	if filter.Ends, err = words("ends", m.GetEnds(), endWords); err != nil {
		return nil, err
	}
	if filter.CreatedAfter, err = newTime("created_after", m.GetCreatedAfter()); err != nil {
		return nil, err
	}
	if filter.CreatedBefore, err = newTime("created_before", m.GetCreatedBefore()); err != nil {
		return nil, err
	}
	who := caller(ctx)
	if role := roleOf(ctx); m.GetTenant() != "" && role != identity.Operator {
		return nil, &roleError{identity.Identity{Principal: who, Role: role}, identity.Operator}
	}
	if who, filter.AllTenants, err = c.x.Beyond(ctx, who, m.GetTenant()); err != nil {
		return nil, err
	}
	size := pageSize(m.GetPageSize(), defaultPage)
	return fittingPage(size, func(size int) (*pb.ListExecutionsResponse, error) {
		filter.PageSize = size
		list, next, err := c.x.List(ctx, who, filter)
		if err != nil {
			return nil, err
		}
		page := &pb.ListExecutionsResponse{NextPageToken: next}
		for _, e := range list {
			page.Executions = append(page.Executions, listed(e))
		}
		return page, nil
	})
}

// newTime is the time of a field of a filter. An unset field is the zero time.
func newTime(field string, t *timestamppb.Timestamp) (time.Time, error) {
	if t == nil {
		return time.Time{}, nil
	}
	if err := t.CheckValid(); err != nil {
		return time.Time{}, invalid(field, "not a time")
	}
	return t.AsTime(), nil
}

// listed leaves out what can be long: GetExecution has it.
func listed(e executor.Execution) *pb.Execution {
	m := fromExecution(e)
	if m.Outcome != nil {
		m.Outcome.Artifacts, m.Outcome.ArtifactsRefused = nil, nil
	}
	return m
}

// Bounds of CancelExecution, as the contract has them.
const (
	maxGrace = 60 * time.Second
	// defaultGrace leaves it to the executor.
	defaultGrace = time.Duration(-1)
	// maxReason is how many characters of a reason are kept as evidence.
	maxReason = 256
)

// CancelExecution returns after the end of the execution, with the outcome, unless the request
// asks for an answer at once. Every caller of the tenant may
// cancel. An execution that has ended is no error: it comes back unchanged.
func (c executionCalls) CancelExecution(ctx context.Context, m *pb.CancelExecutionRequest) (*pb.CancelExecutionResponse, error) {
	grace := defaultGrace
	if m.Grace != nil {
		var err error
		if grace, err = newDuration("grace", m.Grace); err != nil {
			return nil, err
		}
		if grace < 0 || grace > maxGrace {
			return nil, invalid("grace", "%s; 0 to %s", grace, maxGrace)
		}
	}
	if utf8.RuneCountInString(m.GetReason()) > maxReason {
		return nil, invalid("reason", "longer than %d characters", maxReason)
	}
	who, err := c.subject(ctx, m.GetExecutionId(), true)
	if err != nil {
		return nil, err
	}
	cancel := c.x.Cancel
	if m.GetReturnImmediately() {
		cancel = c.x.CancelSoon
	}
	e, err := cancel(ctx, who, m.GetExecutionId(), who.Name, m.GetReason(), grace)
	if err != nil {
		return nil, err
	}
	return &pb.CancelExecutionResponse{Execution: fromExecution(e)}, nil
}

// DeleteExecution removes an ended execution with its output and artifacts. It accepts every caller of
// the tenant with the role that the call needs, and operators.
func (c executionCalls) DeleteExecution(ctx context.Context, m *pb.DeleteExecutionRequest) (*pb.DeleteExecutionResponse, error) {
	who, err := c.subject(ctx, m.GetExecutionId(), false)
	if err != nil {
		return nil, err
	}
	if err := c.x.Delete(ctx, who, m.GetExecutionId()); err != nil {
		return nil, err
	}
	return &pb.DeleteExecutionResponse{}, nil
}

// SignalExecution returns when the request is in the socket of the sandbox's init; init then sends the
// signal. Whether the program reacts shows in its events.
func (c executionCalls) SignalExecution(ctx context.Context, m *pb.SignalExecutionRequest) (*pb.SignalExecutionResponse, error) {
	sig, err := newSignal(m.GetSignal())
	if err != nil {
		return nil, err
	}
	who, err := c.subject(ctx, m.GetExecutionId(), false)
	if err != nil {
		return nil, err
	}
	if err := c.x.Signal(ctx, who, m.GetExecutionId(), sig); err != nil {
		return nil, err
	}
	return &pb.SignalExecutionResponse{}, nil
}
