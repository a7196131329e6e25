package main

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"

	skillrun "github.com/skillrun/skillrun/clients/go"
)

// contextCommand has the commands for the file of contexts. They make no call to a daemon.
func (a *app) contextCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context",
		Short: "Name daemons and credentials, and choose one",
		Long: `A context is a name for a daemon's address and the credentials for it. Contexts are
in a file of the user, contexts.yaml in the directory skillrun of the user's
configuration (on Linux ~/.config), or the file in $SKILLRUN_CONTEXT_FILE.

  skillrun context set prod --address skillrun.example.org:7878 --tls-ca ca.crt \
    --token-file ~/.skillrun-token
  skillrun context use prod
  skillrun run calculator scripts/calc.py '6*7'

Each command and skillrun mcp use the context of --context, else of $SKILLRUN_CONTEXT,
else the current one. Other flags win over the context. So that credentials do not go
to another daemon, --address without --context means no context, and $SKILLRUN_ADDRESS
means no current context. The other variables, such as $SKILLRUN_TOKEN_FILE, count only
if no context is used. --context '' means none.

The file has no secrets. A token comes from a file, from an environment variable, or
from a command, which skillrun runs without a shell:

  skillrun context set prod -- vault read -field=token secret/skillrun`,
		Args: arguments(noArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.contextList(), a.contextUse(), a.contextSet(), a.contextShow(), a.contextDelete())
	return cmd
}

// contextList prints to stdout, for scripts: with --json one object a line. It shows no token:
// the file has no secrets.
func (a *app) contextList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the contexts; the current one has a star",
		Args:  arguments(noArgs),
		RunE: func(*cobra.Command, []string) error {
			f, err := readContexts()
			if err != nil {
				return err
			}
			t := &table{}
			t.header("", "NAME", "ADDRESS", "CREDENTIAL")
			for _, name := range slices.Sorted(maps.Keys(f.Contexts)) {
				c, star := f.Contexts[name], ""
				if name == f.Current {
					star = "*"
				}
				if a.json {
					if err := a.printJSONValue(listedContext{name, name == f.Current, c}); err != nil {
						return err
					}
					continue
				}
				t.add(plain(star, name, addressText(c.Address), c.credential())...)
			}
			if a.json {
				return nil
			}
			return a.print(t)
		},
	}
}

// listedContext is a context in JSON.
// The fields of target appear next to name and current, not in an object within.
type listedContext struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	*target
}

// addressText returns the address that a command would use. A context without one means the
// default.
func addressText(address string) string {
	if address == "" {
		return skillrun.DefaultAddress
	}
	return address
}

// contextUse refuses a name that does not exist, so that commands do not fail later.
func (a *app) contextUse() *cobra.Command {
	return &cobra.Command{
		Use:               "use NAME",
		Short:             "Make a context the current one",
		Args:              arguments(needs("NAME")),
		ValidArgsFunction: completeContext,
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := readContexts()
			if err != nil {
				return err
			}
			if _, err := f.named(args[0]); err != nil {
				return err
			}
			f.Current = args[0]
			return f.write()
		},
	}
}

// Without NAME, contextShow answers which credentials the next command would send, and to which
// daemon.
func (a *app) contextShow() *cobra.Command {
	return &cobra.Command{
		Use:               "show [NAME]",
		Short:             "Show a context; without NAME the one that a command would use",
		Args:              arguments(needs("[NAME]")),
		ValidArgsFunction: completeContext,
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := readContexts()
			if err != nil {
				return err
			}
			name := ""
			if len(args) > 0 {
				name = args[0]
			} else if name = a.contextInUse(f); name == "" {
				return errors.New("no context is used; 'skillrun context use NAME' chooses one")
			}
			c, err := f.named(name)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSONValue(listedContext{name, name == f.Current, c})
			}
			text, err := yaml.Marshal(map[string]*target{name: c})
			if err != nil {
				return err
			}
			_, err = a.stdout.Write(text)
			return err
		},
	}
}

// After the current context is deleted, no other takes its place: commands would go to another
// daemon without a word.
func (a *app) contextDelete() *cobra.Command {
	return &cobra.Command{
		Use:               "delete NAME",
		Short:             "Remove a context from the file",
		Args:              arguments(needs("NAME")),
		ValidArgsFunction: completeContext,
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := readContexts()
			if err != nil {
				return err
			}
			if _, err := f.named(args[0]); err != nil {
				return err
			}
			delete(f.Contexts, args[0])
			if f.Current == args[0] {
				f.Current = ""
				a.note("%s was the current context; now there is none", args[0])
			}
			return f.write()
		},
	}
}

