package main

import (
	"fmt"

	"github.com/spf13/cobra"

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
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			var list []*pb.Tenant
			for page := ""; ; { // all pages before the table, whose columns are as wide as their longest cells
				r, err := c.System().ListTenants(cmd.Context(), &pb.ListTenantsRequest{PageToken: page})
				if err != nil {
					return err
				}
				list = append(list, r.GetTenants()...)
				if page = r.GetNextPageToken(); page == "" {
					return a.printTenants(list)
				}
			}
		},
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
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			r, err := c.System().GetBudget(cmd.Context(), &pb.GetBudgetRequest{})
			if err != nil {
				return err
			}
			return a.printTenants([]*pb.Tenant{r.GetTenant()})
		},
	}
}

// printTenants prints a table, or with --json one tenant a line. Only the JSON has quotas that this client does not know
// yet.
func (a *app) printTenants(list []*pb.Tenant) error {
	if a.json {
		for _, t := range list {
			if err := a.printJSON(t); err != nil {
				return err
			}
		}
		return nil
	}
	t := &table{}
	t.header("TENANT", "WEIGHT", "RUNNING", "QUEUED", "MEMORY", "CPUS", "STARTS", "CALLS", "STREAMS", "STATE", "SESSIONS", "SESSION BYTES", "SKILL BYTES", "VERSIONS")
	for _, one := range list {
		row := plain(one.GetName(), fmt.Sprint(one.GetWeight()))
		for _, key := range []string{"running", "queued", "memory", "cpus", "starts_per_second", "calls_per_second", "streams", "state_bytes", "sessions", "session_bytes", "skill_bytes", "skill_versions"} {
			row = append(row, quotaCell(key, one.GetQuotas()))
		}
		t.add(row...)
	}
	return a.print(t)
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
