package manifest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// texts formats findings as "severity rule file:line: message".
func texts(list []Finding) []string {
	var out []string
	for _, f := range list {
		out = append(out, fmt.Sprintf("%s %s %s:%d: %s", f.Severity, f.Rule, f.File, f.Line, f.Message))
	}
	return out
}

func TestValidateText(t *testing.T) {
	long := func(n int) string { return strings.Repeat("é", n) }
	tests := []struct {
		name, text, folder string
		want               []string
	}{
		{"valid", minimal, "demo", nil},
		{"extension fields", withFields("version: '1'\nmax_execution_time: 60\nnetwork_access: false\nwhen_to_use: x\ndisable-model-invocation: true"), "demo", nil},
		{"longest", "---\nname: " + strings.Repeat("a", 64) + "\ndescription: " + long(1024) + "\ncompatibility: " + long(500) + "\n---\n", "", nil},
		{"folder not given", minimal, "", nil},
		{"folder", minimal, "other", []string{"error name-folder SKILL.md:2: Directory name 'other' must match skill name 'demo'"}},
		{"upper case", "---\nname: Demo\ndescription: d\n---\n", "", []string{"error name-grammar SKILL.md:2: Skill name 'Demo' must be lowercase"}},
		{"hyphens", "---\nname: -a--b-\ndescription: d\n---\n", "", []string{
			"error name-grammar SKILL.md:2: Skill name cannot start or end with a hyphen",
			"error name-grammar SKILL.md:2: Skill name cannot contain consecutive hyphens",
		}},
		{"characters", "---\nname: a_b\ndescription: d\n---\n", "", []string{
			"error name-grammar SKILL.md:2: Skill name 'a_b' contains invalid characters. Only letters, digits, and hyphens are allowed.",
		}},
		{"look-alike", "---\nname: dеmo\ndescription: d\n---\n", "", []string{
			"error name-grammar SKILL.md:2: Skill name 'dеmo' contains invalid characters. Only letters, digits, and hyphens are allowed.",
		}},
		{"long name", "---\nname: " + strings.Repeat("a", 65) + "\ndescription: d\n---\n", "", []string{
			"error name-length SKILL.md:2: Skill name '" + strings.Repeat("a", 65) + "' exceeds 64 character limit (65 chars)",
			"error name-invalid SKILL.md:2: Invalid skill name: '" + strings.Repeat("a", 65) + "'. Skill names must be at most 64 characters long",
		}},
		{"long description", "---\nname: demo\ndescription: " + long(1025) + "\n---\n", "", []string{
			"error description-length SKILL.md:3: Description exceeds 1024 character limit (1025 chars)",
		}},
		{"long compatibility", withFields("compatibility: " + long(501)), "", []string{
			"error compatibility-length SKILL.md:4: Compatibility exceeds 500 character limit (501 chars)",
		}},
		{"empty compatibility", withFields("compatibility:"), "", []string{
			"error compatibility-length SKILL.md:4: Field 'compatibility' must be a non-empty string, or left out",
		}},
		{"nothing", "---\n{}\n---\n", "", []string{
			"error name-missing SKILL.md:2: Missing required field in frontmatter: name",
			"error description-missing SKILL.md:2: Missing required field in frontmatter: description",
		}},
		{"no front matter", "# x", "", []string{"error front-matter SKILL.md:1: SKILL.md must start with YAML frontmatter (---)"}},
		{"not closed", "---\nname: x\n", "", []string{"error front-matter-open SKILL.md:1: SKILL.md frontmatter not properly closed with ---"}},
		{"no mapping", "---\n- a\n---\n", "", []string{"error front-matter SKILL.md:2: SKILL.md frontmatter must be a YAML mapping"}},
		{"unknown fields", withFields("zeta: 1\nalpha: 2"), "", []string{
			"warning unknown-field SKILL.md:4: Unexpected fields in frontmatter: zeta",
			"warning unknown-field SKILL.md:5: Unexpected fields in frontmatter: alpha",
		}},
		{"misspelled fields", withFields("network-access: true\nnetwork_acess: true\nnetwork_acces: true\ndate: today\nnode: 1"), "", []string{
			"warning unknown-field SKILL.md:4: Unexpected fields in frontmatter: network-access; did you mean network_access?",
			"warning unknown-field SKILL.md:5: Unexpected fields in frontmatter: network_acess; did you mean network_access?",
			"warning unknown-field SKILL.md:6: Unexpected fields in frontmatter: network_acces; did you mean network_access?",
			"warning unknown-field SKILL.md:7: Unexpected fields in frontmatter: date",
			"warning unknown-field SKILL.md:8: Unexpected fields in frontmatter: node",
		}},
		{"a value", withFields("network_access: 1\nmax_memory: much"), "", []string{
			"error field-type SKILL.md:4: Field 'network_access' must be true or false, not 1",
			"error field-type SKILL.md:5: Field 'max_memory' must be a number of MB, not much",
		}},
		{"fields of hosts", withFields("homepage: https://a.example\nuser-invocable: true\nmetadata: {openclaw: {emoji: x}}"), "", []string{
			"warning unknown-field SKILL.md:4: Unexpected fields in frontmatter: homepage",
			"warning unknown-field SKILL.md:5: Unexpected fields in frontmatter: user-invocable",
			"warning field-type SKILL.md:6: Field 'metadata.openclaw' must be a string",
		}},
		{"types", withFields("allowed-tools: {a: b}\nmetadata: [x]\ncompatibility: [y]\nversion: 1.0"), "", []string{
			"error field-type SKILL.md:4: Field 'allowed-tools' must be a string or a list of strings",
			"error field-type SKILL.md:5: Field 'metadata' must be a mapping of strings to strings",
			"error field-type SKILL.md:6: Field 'compatibility' must be a string",
			"warning field-type SKILL.md:7: Field 'version' is not a string: put 1.0 in quotes",
		}},
		{"duplicate", withFields("name: demo"), "", []string{"error duplicate-key SKILL.md:4: field 'name' is already in line 2: the last one counts"}},
		{"CRLF", strings.ReplaceAll(minimal, "\n", "\r\n"), "", []string{"warning line-ends SKILL.md:1: has CRLF line ends"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := texts(Validate(tt.text, tt.folder)); !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestSeverityText(t *testing.T) {
	if got := fmt.Sprint(SeverityError, SeverityWarning, Severity(0)); got != "error warning unspecified" {
		t.Errorf("got %s", got)
	}
}
