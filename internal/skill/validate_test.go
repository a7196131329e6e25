package skill

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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
			"error unknown-field SKILL.md:4: Unexpected fields in frontmatter: zeta",
			"error unknown-field SKILL.md:5: Unexpected fields in frontmatter: alpha",
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
			if got := texts(ValidateText(tt.text, tt.folder)); !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

// Validating a folder and loading it give the same findings.
func TestValidateDir(t *testing.T) {
	root, dir := skillDir(t, files{
		"SKILL.md": "---\nname: Demo\ndescription: d\n---\n\nRun {baseDir}/scripts/ok.py and\n`{baseDir}/scripts/none.py`,\n" +
			"see {baseDir}/ref.md. Or {baseDir}/scripts/<any>.py, {baseDir}/*.md, {baseDir}, {baseDir}/scripts/.\n${CLAUDE_SKILL_DIR}/out {baseDir}/../x\n",
		"scripts/ok.py": "", "ref.md": "", "scripts/a.ps1": "", "scripts/b.fish": "#!/usr/bin/fish\n",
		"out": "-> /etc/passwd", "venv/bin/python": "-> /usr/bin/python3",
	})
	want := []string{
		"error name-grammar SKILL.md:2: Skill name 'Demo' must be lowercase",
		"error name-folder SKILL.md:2: Directory name 'demo' must match skill name 'Demo'",
		"warning base-dir-reference SKILL.md:7: {baseDir}/scripts/none.py is not in the skill",
		"warning base-dir-reference SKILL.md:9: {baseDir}/out is not in the skill",
		"warning base-dir-reference SKILL.md:9: {baseDir}/../x is not in the skill",
		"error refused-entry out:0: is a link that leaves the skill: it leads to /etc/passwd: it can't be used",
		"warning no-interpreter scripts/a.ps1:0: no interpreter is known for it: use a known extension or a #! line",
		"warning no-interpreter scripts/b.fish:0: no interpreter is known for it: use a known extension or a #! line",
	}
	list, err := ValidateDir(dir)
	if got := texts(list); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, got  %q\nwant %q", err, got, want)
	}

	s := resolve(t, open(t, RegistryConfig{Roots: []string{root}}), "Demo")
	if got := texts(s.Validate()); !slices.Equal(got, want) {
		t.Errorf("loaded: got  %q\nwant %q", got, want)
	}
	if len(s.Warnings) != len(want) {
		t.Errorf("%d warnings, want %d", len(s.Warnings), len(want))
	}
	for _, w := range s.Warnings {
		if w.Severity != SeverityWarning {
			t.Errorf("warning %v is an %s", w, w.Severity)
		}
	}
}

// If a folder would not load, a finding says why.
func TestValidateDirUnloadable(t *testing.T) {
	tests := []struct {
		name string
		make func(t *testing.T, dir string)
		want string
	}{
		{"no manifest", func(t *testing.T, dir string) { files{"x": ""}.write(t, dir) },
			"error manifest-missing SKILL.md:0: Missing required file: SKILL.md"},
		{"other case", func(t *testing.T, dir string) { files{"Skill.MD": minimal}.write(t, dir) },
			"error manifest-missing SKILL.md:0: Missing required file: SKILL.md"},
		{"FIFO", func(t *testing.T, dir string) { mustDo(t, unix.Mkfifo(filepath.Join(dir, "SKILL.md"), 0o644)) },
			"error refused-entry SKILL.md:0: SKILL.md: refused, since SKILL.md is neither a file, a directory nor a link"},
		{"huge", func(t *testing.T, dir string) {
			files{"SKILL.md": minimal + strings.Repeat("x", MaxManifestBytes)}.write(t, dir)
		}, fmt.Sprintf("error manifest-size SKILL.md:0: is %d bytes long, the maximum is %d", len(minimal)+MaxManifestBytes, MaxManifestBytes)},
		{"sparse", func(t *testing.T, dir string) {
			files{"SKILL.md": minimal, "big": ""}.write(t, dir)
			mustDo(t, os.Truncate(filepath.Join(dir, "big"), 1<<40))
		}, fmt.Sprintf("error skill-size :0: skill has more than %d bytes", DefaultMaxBytes)},
		{"lower case", func(t *testing.T, dir string) { files{"skill.md": minimal}.write(t, dir) },
			"warning manifest-name skill.md:0: is named skill.md: rename it to SKILL.md"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "demo")
			mustDo(t, os.Mkdir(dir, 0o755))
			tt.make(t, dir)
			list, err := ValidateDir(dir)
			if got := texts(list); err != nil || !slices.Equal(got, []string{tt.want}) {
				t.Errorf("%v, got %q, want %q", err, got, tt.want)
			}
		})
	}
	if _, err := ValidateDir(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a folder that isn't there was validated")
	}
}

// ReadDir does not copy the folder. A file that changes afterwards cannot be opened.
func TestReadDir(t *testing.T) {
	_, dir := skillDir(t, files{"scripts/a.py": "print(1)\n"})
	sk, list, err := ReadDir(dir)
	if err != nil || sk == nil || len(list) != 0 {
		t.Fatalf("got %v, %v, %v", sk, list, err)
	}
	if sk.Name != "demo" || sk.Dir != dir || len(sk.Scripts) != 1 {
		t.Errorf("got %q in %q with %v", sk.Name, sk.Dir, sk.Scripts)
	}
	f, _, err := sk.Open("scripts/a.py")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	files{"scripts/a.py": "print(22)\n"}.write(t, dir)
	if f, _, err := sk.Open("scripts/a.py"); err == nil {
		f.Close()
		t.Error("a file that has changed was opened")
	}
	if sk, list, err := ReadDir(t.TempDir()); sk != nil || len(list) != 1 || err != nil {
		t.Errorf("no skill: got %v, %v, %v", sk, list, err)
	}
}

// A manifest may be a link inside the skill.
func TestLinkedManifest(t *testing.T) {
	_, dir := skillDir(t, files{"docs/skill.txt": minimal, "SKILL.md": "-> docs/skill.txt"})
	if list, err := ValidateDir(dir); err != nil || len(list) != 0 {
		t.Errorf("got %v, %v, want nothing", list, err)
	}
}

func TestSeverityText(t *testing.T) {
	if got := fmt.Sprint(SeverityError, SeverityWarning, Severity(0)); got != "error warning unspecified" {
		t.Errorf("got %s", got)
	}
}
