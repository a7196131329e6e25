package skill

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// texts formats findings as "severity rule file:line: message".
func texts(list []manifest.Finding) []string {
	var out []string
	for _, f := range list {
		out = append(out, fmt.Sprintf("%s %s %s:%d: %s", f.Severity, f.Rule, f.File, f.Line, f.Message))
	}
	return out
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
		"warning mcp-unlisted SKILL.md:0: agents that list skills over MCP (skills/list) do not see this one: its name must be a text of at most 64 lowercase letters, digits and single hyphens; rename it",
		"error name-grammar SKILL.md:2: Skill name 'Demo' must be lowercase",
		"error name-folder SKILL.md:2: Directory name 'demo' must match skill name 'Demo'",
		"warning base-dir-reference SKILL.md:7: {baseDir}/scripts/none.py is not in the skill",
		"warning base-dir-reference SKILL.md:9: {baseDir}/out is not in the skill",
		"warning base-dir-reference SKILL.md:9: {baseDir}/../x is not in the skill",
		"error refused-entry out:0: is a link that leaves the skill: it leads to /etc/passwd: it can't be used",
		"warning no-interpreter scripts/a.ps1:0: no interpreter is known for it: use a known extension or a #! line",
		"warning no-interpreter scripts/b.fish:0: no interpreter is known for it: use a known extension or a #! line",
	}
	_, list, err := ReadDir(dir)
	if got := texts(list); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, got  %q\nwant %q", err, got, want)
	}

	s := resolve(t, open(t, RegistryConfig{Roots: Roots(root)}), "Demo")
	if got := texts(s.Validate()); !slices.Equal(got, want) {
		t.Errorf("loaded: got  %q\nwant %q", got, want)
	}
	if len(s.Warnings) != len(want) {
		t.Errorf("%d warnings, want %d", len(s.Warnings), len(want))
	}
	for _, w := range s.Warnings {
		if w.Severity != manifest.SeverityWarning {
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
		{"no manifest", func(t *testing.T, dir string) { files{"x": ""}.Write(t, dir) },
			"error manifest-missing SKILL.md:0: Missing required file: SKILL.md"},
		{"other case", func(t *testing.T, dir string) { files{"Skill.MD": minimal}.Write(t, dir) },
			"error manifest-missing SKILL.md:0: Missing required file: SKILL.md"},
		{"FIFO", func(t *testing.T, dir string) { mustDo(t, unix.Mkfifo(filepath.Join(dir, "SKILL.md"), 0o644)) },
			"error refused-entry SKILL.md:0: SKILL.md: refused, since SKILL.md is neither a file, a directory nor a link"},
		{"huge", func(t *testing.T, dir string) {
			files{"SKILL.md": minimal + strings.Repeat("x", manifest.MaxBytes)}.Write(t, dir)
		}, fmt.Sprintf("error manifest-size SKILL.md:0: is %d bytes long, the maximum is %d", len(minimal)+manifest.MaxBytes, manifest.MaxBytes)},
		{"sparse", func(t *testing.T, dir string) {
			files{"SKILL.md": minimal, "big": ""}.Write(t, dir)
			mustDo(t, os.Truncate(filepath.Join(dir, "big"), 1<<40))
		}, fmt.Sprintf("error skill-size :0: skill has more than %d bytes", snapshot.DefaultMaxBytes)},
		{"lower case", func(t *testing.T, dir string) { files{"skill.md": minimal}.Write(t, dir) },
			"warning manifest-name skill.md:0: is named skill.md: rename it to SKILL.md\n" +
				"warning mcp-unlisted skill.md:0: agents that list skills over MCP (skills/list) do not see this one: its manifest is named skill.md; rename it to SKILL.md"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "demo")
			mustDo(t, os.Mkdir(dir, 0o755))
			tt.make(t, dir)
			_, list, err := ReadDir(dir)
			if got := strings.Join(texts(list), "\n"); err != nil || got != tt.want {
				t.Errorf("%v, got %q, want %q", err, got, tt.want)
			}
		})
	}
	if _, _, err := ReadDir(filepath.Join(t.TempDir(), "none")); err == nil {
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
	files{"scripts/a.py": "print(22)\n"}.Write(t, dir)
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
	if _, list, err := ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("got %v, %v, want nothing", list, err)
	}
}
