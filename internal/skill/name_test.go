package skill

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

func TestParseRef(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	tests := []struct {
		ref, name, digest string
		wantName, wantPin bool // expected type of the error
	}{
		{ref: "demo", name: "demo"},
		{ref: "demo@" + digest, name: "demo", digest: digest},
		{ref: "a@b", name: "a@b"},
		{ref: "a@b@" + digest, name: "a@b", digest: digest},
		{ref: "", wantName: true},
		{ref: "@" + digest, wantName: true},
		{ref: "../x@" + digest, wantName: true},
		{ref: "demo@sha256:", wantPin: true},
		{ref: "demo@sha256:12", wantPin: true},
		{ref: "demo@" + strings.ToUpper(digest), name: "demo@" + strings.ToUpper(digest), wantName: true}, // the name is too long
		{ref: "demo@sha256:" + strings.Repeat("0A", 32), wantPin: true},
		{ref: "demo@" + digest + "\n", wantPin: true},
		{ref: "demo@" + digest + "@" + digest, wantPin: true},
	}
	for _, tt := range tests {
		name, got, err := ParseRef(tt.ref)
		var invalid *InvalidNameError
		var pin *InvalidPinError
		if errors.As(err, &invalid) != tt.wantName || errors.As(err, &pin) != tt.wantPin {
			t.Errorf("ParseRef(%q): %v, want name error %t, pin error %t", tt.ref, err, tt.wantName, tt.wantPin)
			continue
		}
		if err == nil && (name != tt.name || got != tt.digest) {
			t.Errorf("ParseRef(%q) = %q, %q, want %q, %q", tt.ref, name, got, tt.name, tt.digest)
		}
	}
}

func TestErrorTexts(t *testing.T) {
	zeros := "sha256:" + strings.Repeat("0", 64)
	tests := []struct {
		err  error
		want string
	}{
		{&DigestMismatch{"demo", zeros, "sha256:1"}, "demo: digest mismatch: want " + zeros + ", have sha256:1"},
		{&InvalidPinError{"demo", "sha256:x\n"}, `demo: 'sha256:x\u000a' is not a digest: want sha256: and 64 lowercase hex digits`},
		{&DuplicateError{"demo", "/a/demo", "/b/demo"}, `skill "demo" is already loaded from /a/demo: /b/demo is left out`},
		{&BoundError{"bytes", 10}, "skill has more than 10 bytes"},
		{&ManifestError{Finding{SeverityError, "SKILL.md", 3, RuleYAML, "x"}}, "SKILL.md:3: x"},
		{&ManifestError{Finding{SeverityError, "SKILL.md", 0, RuleYAML, "x"}}, "SKILL.md: x"},
	}
	for _, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}
