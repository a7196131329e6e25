//lint:file-ignore SA1019 old tools speak only the old reflection, which is therefore tested

package server

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"

	"github.com/skillrun/skillrun/internal/admission"
	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/executor/executortest"
	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/tenant"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

const (
	serving    = healthpb.HealthCheckResponse_SERVING
	notServing = healthpb.HealthCheckResponse_NOT_SERVING
)

func healthOf(t *testing.T, conn *grpc.ClientConn, service string) healthpb.HealthCheckResponse_ServingStatus {
	t.Helper()
	r, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status
}

// reflected lists the services that a connection shows.
func reflected(t *testing.T, conn *grpc.ClientConn) ([]string, error) {
	t.Helper()
	s, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		return nil, err
	}
	defer s.CloseSend()
	ask := &reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}
	// io.EOF: the stream has ended already, and Recv says why.
	if err := s.Send(ask); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	answer, err := s.Recv()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, service := range answer.GetListServicesResponse().GetService() {
		names = append(names, service.Name)
	}
	return names, nil
}

var ourServices = []string{"skillrun.v1.ExecutionService", "skillrun.v1.SessionService", "skillrun.v1.SkillService", "skillrun.v1.SystemService", "skillrun.v1.ToolService"}

// A panic in a call, or in a goroutine that the call spawned, becomes an internal error with a
// reference to the log. The daemon lives on.
func TestPanic(t *testing.T) {
	d := startDaemon(t, func(_ *executor.Config, c *Config) {
		c.Capabilities = func() Capabilities { panic("secret cause") }
	})
	_, err := d.system.GetCapabilities(t.Context(), &pb.GetCapabilitiesRequest{})
	st := wantRefusal(t, err, refusal{codes.Internal, "INTERNAL", ""})
	if strings.Contains(st.Message(), "secret") {
		t.Errorf("the cause crossed the wire: %s", st.Message())
	}
	_, rest, _ := strings.Cut(st.Message(), "(reference ")
	reference := strings.TrimSuffix(rest, ")")
	if lines := d.logs.With("level=ERROR", "secret cause", "reference="+reference, "guard_test.go"); len(lines) != 1 {
		t.Errorf("%d lines of the log have the cause, its stack and reference %q; want 1", len(lines), reference)
	}
	d.spawn(func() { panic("beside") })
	d.background.Wait()
	if lines := d.logs.With("level=ERROR", "beside"); len(lines) != 1 {
		t.Errorf("%d lines of the log have the other panic; want 1", len(lines))
	}
	wantExit(t, d.execute(script("scripts/hello.sh")), 3)
}

// The panic of a stream's call too.
func TestPanicInStream(t *testing.T) {
	d := startIdle(t, func(_ *executor.Config, c *Config) {
		c.Identify = func(identity.Credentials) (identity.Identity, error) { panic("secret cause") }
	})
	wantRefusal(t, d.execute(script("scripts/hello.sh")).err, refusal{codes.Internal, "INTERNAL", ""})
}

// A panic while events are sent breaks the stream, with all that follows from it.
func TestPanicWhileFollowing(t *testing.T) {
	d := startDaemon(t, nil)
	who := permission.Principal{Tenant: identity.DefaultTenant, Name: "who"}
	ctx := context.WithValue(t.Context(), callKey{}, &call{who: who})
	req, err := newRequest(who, script("scripts/forever.sh"), false)
	if err != nil {
		t.Fatal(err)
	}
	id, _, err := d.x.Execute(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	in := newStdin()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		f := follow{Server: d.Server, id: id, send: func(any) error { panic("secret cause") }}
		executionCalls{Server: d.Server}.orCancel(ctx, f, pb.OnDisconnect_ON_DISCONNECT_UNSPECIFIED, in)
	}()
	io.Copy(io.Discard, in) // until its end
	e, err := d.x.Get(ctx, who, id)
	if err != nil || e.Outcome == nil || e.Outcome.Evidence.CancelledBy != byDisconnect {
		t.Errorf("got %+v, %v", e, err)
	}
}

