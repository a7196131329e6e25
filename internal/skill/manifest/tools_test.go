package manifest

import (
	"slices"
	"strings"
	"testing"
)

// Entries are split at commas and blanks, but never inside parentheses.
func FuzzSplitTools(f *testing.F) {
	for _, s := range []string{"Bash(git:*), Read", `"Read,Write"`, "Bash (a b)", "Bash(", ")(", "a,,b", "Bash((a) b) c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, entry := range splitTools(text) {
			if entry == "" || strings.TrimSpace(entry) == "" && !strings.ContainsAny(entry, "()") && strings.ContainsAny(entry, " \t\r\n,") {
				t.Errorf("%q has the entry %q", text, entry)
			}
			if head, _, _ := strings.Cut(entry, "("); strings.ContainsAny(head, " \t\r\n,") {
				t.Errorf("%q has the entry %q", text, entry)
			}
			// Splitting an entry again gives the same entry.
			if strings.Count(entry, "(") == strings.Count(entry, ")") && !strings.ContainsAny(entry, `"'`) {
				if again := splitTools(entry); len(again) != 1 || again[0] != entry {
					t.Errorf("%q has the entry %q, which is %q", text, entry, again)
				}
			}
		}
	})
}

func TestSplitTools(t *testing.T) {
	tests := []struct {
		text string
		want []string
	}{
		{"", nil},
		{" ,, \n", nil},
		{"Read", []string{"Read"}},
		{"Bash(git:*),Bash(jq:*),Read,Write", []string{"Bash(git:*)", "Bash(jq:*)", "Read", "Write"}},
		{"Bash(git:*) Bash(python:*) Read", []string{"Bash(git:*)", "Bash(python:*)", "Read"}},
		{`"Read,Write"`, []string{"Read", "Write"}},
		{`"Read", 'Write'`, []string{"Read", "Write"}},
		{"Bash(git status:*), Read Write", []string{"Bash(git status:*)", "Read", "Write"}},
		{"Bash(a, b)\n  Read", []string{"Bash(a, b)", "Read"}},
		{"Bash(f(x) y) Read", []string{"Bash(f(x) y)", "Read"}},
		{"Bash (git:*) Read", []string{"Bash(git:*)", "Read"}},
		{"Bash(git", []string{"Bash(git"}},
		{"Bash(git Read", []string{"Bash(git Read"}},
		{"a) b", []string{"a)", "b"}},
		{"Bash, (git:*)", []string{"Bash", "(git:*)"}},
		{"mcp__x__y,Bash(*)", []string{"mcp__x__y", "Bash(*)"}},
	}
	for _, tt := range tests {
		if got := splitTools(tt.text); !slices.Equal(got, tt.want) {
			t.Errorf("splitTools(%q) = %q, want %q", tt.text, got, tt.want)
		}
	}
}
