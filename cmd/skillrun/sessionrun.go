package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// sessionRunCommand returns a command that does the same as 'skillrun run --session SESSION'. It has all flags of run.
func (a *app) sessionRunCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] SESSION [flags] SKILL [flags] {SCRIPT | -c CODE | -- COMMAND...} [ARG...]",
		Short: "Run a script, code or command of a skill on the files of a session",
		Long: `Run is 'skillrun run --session SESSION': the program sees the files of the session,
and its changes become the next version. See skillrun run --help.

  skillrun session run $id data-analysis scripts/stats.py sales.csv`,
		Args: arguments(needs("SESSION", "SKILL", "[SCRIPT...]")),
		RunE: func(cmd *cobra.Command, args []string) error {
			args, err := f.parseSession(cmd, args)
			if err != nil || args == nil {
				return err
			}
			what, err := f.parse(cmd, args)
			if err != nil || what == nil {
				return err
			}
			return a.runProgram(cmd.Context(), &f, what)
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) (completions, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return a.completeSession(cmd, args, toComplete)
			}
			return a.completeRun(cmd, args[1:], toComplete)
		},
	}
	cmd.Flags().SetInterspersed(false) // flags after SCRIPT belong to the script, as with run
	f.add(cmd.Flags())
	f.complete(cmd)
	_ = cmd.Flags().MarkHidden("session") // the argument SESSION replaces the flag
	return cmd
}

// parseSession reads SESSION and the flags after it, which cobra leaves to the command because flags are not
// interspersed. It returns the arguments of run, or nil if it has printed the help.
func (f *runFlags) parseSession(cmd *cobra.Command, args []string) ([]string, error) {
	flags := cmd.Flags()
	if err := flags.Parse(args[1:]); err != nil {
		return nil, usage(cmd, flagError(err))
	}
	if help, err := flags.GetBool("help"); err == nil && help {
		return nil, cmd.Help()
	}
	if flags.Changed("session") {
		return nil, usage(cmd, errors.New("--session: the argument SESSION names the session already"))
	}
	if flags.NArg() == 0 {
		return nil, usage(cmd, errors.New("no SKILL after SESSION"))
	}
	f.session.ID = args[0]
	return flags.Args(), nil
}
