package skill_test

import (
	"fmt"

	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

func ExampleParseRef() {
	for _, ref := range []string{
		"calculator",
		"calculator@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		"calculator@sha256:9f86",
		"../calculator",
	} {
		name, digest, err := skill.ParseRef(ref)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%s, pinned: %t\n", name, digest != "")
	}
	// Output:
	// calculator, pinned: false
	// calculator, pinned: true
	// calculator: 'sha256:9f86' is not a digest: want sha256: and 64 lowercase hex digits
	// Invalid skill name: '../calculator'. Skill names must not contain '/', '\', or '..'
}

func ExampleSkill_Activate() {
	s := &skill.Skill{
		Name:     "calculator",
		Body:     "Run `python {baseDir}/scripts/add.py 1 2`.",
		Manifest: manifest.Manifest{AllowedTools: []string{"Bash(python {baseDir}/scripts/add.py:*)"}},
	}
	for _, m := range s.Activate().Messages {
		fmt.Printf("%s, hidden: %t: %q%q\n", m.Type, m.IsMeta, m.Content, m.AllowedTools)
	}
	// Output:
	// metadata, hidden: false: "Skill \"calculator\" is active."[]
	// prompt, hidden: true: "The files of skill \"calculator\" are in /skills/calculator.\n\nRun `python /skills/calculator/scripts/add.py 1 2`."[]
	// command_permissions, hidden: true: "{\"type\":\"command_permissions\",\"allowedTools\":[\"Bash(python /skills/calculator/scripts/add.py:*)\"],\"model\":null}"["Bash(python /skills/calculator/scripts/add.py:*)"]
}
