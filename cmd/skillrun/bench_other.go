//go:build !linux || !cgo

package main

import "github.com/spf13/cobra"

// benchCommand says where bench is. It fills the record of a daemon, whose database needs cgo.
func (a *app) benchCommand() *cobra.Command {
	return absentCommand("bench", "Measure skillrun on this machine against the same programs without a sandbox",
		&codedError{codeRefused, "bench needs the skillrun that is released with skillrund; run it on the machine of the daemon"})
}

// absentCommand stands for a command that this build does not have, so that the command is known and
// says why.
func absentCommand(name, short string, why error) *cobra.Command {
	return &cobra.Command{
		Use:   name,
		Short: short + " (not in this build)",
		// Any flag of the command gets the same answer.
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
				return cmd.Help()
			}
			return why
		},
	}
}
