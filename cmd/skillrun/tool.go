package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// maxToolArguments bounds the arguments that tool call reads from standard input: the daemon's
// default bound on a message.
const maxToolArguments = 16 << 20

// toolCommand calls function tools as a model does.
// It shows authors of skills how a model sees the tools.
func (a *app) toolCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tool",
		Short: "List or call the function tools that models have",
		Args:  arguments(noArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	list := &cobra.Command{
		Use:   "list",
		Short: "List the function tools",
		Long: `List prints the name and the description of each tool. With --json it prints the
definitions that platforms take, {"type": "function", "function": {...}}, one a line.`,
		Args: arguments(noArgs),
		RunE: a.withClient(func(cmd *cobra.Command, _ []string, c *skillrun.Client) error { return a.listTools(cmd.Context(), c) }),
	}
	call := &cobra.Command{
		Use:   "call TOOL [ARGUMENTS]",
		Short: "Call a function tool with JSON arguments",
		Long: `Call passes ARGUMENTS, a JSON object, to a tool and prints the text that a model
would get. With - the arguments are read from standard input.

  skillrun tool call list_skills '{"query": "pdf"}'
  skillrun tool call run_skill_script '{"skill": "calculator", "script_path": "scripts/calc.py", "args": ["2 + 2"]}'

It exits with 1 if the call failed: the text then says why. With --json it prints
the whole result. With -v the program's output appears on stderr while it runs.`,
		Args: arguments(needs("TOOL", "[ARGUMENTS]")),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, c *skillrun.Client) error {
			request := &pb.CallToolRequest{Name: args[0]}
			if len(args) == 2 {
				request.ArgumentsJson = args[1]
			}
			if request.ArgumentsJson == "-" {
				text, err := io.ReadAll(io.LimitReader(a.stdin, maxToolArguments+1))
				if err != nil {
					return fmt.Errorf("arguments: %w", err)
				}
				if len(text) > maxToolArguments {
					return usage(cmd, fmt.Errorf("arguments: more than %d bytes", maxToolArguments))
				}
				request.ArgumentsJson = string(text)
			}
			return a.callTool(cmd.Context(), c, request)
		}),
	}
	cmd.AddCommand(list, call)
	return cmd
}

// listTools prints the first sentence of each description; --json has all of it.
func (a *app) listTools(ctx context.Context, c *skillrun.Client) error {
	r, err := c.Tools().ListTools(ctx, &pb.ListToolsRequest{})
	if err != nil {
		return err
	}
	t := &table{}
	for _, tool := range r.GetTools() {
		if a.json {
			if _, err := io.WriteString(a.stdout, printableJSON(tool.GetDefinitionJson()+"\n")); err != nil {
				return err
			}
			continue
		}
		first, _, _ := strings.Cut(tool.GetDescription(), ". ")
		t.add(cell{text: tool.GetName()}, cell{text: strings.TrimSuffix(first, ".")})
	}
	return a.print(t)
}

// callTool prints the result of a call.
// Output comes while the program runs, the result comes last. The result repeats the text for the
// model, so output is printed for -v only, and to stderr.
func (a *app) callTool(ctx context.Context, c *skillrun.Client, request *pb.CallToolRequest) error {
	stream, err := c.Tools().CallTool(ctx, request)
	if err != nil {
		return err
	}
	output := &pieces{to: a.stderr}
	for {
		m, err := stream.Recv()
		if err != nil || m.GetResult() != nil {
			output.flush()
		}
		if errors.Is(err, io.EOF) {
			return errors.New("protocol: the stream ended without a result")
		}
		if err != nil {
			return err
		}
		if o := m.GetOutput(); o != nil && a.verbose {
			if err := output.write(o); err != nil {
				return err
			}
		}
		if r := m.GetResult(); r != nil {
			return a.printResult(r)
		}
	}
}

// printResult prints the text of a result, or the whole with --json. A call that failed is an exit
// code, too.
func (a *app) printResult(r *pb.ToolResult) error {
	if err := a.printContent(r); err != nil {
		return err
	}
	if r.GetIsError() {
		return verdict(1)
	}
	return nil
}

func (a *app) printContent(r *pb.ToolResult) error {
	if a.json {
		return a.printJSON(r)
	}
	text := r.GetContent()
	if terminal(a.stdout) {
		text = printableText(text) // a file gets the text unchanged
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	_, err := io.WriteString(a.stdout, text)
	return err
}
