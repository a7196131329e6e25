package manifest

import (
	"strings"
	"unicode/utf8"

	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// checkRequired applies the published rules for name, description and compatibility. A
// skill without a usable name and a description does not load.
func checkRequired(m *Manifest, r *fieldReader, folder string) {
	checkName(m, r, folder)

	line := r.lines["description"]
	switch {
	case line == 0:
		r.Stop(r.first, RuleDescription, "Missing required field in frontmatter: description")
	case m.Description == "":
		r.Stop(line, RuleDescription, "Field 'description' must be a non-empty string")
	}
	if n := utf8.RuneCountInString(m.Description); n > MaxDescriptionRunes {
		r.Error(line, RuleDescriptionSize, "Description exceeds %d character limit (%d chars)", MaxDescriptionRunes, n)
	}
	line = r.lines["compatibility"]
	if _, odd := r.kept["compatibility"]; line != 0 && m.Compatibility == "" && !odd {
		r.Error(line, RuleCompatibility, "Field 'compatibility' must be a non-empty string, or left out")
	}
	if n := utf8.RuneCountInString(m.Compatibility); n > MaxCompatibilityRunes {
		r.Error(line, RuleCompatibility, "Compatibility exceeds %d character limit (%d chars)", MaxCompatibilityRunes, n)
	}
}

// checkName applies two rules. ValidName must hold for a skill to load. The published
// grammar is stricter: lowercase letters, digits and single hyphens, equal to the folder's
// name.
func checkName(m *Manifest, r *fieldReader, folder string) {
	line := r.lines["name"]
	switch {
	case line == 0:
		r.Stop(r.first, RuleNameMissing, "Missing required field in frontmatter: name")
		return
	case m.Name == "":
		r.Stop(line, RuleNameMissing, "Field 'name' must be a non-empty string")
		return
	}
	name := snapshot.Printable(m.Name)
	if n := utf8.RuneCountInString(m.Name); n > MaxNameRunes {
		r.Error(line, RuleNameLength, "Skill name '%s' exceeds %d character limit (%d chars)", name, MaxNameRunes, n)
	}
	if m.Name != strings.ToLower(m.Name) {
		r.Error(line, RuleNameGrammar, "Skill name '%s' must be lowercase", name)
	}
	if strings.HasPrefix(m.Name, "-") || strings.HasSuffix(m.Name, "-") {
		r.Error(line, RuleNameGrammar, "Skill name cannot start or end with a hyphen")
	}
	if strings.Contains(m.Name, "--") {
		r.Error(line, RuleNameGrammar, "Skill name cannot contain consecutive hyphens")
	}
	if strings.ContainsFunc(strings.ToLower(m.Name), notNameRune) {
		r.Error(line, RuleNameGrammar, "Skill name '%s' contains invalid characters. Only letters, digits, and hyphens are allowed.", name)
	}
	if folder != "" && folder != m.Name {
		r.Error(line, RuleNameFolder, "Directory name '%s' must match skill name '%s'", snapshot.Printable(folder), name)
	}
	if err := ValidName(m.Name); err != nil {
		r.Stop(line, RuleNameInvalid, "%v", err)
	}
}

// notNameRune is for a name in lower case; capitals have a rule of their kind.
func notNameRune(r rune) bool {
	return r != '-' && (r < 'a' || r > 'z') && (r < '0' || r > '9')
}
