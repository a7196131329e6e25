package toolview

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/permission"
)

// A row is a function tool: its description for models and its implementation.
type row struct {
	Tool
	reads   bool // runs no program, and changes nothing
	session sessionUse
	call    func(ctx context.Context, v *View, c call) (Result, error)
}

// A ToolCall is a call of a function tool.
type ToolCall struct {
	Who  permission.Principal
	Tool string
	// Arguments are a JSON object as text, or nothing for {}.
	Arguments json.RawMessage
	// Sink receives the output of the tool's program.
	Sink Sink
	// Conversation has the session of files that the calls of one agent share. Nil: the call shares none.
	Conversation *Conversation
}

// A call is a ToolCall whose arguments fit the schema.
type call struct {
	ToolCall
	session string   // ID of the session of files; empty: none
	notes   []string // warnings about the session
}

// MaxToolOutput bounds each output stream in the result of a function tool, in bytes. It is
// more than a model reads. It is small enough that a result fits into a message of 4 MiB, even
// if each byte needs six characters (\u0000): two streams then have 3 MiB. The sink, and every
// client that attaches to the execution, gets all output.
const MaxToolOutput = 256 << 10

// table lists every tool in the order in which models see them: tools that find a skill
// first, then tools that run one.
var table = []row{
	listSkillsTool,
	activateSkillTool,
	readSkillFileTool,
	runSkillScriptTool,
	bashTool,
	checkCommandTool,
	runPythonScriptTool,
	runPythonTool,
	writeFileTool,
	readFileTool,
	listFilesTool,
}

// An UnknownToolError reports a call of a tool that does not exist.
type UnknownToolError struct{ Name string }

func (e *UnknownToolError) Error() string {
	var names []string
	for _, t := range (*View)(nil).Tools() {
		names = append(names, t.Name)
	}
	return fmt.Sprintf("there is no tool %.80q; the tools are %s", e.Name, strings.Join(names, ", "))
}

// OnlyReads reports whether a tool runs no program and changes nothing. It is false for a tool that does not exist.
func OnlyReads(name string) bool {
	return slices.ContainsFunc(table, func(r row) bool { return r.Name == name && r.reads })
}

// Tools returns the function tools, always in the same order. The caller must not change
// them.
func (v *View) Tools() []Tool {
	tools := make([]Tool, len(table))
	for i, r := range table {
		tools[i] = r.Tool
	}
	return tools
}

// Call runs a tool with a model's arguments.
//
// A problem that the model can act on is a Result with IsError: a program that failed, an
// unknown skill, a refused command. An error is an *UnknownToolError, an *ArgumentsError,
// or says that nothing ran for a reason beyond the model: no room, draining, a caller that
// went away, an internal failure.
func (v *View) Call(ctx context.Context, t ToolCall) (Result, error) {
	i := slices.IndexFunc(table, func(r row) bool { return r.Name == t.Tool })
	if i < 0 {
		return Result{}, &UnknownToolError{Name: t.Tool}
	}
	r := table[i]
	checked, err := checkArguments(r.Tool, t.Arguments)
	if err != nil {
		return Result{}, err
	}
	// From here on tools read the checked arguments only.
	c := call{ToolCall: t}
	c.Arguments = checked
	if err := v.enter(ctx, &c, r.session); refused(err) {
		return say("%s", err), nil
	} else if err != nil {
		return Result{}, err
	}
	return r.call(ctx, v, c)
}

// Definition returns the tool in the form that platforms take: {"type": "function",
// "function": {"name", "description", "parameters"}}.
func (t Tool) Definition() json.RawMessage {
	type function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	return dumps(struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}{"function", function{t.Name, t.Description, t.Parameters}})
}
