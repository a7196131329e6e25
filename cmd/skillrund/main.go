// Skillrund runs the scripts of agent skills in sandboxes and streams their output over gRPC.
// See docs/operating.md.
//
// Theory of operation. run reads the whole configuration and reports the mistakes in its form
// (decode.go) and its values (validate.go) together. If it finds no mistake, inspect.go compares the
// configuration with this machine; --check reports all three together, and compares the configuration
// with the configuration of a running daemon (changed.go). sandbox.Isolate executes the program again, so everything
// before it runs twice and everything after it once.
//
// serve (daemon.go) locks the state directory and makes the parts in the order in which they
// need each other. The boundaries of sandboxes are probed while the next parts start; no
// script and no program of an image runs before judge has the result. The sockets come last:
// a client that can connect finds a daemon that can answer.
//
// If a boundary is missing, the daemon still serves, says NOT_SERVING, refuses executions and
// answers GetCapabilities, so that `skillrun doctor` can name the boundary.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/skillrun/skillrun/sandbox"
)

func main() {
	flags := flag.NewFlagSet("skillrund", flag.ContinueOnError)
	path := flags.String("config", "", "configuration `file` (YAML); without it, the daemon uses the defaults")
	check := flags.Bool("check", false, "check the configuration and the paths in it, compare it with that of a running daemon, print every error, warning and note and exit")
	try := flags.Bool("doctor", false, "test every boundary of this machine, print the results and exit")
	version := flags.Bool("version", false, "print the version and exit")
	switch err := parseFlags(flags, os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Printf("Usage of skillrund:\n%s%s\n%s\n", flagUsage(flags), tokenUsage, auditUsage)
		return
	case err != nil:
		fmt.Fprintf(os.Stderr, "skillrund: %v; see --help\n", err)
		os.Exit(2)
	}
	if err := run(flags.Args(), *path, *check, *try, *version); err != nil {
		fmt.Fprintf(os.Stderr, "skillrund: %v\n", err)
		os.Exit(1)
	}
}

// An offlineCommand needs no daemon.
type offlineCommand struct {
	usage string
	run   func(c config, args []string, out, notes io.Writer) error
}

var commands = map[string]*offlineCommand{
	"audit": {auditUsage, auditCommand},
	"token": {tokenUsage, tokenCommand},
}

// run returns an error for exit code 1. Of version, a command, check and try, only the first
// one that is set has an effect, in the order of the code.
func run(args []string, path string, check, try, version bool) error {
	var chosen *offlineCommand
	if len(args) > 0 {
		if chosen = commands[args[0]]; chosen == nil {
			if _, err := os.Stat(args[0]); err == nil && path == "" {
				return fmt.Errorf("%q is a file, not a command; write --config %s", args[0], args[0])
			}
			return fmt.Errorf("%q: the commands are audit and token; see --help", args[0])
		}
		if slices.ContainsFunc(args, func(arg string) bool { return arg == "-h" || arg == "-help" || arg == "--help" }) {
			fmt.Println(chosen.usage)
			return nil
		}
	}
	if version {
		fmt.Println("skillrund", buildVersion())
		return nil
	}
	c, found, err := readConfig(path)
	if err != nil {
		return err
	}
	if chosen != nil {
		// A mistake of a tenant must not keep an operator from revoking a token.
		if err := found.ofDaemon(); err != nil {
			return err
		}
		return chosen.run(c, args[1:], os.Stdout, os.Stderr)
	}
	program, err := findProgram()
	if err != nil {
		return err
	}
	if check {
		c.inspect(context.Background(), program, found.bad)
		c.printWarnings(os.Stderr, found)
		if found.ofDaemon() == nil {
			c.printChanged(os.Stderr)
		}
		return found.err()
	}
	if err := found.err(); err != nil {
		return err
	}
	if try {
		return doctor(c, os.Stdout)
	}
	if err := os.Setenv(arenasVar, "1"); err != nil {
		return err
	}
	// Isolate executes this program a second time, so nothing may be started or opened
	// before it.
	if err := sandbox.Isolate(); err != nil {
		return explainMachine(c, os.Stderr, err)
	}
	if err := errors.Join(os.Unsetenv(programVar), os.Unsetenv(arenasVar)); err != nil {
		return err
	}
	c.inspect(context.Background(), program, found.bad)
	if err := found.err(); err != nil {
		return err
	}
	if path != "" { // the daemon reads the tenants again
		if path, err = filepath.Abs(path); err != nil {
			return err
		}
	}
	return serve(c, path, program)
}