func TestUnknownMethod(t *testing.T) {
	d := startIdle(t, nil)
	for _, method := range []string{"/skillrun.v1.ExecutionService/Nope", "/skillrun.v2.ExecutionService/Execute", "/grpc.channelz.v1.Channelz/GetServers"} {
		err := d.conn.Invoke(t.Context(), method, &pb.GetExecutionRequest{}, &pb.Execution{})
		wantRefusal(t, err, refusal{codes.Unimplemented, "UNKNOWN_METHOD", ""})
	}
}

// The access table has exactly the registered methods, each with a role. A missing method would be
// closed; a superfluous entry would open a later method of that name.
func TestAccessTable(t *testing.T) {
	d := startIdle(t, nil)
	registered := map[string]bool{}
	for name, service := range d.grpc.GetServiceInfo() {
		for _, m := range service.Methods {
			full := "/" + name + "/" + m.Name
			registered[full] = true
			if accessTable[full] == identity.None {
				t.Errorf("%s is closed", full)
			}
			if accessTable[full] == anyone && name != healthpb.Health_ServiceDesc.ServiceName {
				t.Errorf("%s needs no identity", full)
			}
		}
	}
	for full := range accessTable {
		if !registered[full] {
			t.Errorf("%s is not registered", full)
		}
	}
}

// A method that was registered and is not in the table is closed.
func TestGuardDeniesByDefault(t *testing.T) {
	s := &Server{log: (&executortest.Logs{}).Logger(), identify: as(identity.Operator), x: executorOf(tenant.Single(&tenant.Tenant{})), bidirectional: map[string]bool{"/other.Service/Method": false}}
	ran := false
	err := s.guard(callContext(t), "/other.Service/Method", func(context.Context) error { ran = true; return nil })
	wantRefusal(t, err, refusal{codes.PermissionDenied, "ROLE_REQUIRED", ""})
	if ran {
		t.Error("it ran")
	}
}

func TestReflection(t *testing.T) {
	d := startIdle(t, nil)
	names, err := reflected(t, d.conn)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range append(ourServices, "grpc.health.v1.Health") {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not among %v", want, names)
		}
	}
	// And with types, to describe them; old tools ask v1alpha.
	s, err := reflectionv1alpha.NewServerReflectionClient(d.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.CloseSend()
	ask := &reflectionv1alpha.ServerReflectionRequest{MessageRequest: &reflectionv1alpha.ServerReflectionRequest_FileContainingSymbol{
		FileContainingSymbol: ourServices[0],
	}}
	if err := s.Send(ask); err != nil {
		t.Fatal(err)
	}
	answer, err := s.Recv()
	if err != nil || len(answer.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Errorf("got %v, %v; want the file of %s", answer, err, ourServices[0])
	}
}

// Each question of reflection counts in the quota of calls: it costs as much as a call.
func TestReflectionCounts(t *testing.T) {
	d := startIdle(t, func(x *executor.Config, c *Config) {
		x.Tenants = tenant.New(&tenant.Tenant{Name: "acme", Quota: admission.Quota{Running: 1, CallsPerSecond: 0.001}})
		c.Identify = as(identity.Read)
	})
	s, err := reflectionv1.NewServerReflectionClient(d.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Recv(); err != nil {
		t.Errorf("the first: %v", err)
	}
	_, err = s.Recv()
	wantRefusal(t, err, refusal{codes.ResourceExhausted, "SATURATED", ""})
}

func TestHealth(t *testing.T) {
	d := startIdle(t, nil)
	watch, err := d.health.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: ourServices[0]})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []healthpb.HealthCheckResponse_ServingStatus{notServing, serving, notServing} {
		d.SetHealth(Health{Ready: want == serving})
		for _, service := range append([]string{""}, ourServices...) {
			if got := healthOf(t, d.conn, service); got != want {
				t.Errorf("%q: got %s, want %s", service, got, want)
			}
		}
		if got := healthOf(t, d.conn, Ready); got != want || healthOf(t, d.conn, Live) != serving {
			t.Errorf("ready: %s, want %s and live", got, want)
		}
		if r, err := watch.Recv(); err != nil || r.Status != want {
			t.Errorf("watched: got %v, %v; want %s", r, err, want)
		}
	}
	for _, h := range []Health{{Draining: true}, {Ready: true, Degraded: true}, {Ready: true}} {
		d.SetHealth(h)
		for name, yes := range map[string]bool{Live: true, Ready: h.Ready, NotDraining: !h.Draining, NotDegraded: !h.Degraded} {
			if got := healthOf(t, d.conn, name); (got == serving) != yes {
				t.Errorf("%+v: %s is %s", h, name, got)
			}
		}
	}
	_, err = d.health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "nope"})
	if got := status.Code(err); got != codes.NotFound {
		t.Errorf("unknown service: %v", err)
	}
	// A Watch keeps its message in memory, and its caller needs no credential.
	long, err := d.health.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: strings.Repeat("x", maxWatchBytes)})
	if err == nil {
		_, err = long.Recv()
	}
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("a Watch of a long name: %v", err)
	}
}

