package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// buildTimeUnit is how exactly the time of a build is shown.
const buildTimeUnit = 10 * time.Millisecond

// prepareCommand makes one call, PrepareSkill, whose stream carries pip's output and then the
// environments. If the command is interrupted, the daemon ends the build unless another caller
// waits for it.
func (a *app) prepareCommand() *cobra.Command {
	var rebuild bool
	cmd := &cobra.Command{
		Use:   "prepare SKILL",
		Short: "Install the Python and Node packages that a skill needs, for its executions",
		Long: `Prepare makes the daemon build environments with the packages that a skill needs, from the
index, the wheels or the registry of the daemon's configuration. The output of pip and npm
goes to stderr, the result to stdout: for each environment the interpreter and the
digest, then one package a line. The Python packages have one environment, the Node
packages another, and each tool one more. The daemon does not build an environment that
exists already. Executions of the skill then use the environments, and never install
anything.`,
		Args: arguments(needs("SKILL")),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, c *skillrun.Client) error {
			stream, err := c.Skills().PrepareSkill(cmd.Context(), &pb.PrepareSkillRequest{Skill: args[0], Rebuild: rebuild})
			if err != nil {
				return fmt.Errorf("prepare %s: %w", args[0], err)
			}
			// Printed after the stream: pip's output and the result would otherwise mix on a terminal.
			var made []*pb.SkillEnvironment
			output := &pieces{to: a.stderr}
			for {
				r, err := stream.Recv()
				if err != nil {
					output.flush()
				}
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					return fmt.Errorf("prepare %s: %w", args[0], err)
				}
				// Results come last, after all output.
				if env := r.GetEnvironment(); env != nil {
					made = append(made, env)
				}
				if err := output.write(r.GetOutput()); err != nil {
					return err
				}
			}
			if len(made) == 0 {
				return fmt.Errorf("prepare %s: the daemon ended without a result", args[0])
			}
			for _, env := range made {
				if err := a.printEnvironment(args[0], env); err != nil {
					return err
				}
			}
			return nil
		}),
		ValidArgsFunction: a.completeSkill,
	}
	cmd.Flags().BoolVar(&rebuild, "rebuild", false, "build the environments again even if they exist")
	return cmd
}

// printEnvironment prints one result of a build. An empty digest means that the skill declares no
// packages, so there was nothing to build.
func (a *app) printEnvironment(name string, env *pb.SkillEnvironment) error {
	if a.json {
		return a.printJSON(env)
	}
	var t table
	if env.GetDigest() == "" {
		t.add(cell{text: name + ": needs no packages", colour: green})
		return a.print(&t)
	}
	how := fmt.Sprintf("built in %s", env.GetBuildTime().AsDuration().Round(buildTimeUnit))
	if env.GetReused() {
		how = "was there already"
	}
	interpreter := "Python " + env.GetPython()
	if node, ok := strings.CutPrefix(env.GetPython(), "node "); ok {
		interpreter = "Node.js " + node
	}
	t.add(cell{text: fmt.Sprintf("%s: prepared for %s, %s: %s", name, interpreter, how, env.GetDigest()), colour: green})
	for _, p := range env.GetPackages() {
		t.add(cell{text: p})
	}
	return a.print(&t)
}
