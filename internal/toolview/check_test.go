package toolview

import (
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
)

// The first line of a refusal is the published sentence. The reason and the remedy follow, in text and
// in fields. check_command gives the same answer for the same line.
func TestRefusedCommandsSayWhatHelps(t *testing.T) {
	t.Parallel()
	const front = "allowed-tools: Bash(echo:*)"
	b := newIdleBench(t, nil, skillText{name: "calc", frontMatter: front})
	closed := newIdleBench(t, func(c *executor.Config) { c.Policy = permission.Policy{NoCode: true} }, skillText{name: "calc", frontMatter: front})
	for _, tt := range []struct {
		bench               *bench
		command             string
		text                string // after the first line
		missing, insteadHas string
	}{
		{b, "rm x", "'rm x' is not covered by any rule: allowed are Bash(echo:*)\nMissing rule: Bash(rm x:*) (only the author of the skill can add it to allowed-tools)", "Bash(rm x:*)", ""},
		{b, "cd data && echo a", "'cd' is a shell builtin and no shell runs here: set working_dir, or name paths from there\nInstead: leave it out, and set working_dir to that directory.", "", "working_directory"},
		{b, "for f in a b; do echo $f; done", "for or select is not supported: only simple commands joined by ; && || | may run\nInstead: write it as Python code, for run_python_script or RunPython.", "", "code"},
		{b, "echo $(date)", "the command substitution '$(date)' is not expanded: write the value itself, or quote it with '...'\nInstead: write it as Python code, for run_python_script or RunPython.", "", "code"},
		{b, "export A=1", "export is not supported: only simple commands joined by ; && || | may run\nInstead: write it as Python code, for run_python_script or RunPython.", "", "code"},
		{b, "source x", "'source' is a shell builtin and no shell runs here: name a program", "", ""},
		{b, "echo 'a", "the command line does not parse: ", "", ""},
		{closed, "if true; then echo a; fi", "if is not supported: only simple commands joined by ; && || | may run", "", ""},
	} {
		t.Run(tt.command, func(t *testing.T) {
			r := tt.bench.command(CommandRequest{Skill: "calc", Command: tt.command})
			first := "Command not allowed by skill permissions: " + tt.command + "\n"
			if got := r.error(); !strings.HasPrefix(got, first+tt.text) || tt.missing+tt.insteadHas != "" && got != first+tt.text {
				t.Errorf("got %q, want %q", got, first+tt.text)
			}
			reason, _, _ := strings.Cut(tt.text, "\n")
			if !strings.HasPrefix(r.Reason, reason) || r.MissingRule != tt.missing || r.Instead != tt.insteadHas || r.ExitCode != -1 {
				t.Errorf("fields %q %q %q", r.Reason, r.MissingRule, r.Instead)
			}
			want := dumps(answer{Reason: r.Reason, MissingRule: tt.missing, Instead: tt.insteadHas})
			checked := tt.bench.toolCall("check_command", string(dumps(map[string]string{"skill": "calc", "command": tt.command})))
			if checked.Content != string(want) || checked.IsError || checked.ExecutionID != "" {
				t.Errorf("check_command: %s, want %s", checked.Content, want)
			}
		})
	}
	got := b.toolCall("check_command", `{"skill": "calc", "command": "echo 'a b' | echo c"}`).Content
	if want := `{"allowed": true, "reason": "covered by Bash(echo:*)", "rule": "Bash(echo:*)", "commands": [["echo", "a b"], ["echo", "c"]]}`; got != want {
		t.Errorf("allowed: %s, want %s", got, want)
	}
	if r := b.toolCall("check_command", `{"skill": "nobody", "command": "echo"}`); !r.IsError || !strings.HasPrefix(r.Content, "There is no skill") {
		t.Errorf("no skill: %+v", r)
	}
}
