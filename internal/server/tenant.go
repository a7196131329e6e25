package server

import (
	"context"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// GetBudget answers for the caller's own tenant.
func (c systemCalls) GetBudget(ctx context.Context, _ *pb.GetBudgetRequest) (*pb.GetBudgetResponse, error) {
	own, err := c.ownTenant(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.GetBudgetResponse{Tenant: own}, nil
}

func (c systemCalls) ownTenant(ctx context.Context) (*pb.Tenant, error) {
	who := caller(ctx)
	t, err := c.x.Tenant(who)
	if err != nil {
		return nil, err
	}
	return c.fromTenant(t, who.Tenant), nil
}

// ListTenants pages by name: the token of a page has the last name of the page before.
func (c systemCalls) ListTenants(ctx context.Context, m *pb.ListTenantsRequest) (*pb.ListTenantsResponse, error) {
	// An admin sees its own tenant, with the same fields. So a client needs no other call for it.
	if roleOf(ctx) != identity.Operator {
		own, err := c.ownTenant(ctx)
		if err != nil {
			return nil, err
		}
		return &pb.ListTenantsResponse{Tenants: []*pb.Tenant{own}}, nil
	}
	size := maxPage
	if n := int(m.GetPageSize()); n > 0 {
		size = min(n, maxPage)
	}
	after, err := parsePageToken("tenants", m.GetPageToken())
	if err != nil {
		return nil, err
	}
	out := &pb.ListTenantsResponse{}
	for _, t := range c.x.Tenants.All() {
		if t.Name <= after {
			continue
		}
		// There is at least one more tenant, so this page is not the last one.
		if len(out.Tenants) == size {
			out.NextPageToken = pageToken("tenants", out.Tenants[size-1].Name)
			break
		}
		out.Tenants = append(out.Tenants, c.fromTenant(t, t.Name))
	}
	return out, nil
}

// PurgeTenant removes the data of a tenant that is not configured.
func (c systemCalls) PurgeTenant(ctx context.Context, m *pb.PurgeTenantRequest) (*pb.PurgeTenantResponse, error) {
	if err := identity.CheckTenant(m.GetTenant()); err != nil {
		return nil, invalid("tenant", "%v", err)
	}
	done, err := c.x.Purge(ctx, caller(ctx), m.GetTenant())
	if err != nil {
		return nil, err
	}
	c.uploads.dropPuts(m.GetTenant())
	return &pb.PurgeTenantResponse{
		Executions: uint64(done.Executions), ExecutionBytes: uint64(done.ExecutionBytes),
		SkillVersions: uint64(done.SkillVersions), SkillBytes: uint64(done.SkillBytes),
		Environments: uint64(done.Environments), EnvironmentBytes: uint64(done.EnvironmentBytes),
		Sessions: uint64(done.Sessions), SessionBytes: uint64(done.SessionBytes),
	}, nil
}

// fromTenant converts a tenant with its quotas. name is the tenant of the sessions and the pushed skills. Without
// configured tenants it is the one of the credential, and all callers share the executions' quotas in t.
func (c systemCalls) fromTenant(t *executor.Tenant, name string) *pb.Tenant {
	use, q := c.x.Use(t), t.Quota
	sessions, sessionBytes := c.x.SessionUse(name)
	skillBytes, skillVersions := c.skills.For(name).PushedUse()
	return &pb.Tenant{
		Name: text(name), Weight: uint32(max(q.Weight, 1)),
		Quotas: []*pb.Quota{
			// The keys are the names of the configuration, and their order is the order of the client's columns. A
			// client ignores a key that it does not know.
			{Key: "running", Limit: uint64(q.Running), Used: uint64(use.Running)},
			{Key: "queued", Limit: uint64(q.Queued), Used: uint64(use.Queued)},
			{Key: "memory", Limit: uint64(q.MemoryBytes), Used: uint64(use.MemoryBytes)},
			{Key: "cpus", Limit: uint64(q.MilliCPUs), Used: uint64(use.MilliCPUs)},
			{Key: "starts_per_second", Limit: uint64(use.Burst), Used: uint64(use.Started)},
			{Key: "calls_per_second", Limit: uint64(use.CallBurst), Used: uint64(use.Called)},
			{Key: "streams", Limit: uint64(t.Streams), Used: uint64(c.x.OpenStreams(t))},
			{Key: "state_bytes", Limit: uint64(t.StateBytes), Used: uint64(c.x.StateBytes(t))},
			{Key: "sessions", Limit: uint64(t.Sessions), Used: uint64(sessions)},
			{Key: "session_bytes", Limit: uint64(t.SessionBytes), Used: uint64(sessionBytes)},
			{Key: "skill_bytes", Limit: uint64(t.SkillBytes), Used: uint64(skillBytes)},
			{Key: "skill_versions", Limit: uint64(t.SkillVersions), Used: uint64(skillVersions)},
		},
	}
}
