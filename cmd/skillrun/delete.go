package main

import (
	"fmt"

	"github.com/spf13/cobra"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// deleteCommand deletes the executions one after the other, in the order of the arguments.
func (a *app) deleteCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "delete ID...",
		Short:             "Remove ended executions with their output and artifacts",
		Args:              arguments(needs("ID...")),
		ValidArgsFunction: a.completeExecution(endedExecution),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, c *skillrun.Client) error {
			return a.each(cmd.Context(), args, func(id string) error {
				if _, err := c.Executions().DeleteExecution(cmd.Context(), &pb.DeleteExecutionRequest{ExecutionId: id}); err != nil {
					return fmt.Errorf("delete %s: %w", id, err)
				}
				_, err := fmt.Fprintf(a.stdout, "%s deleted\n", printable(id))
				return err
			})
		}),
	}
}
