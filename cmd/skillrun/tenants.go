package main

import (
	"fmt"

	"github.com/spf13/cobra"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// tenantsCommand prints all tenants for an operator, and the own one for an admin.
// The daemon decides which tenants the caller sees; the client asks the same for all roles.
func (a *app) tenantsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tenants",
		Short: "List tenants with their quotas and their use",
		Long: `Tenants lists the daemon's tenants: all of them for an operator, its own for an
admin. Each quota is printed as used/limit; a quota without a limit as used/-.`,
		Args: arguments(noArgs),
		RunE: a.withClient(func(cmd *cobra.Command, _ []string, c *skillrun.Client) error {
			return tenants.pages(a, func(token string) ([]*pb.Tenant, string, error) {
				r, err := c.System().ListTenants(cmd.Context(), &pb.ListTenantsRequest{PageToken: token})
				return r.GetTenants(), r.GetNextPageToken(), err
			})
		}),
	}
	cmd.AddCommand(a.purgeCommand())
	return cmd
}

// budgetCommand prints the caller's tenant.
// Unlike tenants, every role may call it.
func (a *app) budgetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "budget",
		Short: "Show the quotas of your tenant and their use",
		Args:  arguments(noArgs),
		RunE: a.withClient(func(cmd *cobra.Command, _ []string, c *skillrun.Client) error {
			r, err := c.System().GetBudget(cmd.Context(), &pb.GetBudgetRequest{})
			if err != nil {
				return err
			}
			return tenants.print(a, r.GetTenant())
		}),
	}
}

// tenants has columns for the quotas that this client knows. JSON has all quotas of the daemon.
var tenants = listing[*pb.Tenant]{
	[]string{"TENANT", "WEIGHT", "RUNNING", "QUEUED", "MEMORY", "CPUS", "STARTS", "CALLS", "STREAMS", "STATE", "SESSIONS", "SESSION BYTES", "SKILL BYTES", "VERSIONS"},
	func(t *pb.Tenant) []cell {
		row := plain(t.GetName(), fmt.Sprint(t.GetWeight()))
		for _, key := range []string{"running", "queued", "memory", "cpus", "starts_per_second", "calls_per_second", "streams", "state_bytes", "sessions", "session_bytes", "skill_bytes", "skill_versions"} {
			row = append(row, quotaCell(key, t.GetQuotas()))
		}
		return row
	},
}

// quotaCell prints one quota as used/limit. It is yellow if nothing is left.
// Units on the wire: bytes for memory, thousandths of a processor for cpus, numbers for the others.
func quotaCell(key string, quotas []*pb.Quota) cell {
	for _, q := range quotas {
		if q.GetKey() != key {
			continue
		}
		text := func(n uint64) string { return fmt.Sprint(n) }
		switch key {
		case "memory", "state_bytes", "session_bytes", "skill_bytes":
			text = bytesText
		case "cpus":
			text = func(n uint64) string { return fmt.Sprint(float64(n) / 1000) }
		}
		// A limit of 0 means no limit (Quota.limit).
		if q.GetLimit() == 0 {
			return cell{text: text(q.GetUsed()) + "/-"}
		}
		c := cell{text: text(q.GetUsed()) + "/" + text(q.GetLimit())}
		if q.GetUsed() >= q.GetLimit() {
			c.colour = yellow
		}
		return c
	}
	return cell{text: "-"}
}
