package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// versionTime bounds how long version waits for a daemon.
const versionTime = 2 * time.Second

// versionCommand exits with 0 even without a daemon. The command doctor tells the reason.
func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this client, and of the daemon if there is one",
		Args:  arguments(noArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.dialNow()
			if err != nil {
				return err
			}
			defer c.Close()
			ctx, stop := context.WithTimeout(cmd.Context(), versionTime)
			defer stop()
			// The client's version must print even if no daemon answers, so an error is not one
			// of this command.
			daemon := ""
			if r, err := c.System().GetCapabilities(ctx, &pb.GetCapabilitiesRequest{}); err == nil {
				daemon = r.GetVersion()
			}
			if a.json {
				return a.printJSONValue(map[string]string{"client": version, "daemon": daemon})
			}
			if daemon == "" {
				daemon = "not reachable"
			}
			_, err = fmt.Fprintf(a.stdout, "client %s\ndaemon %s\n", version, printable(daemon))
			return err
		},
	}
}
