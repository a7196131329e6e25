package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/test/bufconn"

	"github.com/skillrun/skillrun/internal/admission"
	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/executor/executortest"
	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/ingress/budget"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/tenant"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// whoami returns the name under which a connection's calls run.
func whoami(t *testing.T, conn *grpc.ClientConn) string {
	t.Helper()
	runs := executionClient{pb.NewExecutionServiceClient(conn)}
	s, err := runs.Execute(t.Context(), script("scripts/hello.sh"))
	r := readAll(t, s, err)
	wantExit(t, r, 3)
	e, err := runs.GetExecution(t.Context(), &pb.GetExecutionRequest{ExecutionId: r.id})
	if err != nil {
		t.Fatal(err)
	}
	return e.Principal
}

func TestPeerOverUnixSocket(t *testing.T) {
	d := startDaemon(t, nil)
	if got, want := whoami(t, d.conn), fmt.Sprintf("uid:%d", os.Getuid()); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPeerOverTCP(t *testing.T) {
	d := startDaemon(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if got := whoami(t, d.serve(l, l.Addr().String())); got != "anonymous" {
		t.Errorf("got %q", got)
	}
}

// A connection that is neither is refused, and so is everything but its probes.
func TestPeerOfNoKnownKind(t *testing.T) {
	d := startIdle(t, nil)
	l := bufconn.Listen(64 << 10)
	conn := d.serve(l, "passthrough:///buf", grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return l.DialContext(ctx)
	}))
	_, err := pb.NewSystemServiceClient(conn).GetCapabilities(t.Context(), &pb.GetCapabilitiesRequest{})
	wantRefusal(t, err, refusal{codes.Unauthenticated, "UNIDENTIFIED", ""})
	s, err := executionClient{pb.NewExecutionServiceClient(conn)}.Execute(t.Context(), script("scripts/hello.sh"))
	wantRefusal(t, readAll(t, s, err).err, refusal{codes.Unauthenticated, "UNIDENTIFIED", ""})
	_, err = reflected(t, conn)
	wantRefusal(t, err, refusal{codes.Unauthenticated, "UNIDENTIFIED", ""})
	if got := healthOf(t, conn, ""); got != notServing {
		t.Errorf("health: %s", got)
	}
}

func TestIdentify(t *testing.T) {
	asked := make(chan identity.Credentials, 1)
	d := startIdle(t, func(_ *executor.Config, c *Config) {
		c.Identify = func(c identity.Credentials) (identity.Identity, error) {
			asked <- c
			return identity.Identity{}, errors.New("the token has expired")
		}
	})
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer a", "authorization", "Bearer b")
	_, err := d.runs.GetExecution(ctx, &pb.GetExecutionRequest{ExecutionId: "x"})
	st := wantRefusal(t, err, refusal{codes.Unauthenticated, "UNIDENTIFIED", ""})
	if got, want := st.Message(), "not identified: the token has expired"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	c := <-asked
	if user, ok := c.Addr.(identity.User); !ok || int(user.UID) != os.Getuid() || c.TLS != nil || c.Session == nil || !slices.Equal(c.Authorization, []string{"Bearer a", "Bearer b"}) {
		t.Errorf("got %+v", c)
	}
	if _, err := d.callerOf(t.Context()); err == nil {
		t.Error("a call without a connection has a caller")
	}
}

// as is an Identify for which everybody has a role.
func as(role identity.Role) func(identity.Credentials) (identity.Identity, error) {
	return func(identity.Credentials) (identity.Identity, error) {
		return identity.Identity{Principal: permission.Principal{Tenant: "acme", Name: "token:ci"}, Role: role}, nil
	}
}

// executorOf returns an executor that knows only its tenants.
func executorOf(tenants *tenant.Set) *executor.Executor {
	return &executor.Executor{Config: executor.Config{Tenants: tenants}}
}

