package skill

import (
	"reflect"
	"testing"
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
			{Role: "user", Type: MessagePermissions, IsMeta: true, AllowedTools: tools, Model: "large"},
		},
	}
	if got := s.Activate(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if s.Manifest.AllowedTools[1] != "Bash(${CLAUDE_SKILL_DIR}/run)" {
		t.Errorf("the manifest was changed: %q", s.Manifest.AllowedTools)
	}
}

// The third message is there only if the skill names tools.
func TestActivateWithoutTools(t *testing.T) {
	for _, m := range []Manifest{{}, {HasAllowedTools: true}, {Model: "large"}} {
		a := (&Skill{Name: "demo", Manifest: m, Body: "Do it."}).Activate()
		if len(a.Messages) != 2 || a.Messages[0].IsMeta || !a.Messages[1].IsMeta || a.AllowedTools != nil {
			t.Errorf("%+v: got %+v", m, a)
		}
	}
}
