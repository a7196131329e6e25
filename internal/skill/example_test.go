package skill_test

import (
	"fmt"

	"github.com/skillrun/skillrun/internal/skill"
)

func ExampleValidateText() {
	text := "---\nname: CSV-Tools\ndescription: Filters tables.\nversion: 1.0\n---\nUse it.\n"
	for _, f := range skill.ValidateText(text, "csv-tools") {
		fmt.Println(f.Severity, f)
	}
	// Output:
	// error SKILL.md:2: Skill name 'CSV-Tools' must be lowercase
	// error SKILL.md:2: Directory name 'csv-tools' must match skill name 'CSV-Tools'
	// warning SKILL.md:4: Field 'version' is not a string: put 1.0 in quotes
}

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
		Manifest: skill.Manifest{AllowedTools: []string{"Bash(python {baseDir}/scripts/add.py:*)"}},
	}
	for _, m := range s.Activate().Messages {
		fmt.Printf("%s, hidden: %t: %q%q\n", m.Type, m.IsMeta, m.Content, m.AllowedTools)
	}
	// Output:
	// metadata, hidden: false: "Skill \"calculator\" is active."[]
	// prompt, hidden: true: "The files of skill \"calculator\" are in /skills/calculator.\n\nRun `python /skills/calculator/scripts/add.py 1 2`."[]
	// command_permissions, hidden: true: "{\"type\":\"command_permissions\",\"allowedTools\":[\"Bash(python /skills/calculator/scripts/add.py:*)\"],\"model\":null}"["Bash(python /skills/calculator/scripts/add.py:*)"]
}
