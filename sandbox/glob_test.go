package sandbox

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// words0 runs a program that prints words, each with a NUL, and returns them.
func words0(t *testing.T, h *Host, s Spec) []string {
	t.Helper()
	s.Env = append([]string{"LC_ALL=C.UTF-8"}, testEnv...)
	got := run(t, h, s, "")
	if got.exit.End != Exited || got.exit.Code != 0 || got.stderr != "" {
		t.Fatalf("got %+v, stderr %q", got.exit, got.stderr)
	}
	return strings.Split(strings.TrimSuffix(got.stdout, "\x00"), "\x00")
}

// globbed returns a command that prints its words. Each word is a pattern.
func globbed(patterns ...string) Command {
	c := cmd("/usr/bin/printf", `%s\0`)
	for _, p := range patterns {
		c.Globs = append(c.Globs, Glob{Arg: len(c.Args), Pattern: p})
		c.Args = append(c.Args, literal(p))
	}
	return c
}

var oddNames = []string{
	"a", "b", "ab", "a.csv", "b.csv", "A.csv", "Z", "a b.csv", "a\nb.csv", "-rf", "--help", "-", "-d/x", "-d/-y", ".hidden", ".d/x", ".d/.y", "..z", "[a]", "a[b", "a]", "]", "!", "^", "a*b", "a?b", `a\b`, `\`,
	"é", "éa", "日本.csv", "\xff", "a\xffb", "\xc3", "d/x", "d/y.csv", "d/.h", "d/e/x", "d/e/f/x", "e/x", "e/é", "1", "2", "10", "a-z", "x=1", "~", "{a,b}", "$x", "tab\t", "'", `"`, ";id", "a:b", "#",
}

