package manifest_test

import (
	"fmt"

	"github.com/skillrun/skillrun/internal/skill/manifest"
)

func ExampleValidate() {
	text := "---\nname: CSV-Tools\ndescription: Filters tables.\nversion: 1.0\n---\nUse it.\n"
	for _, f := range manifest.Validate(text, "csv-tools") {
		fmt.Println(f.Severity, f)
	}
	// Output:
	// error SKILL.md:2: Skill name 'CSV-Tools' must be lowercase
	// error SKILL.md:2: Directory name 'csv-tools' must match skill name 'CSV-Tools'
	// warning SKILL.md:4: Field 'version' is not a string: put 1.0 in quotes
}
