package toolview

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/skillrun/skillrun/internal/permission"
)

// An answer says whether a command line may run. If not, it has the reason and a remedy.
// The fields are published as the output schema of check_command.
type answer struct {
	Allowed     bool       `json:"allowed"`
	Reason      string     `json:"reason"`
	Rule        string     `json:"rule,omitempty"`         // the rule that covers the line
	MissingRule string     `json:"missing_rule,omitempty"` // a rule that would cover the line
	Instead     string     `json:"instead,omitempty"`      // see permission.Instead
	Commands    [][]string `json:"commands,omitempty"`     // the words that would run
}

// commandWords replaces the fields of gRPC requests in reasons, because bash and ExecuteCommand have
// other names for them, or don't have them.
var commandWords = strings.NewReplacer(
	"set working_directory in the request", "set working_dir",
	"set env in the request", "put NAME=value in front of the command",
)

// answerOf makes an answer in the words of the tools.
func answerOf(allowed bool, reason, missing string, instead permission.Instead) answer {
	return answer{Allowed: allowed, Reason: commandWords.Replace(reason), MissingRule: missing, Instead: string(instead)}
}

// text returns the reason of a refusal and, if possible, a sentence with the remedy.
// Only one remedy is named: models follow the first one they read.
func (a answer) text() string {
	switch {
	case a.Instead == string(permission.InsteadDirectory):
		return a.Reason + "\nInstead: leave it out, and set working_dir to that directory."
	case a.Instead == string(permission.InsteadCode):
		return a.Reason + "\nInstead: write it as Python code, for run_python_script or RunPython."
	case a.MissingRule != "":
		return a.Reason + "\nMissing rule: " + a.MissingRule + " (only the author of the skill can add it to allowed-tools)"
	}
	return a.Reason
}

// checkCommandTool decides as bash does, and runs nothing.
var checkCommandTool = row{
	reads: true,
	Tool: Tool{
		Name:        "check_command",
		Description: "Say whether bash would run a command line, and if not, why and what would help. It runs nothing.",
		Parameters: json.RawMessage(`{
  "type": "object",
  "properties": {
    "skill": {"type": "string", "description": "Name of the skill"},
    "command": {"type": "string", "description": "The command line; {baseDir} in it is the skill's folder"}
  },
  "required": ["skill", "command"],
  "additionalProperties": false
}`),
		Output: json.RawMessage(`{
  "type": "object",
  "properties": {
    "allowed": {"type": "boolean"},
    "reason": {"type": "string", "description": "Why, in one sentence"},
    "rule": {"type": "string", "description": "The rules that allow it"},
    "missing_rule": {"type": "string", "description": "The rule that allowed-tools would need; only the author of the skill can add it"},
    "instead": {"type": "string", "enum": ["working_directory", "code"], "description": "What to do instead: start in another directory, or write it as code"},
    "commands": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}, "description": "The words of each command that would run"}
  },
  "required": ["allowed", "reason"],
  "additionalProperties": false
}`),
		ReadOnly: true,
	},
	call: func(_ context.Context, v *View, c call) (Result, error) {
		a, err := decode[struct {
			Skill   string `json:"skill"`
			Command string `json:"command"`
		}](c)
		if err != nil {
			return Result{}, err
		}
		sk, refusal := v.resolve(c.Who, a.Skill)
		if sk == nil {
			return refusal, nil
		}
		// Check is the same code that an execution asks, so the answer can't differ from what bash then does.
		grant, err := v.x.Check(c.Who, sk, permission.Source{Kind: permission.Command, Command: a.Command}, nil)
		if denied, ok := errors.AsType[*permission.Denied](err); ok {
			object := dumps(answerOf(false, denied.Reason, denied.Rule, denied.Instead))
			return Result{Content: string(object), Structured: object}, nil
		}
		if refused(err) {
			object := dumps(answerOf(false, err.Error(), "", ""))
			return Result{Content: string(object), Structured: object}, nil
		}
		if err != nil {
			return Result{}, err
		}
		t, err := v.x.Tenant(c.Who)
		if err != nil {
			return Result{}, err
		}
		d := t.Policy.DecideFor(sk, a.Command)
		yes := answerOf(true, d.Reason, "", "")
		yes.Rule, yes.Commands = d.Rule, grant.Plan().Commands()
		object := dumps(yes)
		return Result{Content: string(object), Structured: object}, nil
	},
}
