package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// sessionUpdateCommand returns the command session update. It prints the session as ls does, with its new times. Only
// flags that the user gives change the session: a field that the request leaves out keeps its value.
func (a *app) sessionUpdateCommand() *cobra.Command {
	var labels []string
	var unlabel bool
	var idle, ttl time.Duration
	cmd := &cobra.Command{
		Use:   "update SESSION",
		Short: "Change the labels of a session, or the times after which it is removed",
		Args:  arguments(needs("SESSION")),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags, m := cmd.Flags(), &pb.UpdateSessionRequest{SessionId: args[0]}
			switch {
			case flags.Changed("label") && unlabel:
				return usage(cmd, errors.New("--label sets all labels; leave out --no-labels"))
			case flags.Changed("label") || unlabel:
				all, err := pairs("label", labels)
				if err != nil {
					return err
				}
				m.Labels = &pb.SessionLabels{Labels: all}
			case !flags.Changed("idle-ttl") && !flags.Changed("ttl"):
				return usage(cmd, errors.New("nothing to change: give --label, --no-labels, --idle-ttl or --ttl"))
			}
			if flags.Changed("idle-ttl") {
				m.IdleTtl = durationpb.New(idle)
			}
			if flags.Changed("ttl") {
				m.Ttl = durationpb.New(ttl)
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			defer c.Close()
			r, err := c.Sessions().UpdateSession(cmd.Context(), m)
			if err != nil {
				return fmt.Errorf("update %s: %w", args[0], err)
			}
			return sessions.print(a, r.GetSession())
		},
		ValidArgsFunction: a.completeSession,
	}
	cmd.Flags().StringArrayVar(&labels, "label", nil, "label `key=value`; replaces all labels (repeatable)")
	cmd.Flags().BoolVar(&unlabel, "no-labels", false, "remove all labels")
	cmd.Flags().DurationVar(&idle, "idle-ttl", 0, "remove the session this `time` after its last use")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "remove the session this `time` after its creation")
	completeNothing(cmd, "label", "idle-ttl", "ttl")
	return cmd
}
