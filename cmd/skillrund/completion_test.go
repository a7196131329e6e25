package main

import (
	"slices"
	"strings"
	"testing"
)

// A shell completes names that the daemon knows.
func TestClientCompletion(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	r := d.run(code("calculator", "open('chart.png', 'w').write('x')"))
	r.wantExit(t, 0)
	for _, tt := range []struct {
		name string
		line []string // the shell completes its last word
		want string
	}{
		{"skill", []string{"run", ""}, "calculator"},
		{"script", []string{"run", "calculator", ""}, "scripts/calc.py"},
		{"execution", []string{"show", ""}, r.id},
		{"execution with artifacts", []string{"artifacts", ""}, r.id},
		{"artifact", []string{"artifacts", r.id, ""}, "chart.png"},
		{"language", []string{"run", "--language", ""}, "python"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := d.cli(append([]string{"__complete"}, tt.line...)...).Output()
			if err != nil {
				t.Fatal(err)
			}
			var words []string
			for line := range strings.Lines(string(out)) {
				word, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
				words = append(words, word)
			}
			if !slices.Contains(words, tt.want) {
				t.Errorf("got %q, want %q among them", words, tt.want)
			}
		})
	}
	out, err := d.cli("__complete", "cancel", "").Output()
	if err != nil || strings.Contains(string(out), r.id) {
		t.Errorf("cancel: got %q, %v; want no execution that has ended", out, err)
	}
}
