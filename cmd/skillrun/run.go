package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// runCommand has three files: runflags.go reads the flags, program.go the arguments, and this one
// runs the result with the client library.
func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] SKILL [flags] {SCRIPT | -c CODE | -- COMMAND...} [ARG...]",
		Short: "Run a script, code or command of a skill, and exit as it does",
		Long: `Run runs one program in a sandbox and passes on what it prints, as it prints it.

  skillrun run calculator scripts/calc.py '2+2'
  skillrun run data-analysis --file sales.csv -o out scripts/stats.py sales.csv
  skillrun run calculator -c 'print(2+2)'
  skillrun run text-tools --file notes.txt -- grep -c 'to do' notes.txt
  skillrun run text-tools --file notes.txt -- 'sort notes.txt | uniq -c | head -3'

Flags stand before the script; what follows it is the program's. One word after
"--" is a command line with its pipes and redirects, several words are one
command, each kept as it is. With -c, arguments that begin with "-" follow "--".
So does a SKILL that begins with "-": skillrun run -- -name SCRIPT.

Standard input goes to the program unless it is a terminal; -i passes a terminal
too. Ctrl-C cancels the execution, and a second one does not wait for it.

If the daemon restarts, run waits for it and goes on. It sends a request again only
if nothing can have started, or with --key.`,
		Args: arguments(needs("SKILL", "[SCRIPT...]")),
		RunE: func(cmd *cobra.Command, args []string) error {
			what, err := f.parse(cmd, args)
			if err != nil || what == nil {
				return err
			}
			return a.runProgram(cmd.Context(), &f, what)
		},
		ValidArgsFunction: a.completeRun,
	}
	// cobra stops at SKILL, and parse reads the flags after it. Otherwise cobra would take the
	// flags of the program for its own.
	cmd.Flags().SetInterspersed(false)
	f.add(cmd.Flags())
	f.complete(cmd)
	completeWith(cmd, "session", func(cmd *cobra.Command, _ []string, toComplete string) (completions, cobra.ShellCompDirective) {
		return a.completeSession(cmd, nil, toComplete)
	})
	return cmd
}

// runProgram runs the program of the command line. The order matters: everything that can be
// refused on this side is refused before anything is sent.
func (a *app) runProgram(ctx context.Context, f *runFlags, what *program) error {
	bars := a.progress(f.quiet)
	c, err := a.dialWith(bars)
	if err != nil {
		return err
	}
	defer c.Close()
	cmd, err := f.command(a, c, what)
	if err != nil {
		return err
	}
	cmd.OnUpload = bars.upload()
	if f.detach {
		defer bars.end()
		err := a.detach(ctx, cmd)
		return a.wait.over(ctx, f.key, cmd.Execution, err)
	}
	// Before the run: a folder that can't be made is better known now.
	dir, err := openFolder(f.artifacts)
	if err != nil {
		return err
	}
	if dir != nil {
		defer dir.Close()
	}
	out := &printer{app: a, bars: bars}
	cmd.OnEvent = out.event
	if !a.json {
		cmd.Stdout, cmd.Stderr = a.stdout, a.stderr
	}
	err = cmd.Run(ctx)
	bars.end()
	err = a.ended(ctx, c, cmd.Execution, out, dir, bars, err)
	// The rules go to stderr, because standard output is the program's.
	if e := cmd.Execution; f.learn && !a.json && e != nil && e.Learned() != nil {
		fmt.Fprint(a.stderr, learnedText(e.Header.GetSkill(), e.Outcome()))
	}
	return a.wait.over(ctx, f.key, cmd.Execution, err)
}

// detach starts the command, prints its id and leaves it. The id is printed only after Detach,
// which returns once the daemon no longer needs this client. With --json the header event is
// printed in place of the id.
func (a *app) detach(ctx context.Context, cmd *skillrun.Cmd) error {
	// Without it the daemon would cancel the execution when this client goes.
	cmd.OnDisconnect = pb.OnDisconnect_ON_DISCONNECT_CONTINUE
	var header *pb.ExecutionEvent
	cmd.OnEvent = func(e *pb.ExecutionEvent) {
		if e.GetHeader() != nil {
			header = e
		}
	}
	if err := cmd.Start(ctx); err != nil {
		return err
	}
	if err := cmd.Execution.Detach(ctx); err != nil {
		return err
	}
	if a.json && header != nil {
		return a.printJSON(header)
	}
	_, err := fmt.Fprintln(a.stdout, printable(cmd.Execution.ID))
	return err
}

// ended finishes a command that ran or attached: notices, artifacts, and the error for the
// exit code. A nil execution means that it never began. err is the error of Wait. It decides the
// exit code, and an error while saving replaces only a nil.
func (a *app) ended(ctx context.Context, c *skillrun.Client, e *skillrun.Execution, out *printer, dir *os.Root, bars *progress, err error) error {
	if e == nil {
		return err
	}
	outcome := e.Outcome()
	if outcome == nil {
		return err
	}
	a.notices(e.ID, outcome)
	if dir != nil {
		// An interrupted command has ended too: its artifacts are there.
		if saveErr := a.save(context.WithoutCancel(ctx), c, e.ID, dir, bars); saveErr != nil {
			if err == nil {
				return saveErr
			}
			a.note("%s", a.explain(saveErr))
		}
	}
	if err == nil {
		err = out.err
	}
	if err == nil && outcome.GetSession().GetUncommitted() != pb.SessionUncommitted_SESSION_UNCOMMITTED_UNSPECIFIED {
		return verdict(codeFailed) // the notices have the cause
	}
	return err
}
