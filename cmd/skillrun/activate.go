package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// activateCommand makes one call, ActivateSkill. The instructions go to standard output and
// everything else to standard error, so that a pipe gets only the text for the model.
func (a *app) activateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "activate SKILL",
		Short: "Print a skill's instructions, as a model gets them",
		Long: `Activate prints the instructions of a skill with {baseDir} resolved. With -v it
says on stderr what the skill may run, within which limits, and what an agent adds
to its context; --json has all of it, and the messages that an agent adds to its
conversation.`,
		Args: arguments(needs("SKILL")),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, c *skillrun.Client) error {
			r, err := c.Skills().ActivateSkill(cmd.Context(), &pb.ActivateSkillRequest{Skill: args[0]})
			if err != nil {
				return fmt.Errorf("activate %s: %w", args[0], err)
			}
			if a.json {
				return a.printJSON(r)
			}
			if a.verbose {
				a.note("%s@%s in %s", r.GetName(), r.GetDigest(), r.GetBaseDir())
				a.note("allowed tools: %s", strings.Join(r.GetAllowedTools(), ", "))
				a.note("limits: %s", limitsText(r.GetLimits()))
				a.note("context: %s", contextText(r.GetContext()))
			}
			text := r.GetInstructions()
			if terminal(a.stdout) {
				text = printableText(text) // a file gets the text unchanged
			}
			if !strings.HasSuffix(text, "\n") {
				text += "\n"
			}
			_, err = io.WriteString(a.stdout, text)
			return err
		}),
		ValidArgsFunction: a.completeSkill,
	}
}

// contextText describes, on one line, the context that an agent adds. The names are the ones of
// the published contract (docs/contracts.md), so that a reader can compare the line with an
// agent's messages. The unit of max_memory is MB, as in SKILL.md.
func contextText(c *pb.ActivationContext) string {
	if !c.GetScriptExecutor() {
		return "no script executor (the skill has no scripts folder)"
	}
	k := c.GetConstraints()
	memory := "no limit of its own"
	if k.MaxMemory != nil {
		memory = fmt.Sprintf("%d MB", k.GetMaxMemory())
	}
	return fmt.Sprintf("script executor in %s, max_execution_time %d s, max_memory %s, network_access %t, working_directory %s",
		c.GetBaseDir(), k.GetMaxExecutionTime(), memory, k.GetNetworkAccess(), k.GetWorkingDirectory())
}
