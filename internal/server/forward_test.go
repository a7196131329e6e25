package server

import (
	"context"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/hosttest"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/permission"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
	"github.com/skillrun/skillrun/sandbox"
)

// asked is an Identify that keeps the credentials.
type asked struct {
	role identity.Role
	mu   sync.Mutex
	all  []identity.Credentials
}

func (a *asked) identify(c identity.Credentials) (identity.Identity, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, c)
	return identity.Identity{Principal: permission.Principal{Tenant: "default", Name: "token:ci"}, Role: a.role}, nil
}

// A handedOver is a daemon in a takeover, and the next one, with which callers identify themselves for a role.
type handedOver struct {
	*daemon
	next        *daemon
	asked       asked // by the earlier daemon
	askedByNext asked
	end         func(*net.UnixConn) // of HandOver
	pair        *net.UnixConn
}

func startHandedOver(t *testing.T, role, roleInNext identity.Role) *handedOver {
	t.Helper()
	return startHandedOverOn(t, nil, role, roleInNext)
}

// startHandedOverOn is startHandedOver for tests in which the next daemon runs programs.
func startHandedOverOn(t *testing.T, host *sandbox.Host, role, roleInNext identity.Role) *handedOver {
	t.Helper()
	h := &handedOver{asked: asked{role: role}, askedByNext: asked{role: roleInNext}}
	h.daemon = startIdle(t, func(_ *executor.Config, c *Config) { c.Identify = h.asked.identify })
	h.next = startOn(t, host, func(_ *executor.Config, c *Config) { c.Identify = h.askedByNext.identify })
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
	}
	served := make(chan error, 1)
	go func() { served <- h.next.ServeForwarded(ends[1]) }()
	t.Cleanup(func() {
		ends[0].Close() // as at the end of the earlier daemon
		if err := <-served; err != nil {
			t.Errorf("ServeForwarded: %v", err)
		}
	})
	h.pair = ends[0]
	// The connection must be open, so that its calls come after HandOver and not through a new one.
	healthOf(t, h.conn, "")
	h.end = h.HandOver()
	return h
}

// Calls that come after HandOver get the answers of the next daemon, for the caller that it identifies by the same
// credentials.
func TestForwardedCalls(t *testing.T) {
	h := startHandedOver(t, identity.Operator, identity.Read)
	h.next.SetHealth(Health{Ready: true})
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer a", "x-other", "not for the daemon")
	var calls sync.WaitGroup
	calls.Go(func() {
		list, err := h.about.ListSkills(ctx, &pb.ListSkillsRequest{})
		if err != nil || len(list.GetSkills()) == 0 {
			t.Errorf("skills: got %v, %v", list, err)
		}
	})
	calls.Go(func() { // an error with its details
		_, err := h.runs.GetExecution(ctx, &pb.GetExecutionRequest{ExecutionId: "01a00000-0000-7000-8000-000000000000"})
		wantRefusal(t, err, refusal{codes.NotFound, "EXECUTION_NOT_FOUND", ""})
	})
	calls.Go(func() { // the role in the next daemon counts
		s, err := h.runs.Execute(ctx, script("scripts/hello.sh"))
		wantRefusal(t, readAll(t, s, err).err, refusal{codes.PermissionDenied, "ROLE_REQUIRED", ""})
	})
	calls.Go(func() { // both directions
		if names, err := reflected(t, h.conn); err != nil || !slices.Contains(names, "skillrun.v1.ExecutionService") {
			t.Errorf("reflection: got %q, %v", names, err)
		}
	})
	calls.Go(func() {
		got, err := h.health.Check(ctx, &healthpb.HealthCheckRequest{Service: Ready})
		if err != nil || got.Status != serving {
			t.Errorf("health: got %v, %v", got, err)
		}
	})
	calls.Go(func() { // a message that the next daemon can't decode
		bad := &pb.GetExecutionRequest{}
		bad.ProtoReflect().SetUnknown([]byte{0x0a, 0x01, 0xff}) // execution_id that is not UTF-8
		_, err := h.runs.GetExecution(ctx, bad)
		wantRefusal(t, err, refusal{codes.InvalidArgument, "MALFORMED_MESSAGE", "request"})
	})
	h.end(h.pair)
	calls.Wait()
	if n := len(h.asked.all); n != 0 {
		t.Errorf("the earlier daemon has identified %d callers", n)
	}
	for _, c := range h.askedByNext.all {
		user, ok := c.Addr.(identity.User)
		if !ok || int(user.UID) != os.Getuid() || c.TLS != nil {
			t.Errorf("got %+v", c)
		}
	}
	if n := len(h.askedByNext.all); n != 5 {
		t.Errorf("the next daemon has identified %d callers, want 5", n)
	}
	if err := h.AwaitForwarded(t.Context()); err != nil {
		t.Error(err)
	}
}

