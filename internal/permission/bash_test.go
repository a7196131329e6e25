package permission

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// bashWords runs command lines in a real bash, where two functions print their arguments,
// and returns these arguments.
func bashWords(t *testing.T, lines ...string) [][]string {
	t.Helper()
	bash, err := exec.LookPath("/usr/bin/bash")
	if err != nil {
		t.Skip("no bash to compare with")
	}
	// Each line runs in its own subshell, so that it cannot affect the next.
	const script = `
		say() { [ $# -eq 0 ] || builtin printf '%s\0' "$@"; builtin printf '\1\0'; return 0; }
		for line; do ( eval "$line" ) 2>/dev/null </dev/null; builtin printf '\2\0'; done`
	cmd := exec.Command(bash, append([]string{"--norc", "-c", script, "bash"}, lines...)...)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"PATH=/nonexistent", "LC_ALL=C.UTF-8", "HOME=/nonexistent"}
	out, err := cmd.Output()
	if err != nil && len(out) == 0 {
		t.Fatalf("bash: %v", err)
	}
	var all [][]string
	for _, one := range bytes.SplitAfter(out, []byte("\x02\x00")) {
		words := strings.Split(strings.TrimSuffix(string(one), "\x02\x00"), "\x00")
		if len(one) > 0 {
			all = append(all, words[:len(words)-1])
		}
	}
	return all
}

// planWords returns what bashWords would print for a plan whose commands are all "say".
func planWords(p Plan) []string {
	words := []string{}
	for _, args := range p.Commands() {
		words = append(append(words, args[1:]...), "\x01")
	}
	return words
}

// For lines that both bash and a plan run, the programs get the same words.
func TestWordsAreThoseOfBash(t *testing.T) {
	var lines []string
	rules := ParseRules([]string{"Bash(say:*)"}, "")
	for _, args := range []string{
		`a b`, `  a	b  `, `'a b'`, `"a b"`, `a\ b`, `a"b"'c'd`, `''`, `"" ''`, `a''b`, `\a\b`, `"\a\$\"\\"`, "\"a\\\nb\"", "a\\\nb", "'a\\\nb'", "'a\nb'", `\\`, `\'`,
		`'"'`, `"'"`, `a#b`, `a #b`, `'#'`, `\#`, `a=b`, `a=b=c d`, `[ ]`, `a]`, `[a`, `{ }`, `{}`, `{a}`, `}{`, `HEAD@{1}..HEAD@{2}`, `a~b`, `a!b`, `!`, `!!`, `a$`, `$`, `"$"`,
		`"a$ b"`, `%s`, `-n -e`, `--`, `a:b`, `a^b`, `\*`, `'*' "?"`, `\[a]`, `\{a,b}`, `{a\,b}`, `{a','b}`, `{"a,b"}`, `a\;b`, `'a;b' "c&d"`, `\&\&`, `é "日本"`, `a\é`, `"\é"`, `\~`, `'~'/x`,
		"a;say b", "a;say", "a\nsay b", "a && say b", `a &&
say b # c`, `"a` + "\t" + `b"`, `"\` + "\t" + `"`, `\` + "\t", `a\`, `'a\'`, `"a\\"`, `say`, `1..2 a,b`, `{1..`, `..}`, `@ + ?`, `"{a,b}"`, `"~" "*" "[a]"`,
	} {
		line := "say " + args
		if d := rules.Decide(line); d.Allowed {
			lines = append(lines, line)
		}
	}
	if len(lines) < 60 {
		t.Fatalf("%d lines to compare, want 60 or more", len(lines))
	}
	for i, got := range bashWords(t, lines...) {
		if want := planWords(rules.Decide(lines[i]).Plan); !slices.Equal(got, want) {
			t.Errorf("%q: bash passes %q, the plan has %q", lines[i], got, want)
		}
	}
}

