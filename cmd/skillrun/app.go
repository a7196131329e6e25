package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	skillrun "github.com/skillrun/skillrun/clients/go"
)

// addressVariable names the environment variable with the daemon's address.
const addressVariable = "SKILLRUN_ADDRESS"

// app is one call of the command: its streams and the flags of every command. Tests make one
// with buffers for the streams.
type app struct {
	// As given, before cobra parses them. Completion reads them again (flagBefore).
	args           []string // after the command's own name
	stdin          io.Reader
	stdout, stderr io.Writer

	// The persistent flags. cobra sets them before a RunE is called, and nothing changes them
	// later.
	address    string
	connection connection
	context    string // the name of one; empty: the current one
	json       bool
	verbose    bool
	wait       waiting

	flags      *pflag.FlagSet // these flags
	resolved   bool           // resolve was called
	elsewhere  bool           // a flag of the command itself has the address, as of skillrun mcp
	hasContext bool           // a context is used
	mcpAddress string         // of the context

	// What this command calls a field of its request, if not as the table fields does.
	words map[string]string
	// What this command advises after an error, by the error's reason.
	advice map[string]string
	// --queue-timeout of a run with --session-wait; 0: not given.
	waitedForSession time.Duration
}

// An interrupt is the cause of a context that a signal ended. SIGINT and SIGTERM both cancel.
// They differ in the word of the message and in the exit code, which is 128+N as a shell has it
// for a process that died of signal N.
type interrupt struct{ signal syscall.Signal }

func (i *interrupt) Error() string {
	if i.signal == syscall.SIGINT {
		return "interrupted"
	}
	return "terminated"
}

// code is the exit code of a command that was interrupted.
func (i *interrupt) code() int { return 128 + int(i.signal) }

// run executes the command and returns the exit code. The first SIGINT or SIGTERM ends ctx,
// which cancels the execution; the second one returns without waiting for that. run is main
// without the process, so that tests can call it.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, end := context.WithCancelCause(traceOf(ctx))
	defer end(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)

	a := &app{args: args, stdin: stdin, stdout: stdout, stderr: stderr}
	// Room for one: the goroutine ends even if a second signal has returned before.
	code := make(chan int, 1)
	go func() { code <- a.exit(ctx, a.root().run(ctx, args)) }()
	for interrupted := false; ; interrupted = true {
		select {
		case c := <-code:
			return c
		// Go's runtime does not end the process for a signal that Notify has taken over
		// (os/signal), so this loop must.
		case s := <-signals:
			cause := &interrupt{s.(syscall.Signal)}
			if interrupted {
				return cause.code()
			}
			end(cause)
		}
	}
}

// root is the command line's tree.
type root struct{ *cobra.Command }

func (r root) run(ctx context.Context, args []string) error {
	r.SetArgs(args)
	// cobra's command completion prints its help for a shell that it does not know, and exits with 0.
	r.InitDefaultCompletionCmd(args...)
	if completion, _, err := r.Find([]string{"completion"}); err == nil {
		completion.Args = cobra.ArbitraryArgs
		completion.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return usage(cmd, fmt.Errorf("no completion for %q; there is one for bash, zsh, fish and powershell", args[0]))
		}
	}
	return r.ExecuteContext(ctx)
}

