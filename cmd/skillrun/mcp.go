package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// lastAnswers is how long answers are waited for after the end of standard input: an
// agent that goes wants none, a pipe such as printf ... | skillrun mcp does.
const lastAnswers = 2 * time.Second

// mcpVariable names the environment variable with the address of the daemon's MCP
// endpoint.
const mcpVariable = "SKILLRUN_MCP_ADDRESS"

// mcpCommand is a bridge without state: it understands no message, and the daemon implements MCP.
// The file mcp_endpoint.go finds and connects to the daemon, mcp_forward.go copies the messages.
func (a *app) mcpCommand() *cobra.Command {
	address := os.Getenv(mcpVariable)
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Speak MCP on standard input and output, for agents that start a process",
		Long: `Mcp connects an agent that speaks the Model Context Protocol over a pipe with the
daemon: one JSON-RPC message a line, both ways. An agent's configuration names it
as

  {"mcpServers": {"skillrun": {"command": "skillrun", "args": ["mcp"]}}}

When standard input ends it waits a moment for the last answers, cancels what runs
then, and ends. Without --mcp-address
the endpoint is the one of the context, or mcp.sock beside the socket of --address.`,
		Args: arguments(cobra.NoArgs),
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
			return a.bridge(cmd.Context(), at)
		},
	}
	cmd.Flags().StringVar(&address, "mcp-address", address, "`address` of the daemon's MCP endpoint: unix:///path or host:port (default $"+mcpVariable+")")
	cmd.Flags().Lookup("mcp-address").DefValue = ""
	return cmd
}

// bridge forwards messages between standard input and output and the daemon, until one of them
// ends. It looks only at their ids and methods, so it serves every version of the protocol. A
// read of standard input can't be interrupted: its goroutine may outlive bridge, and ends with
// the process.
func (a *app) bridge(ctx context.Context, at endpoint) error {
	conn, err := at.dial(ctx, &a.connection)
	if err != nil {
		return err
	}
	defer conn.Close()
	// The deferred call of AfterFunc's result stops it. After an interrupt the closed connection ends both goroutines'
	// reads and writes.
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	open := newCalls()

	// Both channels have room for one, so that neither goroutine waits for a bridge that has
	// returned.
	toDaemon := make(chan error, 1)
	go func() {
		toDaemon <- forward(conn, a.stdin, open.begin, nil)
	}()
	toAgent := make(chan error, 1)
	go func() {
		toAgent <- forward(a.stdout, conn, nil, open.end)
	}()
	select {
	case err := <-toDaemon:
		if err == nil {
			// Standard input is over. The daemon sees the connection end, and ends what
			// still runs.
			select {
			case <-open.last():
			case err := <-toAgent:
				return a.lost(ctx, at, err, open)
			case <-time.After(lastAnswers):
			case <-ctx.Done():
			}
			return nil
		}
		if read := (*readError)(nil); errors.As(err, &read) {
			return read
		}
		// The connection broke. The receiving goroutine knows the reason better, and
		// has the daemon's last messages.
		err = <-toAgent
		return a.lost(ctx, at, err, open)
	case err := <-toAgent:
		return a.lost(ctx, at, err, open)
	}
}

// lost answers the requests that the daemon can't answer, and prints the reason. An agent would
// wait for these answers without a bound: JSON-RPC has no timeout. The error -32000 is in the
// range that JSON-RPC 2.0 leaves to implementations.
func (a *app) lost(ctx context.Context, at endpoint, err error, open *calls) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if write := (*writeError)(nil); errors.As(err, &write) {
		return write // the agent has gone, too
	}
	gone := &codedError{codeFailed, "the daemon at " + at.String() + " closed the connection: it stopped or restarts; what ran is cancelled. Start skillrun mcp again"}
	for _, answer := range open.answers(gone.text) {
		if _, err := a.stdout.Write(answer); err != nil {
			break
		}
	}
	return gone
}