// A credential of a tenant that is not configured opens nothing. An operator still gets what concerns the
// daemon.
func TestUnknownTenant(t *testing.T) {
	for _, role := range []identity.Role{identity.Admin, identity.Operator} {
		s := &Server{log: slog.New(slog.DiscardHandler), identify: as(role), x: executorOf(tenant.New(&tenant.Tenant{Name: "globex"})), bidirectional: map[string]bool{}}
		for method, need := range accessTable {
			ran := false
			s.bidirectional[method] = false
			err := s.guard(callContext(t), method, func(context.Context) error { ran = true; return nil })
			may := need == anyone || role == identity.Operator && aboutDaemon[method]
			if ran != may {
				t.Errorf("%s by %s: ran %v", method, role, ran)
			}
			if may || !role.Covers(need) {
				continue
			}
			st := wantRefusal(t, err, refusal{codes.PermissionDenied, "TENANT_UNKNOWN", ""})
			if !strings.Contains(st.Message(), "the tenant acme of the credential is not configured; add it to tenants") {
				t.Errorf("got %q", st.Message())
			}
		}
	}
}

// A tenant's streams are bounded. The calls that are no streams go on, and a stream's end makes room.
func TestStreamsOfATenant(t *testing.T) {
	one := &tenant.Tenant{Name: "acme", Streams: 1}
	s := &Server{log: slog.New(slog.DiscardHandler), identify: as(identity.Admin), x: executorOf(tenant.New(one)), bidirectional: map[string]bool{}}
	for method := range accessTable {
		s.bidirectional[method] = false
	}
	const attach, get = pb.ExecutionService_AttachExecution_FullMethodName, pb.ExecutionService_GetExecution_FullMethodName
	nothing := func(context.Context) error { return nil }
	for range 2 {
		err := s.guard(callContext(t), attach, func(context.Context) error {
			if n := s.x.OpenStreams(one); n != 1 {
				t.Errorf("%d open streams", n)
			}
			st := wantRefusal(t, s.guard(callContext(t), attach, nothing), refusal{codes.ResourceExhausted, "SATURATED", ""})
			if !strings.Contains(st.Message(), "1 of 1 open streams") {
				t.Errorf("got %q", st.Message())
			}
			return s.guard(callContext(t), get, nothing)
		})
		if err != nil || s.x.OpenStreams(one) != 0 {
			t.Errorf("got %v, %d open streams", err, s.x.OpenStreams(one))
		}
	}
}

// No method can be called beyond the tenant's quota of calls, whatever the call would have cost, and whether or not the
// role of the caller covers it. Probes and operators are not counted.
func TestCallsOfATenant(t *testing.T) {
	ran := func(context.Context) error { return nil }
	newServer := func() *Server {
		x := executortest.New(t, executortest.Config{Dir: t.TempDir(), Edit: func(c *executor.Config) { c.Tenants = tenant.New() }}).Executor
		x.SetTenants(&tenant.Tenant{Name: "acme", Quota: admission.Quota{Running: 1, CallsPerSecond: 0.001}})
		s := &Server{log: slog.New(slog.DiscardHandler), x: x, bidirectional: map[string]bool{}}
		for method := range accessTable {
			s.bidirectional[method] = false
		}
		return s
	}
	gone, cancel := context.WithCancel(callContext(t))
	cancel() // a caller who is gone does not wait for the refusal
	wantFull := func(s *Server, method string) {
		t.Helper()
		st := wantRefusal(t, s.guard(gone, method, ran), refusal{codes.ResourceExhausted, "SATURATED", ""})
		if !strings.Contains(st.Message(), "1 of 1 calls at once") {
			t.Errorf("%s: got %q", method, st.Message())
		}
	}

	s := newServer()
	s.identify = as(identity.Admin)
	if err := s.guard(callContext(t), pb.SystemService_GetBudget_FullMethodName, ran); err != nil {
		t.Fatal(err)
	}
	for _, role := range []identity.Role{identity.None, identity.Read, identity.Admin} {
		s.identify = as(role)
		for method, need := range accessTable {
			if need != anyone {
				wantFull(s, method)
			} else if err := s.guard(gone, method, ran); err != nil {
				t.Errorf("%s: %v", method, err)
			}
		}
	}
	s.identify = as(identity.Operator)
	for range 3 {
		if err := s.guard(callContext(t), pb.ExecutionService_CancelExecution_FullMethodName, ran); err != nil {
			t.Errorf("an operator: %v", err)
		}
	}

	s = newServer()
	s.identify = as(identity.Read)
	err := s.guard(callContext(t), pb.ExecutionService_Execute_FullMethodName, ran)
	wantRefusal(t, err, refusal{codes.PermissionDenied, "ROLE_REQUIRED", ""})
	wantFull(s, pb.ExecutionService_Execute_FullMethodName)
	wantFull(s, pb.SystemService_GetBudget_FullMethodName)
}