// TestGlobsAreThoseOfBash compares with a bash in the same sandbox. Only names with a dash
// in front differ: init puts "./" before them.
func TestGlobsAreThoseOfBash(t *testing.T) {
	h := openHost(t)
	files := map[string]string{}
	for _, name := range oddNames {
		files[name] = ""
	}
	lower := newSnapshot(t, files)
	for name, to := range map[string]string{"link": "d", "dangling": "nowhere", "up": ".", "loop": "loop"} {
		if err := os.Symlink(to, lower+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	patterns := []string{
		"*", "?", "??", "???", "*.csv", "a*", "*a*", "*a*b*", "**", "*b", "a?b", `a\?b`, `a\*b*`, `\**`, "[ab]", "[ab]*", "a[!b]", "a[^b]*", "[!a]", "[a-c]", "[a-c]*", "[]]", "[!]]", "[]a]*", "[a]", `\[a\]*`,
		`[\]]`, `[a\]]`, `[\!a]`, `[a\-z]`, "[a-]", "[-a]*", "a[-]z", "[z-a]", "[", "[a", "a[b*", "*[", "[a*", "[]", "[!]", "[^]", "[[]a]", "[[]", `[\\]`, `*\\*`, "[[:alpha:]].csv", "[[:digit:]]*", "[![:alnum:]]x", "[[:upper:]]*", "[[:space:]]", "[[:nope:]]", "[[:alpha:]", "[[:digit:]a]", "[[=b=]]", "[[.b.]]*", "[[.-.]]*", "[[:punct:][:digit:]]",
		".*", ".?*", "..*", ".[!.]*", "[.]*", `\.h*`, "*/*", "*/x", "*/.h", "*/.*", ".d/*", ".*/*", ".*/.*", "d/*", "d/*/", "*/", "*/*/", "*/*/x", "d/*/x", "*/*/*/*", "d//*", "*//x", "*/../d", "*/.", "*/./x", "./*", "../workspace/a*", "/workspace/*.csv", "//workspace/[ab]",
		"link/*", "*/e/*", "dangl*", "dangl[i]ng", "*/dangling", "dangling/*", "loop/*", "l*/x", "up/*/[ab]", "-*", "-?/*", "-d/*", "[-]*", "*-", "?d/x", "é*", "[é]", "?[a]", "*é", "日?.csv", "\xff*", "a?b*", "*[é-ü]*", "[!é]", "none*", `no\*ne*`, `a\ b*`, "[a/b]", "a[/]b", `d\/*`, "d/[ex]/x", "[d/]x", "*\n*", "*\t",
		"~*", "{a*", "$*", `\'`, "x=?", "*=*", "*:*", "[;]*", "/nonexistent/*", "/root/*", "*" + strings.Repeat("a", 5000), strings.Repeat("*a", 30) + "b", strings.Repeat("?", 256),
	}
	for part := range slices.Chunk(patterns, 20) {
		mark := cmd("/usr/bin/printf", `%s\0`, "\x01")
		var program Program
		script := ""
		for _, p := range part {
			program = append(program, Step{Pipeline: []Command{globbed(p)}}, Step{Pipeline: []Command{mark}})
			script += `printf '%s\0' ` + shellWord(p) + ` $'\1'` + "\n"
		}
		want := split(words0(t, h, Spec{Program: bash(script), Workspace: Workspace{Lower: []string{lower}}}))
		got := split(words0(t, h, Spec{Program: program, Workspace: Workspace{Lower: []string{lower}}}))
		if len(got) != len(part) || len(want) != len(part) {
			t.Fatalf("%d and %d lists of words, want %d", len(got), len(want), len(part))
		}
		for i, p := range part {
			for j, word := range want[i] {
				if word[0] == '-' && word != literal(p) {
					want[i][j] = "./" + word
				}
			}
			if p == "-*" && len(want[i]) < 3 {
				t.Errorf("%q: bash has %q", p, want[i])
			}
			if !slices.Equal(got[i], want[i]) {
				t.Errorf("%q: got %q, bash has %q", p, got[i], want[i])
			}
		}
	}
}

// split splits a list of words after each \x01.
func split(words []string) [][]string {
	var lists [][]string
	var list []string
	for _, w := range words {
		if w == "\x01" {
			lists, list = append(lists, list), nil
			continue
		}
		list = append(list, w)
	}
	return lists
}

// shellWord writes a pattern for a shell and quotes everything except special characters.
func shellWord(pattern string) string {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		escaped := pattern[i] == '\\' && i+1 < len(pattern)
		if escaped {
			i++
		}
		if !escaped && strings.IndexByte(" \t\n~{},$'\"\\;&|<>()#`", pattern[i]) < 0 {
			b.WriteByte(pattern[i])
			continue
		}
		b.WriteString("'" + strings.ReplaceAll(pattern[i:i+1], "'", `'\''`) + "'")
	}
	return b.String()
}

func TestGlobs(t *testing.T) { eachMaker(t, testGlobs) }

func testGlobs(t *testing.T, h *Host) {
	lower := newSnapshot(t, map[string]string{"a.csv": "1\n", "b.csv": "2\n", "-n": "3\n", "d/c.csv": "4\n", "shut/x": "5\n", "blind/x": "6\n"})
	for name, mode := range map[string]os.FileMode{"shut": 0o600, "blind": 0o300} {
		if err := os.Chmod(lower+"/"+name, mode); err != nil {
			t.Fatal(err)
		}
	}
	glob := func(at int, c Command) Command {
		c.Globs = []Glob{{Arg: at, Pattern: c.Args[at]}}
		return c
	}
	for _, tt := range []struct {
		name    string
		program Program
		dir     string
		stdout  string
		stderr  string
		code    int
	}{
		{"files", pipeline(glob(1, cmd("cat", "*.csv"))), "", "1\n2\n", "", 0},
		{"among words", pipeline(glob(2, cmd("echo", "x", "?.csv", "*"))), "", "x a.csv b.csv *\n", "", 0},
		{"several", pipeline(globbed("*.csv", "z*", "d/*")), "", "a.csv\x00b.csv\x00z*\x00d/c.csv\x00", "", 0},
		{"a file is no option", pipeline(glob(1, cmd("cat", "-*"))), "", "3\n", "", 0},
		{"as written is as written", pipeline(glob(1, cmd("echo", "-n*z"))), "", "-n*z\n", "", 0},
		{"from the directory", pipeline(glob(1, cmd("cat", "*"))), "d", "4\n", "", 0},
		{"before the redirects", pipeline(with(glob(1, cmd("cat", "*.csv")), Redirect{FD: 1, Kind: Write, Path: "all.csv"})), "", "", "", 0},
		{"in a pipeline", pipeline(glob(1, cmd("cat", "?.csv")), cmd("sort", "-r")), "", "2\n1\n", "", 0},
		{"what came before is seen", Program{{Pipeline: []Command{cmd("touch", "new1", "new2")}}, {When: IfSucceeded, Pipeline: []Command{glob(1, cmd("echo", "new*"))}}}, "", "new1 new2\n", "", 0},
		{"a folder that can't be entered", pipeline(globbed("shut/*", "shut/x*/y", "sh*/x")), "", "shut/x\x00shut/x*/y\x00sh*/x\x00", "", 0},
		{"a folder that can't be read", pipeline(globbed("blind/*", "bli*/x")), "", "blind/*\x00blind/x\x00", "", 0},
		{"what root has", pipeline(globbed("/proc/1/fd/*", "/proc/1/root/*")), "", "/proc/1/fd/*\x00/proc/1/root/*\x00", "", 0},
		{"no program", pipeline(cmd("true"), glob(1, cmd("no-such", "*"))), "", "", "skillrun: no-such: not found\n", 127},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := run(t, h, Spec{Program: tt.program, Env: testEnv, Dir: tt.dir, Workspace: Workspace{Lower: []string{lower}}}, "")
			if got.exit.End != Exited || got.exit.Code != tt.code || got.stdout != tt.stdout || got.stderr != tt.stderr {
				t.Errorf("got %+v, stdout %q, stderr %q", got.exit, got.stdout, got.stderr)
			}
		})
	}
}

