package yamlerror

import (
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

func TestSplit(t *testing.T) {
	for _, tt := range []struct {
		text string
		line int
		want string
	}{
		{"a: 1\nb: [1, 2\n", 2, "did not find expected ',' or ']'"},
		{"a: 1\nb: 2\n\tc: 3\n", 3, "found a tab character that violates indentation"},
		{"a: 1\nb: @x\n", 2, "found character that cannot start any token"},
		{"a: 1\nb: *foo\n", 2, "unknown anchor 'foo' referenced"},
		{"# *foo1\nb: [*foo]\n", 2, "unknown anchor 'foo' referenced"},
		{"a: 1\nb: \xff\n", 2, "invalid leading UTF-8 octet"},
		{"a: 1\nb: \xc3", 2, "incomplete UTF-8 octet sequence"},
		{"a: 1\nb: x\x01y\n", 2, "control characters are not allowed"},
	} {
		var node yaml.Node
		err := yaml.Unmarshal([]byte(tt.text), &node)
		if err == nil {
			t.Errorf("%q: no error", tt.text)
			continue
		}
		line, text := Split(err, strings.Split(strings.TrimRight(tt.text, "\n"), "\n"))
		if line != tt.line || text != tt.want {
			t.Errorf("%q: got %d, %q, want %d, %q", tt.text, line, text, tt.line, tt.want)
		}
	}
}