// Stop waits for calls under way, but not for callers who only watch. It takes no new call.
func TestStop(t *testing.T) {
	d := startDaemon(t, nil)
	watch, err := d.health.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	s := d.interact(t.Context(), start(script("scripts/echo.sh")))
	r := readUntil(t, s, nil, "ready")
	stopped := make(chan struct{})
	go func() {
		d.Stop(context.Background())
		close(stopped)
	}()
	for err == nil { // until the stop has begun
		_, err = watch.Recv()
	}
	select {
	case <-stopped:
		t.Error("stopped with a call under way")
	default:
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	r.until(s, func(*transcript) bool { return false })
	wantExit(t, r, 0)
	<-stopped
	if _, err := d.system.GetCapabilities(t.Context(), &pb.GetCapabilitiesRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("after the stop: %v", err)
	}
}

// A stop whose time is up breaks the remaining calls and returns.
func TestStopInAHurry(t *testing.T) {
	d := startDaemon(t, nil)
	s, err := d.runs.Execute(t.Context(), script("scripts/forever.sh"))
	r := readUntil(t, s, err, "ready")
	over, cancel := context.WithCancel(context.Background())
	cancel()
	d.Stop(over)
	r.until(s, func(*transcript) bool { return false })
	if got := status.Code(r.err); got != codes.Unavailable {
		t.Errorf("got %v", r.err)
	}
	// The execution of the broken call is cancelled before Stop returns.
	e, err := d.x.Get(context.Background(), permission.Principal{Tenant: identity.DefaultTenant}, r.id)
	if err != nil || e.Outcome == nil || e.Outcome.Evidence.CancelledBy != byDisconnect {
		t.Errorf("got %+v, %v", e, err)
	}
}

// A message that could grow by decompression is not even looked at.
func TestNoCompression(t *testing.T) {
	for _, name := range []string{"gzip", "snappy", "zstd", "deflate"} {
		if encoding.GetCompressor(name) != nil {
			t.Errorf("a compressor is registered for %s", name)
		}
	}
}

// Connections without requests keep out neither new connections nor calls under way.
func TestConnectionsAreBounded(t *testing.T) {
	d := startDaemon(t, nil)
	s, err := d.runs.Execute(t.Context(), script("scripts/forever.sh"))
	r := readUntil(t, s, err, "ready")
	var open []net.Conn
	for range ingress.MaxPeerUnidentified + 1 {
		c, err := net.Dial("unix", d.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		open = append(open, c)
		// The server speaks first, once it has accepted.
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatalf("connection %d: %v", len(open), err)
		}
	}
	if _, err := io.Copy(io.Discard, open[0]); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the oldest one that never spoke: %v; want it closed", err)
	}
	if got := len(d.logs.With("WARN", "too many connections")); got != 1 {
		t.Errorf("logged %d times, want once", got)
	}
	if _, err := d.runs.CancelExecution(t.Context(), &pb.CancelExecutionRequest{ExecutionId: r.id, Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	if r.until(s, func(*transcript) bool { return false }); r.err != nil {
		t.Errorf("the call that was under way: %v", r.err)
	}
}
