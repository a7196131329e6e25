package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	skillrun "github.com/skillrun/skillrun/clients/go"
)

// A program is the script, code or command line that run's arguments name. Exactly one of script
// and line is set; both are empty for code, whose text is in runFlags.
type program struct {
	// The skill's name, or name@digest.
	skill  string
	script string
	// A command line for allowed-tools (commandLine).
	line string
	// For a script or code; a command line has its arguments in line.
	args []string
}

// parse reads the arguments of run. Flags may stand before and after SKILL; words after the
// script belong to the program. Nil means that help was printed. It calls flags.Parse a second
// time, on the words after SKILL. It must run before any flag is read.
func (f *runFlags) parse(cmd *cobra.Command, args []string) (*program, error) {
	flags := cmd.Flags()
	// A "--" before SKILL must not count as the one before COMMAND.
	if flags.ArgsLenAtDash() >= 0 {
		if !strings.HasPrefix(args[0], "-") {
			return nil, usage(cmd, errors.New("-- must follow SKILL"))
		}
		// The "--" was for the skill's name. Parse keeps it until Init.
		flags.Init(cmd.DisplayName(), pflag.ContinueOnError)
	}
	p := &program{skill: args[0]}
	if p.skill == "" {
		return nil, usage(cmd, errors.New("SKILL is empty"))
	}
	rest := args[1:]
	if len(rest) > 0 {
		if err := flags.Parse(rest); err != nil {
			return nil, usage(cmd, flagError(err))
		}
		rest = flags.Args()
	}
	if help, err := flags.GetBool("help"); err == nil && help {
		return nil, cmd.Help()
	}
	dash := flags.ArgsLenAtDash() >= 0
	switch {
	case flags.Changed("code"):
		p.args = rest
	case len(rest) == 0:
		return nil, usage(cmd, errors.New("nothing to run: give a script, -c CODE or -- COMMAND"))
	case dash:
		p.line = commandLine(rest)
	default:
		p.script, p.args = rest[0], rest[1:]
	}
	if !flags.Changed("code") && p.line == "" && p.script == "" {
		return nil, usage(cmd, errors.New("the script or command is empty"))
	}
	if flags.Changed("language") && !flags.Changed("code") {
		return nil, usage(cmd, errors.New("--language goes with -c"))
	}
	if err := positive(cmd); err != nil {
		return nil, err
	}
	return p, f.check(cmd)
}

// positiveFlags have no 0: the daemon would take it for "not set".
var positiveFlags = []string{"timeout", "cpu-time", "queue-timeout", "processes", "workspace-files", "open-files", "max-files", "idle-ttl", "ttl"}

// positive refuses values that the daemon would take for "not set".
func positive(cmd *cobra.Command) error {
	for _, name := range positiveFlags {
		flag := cmd.Flags().Lookup(name)
		if flag == nil || !flag.Changed {
			continue
		}
		if value := flag.Value.String(); value == "0" || value == "0s" || value[0] == '-' {
			return usage(cmd, fmt.Errorf("--%s %s: must be more than 0", name, value))
		}
	}
	return nil
}

// on returns the command for p. Its other fields are set by runFlags.command.
func (p *program) on(c *skillrun.Client, f *runFlags) *skillrun.Cmd {
	switch {
	case p.line != "":
		return c.Command(p.skill, p.line)
	case p.script != "":
		return c.Script(p.skill, p.script, p.args...)
	}
	return c.Code(p.skill, f.language, f.code, p.args...)
}
