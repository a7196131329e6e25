package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// signalCommand makes one call, Signal. An execution that is queued or has ended has no process,
// which is an error of the daemon.
func (a *app) signalCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "signal ID SIGNAL",
		Short:             "Send a signal to the main process of an execution",
		Example:           "  skillrun signal 0199c0e2-5d3a-7b1f-8c44-0a5b9e6f2d17 USR1",
		Args:              arguments(needs("ID", "SIGNAL")),
		ValidArgsFunction: a.completeSignal,
		RunE: a.withClient(func(cmd *cobra.Command, args []string, c *skillrun.Client) error {
			request := &pb.SignalExecutionRequest{ExecutionId: args[0], Signal: signalName(args[1])}
			if _, err := c.Executions().SignalExecution(cmd.Context(), request); err != nil {
				return fmt.Errorf("signal %s: %w", args[0], err)
			}
			return nil
		}),
	}
}

// signalName gives kill(1)'s short names their full form: usr1 -> SIGUSR1.
// The daemon knows the names and refuses others with the list.
func signalName(name string) string {
	name = strings.ToUpper(name)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	return name
}