// The flags of the connection (--address, --tls-*, --token-file) belong to all commands. Here they
// are the values to store.
func (a *app) contextSet() *cobra.Command {
	var mcpAddress, variable string
	cmd := &cobra.Command{
		Use:   "set NAME [--address ADDRESS] [--tls-ca FILE ...] [--token-file FILE | --token-variable NAME | -- TOKEN-COMMAND...]",
		Short: "Make a context, or change what the flags name",
		Long: `Set makes a context, or changes an existing one: only what the flags name changes, and
an empty value removes it. A token has one source, so a new one replaces the old one.
Paths become absolute. Variables such as $SKILLRUN_ADDRESS do not count here.`,
		Args:              arguments(needs("NAME", "[TOKEN-COMMAND...]")),
		ValidArgsFunction: completeContext,
		RunE: func(cmd *cobra.Command, args []string) error {
			var command []string
			// cobra takes the -- out of the arguments and reports its position, -1 without one.
			if dash := cmd.ArgsLenAtDash(); dash >= 0 {
				args, command = args[:dash], args[dash:]
				if len(command) == 0 {
					return usage(cmd, errors.New("-- needs the command that prints a token"))
				}
			}
			if len(args) != 1 {
				return usage(cmd, errors.New("give one NAME; a command that prints a token comes after --"))
			}
			if err := contextName(args[0]); err != nil {
				return usage(cmd, err)
			}
			return a.setContext(cmd, args[0], command, mcpAddress, variable)
		},
	}
	cmd.Flags().StringVar(&mcpAddress, "mcp-address", "", "`address` of the daemon's MCP endpoint")
	cmd.Flags().StringVar(&variable, "token-variable", "", "`name` of an environment variable with a token")
	return cmd
}

// setContext changes one context. The values come from the flags that are on the command line.
// An empty flag that is on the command line removes the value, so only Changed can tell what to
// keep.
func (a *app) setContext(cmd *cobra.Command, name string, command []string, mcpAddress, variable string) error {
	flags := cmd.Flags()
	if count(flags.Changed("token-file"), flags.Changed("token-variable"), command != nil) > 1 {
		return usage(cmd, errors.New("a token has one source: --token-file, --token-variable, or a command after --"))
	}
	f, err := readContexts()
	if err != nil {
		return err
	}
	t := f.Contexts[name]
	if t == nil {
		t = &target{}
	}
	files := &a.connection.files
	for _, v := range []struct {
		flag  string
		to    *string
		value string
		path  bool
	}{
		{"address", &t.Address, a.address, false},
		{"mcp-address", &t.MCPAddress, mcpAddress, false},
		{"tls-ca", &t.TLSCA, files.CA, true},
		{"tls-cert", &t.TLSCert, files.Certificate, true},
		{"tls-key", &t.TLSKey, files.Key, true},
		{"tls-server-name", &t.TLSServerName, files.ServerName, false},
	} {
		if !flags.Changed(v.flag) {
			continue
		}
		if *v.to = v.value; v.path {
			if *v.to, err = absolute(v.value); err != nil {
				return err
			}
		}
	}
	if flags.Changed("tls") {
		t.TLS = a.connection.tls
	}
	if err := a.setToken(t, flags, command, variable); err != nil {
		return err
	}
	// Other commands refuse these mistakes later. The file must not have them.
	// Dial does not connect: it only parses the address.
	if _, err := skillrun.Dial(t.Address); err != nil {
		return usage(cmd, err)
	}
	if (t.TLSCert == "") != (t.TLSKey == "") {
		return usage(cmd, errCertAndKey)
	}
	f.Contexts[name] = t
	return f.write()
}

// setToken replaces the source of the token, if there is a new one.
func (a *app) setToken(t *target, flags *pflag.FlagSet, command []string, variable string) (err error) {
	if !flags.Changed("token-file") && !flags.Changed("token-variable") && command == nil {
		return nil
	}
	t.TokenFile, t.TokenCommand, t.TokenVariable = "", command, variable
	if flags.Changed("token-file") {
		if t.TokenFile, err = absolute(a.connection.tokenFile); err == nil {
			a.warnExposed(t.TokenFile)
		}
	}
	return err
}

// absolute makes a path independent of the directory in which a command runs. Empty stays empty.
func absolute(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	return filepath.Abs(path)
}

// count returns how many of its arguments are true.
func count(set ...bool) (n int) {
	for _, s := range set {
		if s {
			n++
		}
	}
	return n
}

// completeContext offers the names of contexts.
func completeContext(_ *cobra.Command, args []string, _ string) (words completions, then cobra.ShellCompDirective) {
	f, err := readContexts()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, name := range slices.Sorted(maps.Keys(f.Contexts)) {
		words = offer(words, name, addressText(f.Contexts[name].Address))
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}
