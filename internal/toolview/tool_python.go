package toolview

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// runPythonScriptTool has the published name and schema. Its description differs from the
// published one, which describes another file system.
var runPythonScriptTool = row{
	session: runsInSession,
	Tool: Tool{
		Name: "run_python_script",
		Description: "Execute a Python script in the specified skill's virtual environment. " +
			"Returns stdout, stderr, and exit code. Script runs with the skill folder as working directory, in a sandbox: " +
			"files that it writes there are returned as artifacts and the skill itself stays unchanged. " +
			"It sees no other files. It has no network, unless the skill's SKILL.md has network_access: true or the tenant's network.skills names the skill.",
		Parameters: json.RawMessage(fmt.Sprintf(`{
  "type": "object",
  "properties": {
    "skill_name": {
      "type": "string",
      "description": "Name of the skill whose venv to use"
    },
    "script": {
      "type": "string",
      "description": "Python code to execute"
    },
    %s,
    %s,
    `+sessionProperty+`
  },
  "required": ["skill_name", "script"]
}`, argsProperty("the code, in sys.argv[1:]"), filesProperty("the working directory, a copy of the skill's folder,"))),
		Output: json.RawMessage(`{
  "type": "object",
  "properties": {
    "skill_name": {"type": "string"},
    "stdout": {"type": "string"},
    "stderr": {"type": "string"},
    "returncode": {"type": "integer", "description": "Exit code; -N for signal N, -1 for a timeout"},
    "timed_out": {"type": "boolean"},
    "error": {"type": "string", "description": "What went wrong, if the script did not simply run to its end"},
    ` + resultProperties + `
  },
  "additionalProperties": false
}`),
	},
	call: func(ctx context.Context, v *View, c call) (Result, error) {
		a, err := decode[struct {
			SkillName string         `json:"skill_name"`
			Script    string         `json:"script"`
			Args      []string       `json:"args"`
			Files     []fileArgument `json:"files"`
		}](c)
		if err != nil {
			return Result{}, err
		}
		in, err := c.inputs(a.Files)
		if err != nil {
			return Result{}, err
		}
		r, err := v.RunPythonScript(ctx, c.Who, PythonScriptCall{
			Skill: a.SkillName, Script: a.Script, Args: a.Args, Inputs: in, KeepBytes: MaxToolOutput,
		}, c.Sink)
		if err != nil {
			return Result{Extras: r.Extras}, err
		}
		r.Warnings = append(r.Warnings, c.notes...)
		object := r.JSON()
		return Result{Content: string(object), Structured: object, IsError: !r.Success, Extras: r.Extras}, nil
	},
}

// runPythonTool has the published name, arguments and text. Its result is a text and not an
// object, so it has no output schema.
var runPythonTool = row{
	session: runsInSession,
	Tool: Tool{
		Name: "RunPython",
		Description: "Run Python code, or a .py file of the run directory, in a sandbox with the embedded Python. " +
			"Provide code or scriptPath; if both are provided, scriptPath is used. " +
			"The run directory is a copy of the folder of skill, or an empty one. " +
			`Returns "Stdout:\n...\nStderr:\n...", or a text that begins with "Error: ".`,
		Parameters: json.RawMessage(fmt.Sprintf(`{
  "type": "object",
  "properties": {
    "code": {
      "type": "string",
      "description": "Inline Python code"
    },
    "scriptPath": {
      "type": "string",
      "description": "Path of a .py file under the run directory, such as the path of one of files"
    },
    "workingDirectory": {
      "type": "string",
      "description": "Directory under the run directory to run in; the run directory itself if it is left out"
    },
    "skill": {
      "type": "string",
      "description": "Name of the skill"
    },
    %s,
    %s,
    `+sessionProperty+`
  },
  "additionalProperties": false
}`, argsProperty("the program, in sys.argv[1:]"), filesProperty("the run directory"))),
	},
	call: func(ctx context.Context, v *View, c call) (Result, error) {
		a, err := decode[struct {
			Code             string         `json:"code"`
			ScriptPath       string         `json:"scriptPath"`
			WorkingDirectory string         `json:"workingDirectory"`
			Skill            string         `json:"skill"`
			Args             []string       `json:"args"`
			Files            []fileArgument `json:"files"`
		}](c)
		if err != nil {
			return Result{}, err
		}
		in, err := c.inputs(a.Files)
		if err != nil {
			return Result{}, err
		}
		r, err := v.RunPython(ctx, c.Who, PythonCall{
			Code: a.Code, ScriptPath: a.ScriptPath, WorkingDirectory: a.WorkingDirectory,
			Skill: a.Skill, Args: a.Args, Inputs: in, KeepBytes: MaxToolOutput,
		}, c.Sink)
		if err != nil {
			return Result{Extras: r.Extras}, err
		}
		r.Warnings = append(r.Warnings, c.notes...)
		return Result{Content: r.Text + r.Extras.list().text(), IsError: strings.HasPrefix(r.Text, errorPrefix), Extras: r.Extras}, nil
	},
}
