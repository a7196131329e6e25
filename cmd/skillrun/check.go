package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// checkBaseDir is what {baseDir} stands for when no skill is named.
const checkBaseDir = "/skills/demo"

// A decision is what check prints with --json: the first three fields always, the other two if they help.
type decision struct {
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason"`
	Rule    string `json:"rule"`
	Missing string `json:"missingRule,omitempty"` // the rule that would allow the line
	Instead string `json:"instead,omitempty"`     // as CheckCommandResponse.instead
}

// checkCommand has two ways to the same answer: with --allowed-tools it decides in this process,
// with a SKILL the daemon decides. It runs nothing in either case.
func (a *app) checkCommand() *cobra.Command {
	var rules, line, baseDir string
	cmd := &cobra.Command{
		Use:   "check {--allowed-tools RULES | SKILL} {--command LINE | -- COMMAND...}",
		Short: "Say whether a command may run, by which rule, or why not",
		Long: `Check decides exactly as run does, and runs nothing.

  skillrun check --allowed-tools 'Bash(git log:*), Read' --command 'git log | head'
  skillrun check git-analyzer -- git log --oneline

With --allowed-tools it needs no daemon; with a skill the daemon decides by the
skill's own rules. It exits with 0 if the command is allowed and with 126 if it is
not. With --json it exits with 0 for either: the answer is in the output,
{"allowed": bool, "reason": "...", "rule": "..."}. A refusal may have two more
fields: "missingRule", which would allow the line, and "instead", another way
to its result: "code" or "working_directory".`,
		RunE: func(cmd *cobra.Command, args []string) error {
			// Changed, not the value: --allowed-tools '' is a valid question, about a skill without rules.
			offline := cmd.Flags().Changed("allowed-tools")
			dash := cmd.ArgsLenAtDash()
			// The words after -- are quoted and joined, because the rules see a line as a shell
			// would.
			if dash >= 0 {
				if cmd.Flags().Changed("command") || dash == len(args) {
					return usage(cmd, errors.New("give the command once: --command LINE or -- COMMAND"))
				}
				line, args = commandLine(args[dash:]), args[:dash]
			} else if !cmd.Flags().Changed("command") {
				return usage(cmd, errors.New("no command: give --command LINE or -- COMMAND"))
			}
			var d decision
			var err error
			switch {
			case offline && len(args) == 0:
				d, err = decideHere(rules, baseDir, line)
			case !offline && len(args) == 1:
				d, err = a.decideThere(cmd.Context(), args[0], line)
			default:
				err = usage(cmd, errors.New("give --allowed-tools or one SKILL"))
			}
			if err != nil {
				return err
			}
			return a.printDecision(d)
		},
		ValidArgsFunction: a.completeSkill,
	}
	cmd.Flags().StringVar(&rules, "allowed-tools", "", "decide by these `rules`, written as in an allowed-tools field, without a daemon")
	cmd.Flags().StringVar(&line, "command", "", "the command `line`")
	cmd.Flags().StringVar(&baseDir, "base-dir", checkBaseDir, "`path` that {baseDir} stands for with --allowed-tools")
	return cmd
}

// decideThere asks the daemon (CheckCommand), which also applies its policy.
// An answer of the daemon can differ from one with the same rules here: the tenant's policy may
// forbid commands that a skill allows.
func (a *app) decideThere(ctx context.Context, skill, line string) (decision, error) {
	c, err := a.dial()
	if err != nil {
		return decision{}, err
	}
	defer c.Close()
	r, err := c.Skills().CheckCommand(ctx, &pb.CheckCommandRequest{Skill: skill, Command: line})
	if err != nil {
		return decision{}, fmt.Errorf("check %s: %w", skill, err)
	}
	return decision{r.GetAllowed(), r.GetReason(), r.GetRule(), r.GetMissingRule(), r.GetInstead()}, nil
}

// printDecision prints the answer. Only without --json a refusal is an exit code, too: a program
// that reads JSON must be able to tell a refusal from a failed call.
func (a *app) printDecision(d decision) error {
	if a.json {
		return a.printJSONValue(d)
	}
	t := &table{}
	answer := cell{text: "allowed", colour: green}
	if !d.Allowed {
		answer = cell{text: "not allowed", colour: red}
	}
	t.add(answer, cell{text: d.Reason})
	if remedy := remedyText(d.Missing, d.Instead); !d.Allowed && remedy != "" {
		t.add(cell{}, cell{text: remedy})
	}
	if err := a.print(t); err != nil {
		return err
	}
	if !d.Allowed {
		return verdict(codeRefused)
	}
	return nil
}

// remedyText says what would help a command that is not allowed, or "". missing and instead are fields of
// CheckCommandResponse. Only one remedy is named, as in the answers of the tool bash.
func remedyText(missing, instead string) string {
	switch {
	case instead == "working_directory":
		return "leave it out, and start in that directory: run --dir"
	case instead == "code":
		return "write it as code: run --code"
	case missing != "":
		return "allowed-tools would need " + missing
	}
	return ""
}