// If no next daemon serves, the earlier one answers. A call whose caller goes away waits no longer.
func TestHandOverThatFails(t *testing.T) {
	h := startHandedOver(t, identity.Read, identity.None)
	var calls sync.WaitGroup
	calls.Go(func() {
		list, err := h.about.ListSkills(t.Context(), &pb.ListSkillsRequest{})
		if err != nil || len(list.GetSkills()) == 0 {
			t.Errorf("got %v, %v", list, err)
		}
	})
	gone, goes := context.WithCancel(t.Context())
	calls.Go(func() {
		if _, err := h.about.ListSkills(gone, &pb.ListSkillsRequest{}); status.Code(err) != codes.Canceled {
			t.Errorf("got %v, want CANCELLED", err)
		}
		h.end(nil)
	})
	goes()
	calls.Wait()
	if n := len(h.askedByNext.all); n != 0 {
		t.Errorf("the next daemon has identified %d callers", n)
	}
}

// A next daemon that has died gets no calls, and nothing has happened: the client may repeat them.
func TestForwardToDeadDaemon(t *testing.T) {
	h := startHandedOver(t, identity.Read, identity.Read)
	h.next.Stop(t.Context())
	h.end(h.pair)
	_, err := h.about.ListSkills(t.Context(), &pb.ListSkillsRequest{})
	wantRefusal(t, err, refusal{codes.Unavailable, "DRAINING", ""})
}

// When the earlier daemon ends, the calls that it forwards end, too, but not their executions: their callers are
// still there. An execution whose input is not complete is cancelled.
func TestForwardedCallsOutliveEarlierDaemon(t *testing.T) {
	h := startHandedOverOn(t, hosttest.Host(t), identity.Invoke, identity.Invoke)
	h.end(h.pair)
	run := readUntilHeader(t)(h.runs.Execute(t.Context(), script("scripts/forever.sh")))
	piped, err := h.runs.ExecuteInteractive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := piped.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Start{Start: script("scripts/forever.sh")}}); err != nil {
		t.Fatal(err)
	}
	fed := readUntilHeader(t)(piped, nil)
	h.takeover.Load().close()
	for _, f := range []*forwardedRun{run, fed} {
		f.until(f.stream, func(*transcript) bool { return false })
		if status.Code(f.err) != codes.Unavailable || !strings.Contains(status.Convert(f.err).Message(), "attach") {
			t.Errorf("got %v", f.err)
		}
	}
	s, err := h.next.runs.AttachExecution(t.Context(), &pb.AttachExecutionRequest{ExecutionId: fed.id})
	if r := readAll(t, s, err); r.outcome.GetEvidence().GetCancelledBy() != byDisconnect {
		t.Errorf("with input: got %v", r.outcome)
	}
	got, err := h.next.runs.CancelExecution(t.Context(), &pb.CancelExecutionRequest{ExecutionId: run.id, Reason: "the test"})
	if err != nil || got.GetOutcome().GetEvidence().GetCancelReason() != "the test" {
		t.Errorf("without input: got %v, %v", got, err)
	}
}

// A forwardedRun is a stream whose header has come.
type forwardedRun struct {
	transcript
	stream eventStream
}

func readUntilHeader(t *testing.T) func(eventStream, error) *forwardedRun {
	return func(s eventStream, err error) *forwardedRun {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		f := &forwardedRun{stream: s}
		f.until(s, func(r *transcript) bool { return r.started })
		if !f.started {
			t.Fatalf("got %+v", f)
		}
		return f
	}
}

// moved is a stream of calls whose handler is the test.
type moved struct {
	grpc.ServerStream
	ctx      context.Context
	messages int
}

func (m *moved) Context() context.Context { return m.ctx }
func (m *moved) SendMsg(any) error        { return nil }
func (m *moved) RecvMsg(in any) error {
	m.messages++
	in.(*incoming).message.(*pb.GetExecutionRequest).ExecutionId = "the first"
	return nil
}

// A handler that has failed because the daemon has handed over runs again if no next daemon serves, with the same message.
// It does not after it has answered, has started an execution, or has got several messages.
func TestHandlerRunsAgain(t *testing.T) {
	d := startIdle(t, func(_ *executor.Config, c *Config) { c.Identify = (&asked{role: identity.Read}).identify })
	const method = pb.ExecutionService_GetExecution_FullMethodName
	handedOver := executor.ErrHandedOver
	for _, c := range []struct {
		name    string
		handler func(ss grpc.ServerStream) error // in the first run, after the first message
		again   bool
	}{
		{"handed over", func(grpc.ServerStream) error { return handedOver }, true},
		{"another error", func(grpc.ServerStream) error { return executor.ErrDraining }, false},
		{"answered", func(ss grpc.ServerStream) error { ss.SendMsg(nil); return handedOver }, false},
		{"started", func(grpc.ServerStream) error { return &executionError{"id", handedOver} }, false},
		{"several messages", func(ss grpc.ServerStream) error { ss.RecvMsg(&pb.GetExecutionRequest{}); return handedOver }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d.takeover.Store(nil)
			runs := 0
			stream := &moved{ctx: callContext(t)}
			err := d.stream(nil, stream, &grpc.StreamServerInfo{FullMethod: method}, func(_ any, ss grpc.ServerStream) error {
				m := &pb.GetExecutionRequest{}
				if err := ss.RecvMsg(m); err != nil || m.GetExecutionId() != "the first" {
					t.Errorf("got %v, %v", m, err)
				}
				if runs++; runs > 1 {
					return nil
				}
				d.HandOver()(nil)
				return c.handler(ss)
			})
			if ran := runs == 2; ran != c.again || (err == nil) != c.again {
				t.Errorf("%d runs, %v", runs, err)
			}
		})
	}
}