// Every method is open to the role that the table names, and closed to the role below.
func TestRoles(t *testing.T) {
	for role := identity.None; role <= identity.Operator; role++ {
		s := &Server{log: slog.New(slog.DiscardHandler), identify: as(role), x: executorOf(tenant.Single(&tenant.Tenant{})), bidirectional: map[string]bool{}}
		for method, need := range accessTable {
			ran := false
			s.bidirectional[method] = false // it is registered
			err := s.guard(callContext(t), method, func(context.Context) error { ran = true; return nil })
			switch may := need == anyone || role >= need; {
			case ran != may:
				t.Errorf("%s by %s: ran %v", method, role, ran)
			case may && err != nil:
				t.Errorf("%s by %s: %v", method, role, err)
			case !may:
				st := wantRefusal(t, err, refusal{codes.PermissionDenied, "ROLE_REQUIRED", ""})
				if !strings.Contains(st.Message(), "this call needs the role "+need.String()+"; token:ci of tenant acme has "+role.String()) {
					t.Errorf("got %q", st.Message())
				}
			}
		}
	}
}

// What each role is for. The table itself is the list.
func TestRolesOfCalls(t *testing.T) {
	for method, want := range map[string]identity.Role{
		pb.ExecutionService_GetExecution_FullMethodName:    identity.Read,
		pb.ExecutionService_GetArtifact_FullMethodName:     identity.Read,
		pb.ExecutionService_Execute_FullMethodName:         identity.Invoke,
		pb.ExecutionService_CancelExecution_FullMethodName: identity.Invoke,
		pb.ToolService_CallTool_FullMethodName:             identity.Read, // TestToolsOfARole
		pb.SkillService_PrepareSkill_FullMethodName:        identity.Admin,
		"/grpc.health.v1.Health/Check":                     anyone,
		"/skillrun.v1.ExecutionService/SomethingNew":       identity.None,
	} {
		if got := accessTable[method]; got != want {
			t.Errorf("%s: %s, want %s", method, got, want)
		}
	}
}

// A socket whose peer is not known is not served at all, and neither is a connection that did not
// come through package ingress.
func TestHandshakeNeedsPeer(t *testing.T) {
	requests, err := budget.New(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if _, _, err := (peerCredentials{requests}).ServerHandshake(a); err == nil {
		t.Error("a connection that nobody counts is served")
	}
	broken := errors.New("no credentials")
	for _, c := range []struct {
		addr net.Addr
		kind string
		err  error
	}{
		{identity.User{Addr: a.RemoteAddr(), Err: broken}, "", broken},
		{identity.User{Addr: a.RemoteAddr(), UID: 7}, "unix", nil},
		{&net.TCPAddr{}, "insecure", nil},
	} {
		l := ingress.Listen(oneConn{conn: addressed{a, c.addr}}, ingress.Limits{}, slog.New(slog.DiscardHandler))
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, info, err := peerCredentials{requests}.ServerHandshake(conn)
		if !errors.Is(err, c.err) || err == nil && (info.AuthType() != c.kind || info.(peerInfo).conn.Conn != conn) {
			t.Errorf("%v: got %+v, %v", c.addr, info, err)
		}
	}
}

// oneConn is a listener with one connection.
type oneConn struct {
	net.Listener
	conn net.Conn
}

func (l oneConn) Accept() (net.Conn, error) { return l.conn, nil }

type addressed struct {
	net.Conn
	addr net.Addr
}

func (c addressed) RemoteAddr() net.Addr { return c.addr }

// callContext is the context of a call over a connection of package ingress.
func callContext(t *testing.T) context.Context {
	t.Helper()
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	conn, err := ingress.Listen(oneConn{conn: a}, ingress.Limits{}, nil).Accept()
	if err != nil {
		t.Fatal(err)
	}
	requests, err := budget.New(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	_, info, err := peerCredentials{requests}.ServerHandshake(conn)
	if err != nil {
		t.Fatal(err)
	}
	return peer.NewContext(t.Context(), &peer.Peer{Addr: conn.RemoteAddr(), AuthInfo: info})
}
