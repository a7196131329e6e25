package executor

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/sandbox"
)

// A globbing runs command lines in real sandboxes over the same few files.
type globbing struct {
	host  *sandbox.Host
	lower string
	count int
}

func newGlobbing(t *testing.T) *globbing {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a sandbox needs root")
	}
	host, err := sandbox.Open(t.Context(), sandbox.Config{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
	lower := t.TempDir()
	for _, path := range []string{
		"a", "b", "ab", "a b", "a\nb", "b1", "-", "-x", ".h", "[a]", "a]", "*", "a*b", "?", "!", "^", `\`, "é", "日é", "\xff", "d/a", "d/b1", "d/.h", "d/-x", "d/é", "e/a b", "e/f/a", "=", "#", "~", "x=a", "%",
	} {
		full := filepath.Join(lower, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const script = 1000
	if err := filepath.WalkDir(lower, func(path string, _ os.DirEntry, _ error) error { return os.Lchown(path, script, script) }); err != nil {
		t.Fatal(err)
	}
	return &globbing{host: host, lower: lower}
}

// end follows the words of each line.
const end = "=end="

// words returns what each line of a program that prints its words has printed.
func (g *globbing) words(t *testing.T, p sandbox.Program) [][]string {
	t.Helper()
	g.count++
	var out, errs bytes.Buffer
	process, err := g.host.Start(t.Context(), sandbox.Spec{
		ID: fmt.Sprintf("glob-%d", g.count), Program: p, Env: []string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8"},
		Workspace: sandbox.Workspace{Lower: []string{g.lower}},
	}, sandbox.IO{Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := process.Wait(); err != nil || exit.Code != 0 || errs.Len() > 0 {
		t.Fatalf("%+v, %v, stderr %q", exit, err, errs.String())
	}
	var lines [][]string
	for line := range strings.SplitSeq(strings.TrimSuffix(out.String(), end+"\x00"), end+"\x00") {
		words := strings.Split(line, "\x00")
		for i, word := range words {
			if strings.HasPrefix(word, "./-") { // a match; bash adds no "./"
				words[i] = word[2:]
			}
		}
		lines = append(lines, words[:len(words)-1])
	}
	return lines
}

// compare runs command lines by their plans and by a bash, in equal sandboxes.
func (g *globbing) compare(t *testing.T, lines []string) {
	t.Helper()
	rules := permission.ParseRules([]string{"Bash"}, "")
	var program sandbox.Program
	for _, line := range lines {
		program = append(program, toProgram(rules.Decide(line).Plan)...)
	}
	bash := sandbox.Program{{Pipeline: []sandbox.Command{{Args: []string{"bash", "-c", strings.Join(lines, "\n")}}}}}
	got, want := g.words(t, program), g.words(t, bash)
	if len(got) != len(lines) || len(want) != len(lines) {
		t.Fatalf("%d and %d lines of words, want %d", len(got), len(want), len(lines))
	}
	for i, line := range lines {
		if !slices.Equal(got[i], want[i]) {
			t.Errorf("%q: got %q, bash has %q", line, got[i], want[i])
		}
	}
}

func printing(words string) string { return `printf '%s\0' x ` + words + " " + end }

// Patterns of a command line become the names that bash makes of them.
func TestGlobsAreThoseOfBash(t *testing.T) {
	var lines []string
	for _, words := range []string{
		"*", "? [ab]* a*", "'*' \\* \"?\" *", "'a'* 'a b'* a\\ *", `"*"* a'*'b \**`, "d/* */a */* e/*/a", "*/", ".* */.h", "[!a] [^a-b] [a\"]\"]", `["!"a] ["^"] [\^]`, `*\\`, `\\*`, "no* n'o'* \"*\"no*", "é* ?é [é]", `x=? x=*`, "[ [a []", "d//*",
		"d'/'* d\\/*", "./* ../workspace/?", "/workspace/[ab]", "'[a]' \\[a] [[]a]", "a?b a\"?\"b", "-*",
	} {
		lines = append(lines, printing(words))
		if d := permission.ParseRules([]string{"Bash(printf:*)"}, "").Decide(printing(words)); !d.Allowed {
			t.Errorf("%q: %s", words, d.Reason)
		}
	}
	newGlobbing(t).compare(t, lines)
}

// The same for words put together at random.
func TestRandomGlobsAreThoseOfBash(t *testing.T) {
	atoms := []string{
		"*", "*", "?", "[", "]", "[", "]", "!", "^", "-", "a", "b", "1", "é", "'", "'", `"`, `"`, `\`, `\`, " ", " ", "d/", "/", ".", "=", "[ab]", "[!a]", "[^", "'*'", `"]"`, `\[`, "\n", "~", "x=", "{", ",", "日", ":",
	}
	random := rand.New(rand.NewPCG(3, 4))
	rules := permission.ParseRules([]string{"Bash"}, "")
	g := newGlobbing(t)
	var lines []string
	for len(lines) < 600 {
		var words strings.Builder
		for range 1 + random.IntN(9) {
			words.WriteString(atoms[random.IntN(len(atoms))])
		}
		line := printing(words.String())
		d := rules.Decide(line)
		outside := strings.Contains(words.String(), "/") && !strings.HasPrefix(words.String(), "d/")
		if d.Allowed && !outside && len(d.Plan) == 1 && len(d.Plan[0].Pipeline[0].Globs) > 0 {
			lines = append(lines, line)
		}
	}
	for part := range slices.Chunk(lines, 200) {
		g.compare(t, part)
	}
}
