package manifest

import (
	"fmt"
	"strings"
	"testing"
)

// Broken JSON is reported with the file, the line and the column.
func TestBrokenNodeFiles(t *testing.T) {
	const good = `{"dependencies": {"z": "1"}}`
	for _, tt := range []struct {
		file, text   string
		line, column int
	}{
		{"package.json", "{\n  \"dependencies\": {\n    \"ä\": \"1\",\n  }\n}\n", 4, 3},
		{"package.json", "\ufeff{'dependencies': {}}", 1, 2},
		{"package.json", "{\n\"dependencies\": {\"ä\": 1x}}", 2, 24},
		{"package.json", "{\n", 1, 2},
		{"package.json", "", 1, 1},
		{"package.json", good + "\n}\n", 2, 1},
		{"package-lock.json", "{\n<<<<<<< HEAD\n}", 2, 1},
		{"npm-shrinkwrap.json", "{\"packages\": {}\n\"x\": 1}", 2, 1},
	} {
		all := files{"SKILL.md": nodeFront, "package.json": good, tt.file: tt.text}
		needs, found := readSkill(t, all)
		want := fmt.Sprintf("%s:%d: column %d: it is not JSON: ", tt.file, tt.line, tt.column)
		if len(found) != 1 || found[0].Rule != RuleNodePackages || !strings.HasPrefix(found[0].String(), want) {
			t.Errorf("%q: got %v, want %s", tt.text, found, want)
		}
		if got := needs.Node.Problem; got.File != tt.file || got.Line != tt.line || len(found) > 0 && got.Reason != found[0].Message {
			t.Errorf("%q: got %+v", tt.text, got)
		}
	}
	for text, want := range map[string]string{`[]`: "it is not a JSON object", `{"lockfileVersion": "3"}`: `"lockfileVersion" is a JSON string, which npm does not write there`} {
		if _, err := NodeLock([]byte(text), []byte(`{}`)); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}
