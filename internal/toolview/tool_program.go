package toolview

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// runSkillScriptTool is ExecuteScript for a model: the same result, with output of at most
// MaxToolOutput bytes for each stream.
var runSkillScriptTool = row{
	session: runsInSession,
	Tool: Tool{
		Name: "run_skill_script",
		Description: "Run a script of a skill, with command line arguments and with JSON arguments on its standard input. It runs in a sandbox; " +
			"files that it writes to its working directory are returned as artifacts and the skill itself stays unchanged.",
		Parameters: json.RawMessage(fmt.Sprintf(`{
  "type": "object",
  "properties": {
    "skill": {"type": "string", "description": "Name of the skill"},
    "script_path": {"type": "string", "description": "Path of the script in the skill, such as scripts/extract.py"},
    "arguments": {"type": "object", "description": "Passed to the script as JSON on standard input; {} if it is left out"},
    "timeout": {"type": "number", "minimum": 0.001, "maximum": %v, "description": "Seconds; the skill's own limit, or 30, if it is left out"},
    %s,
    %s,
    `+sessionProperty+`
  },
  "required": ["skill", "script_path"],
  "additionalProperties": false
}`, MaxScriptTimeout.Seconds(), argsProperty("the script"), filesProperty("the working directory, a copy of the skill's folder,"))),
		Output: json.RawMessage(`{
  "type": "object",
  "properties": {
    "exit_code": {"type": "integer", "description": "-N for signal N, 124 for a timeout"},
    "stdout": {"type": "string"},
    "stderr": {"type": "string"},
    "execution_time_ms": {"type": "number"},
    "script_path": {"type": "string"},
    "signal": {"type": ["string", "null"]},
    "signal_number": {"type": ["integer", "null"]},
    "timeout": {"type": "boolean"},
    "stdout_truncated": {"type": "boolean"},
    "stderr_truncated": {"type": "boolean"},
    "success": {"type": "boolean"},
    "signaled": {"type": "boolean"},
    "error": {"type": "string", "description": "Why nothing ran; then it is alone"},
    ` + resultProperties + `
  },
  "additionalProperties": false
}`),
	},
	call: func(ctx context.Context, v *View, c call) (Result, error) {
		a, err := decode[struct {
			Skill      string          `json:"skill"`
			ScriptPath string          `json:"script_path"`
			Arguments  json.RawMessage `json:"arguments"`
			Timeout    float64         `json:"timeout"`
			Args       []string        `json:"args"`
			Files      []fileArgument  `json:"files"`
		}](c)
		if err != nil {
			return Result{}, err
		}
		in, err := c.inputs(a.Files)
		if err != nil {
			return Result{}, err
		}
		r, err := v.ExecuteScript(ctx, c.Who, ScriptRequest{
			Skill: a.Skill, ScriptPath: a.ScriptPath, Arguments: string(a.Arguments), Timeout: seconds(a.Timeout),
			Args: a.Args, Inputs: in, KeepBytes: MaxToolOutput,
		}, c.Sink)
		if err != nil {
			return refusedCall(r.ExecutionID, err)
		}
		r.Warnings = append(r.Warnings, c.notes...)
		object := dumps(struct {
			ScriptResult
			toolExtras
		}{r, r.Extras.list()})
		return Result{Content: string(object), Structured: object, IsError: !r.Success, Extras: r.Extras}, nil
	},
}

// bashTool is ExecuteCommand for a model. Models know a tool of this name, so they need no
// explanation of its argument.
var bashTool = row{
	session: runsInSession,
	Tool: Tool{
		Name: "bash",
		Description: "Run a command line in the sandbox of a skill. It must be covered by the skill's allowed-tools, or run scripts of a skill that has no allowed-tools; " +
			"simple commands with pipes, &&, ||, ; and redirects are understood, expansions are not. " +
			"It starts in a copy of the skill's folder; files that it writes there are returned as artifacts.",
		Parameters: json.RawMessage(fmt.Sprintf(`{
  "type": "object",
  "properties": {
    "skill": {"type": "string", "description": "Name of the skill"},
    "command": {"type": "string", "description": "The command line; {baseDir} in it is the skill's folder"},
    "working_dir": {"type": "string", "description": "Directory in the skill to start in; its folder if it is left out"},
    "timeout": {"type": "number", "minimum": 0.001, "maximum": %v, "description": "Seconds; the skill's own limit, or the daemon's, if it is left out"},
    %s,
    `+sessionProperty+`
  },
  "required": ["skill", "command"],
  "additionalProperties": false
}`, MaxScriptTimeout.Seconds(), filesProperty("the copy of the skill's folder"))),
		Output: json.RawMessage(`{
  "type": "object",
  "properties": {
    "success": {"type": "boolean"},
    "exit_code": {"type": "integer", "description": "-N for signal N; -1 if it was not allowed, could not start, or its time was up"},
    "stdout": {"type": "string"},
    "stderr": {"type": "string"},
    "execution_time": {"type": "number", "description": "Seconds"},
    "command": {"type": "string"},
    "error": {"type": ["string", "null"], "description": "What went wrong; alone if the request as such was refused"},
    "reason": {"type": "string", "description": "Why the command is not allowed"},
    "missing_rule": {"type": "string", "description": "The rule that allowed-tools would need; only the author of the skill can add it"},
    "instead": {"type": "string", "enum": ["working_directory", "code"], "description": "What to do instead: set working_dir, or write it as code"},
    "output_truncated": {"type": "boolean", "description": "It printed more than is here"},
    ` + resultProperties + `
  },
  "additionalProperties": false
}`),
	},
	call: func(ctx context.Context, v *View, c call) (Result, error) {
		a, err := decode[struct {
			Skill      string         `json:"skill"`
			Command    string         `json:"command"`
			WorkingDir string         `json:"working_dir"`
			Timeout    float64        `json:"timeout"`
			Files      []fileArgument `json:"files"`
		}](c)
		if err != nil {
			return Result{}, err
		}
		in, err := c.inputs(a.Files)
		if err != nil {
			return Result{}, err
		}
		r, err := v.ExecuteCommand(ctx, c.Who, CommandRequest{
			Skill: a.Skill, Command: a.Command, WorkingDir: a.WorkingDir, Timeout: seconds(a.Timeout), Inputs: in, KeepBytes: MaxToolOutput,
		}, c.Sink)
		if err != nil {
			return refusedCall(r.ExecutionID, err)
		}
		r.Warnings = append(r.Warnings, c.notes...)
		object := dumps(struct {
			CommandResult
			Truncated bool `json:"output_truncated,omitempty"`
			toolExtras
		}{r, r.Truncated, r.Extras.list()})
		return Result{Content: string(object), Structured: object, IsError: !r.Success, Extras: r.Extras}, nil
	},
}

// refusedCall returns the result of a refused call: {"error": ...}, with the exception's
// name in front if the contract has one. Other errors stay errors. id is empty if no execution
// was accepted.
func refusedCall(id string, err error) (Result, error) {
	if !refused(err) {
		return Result{Extras: Extras{ExecutionID: id}}, err
	}
	why := err.Error()
	if e, ok := errors.AsType[*Exception](err); ok {
		why = e.Name + ": " + e.Text
	}
	object := dumps(struct {
		Error string `json:"error"`
	}{why})
	return Result{Content: string(object), Structured: object, IsError: true, Extras: Extras{ExecutionID: id}}, nil
}
