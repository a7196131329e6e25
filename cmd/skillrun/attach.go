package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	skillrun "github.com/skillrun/skillrun/clients/go"
)

// attachCommand follows an execution that another client, or an earlier call, has started. It
// has the exit codes of run.
func (a *app) attachCommand() *cobra.Command {
	var after uint64
	var artifacts string
	var quiet bool
	cmd := &cobra.Command{
		Use:   "attach ID",
		Short: "Follow an execution, from its first byte, and exit as it does",
		Long: `Attach prints what an execution has printed and goes on until its end. It works
during and after the run, from anywhere, any number of times at once. Ctrl-C ends
only this command; the execution goes on.`,
		Args: arguments(needs("ID")),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.attach(cmd.Context(), args[0], after, artifacts, quiet)
		},
		ValidArgsFunction: a.completeExecution(anyExecution),
	}
	cmd.Flags().Uint64Var(&after, "after", 0, "only events after this `sequence` number")
	cmd.Flags().StringVarP(&artifacts, "artifacts", "o", "", "save the files that the program wrote to this `folder`")
	addQuiet(cmd.Flags(), &quiet)
	completeFolder(cmd, "artifacts")
	completeNothing(cmd, "after")
	return cmd
}

// attach follows an execution to its end. The interrupt of the command ends only the following:
// Attach never cancels.
func (a *app) attach(ctx context.Context, id string, after uint64, artifacts string, quiet bool) error {
	bars := a.progress(quiet)
	c, err := a.dialWith(bars)
	if err != nil {
		return err
	}
	defer c.Close()
	dir, err := openFolder(artifacts)
	if err != nil {
		return err
	}
	if dir != nil {
		defer dir.Close()
	}
	out := &printer{app: a, bars: bars}
	options := skillrun.AttachOptions{After: after, OnEvent: out.event}
	// With --json the output is in the events, so the client must not write it, too.
	if !a.json {
		options.Stdout, options.Stderr = a.stdout, a.stderr
	}
	e := c.Attach(ctx, id, options)
	err = e.Wait()
	bars.end()
	// A user who presses Ctrl-C may believe that it has ended the program.
	if errors.Is(err, context.Canceled) && e.Outcome() == nil {
		return fmt.Errorf("%w: it is left alone ('skillrun cancel %s' ends it)", err, id)
	}
	return a.wait.over(ctx, "", e, a.ended(ctx, c, e, out, dir, bars, err))
}
