package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

const (
	// completeTime bounds how long a shell's completion waits for the daemon.
	completeTime = 2 * time.Second
	// completeMost bounds the number of words for a shell.
	completeMost = 200
)

// The words of flags and arguments that have few.
var (
	languages = []string{"python", "bash", "sh", "node", "ruby", "perl"}
	signals   = []string{"HUP", "INT", "QUIT", "TERM", "KILL", "USR1", "USR2", "CONT", "STOP", "WINCH"}
)

// completions are the words for a shell, each with a tab and its description.
type completions = []string

// ask gives f a client of the daemon and a short time. A failure gives no words: a shell
// can't show errors. The words come from a daemon over the same socket as every command. A daemon
// that is slow or absent must not hold up the user's shell.
func (a *app) ask(cmd *cobra.Command, f func(context.Context, *skillrun.Client) (completions, error)) (completions, cobra.ShellCompDirective) {
	c, err := a.dialNow()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer c.Close()
	ctx, stop := context.WithTimeoutCause(cmd.Context(), completeTime, errors.New("daemon too slow"))
	defer stop()
	words, err := f(ctx, c)
	if err != nil {
		cobra.CompDebugln(err.Error(), false) // to $BASH_COMP_DEBUG_FILE only
		return nil, cobra.ShellCompDirectiveError
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// offer adds one word with its description. It leaves out a word that a shell would have to quote (zsh replaces =NAME
// by the path of a program), and one that this command would take for a flag: programs choose the names of artifacts.
// It adds no more than completeMost words in all. A shell shows the description after the tab.
func offer(words completions, word, what string) completions {
	if !isBare(word) || strings.ContainsAny(word[:1], "-=") || printable(word) != word || len(words) >= completeMost {
		return words
	}
	if what = shortenTo(strings.Join(strings.Fields(printable(what)), " "), 60); what != "" {
		word += "\t" + what
	}
	return append(words, word)
}

// completeSkill completes the name of a skill as the only argument.
func (a *app) completeSkill(cmd *cobra.Command, args []string, _ string) (completions, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.ask(cmd, func(ctx context.Context, c *skillrun.Client) (words completions, err error) {
		for s, err := range skills(ctx, c, true) {
			if err != nil {
				return nil, err
			}
			words = offer(words, s.GetName(), s.GetDescription())
		}
		return words, nil
	})
}

// completeRun completes a skill, then its scripts. The later words are arguments of the
// program and may be files. After -c or "--" the rest belongs to the program, so the shell
// completes files.
func (a *app) completeRun(cmd *cobra.Command, args []string, toComplete string) (completions, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.completeSkill(cmd, args, toComplete)
	}
	// Flags may stand between the skill and the script: they are parsed as run does.
	flags := cmd.Flags()
	if err := flags.Parse(args[1:]); err != nil || flags.NArg() > 0 || flags.Changed("code") || flags.ArgsLenAtDash() >= 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	if flag := a.flagBefore(flags); flag != nil {
		if f, ok := cmd.GetFlagCompletionFunc(flag.Name); ok {
			return f(cmd, args, toComplete)
		}
		return nil, cobra.ShellCompDirectiveDefault
	}
	return a.ask(cmd, func(ctx context.Context, c *skillrun.Client) (words completions, err error) {
		answer, err := c.Skills().GetSkill(ctx, &pb.GetSkillRequest{Skill: args[0]})
		for _, script := range answer.GetSkill().GetScripts() {
			words = offer(words, script.GetPath(), script.GetDescription())
		}
		return words, err
	})
}

// flagBefore returns the flag whose value is completed, or nil. Cobra looks for such a flag
// only before the first argument.
func (a *app) flagBefore(flags *pflag.FlagSet) *pflag.Flag {
	if len(a.args) < 2 {
		return nil
	}
	word := a.args[len(a.args)-2]
	name, long := strings.CutPrefix(word, "--")
	var flag *pflag.Flag
	switch {
	case long && name != "":
		flag = flags.Lookup(name)
	case len(word) == 2 && word[0] == '-' && !long:
		flag = flags.ShorthandLookup(word[1:])
	}
	if flag == nil || flag.NoOptDefVal != "" { // one that stands alone, such as --detach
		return nil
	}
	return flag
}

// Which executions a command is about. No state means all of them (ListExecutionsRequest.states).
var (
	anyExecution   []pb.ExecutionState
	endedExecution = []pb.ExecutionState{pb.ExecutionState_EXECUTION_STATE_ENDED}
	liveExecution  = []pb.ExecutionState{pb.ExecutionState_EXECUTION_STATE_QUEUED, pb.ExecutionState_EXECUTION_STATE_RUNNING}
)

// completeExecution completes the ids of executions that are not among the
// arguments yet. It offers no word if the command takes no further argument: cmd.Args is asked
// with one more. Only the newest completeMost executions are offered, from one page.
func (a *app) completeExecution(states []pb.ExecutionState) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (completions, cobra.ShellCompDirective) {
		if len(args) > 0 && cmd.Args(cmd, append(slices.Clone(args), "one more")) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.ask(cmd, func(ctx context.Context, c *skillrun.Client) (words completions, err error) {
			page, err := c.Executions().ListExecutions(ctx, &pb.ListExecutionsRequest{States: states, PageSize: completeMost})
			for _, e := range page.GetExecutions() {
				if !slices.Contains(args, e.GetExecutionId()) {
					what := []string{e.GetSkill(), e.GetScript(), stateCell(e).text, timeText(e.GetCreateTime())}
					words = offer(words, e.GetExecutionId(), strings.Join(what, " "))
				}
			}
			return words, err
		})
	}
}

