package runtime

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/skill"
)

func TestForCode(t *testing.T) {
	s := fakeSet(t, allLanguages())
	for _, c := range []struct {
		language string
		want     []string
	}{
		{"", []string{"/usr/bin/python3", "-c", "-text"}},
		{"python", []string{"/usr/bin/python3", "-c", "-text"}},
		{"bash", []string{"/usr/bin/bash", "-c", "--", "-text", "bash"}},
		{"sh", []string{"/usr/bin/sh", "-c", "--", "-text", "sh"}},
		{"node", []string{"/usr/bin/node", "--eval=-text", "--"}},
		{"ruby", []string{"/usr/bin/ruby", "-e", "-text", "--"}},
		{"perl", []string{"/usr/bin/perl", "-e", "-text", "--"}},
	} {
		got, err := s.ForCode(&skill.Skill{Name: "demo"}, c.language, "-text")
		language := c.language
		if language == "" {
			language = "python"
		}
		if err != nil || !slices.Equal(got.Args, c.want) || got.Language != language || got.Env != nil {
			t.Errorf("%s: %+v, %v; want %v", c.language, got, err, c.want)
		}
	}
}

func TestForCodeErrors(t *testing.T) {
	s, sk := fakeSet(t, allLanguages()), &skill.Skill{Name: "demo"}
	for _, language := range []string{"lua", "Python", "python3", "py", "../x", "powershell", " "} {
		var unknown *LanguageError
		if _, err := s.ForCode(sk, language, "1"); !errors.As(err, &unknown) || unknown.Language != language {
			t.Errorf("%q: %v, want a language error", language, err)
		}
	}
	for what, text := range map[string]string{"empty": "", "NUL": "a\x00b", "too long": strings.Repeat("x", maxArgument+1)} {
		var refused *CodeError
		if _, err := s.ForCode(sk, "python", text); !errors.As(err, &refused) || len(err.Error()) > 200 {
			t.Errorf("%s: %v, want a code error", what, err)
		}
	}
	if _, err := s.ForCode(sk, "", strings.Repeat("x", maxArgument)); err != nil {
		t.Errorf("longest text: %v", err)
	}
	var missing *MissingError
	_, err := fakeSet(t, map[string]string{"usr/": ""}).ForCode(sk, "ruby", "1")
	if !errors.As(err, &missing) || missing.Interpreter != "ruby" {
		t.Errorf("missing: %v", err)
	}
}

// The real interpreters run a text of the maximum length and pass every argument to the
// program, even one that looks like an option.
func TestCodeRuns(t *testing.T) {
	s, err := Discover(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-x", "--version", "", "a b", "--", "-c"}
	want := "[-x][--version][][a b][--][-c]"
	ran := 0
	for language, text := range map[string]string{
		"python": `import sys; print(''.join('[%s]' % a for a in sys.argv[1:]), end='')`,
		"bash":   `for a; do printf '[%s]' "$a"; done`,
		"sh":     `for a; do printf '[%s]' "$a"; done`,
		"node":   `process.stdout.write(process.argv.slice(1).map(a => '[' + a + ']').join(''))`,
		"ruby":   `ARGV.each { |a| print "[#{a}]" }`,
		"perl":   `print "[$_]" for @ARGV`,
	} {
		inv, err := s.ForCode(&skill.Skill{Name: "demo"}, language, text)
		var missing *MissingError
		if errors.As(err, &missing) {
			t.Logf("%s is not installed on this machine", language)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := output(t, append(inv.Args, args...), inv.Env); got != want {
			t.Errorf("%s: got %q, want %q", language, got, want)
		}
		// A text of the maximum length that begins like an option.
		comment, first := "#", "-1;\n"
		switch language {
		case "node":
			comment = "//"
		case "bash", "sh":
			first = "-x 2>/dev/null\n"
		}
		option := 0
		if language == "node" {
			option = len("--eval=")
		}
		long := first + text + "\n" + comment
		long += strings.Repeat("x", maxArgument-option-len(long))
		if inv, err = s.ForCode(&skill.Skill{Name: "demo"}, language, long); err != nil {
			t.Errorf("%s: longest text: %v", language, err)
		} else if got := output(t, append(inv.Args, args...), inv.Env); got != want {
			t.Errorf("%s: longest text: got %q, want %q", language, got, want)
		}
		ran++
	}
	if ran < 2 {
		t.Errorf("%d languages ran, want bash and sh at least", ran)
	}
}

func output(t *testing.T, args, env []string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = append([]string{"PATH=/usr/bin:/bin"}, env...)
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	if err != nil {
		stderr := ""
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			stderr = string(exit.Stderr)
		}
		t.Errorf("%.60q: %v: %.200s", args, err, stderr)
	}
	return string(out)
}
