package main

import (
	"encoding/json"
	"strings"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// skillrun tool lists the tools of the daemon, and calls one as a model does.
func TestToolCommand(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	d.addSkill("args", "", map[string]string{"scripts/a.py": "import sys\nprint(sys.argv[1], open('in.txt').read())"})
	out, err := d.cli("tool", "list", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	names := 0
	for line := range strings.Lines(string(out)) {
		var definition struct {
			Function struct{ Name string }
		}
		if err := json.Unmarshal([]byte(line), &definition); err != nil || definition.Function.Name == "" {
			t.Errorf("%s: %v", line, err)
		}
		names++
	}
	list, err := d.tools().ListTools(t.Context(), &pb.ListToolsRequest{})
	if err != nil || names != len(list.Tools) || names == 0 {
		t.Errorf("%d tools, the daemon has %v, %v", names, list, err)
	}
	out, err = d.cli("tool", "call", "run_skill_script", `{"skill": "args", "script_path": "scripts/a.py", "args": ["x"], "files": [{"path": "in.txt", "text": "y"}]}`).Output()
	if err != nil || !strings.HasPrefix(string(out), `{"exit_code": 0, "stdout": "x y\n", `) {
		t.Errorf("got %s, %v", out, err)
	}
	cmd := d.cli("tool", "call", "bash", `{"skill": "args", "command": "rm x"}`)
	out, err = cmd.Output()
	if err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "Command not allowed by skill permissions: rm x") {
		t.Errorf("got %s, %v", out, err)
	}
}

// git with harmless settings runs under a rule for its subcommand.
func TestGitSettingsRun(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	d.addSkill("commits", "allowed-tools: Bash(git init:*), Bash(git commit:*), Bash(git log:*)", nil)
	const line = "git -c init.defaultBranch=main init -q . && git -c user.name=a -c user.email=a@b -c commit.gpgsign=false commit -q --allow-empty -m x && " +
		"GIT_AUTHOR_NAME=c GIT_AUTHOR_EMAIL=c@d GIT_COMMITTER_NAME=e GIT_COMMITTER_EMAIL=e@f GIT_PAGER=cat git commit -q --allow-empty -m y && git -c color.ui=never log --format=%an:%cn:%s --decorate=no"
	r, _, err := d.executeCommand(&pb.ExecuteCommandRequest{Skill: "commits", Command: line})
	if err != nil || r.GetStdout() != "c:e:y\na:a:x\n" {
		t.Errorf("got %v, %v", r, err)
	}
	r, _, err = d.executeCommand(&pb.ExecuteCommandRequest{
		Skill: "commits", Command: "git init -q . && git commit -q --allow-empty -m x && git log --format=%an",
		Env: map[string]string{"GIT_AUTHOR_NAME": "g", "GIT_AUTHOR_EMAIL": "g", "GIT_COMMITTER_NAME": "g", "GIT_COMMITTER_EMAIL": "g"},
	})
	if err != nil || r.GetStdout() != "g\n" {
		t.Errorf("by env: %v, %v", r, err)
	}
}