// The same for random lines of characters that are special to a shell.
func TestRandomWordsAreThoseOfBash(t *testing.T) {
	atoms := []string{
		"a", "b1", " ", " ", "\t", "\n", "'", "'", `"`, `"`, `\`, `\`, "\\\n", "{", "}", ",", "..", "[", "]", "~", "=", ":", "/", "#", "!", "$", "^", "@", "-", "é", "(", ")",
		";", "say ", "&&", "say x", "'x y'", `"x y"`, "{a", "HEAD@{1}", "%", "+", "1", "`", "*", "?", "|", "<", ">",
	}
	random := rand.New(rand.NewPCG(1, 2))
	rules := ParseRules([]string{"Bash(say:*)"}, "")
	var lines []string
	for range 20_000 {
		var line strings.Builder
		line.WriteString("say ")
		for range 1 + random.IntN(12) {
			line.WriteString(atoms[random.IntN(len(atoms))])
		}
		if d := rules.Decide(line.String()); d.Allowed && sayOnly(d.Plan) {
			lines = append(lines, line.String())
		}
	}
	if len(lines) < 500 {
		t.Fatalf("%d of the random lines are allowed, want 500 or more", len(lines))
	}
	for part := range slices.Chunk(lines, 500) {
		for i, got := range bashWords(t, part...) {
			if want := planWords(rules.Decide(part[i]).Plan); !slices.Equal(got, want) {
				t.Errorf("%q: bash passes %q, the plan has %q", part[i], got, want)
			}
		}
	}
}

// Here-documents and here-strings have the same text as in bash.
func TestTextIsThatOfBash(t *testing.T) {
	for _, line := range []string{
		"cat <<E\na\\$b \\a \\\\ \\` \"x\" 'y' \\\"\nE\n", "cat <<'E'\na\\$b\\\nc\nE\n", "cat <<E\na\\\nb\nE\n", "cat <<-E\n\ta\n\t\tb \tc\n\tE\n", "cat <<-'E'\n\ta\\\n\tb\nE\n",
		"cat <<-E\n\ta\\\n\tb\nE\n", "cat <<E\nE\n", "cat <<E\n\n\nE\n", "cat <<\\E\n$x\nE\n", "cat <<'E F'\nx\nE F\n", "cat <<E\"F\"\n$x\nEF\n", "cat <<< 'a b'", "cat <<< a\\ b", "cat <<< ''",
		"cat <<A <<B\n1\nA\n2\nB\n", "cat <<E\n* ? [a] {a,b} ~ # ; & |\nE\n",
	} {
		d := ParseRules([]string{"Bash"}, "").Decide(line)
		if !d.Allowed {
			t.Errorf("%q: %s", line, d.Reason)
			continue
		}
		redirects := d.Plan[0].Pipeline[0].Redirects
		cmd := exec.Command("/usr/bin/bash", "-c", line)
		cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8"}
		want, err := cmd.Output()
		if err != nil {
			t.Fatalf("%q: bash: %v", line, err)
		}
		if got := redirects[len(redirects)-1].Text; got != string(want) {
			t.Errorf("%q: text %q, bash reads %q", line, got, want)
		}
	}
}

// sayOnly reports whether bash can run the plan's line without side effects: the line calls
// only the function and opens no file. Its patterns match nothing in an empty folder.
func sayOnly(p Plan) bool {
	for _, step := range p {
		if len(step.Pipeline) > 1 || step.When == IfFailed {
			return false
		}
		for _, c := range step.Pipeline {
			outside := slices.ContainsFunc(c.Globs, func(g Glob) bool { return strings.ContainsAny(g.Pattern, "/.") })
			if c.Args[0] != "say" || len(c.Redirects) > 0 || len(c.Env) > 0 || outside {
				return false
			}
		}
	}
	return true
}

func FuzzWordsAreThoseOfBash(f *testing.F) {
	for _, seed := range []string{`a "b c" 'd'\ e`, "a\\\nb # c\nsay d && say e", `{a}b,c}`, `[a"]"`, `HEAD@{1}..{2}`, `a$ "b\c"`, "~a=~", `a{"x",b}`, `{1..}2}`} {
		f.Add(seed)
	}
	rules := ParseRules([]string{"Bash(say:*)"}, "")
	f.Fuzz(func(t *testing.T, args string) {
		line := "say " + args
		d := rules.Decide(line)
		if !d.Allowed || !sayOnly(d.Plan) {
			return
		}
		if got, want := bashWords(t, line)[0], planWords(d.Plan); !slices.Equal(got, want) {
			t.Errorf("%q: bash passes %q, the plan has %q", line, got, want)
		}
	})
}

func TestMain(m *testing.M) {
	// The variables of the person who runs the tests must not change bash's behaviour.
	os.Unsetenv("BASH_ENV")
	os.Exit(m.Run())
}
