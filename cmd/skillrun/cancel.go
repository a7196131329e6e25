package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// cancelCommand cancels the executions one after the other, in the order of the arguments. Cancel
// returns when the execution has ended, so each takes up to the grace, unless --no-wait is given. An
// execution that has ended already is not an error: the daemon answers with its outcome.
func (a *app) cancelCommand() *cobra.Command {
	var grace time.Duration
	var reason string
	var noWait bool
	cmd := &cobra.Command{
		Use:               "cancel ID...",
		Short:             "End executions: SIGTERM, and after the grace SIGKILL",
		Args:              arguments(needs("ID...")),
		ValidArgsFunction: a.completeExecution(liveExecution),
		RunE: func(cmd *cobra.Command, args []string) error {
			// The daemon would refuse it, too, but in the words of the contract.
			if grace < 0 {
				return usage(cmd, fmt.Errorf("--grace %s: must not be less than 0", grace))
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			return a.each(cmd.Context(), args, func(id string) error {
				request := &pb.CancelExecutionRequest{ExecutionId: id, Reason: reason, ReturnImmediately: noWait}
				// --grace 0 means SIGKILL at once; without the flag the daemon's default holds.
				if cmd.Flags().Changed("grace") {
					request.Grace = durationpb.New(grace)
				}
				answer, err := c.Executions().CancelExecution(cmd.Context(), request)
				if err != nil {
					return fmt.Errorf("cancel %s: %w", id, err)
				}
				e := answer.GetExecution()
				if e.GetOutcome() == nil && !noWait { // the contract promises the outcome
					return fmt.Errorf("cancel %s: it has not ended ('skillrun show %s' says how it stands)", id, id)
				}
				if a.json {
					err = a.printJSON(e)
				} else {
					_, err = fmt.Fprintf(a.stdout, "%s %s\n", printable(id), stateCell(e).text)
				}
				return err
			})
		},
	}
	cmd.Flags().DurationVar(&grace, "grace", 0, "`time` between SIGTERM and SIGKILL (default the daemon's)")
	cmd.Flags().StringVar(&reason, "reason", "", "`text` that the record keeps")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return at once, not when the execution has ended")
	completeNothing(cmd, "grace", "reason")
	return cmd
}
