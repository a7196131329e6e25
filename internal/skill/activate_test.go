package skill

import (
	"reflect"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/skill/manifest"
)

func TestActivate(t *testing.T) {
	s := load(t, files{"SKILL.md": `---
name: demo
description: Shows things.
allowed-tools: Bash(python {baseDir}/scripts/x.py:*), Bash(${CLAUDE_SKILL_DIR}/run), Read
model: large
---
Run {baseDir}/scripts/x.py, ${CLAUDE_PLUGIN_ROOT}/y or $CLAUDE_SKILL_DIR.
`})
	const instructions = "Run /skills/demo/scripts/x.py, /skills/demo/y or $CLAUDE_SKILL_DIR."
	tools := []string{"Bash(python /skills/demo/scripts/x.py:*)", "Bash(/skills/demo/run)", "Read"}
	want := Activation{
		Name: "demo", Digest: s.Digest, Instructions: instructions, BaseDir: "/skills/demo",
		AllowedTools: tools, Model: "large",
		Messages: []Message{
			{Role: "user", Type: MessageMetadata, Content: `Skill "demo" is active.`},
			{Role: "user", Type: MessagePrompt, IsMeta: true, Content: "The files of skill \"demo\" are in /skills/demo.\n\n" + instructions},
			{
				Role: "user", Type: MessagePermissions, IsMeta: true, AllowedTools: tools, Model: "large",
				Content: `{"type":"command_permissions","allowedTools":["Bash(python /skills/demo/scripts/x.py:*)","Bash(/skills/demo/run)","Read"],"model":"large"}`,
			},
		},
	}
	if got := s.Activate(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if s.Manifest.AllowedTools[1] != "Bash(${CLAUDE_SKILL_DIR}/run)" {
		t.Errorf("the manifest was changed: %q", s.Manifest.AllowedTools)
	}
}

// The message with the permissions is only there if the skill names tools.
func TestActivateWithoutTools(t *testing.T) {
	for _, m := range []manifest.Manifest{{}, {HasAllowedTools: true}, {Model: "large"}} {
		a := (&Skill{Name: "demo", Manifest: m, Body: "Do it."}).Activate()
		if len(a.Messages) != 2 || a.Messages[0].IsMeta || !a.Messages[1].IsMeta || a.AllowedTools != nil {
			t.Errorf("%+v: got %+v", m, a)
		}
	}
}

// TestContractActivationContext checks the published context of an activation.
func TestContractActivationContext(t *testing.T) {
	const script = "print('Analysis complete')"
	for _, tt := range []struct {
		name, frontMatter string
		files             files
		want              Context
	}{
		{"no scripts folder", "allowed-tools: Bash(git:*)\nmax_execution_time: 60\n", nil, Context{}},
		{"a file of that name", "", files{"scripts": "text"}, Context{}},
		{
			"defaults", "", files{"scripts/analyze.py": script},
			Context{BaseDir: "/skills/demo", ScriptExecutor: true, Constraints: &Constraints{
				MaxExecutionTime: 300 * time.Second, WorkingDirectory: "/workspace",
			}},
		},
		{
			"everything", "allowed-tools: Bash(python:*) Read Write\nmax_execution_time: 60\nmax_memory: 512\nnetwork_access: true\n",
			files{"scripts/analyze.py": script},
			Context{BaseDir: "/skills/demo", ScriptExecutor: true, Constraints: &Constraints{
				MaxExecutionTime: time.Minute, MaxMemoryBytes: 512 << 20, NetworkAccess: true,
				AllowedCommands: []string{"Bash(python:*)", "Read", "Write"}, WorkingDirectory: "/workspace",
			}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := files{"SKILL.md": "---\nname: demo\ndescription: Analyze data files\n" + tt.frontMatter + "---\nRun it.\n"}
			for name, content := range tt.files {
				all[name] = content
			}
			if got := load(t, all).Activate().Context; !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v (%+v)\nwant %+v (%+v)", got, got.Constraints, tt.want, tt.want.Constraints)
			}
		})
	}
}

// A missing model is null, and only characters that JSON requires are escaped.
func TestContractCommandPermissions(t *testing.T) {
	s := load(t, files{"SKILL.md": "---\nname: demo\ndescription: Shows things.\nallowed-tools: [Bash(a && b <c>), Read]\n---\n"})
	messages := s.Activate().Messages
	want := `{"type":"command_permissions","allowedTools":["Bash(a && b <c>)","Read"],"model":null}`
	if got := messages[len(messages)-1].Content; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