// TestManyMatches: a pattern may match thousands of files. More files than the bounds are a
// failure of the program, not of the sandbox.
func TestManyMatches(t *testing.T) {
	h := openHost(t)
	const few, many, long = 5_000, 33_000, 9_000
	lower := newSnapshot(t, nil)
	for dir, n := range map[string]int{"few": few, "many": many, "long": long} {
		name := "%06d"
		if dir == "long" {
			name += strings.Repeat("x", 240)
		}
		if err := os.Mkdir(lower+"/"+dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if err := os.WriteFile(fmt.Sprintf(lower+"/"+dir+"/"+name, i), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	spec := func(pattern string) Spec {
		return Spec{Program: pipeline(globbed(pattern)), Workspace: Workspace{Lower: []string{lower}}}
	}
	got := words0(t, h, spec("few/*"))
	if len(got) != few || got[0] != "few/000000" || got[few-1] != "few/"+fmt.Sprintf("%06d", few-1) || !slices.IsSorted(got) {
		t.Errorf("%d words, from %q to %q", len(got), got[0], got[len(got)-1])
	}
	if got := words0(t, h, spec("few/*9?9")); len(got) != few/100 {
		t.Errorf("%d words, want %s", len(got), strconv.Itoa(few/100))
	}
	for _, pattern := range []string{"many/*", "long/*", "*/*"} {
		s := spec(pattern)
		s.Env = testEnv
		got := run(t, h, s, "")
		if want := "skillrun: /usr/bin/printf: Argument list too long\n"; got.exit.End != Exited || got.exit.Code != 126 || got.stderr != want || got.stdout != "" {
			t.Errorf("%s: got %+v, stderr %q, want %q", pattern, got.exit, got.stderr, want)
		}
	}
}
