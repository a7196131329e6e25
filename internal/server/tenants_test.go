package server

import (
	"errors"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/permission"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// byHeader identifies callers by the words of their header Authorization: the name of a tenant.
func byHeader(c identity.Credentials) (identity.Identity, error) {
	if len(c.Authorization) != 1 {
		return identity.Identity{}, errors.New("no credential")
	}
	return identity.Identity{Principal: permission.Principal{Tenant: c.Authorization[0], Name: c.Authorization[0]}, Role: identity.Admin}, nil
}

// dial makes a new connection to the daemon.
func (d *daemon) dial() *grpc.ClientConn {
	d.t.Helper()
	conn, err := grpc.NewClient("unix://"+d.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { conn.Close() })
	return conn
}

// A tenant that uses all connections of a listener loses some of them when callers of another tenant come.
func TestConnectionsOfTenants(t *testing.T) {
	d := startIdle(t, func(_ *executor.Config, c *Config) {
		c.Identify, c.Connections = byHeader, ingress.Limits{Connections: 4, PeerConnections: 4}
	})
	// use has a stream on a new connection, and returns the error of its first answer.
	use := func(tenant string) (reflectionv1.ServerReflection_ServerReflectionInfoClient, error) {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", tenant)
		s, err := reflectionv1.NewServerReflectionClient(d.dial()).ServerReflectionInfo(ctx)
		if err != nil {
			t.Fatal(err)
		}
		s.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
		_, err = s.Recv()
		return s, err
	}
	var hog []reflectionv1.ServerReflection_ServerReflectionInfoClient
	for range 4 {
		s, err := use("hog")
		if err != nil {
			t.Fatal(err)
		}
		hog = append(hog, s)
	}
	for range 2 {
		if _, err := use("other"); err != nil {
			t.Errorf("another tenant: %v", err)
		}
	}
	open := 0
	for _, s := range hog {
		s.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
		if _, err := s.Recv(); err == nil {
			open++
		}
	}
	if open != 2 {
		t.Errorf("%d of 4 streams are open, want 2", open)
	}
	_, err := use("hog")
	wantRefusal(t, err, refusal{codes.Unavailable, "CONNECTIONS_FULL", ""})
	_, err = pb.NewSystemServiceClient(d.dial()).GetBudget(t.Context(), &pb.GetBudgetRequest{})
	wantRefusal(t, err, refusal{codes.Unauthenticated, "UNIDENTIFIED", ""})
}

// GetBudget has every quota of the configuration that has a use.
func TestBudgetHasAllQuotas(t *testing.T) {
	d := startIdle(t, nil)
	r, err := d.system.GetBudget(t.Context(), &pb.GetBudgetRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, q := range r.Tenant.Quotas {
		keys = append(keys, q.Key)
	}
	want := []string{"running", "queued", "memory", "cpus", "starts_per_second", "calls_per_second", "streams", "state_bytes", "sessions", "session_bytes", "skill_bytes", "skill_versions"}
	if !slices.Equal(keys, want) {
		t.Errorf("got %q, want %q", keys, want)
	}
}