// root builds the tree anew for each app: the flags point into a, so two apps share nothing.
func (a *app) root() root {
	// Not cobra's Version: its template needs text/template, for which the linker keeps every exported method, 3 MB.
	var onlyVersion bool
	cmd := &cobra.Command{
		Use:   "skillrun",
		Short: "Run the scripts of agent skills in sandboxes",
		Long: `skillrun runs the scripts of agent skills in sandboxes, through a skillrund daemon.

Exit codes of run and attach:
  the program's own; 128+N if signal N ended it; 124 if it timed out;
  125 if the daemon or this command failed (the program's end is not known), or if
  the session did not get the changes of a program that succeeded,
  126 if the request was refused, 127 if the skill, script or interpreter is missing.
Other commands: 0, or 125 to 127 in the same sense; bench, doctor and validate
  exit with 1 if they find a problem, tool call if the tool failed.

If the daemon restarts, all commands but doctor and version wait for it (--wait).
They do not repeat a request that may have had an effect.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if onlyVersion {
				_, err := fmt.Fprintln(a.stdout, cmd.Name(), version)
				return err
			}
			return cmd.Help()
		},
	}
	cmd.SetIn(a.stdin)
	cmd.SetOut(a.stdout)
	cmd.SetErr(a.stderr)
	// Subcommands inherit this function; so every mistake in a flag has the same form and exit
	// code.
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, flagError(err)) })
	flags := cmd.PersistentFlags()
	flags.StringVar(&a.address, "address", os.Getenv(addressVariable), "daemon's `address`: unix:///path or host:port (default $"+addressVariable+", else "+skillrun.DefaultAddress+")")
	a.flags = flags
	flags.StringVar(&a.context, "context", os.Getenv(contextVariable), "`name` of a context, see skillrun context (default $"+contextVariable+", else the current one)")
	flags.Lookup("context").DefValue = ""
	a.connection.flags(flags)
	flags.BoolVar(&a.json, "json", false, "print JSON, one object a line")
	flags.BoolVarP(&a.verbose, "verbose", "v", false, "say more on stderr")
	a.wait.add(flags)
	cmd.Flags().BoolVar(&onlyVersion, "version", false, "print the version of this client and exit")
	completeWith(cmd, "context", completeContext)
	// An address in the environment is no default to be shown. Help would print the variable's
	// value as if it were built in.
	flags.Lookup("address").DefValue = ""
	cmd.AddCommand(
		a.runCommand(), a.attachCommand(), a.psCommand(), a.showCommand(), a.cancelCommand(), a.deleteCommand(),
		a.signalCommand(), a.artifactsCommand(), a.skillsCommand(), a.pushCommand(), a.activateCommand(),
		a.validateCommand(), a.prepareCommand(), a.checkCommand(), a.toolCommand(), a.tenantsCommand(), a.budgetCommand(), a.sessionCommand(), a.doctorCommand(), a.mcpCommand(), a.contextCommand(), a.benchCommand(), a.surveyCommand(), a.versionCommand(),
	)
	return root{cmd}
}

// dial returns a client of the daemon that the flags or the context name. It does not connect: the first call
// does, waits as --wait says, and its error says that no daemon answers. The caller closes the client.
func (a *app) dial() (*skillrun.Client, error) { return a.dialWith(a.progress(false)) }

// withClient returns a RunE that calls f with a client of the daemon, and closes the client.
func (a *app) withClient(f func(cmd *cobra.Command, args []string, c *skillrun.Client) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.dial()
		if err != nil {
			return err
		}
		defer c.Close()
		return f(cmd, args, c)
	}
}

// dialNow is dial for a command that asks whether a daemon answers. It waits only if the user gives --wait.
func (a *app) dialNow() (*skillrun.Client, error) {
	if !a.flags.Changed("wait") {
		a.wait.most = 0
	}
	return a.dial()
}

// dialWith is dial for a command that draws progress bars, which a message must not break.
func (a *app) dialWith(bars *progress) (*skillrun.Client, error) {
	if err := a.resolve(); err != nil {
		return nil, err
	}
	opts, err := a.connection.options()
	if err != nil {
		return nil, err
	}
	a.warnExposed(a.connection.tokenFile)
	c, err := skillrun.Dial(a.address, append(opts, a.patience(bars))...)
	if errors.Is(err, skillrun.ErrTokenInClear) {
		err = fmt.Errorf("%w; give --tls or --tls-ca", err)
	}
	return c, err
}

// at is the daemon's address, for people, once resolve was called.
func (a *app) at() string { return addressText(a.address) }

// note writes one line about what happened to stderr. It is for facts that are not the result. A
// command that fails returns an error instead, so that the message is printed once. An error of
// stderr is ignored: there is nowhere to report it.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.stderr, "skillrun: %s\n", printable(fmt.Sprintf(format, args...)))
}

// usageError is a command line that can't be understood. Its exit code is 125, as for every
// mistake of this side (errorCode).
type usageError struct {
	command string
	err     error
}

func (e *usageError) Error() string {
	return fmt.Sprintf("%v (see '%s --help')", e.err, e.command)
}

// usage makes an error a mistake in the command line, whose text names the command with --help.
func usage(cmd *cobra.Command, err error) error {
	return &usageError{command: cmd.CommandPath(), err: err}
}

// wantedValues says what is right for a flag, by pflag's name for the type of its value. Other types have
// an error of this package, which says so itself.
var wantedValues = map[string]string{
	"uint32":   "want a whole number, 0 to 4294967295",
	"uint64":   "want a whole number, 0 or more",
	"int":      "want a whole number",
	"duration": "want a time such as 250ms, 30s or 1m30s",
	"bool":     "want true or false",
}

// flagError replaces pflag's message about a wrong value, which names functions of Go's library.
func flagError(err error) error {
	invalid := (*pflag.InvalidValueError)(nil)
	if !errors.As(err, &invalid) {
		return err
	}
	flag := invalid.GetFlag()
	want := wantedValues[flag.Value.Type()]
	if slices.Contains(positiveFlags, flag.Name) {
		want = strings.Replace(want, "0 to", "1 to", 1)
	}
	if want == "" {
		want = invalid.Unwrap().Error()
	}
	return fmt.Errorf("--%s %s: %s", flag.Name, quote(invalid.GetValue()), want)
}

// noArgs is cobra.NoArgs. Of a command without subcommands it does not say that an argument is an unknown one.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || cmd.HasAvailableSubCommands() {
		return cobra.NoArgs(cmd, args)
	}
	return fmt.Errorf("%s takes no arguments, but got %q", cmd.CommandPath(), args[0])
}

// needs checks the number of arguments, by their names. A name in brackets may be left out, and one with "..." may
// have several arguments.
func needs(names ...string) cobra.PositionalArgs {
	var required []string
	most := len(names)
	for _, name := range names {
		if strings.Contains(name, "...") {
			most = math.MaxInt
		}
		if !strings.HasPrefix(name, "[") {
			required = append(required, strings.TrimSuffix(name, "..."))
		}
	}
	return func(cmd *cobra.Command, args []string) error {
		command := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ") // every message begins with the root's name
		switch {
		case len(args) < len(required):
			return fmt.Errorf("%s needs %s", command, wordList(required))
		case len(args) > most:
			return fmt.Errorf("%s takes only %s, but got %q as well", command, wordList(names), args[most])
		}
		return nil
	}
}

// wordList writes "A", "A and B" or "A, B and C".
func wordList(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// arguments makes the mistakes in the number of arguments usage errors.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usage(cmd, err)
		}
		return nil
	}
}