// completeSession completes ids of sessions: the first page of the daemon's list, without ids that are among the
// arguments already. It offers no word if the command takes no further argument.
func (a *app) completeSession(cmd *cobra.Command, args []string, _ string) (completions, cobra.ShellCompDirective) {
	if len(args) > 0 && cmd.Args(cmd, append(slices.Clone(args), "one more")) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.ask(cmd, func(ctx context.Context, c *skillrun.Client) (words completions, err error) {
		page, err := c.Sessions().ListSessions(ctx, &pb.ListSessionsRequest{PageSize: completeMost})
		for _, s := range page.GetSessions() {
			if !slices.Contains(args, s.GetSessionId()) {
				what := fmt.Sprintf("version %d, used %s", s.GetNewest().GetNumber(), minuteOf(s.GetLastUseTime()))
				words = offer(words, s.GetSessionId(), what)
			}
		}
		return words, err
	})
}

// completeSignal completes an execution that runs, then a signal. The signals are a choice of the
// common ones; the daemon accepts others as well.
func (a *app) completeSignal(cmd *cobra.Command, args []string, toComplete string) (completions, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return a.completeExecution(liveExecution)(cmd, nil, toComplete)
	case 1:
		return signals, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeArtifacts completes an execution, then the paths of its artifacts.
func (a *app) completeArtifacts(cmd *cobra.Command, args []string, toComplete string) (completions, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.completeExecution(anyExecution)(cmd, nil, toComplete)
	}
	return a.ask(cmd, func(ctx context.Context, c *skillrun.Client) (words completions, err error) {
		for artifact, err := range c.Artifacts(ctx, args[0]) {
			if err != nil || len(words) >= completeMost {
				return words, err
			}
			if name := artifactName(artifact); !slices.Contains(args[1:], name) {
				words = offer(words, name, bytesText(artifact.GetSizeBytes()))
			}
		}
		return words, nil
	})
}

// complete registers the values of run's flags. --file completes any file.
func (f *runFlags) complete(cmd *cobra.Command) {
	completeWith(cmd, "language", cobra.FixedCompletions(languages, cobra.ShellCompDirectiveNoFileComp))
	completeWith(cmd, "on-disconnect", cobra.FixedCompletions([]string{"cancel", "continue"}, cobra.ShellCompDirectiveNoFileComp))
	completeFolder(cmd, "artifacts")
	completeNothing(cmd, "code", "args", "env", "secret-env", "dir", "label", "key", "at", "timeout", "cpu-time", "queue-timeout",
		"memory", "output", "workspace", "workspace-files", "processes", "open-files", "cpus")
}

// completeWith completes the value of a flag.
func completeWith(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // no such flag: a bug
	}
}

// completeFolder completes a flag whose value is a folder of this machine.
func completeFolder(cmd *cobra.Command, flag string) {
	completeWith(cmd, flag, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs))
}

// completeNothing says of flags that their values are no files.
func completeNothing(cmd *cobra.Command, flags ...string) {
	for _, flag := range flags {
		completeWith(cmd, flag, cobra.NoFileCompletions)
	}
}
