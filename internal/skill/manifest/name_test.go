package manifest

import (
	"errors"
	"strings"
	"testing"
)

func TestValidName(t *testing.T) {
	const separators = `must not contain '/', '\', or '..'`
	tests := []struct {
		name string
		want string // the reason, "" for a valid name
	}{
		{"demo", ""},
		{"Demo_2 x", ""},
		{"a.b", ""},
		{".a", ""},
		{"a@b", ""},
		{"日本語", ""},
		{"ｄｅｍｏ", ""}, // looks like demo, but is a different name
		{"a∕b", ""},  // U+2215 is not a separator
		{strings.Repeat("é", 64), ""},
		{"", "must not be empty"},
		{".", "must not be '.'"},
		{"..", separators},
		{"a..b", separators},
		{"a/b", separators},
		{"/", separators},
		{`a\b`, separators},
		{"../../../etc", separators},
		{"a\x00b", "must not contain control characters"},
		{"a\nb", "must not contain control characters"},
		{"a\x7fb", "must not contain control characters"},
		{"a\u0085b", "must not contain control characters"},
		{"a\u2028b", "must not contain control characters"},
		{"a\xffb", "must be valid UTF-8"},
		{strings.Repeat("a", 65), "must be at most 64 characters long"},
		{strings.Repeat("😀", 64), "must be at most 64 characters long"}, // 256 bytes: longer than NAME_MAX
		{"a@sha256:b", "must not contain '@sha256:'"},
	}
	for _, tt := range tests {
		err := ValidName(tt.name)
		var invalid *InvalidNameError
		switch {
		case tt.want == "":
			if err != nil {
				t.Errorf("ValidName(%q) = %v, want nil", tt.name, err)
			}
		case !errors.As(err, &invalid):
			t.Errorf("ValidName(%q) = %v, want an *InvalidNameError", tt.name, err)
		case invalid.Reason != tt.want || invalid.Name != tt.name:
			t.Errorf("ValidName(%q) = %+v, want reason %q", tt.name, invalid, tt.want)
		}
	}
}

func TestInvalidNameErrorText(t *testing.T) {
	tests := []struct{ name, want string }{
		{"../../../etc", `Invalid skill name: '../../../etc'. Skill names must not contain '/', '\', or '..'`},
		{"a\x00b\n", `Invalid skill name: 'a\u0000b\u000a'. Skill names must not contain control characters`},
		{"a\xff", "Invalid skill name: 'a\ufffd'. Skill names must be valid UTF-8"},
		{strings.Repeat("x", 300), "Invalid skill name: '" + strings.Repeat("x", 200) + "...'. Skill names must be at most 64 characters long"},
	}
	for _, tt := range tests {
		if got := ValidName(tt.name).Error(); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}
