package toolview

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/permission"
)

// A row is a function tool: what a model is shown, and what a call does.
type row struct {
	Tool
	call func(ctx context.Context, v *View, c call) (Result, error)
}

// A call is one call of a tool, its arguments checked against the schema.
type call struct {
	who       permission.Principal
	arguments json.RawMessage
	sink      Sink
}

// MaxToolOutput bounds what the result of a function tool has of each output
// stream, in bytes: more than a model reads, and little enough that the result,
// where six characters may stand for one byte, fits into a message of 4 MiB. The
// sink gets everything, and so does whoever attaches to the execution.
const MaxToolOutput = 256 << 10

// table has every tool, in the order in which models are shown them: first what
// finds a skill, then what runs one.
var table = []row{
	listSkillsTool,
	activateSkillTool,
	readSkillFileTool,
	runSkillScriptTool,
	bashTool,
	runPythonScriptTool,
	runPythonTool,
}

// An UnknownToolError is a call of a tool that is not there.
type UnknownToolError struct{ Name string }

func (e *UnknownToolError) Error() string {
	var names []string
	for _, t := range (*View)(nil).Tools() {
		names = append(names, t.Name)
	}
	return fmt.Sprintf("there is no tool %.80q; the tools are %s", e.Name, strings.Join(names, ", "))
}

// Tools returns the function tools, always the same ones in the same order. What
// they hold must not be changed.
func (v *View) Tools() []Tool {
	tools := make([]Tool, len(table))
	for i, r := range table {
		tools[i] = r.Tool
	}
	return tools
}

// Call runs a tool with the arguments that a model gave: the text of a JSON
// object, or nothing for {}. sink gets what the tool's program prints.
//
// What a model can act on is a Result with IsError: a program that failed, a
// skill that is not there, a command that is not allowed. An error is an
// *UnknownToolError, an *ArgumentsError, or says that nothing ran for a reason that
// is not the model's: no room, draining, the caller gone, a failure of ours.
func (v *View) Call(ctx context.Context, who permission.Principal, name string, arguments json.RawMessage, sink Sink) (Result, error) {
	i := slices.IndexFunc(table, func(r row) bool { return r.Name == name })
	if i < 0 {
		return Result{}, &UnknownToolError{Name: name}
	}
	r := table[i]
	checked, err := checkArguments(r.Tool, arguments)
	if err != nil {
		return Result{}, err
	}
	return r.call(ctx, v, call{who: who, arguments: checked, sink: sink})
}

// Definition is the tool as platforms take it: {"type": "function", "function":
// {"name", "description", "parameters"}}.
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
