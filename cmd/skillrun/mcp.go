package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skillrun/skillrun/internal/mcp/bridge"
)

// mcpVariable names the environment variable with the address of the daemon's MCP
// endpoint.
const mcpVariable = "SKILLRUN_MCP_ADDRESS"

// mcpCommand is a bridge: the daemon implements MCP. The file mcp_endpoint.go finds and connects to the daemon, and
// package bridge forwards the messages, over restarts of the daemon.
func (a *app) mcpCommand() *cobra.Command {
	address := os.Getenv(mcpVariable)
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Speak MCP on standard input and output, for agents that start a process",
		Long: `Mcp connects an agent that speaks the Model Context Protocol over a pipe with the
daemon: one JSON-RPC message a line, both ways. An agent's configuration names it
as

  {"mcpServers": {"skillrun": {"command": "skillrun", "args": ["mcp"]}}}

If the daemon restarts, the conversation goes on with the next daemon, with the
same session of files. A call whose answer is lost is not made twice: it gets an
error, unless it only reads. --wait says how long a request waits for a daemon.

When standard input ends it waits a moment for the last answers, cancels the calls
that still run, and ends. Without --mcp-address the endpoint is the one of the
context, or mcp.sock in the directory of the socket of --address.`,
		Args: arguments(noArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			named := cmd.Flags().Changed("mcp-address")
			a.elsewhere = named
			if err := a.resolve(); err != nil {
				return err
			}
			if a.hasContext && !named {
				address = a.mcpAddress
			}
			a.warnExposed(a.connection.tokenFile)
			at, err := mcpAddress(address, a.at())
			if err != nil && a.hasContext && address == "" {
				err = fmt.Errorf("the context has no address for MCP: skillrun context set NAME --mcp-address HOST:PORT adds it")
			}
			if err != nil {
				return usage(cmd, err)
			}
			if strings.HasPrefix(address, "https://") {
				a.connection.tls = true
			}
			return a.bridge(cmd.Context(), at)
		},
	}
	cmd.Flags().StringVar(&address, "mcp-address", address, "`address` of the daemon's MCP endpoint: unix:///path or host:port; https://host:port implies --tls (default $"+mcpVariable+")")
	cmd.Flags().Lookup("mcp-address").DefValue = ""
	return cmd
}

// bridge connects standard input and output with the daemon, until one of them ends.
func (a *app) bridge(ctx context.Context, at endpoint) error {
	name := rand.Text() // of the conversation
	p := a.wait.patience()
	return bridge.Run(ctx, bridge.Config{
		Connect: func(ctx context.Context) (*bridge.Connection, error) {
			return at.dial(ctx, &a.connection, name, p.Draining)
		},
		Patience: p, OnWait: func(answered bool) { a.waits(nil, at.String(), answered) },
		At: at.String(), Note: a.note, Stdin: a.stdin, Stdout: a.stdout,
	})
}
