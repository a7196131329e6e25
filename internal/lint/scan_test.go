package lint

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestScanPython(t *testing.T) {
	tests := []struct{ text, code, strings string }{
		{"x = 'a' # b\ny", "x =        \ny", "x = 'a'    \ny"},
		{"'''d\ne'''\nx", "    \n    \nx", "    \n    \nx"},
		{`x = "a\"#b" + 'c'`, `x =         +    `, `x = "a\"#b" + 'c'`},
		{"def f():\n  r\"\"\"doc\"\"\"\n  return 'x'", "def f():\n  r         \n  return    ", "def f():\n  r         \n  return 'x'"},
		{"f('a',\n'b')", "f(   ,\n   )", "f('a',\n'b')"},
		{"x = 'open\ny = 1", "x =      \ny = 1", "x = 'open\ny = 1"},
		{"x = '''open", "x =        ", "x = '''open"},
		{"x = \\\n 'a'", "x = \\\n    ", "x = \\\n 'a'"},
	}
	for _, tt := range tests {
		got := scanPython(tt.text)
		if code, strs := strings.Join(got.code, "\n"), strings.Join(got.strings, "\n"); code != tt.code || strs != tt.strings {
			t.Errorf("%q:\ngot  %q and %q\nwant %q and %q", tt.text, code, strs, tt.code, tt.strings)
		}
	}
}

func TestPythonImports(t *testing.T) {
	text := `import os, sys as s; x = 1
from a.b import (
    c, d)
from . import e
import f.g as h, i
try:
    import j
    if x:
        import k
except ImportError:
    k = None
import l
if TYPE_CHECKING:
    import m
def n():
    import o
x = "import p"
from __future__ import annotations
importlib.import_module("q")
`
	var got []string
	for _, m := range pythonImports(text) {
		one := fmt.Sprintf("%s:%d", m.module, m.line)
		if m.optional {
			one += "?"
		}
		got = append(got, one)
	}
	want := []string{"os:1", "sys:1", "a.b:2", "f.g:5", "i:5", "j:7?", "k:9?", "l:12", "m:14?", "o:16", "__future__.annotations:18"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestCommands(t *testing.T) {
	tests := []struct {
		name string
		b    block
		want []CommandLine
	}{
		{"lines", block{"bash", 10, []string{"a 1", "", "# c", "b 2"}}, []CommandLine{{10, "a 1"}, {13, "b 2"}}},
		{"continued", block{"bash", 10, []string{`a \`, "  -b \\", "  c", "d"}}, []CommandLine{{10, "a -b c"}, {13, "d"}}},
		{"quote that goes on", block{"bash", 10, []string{"a", "b '", "c", "'"}}, []CommandLine{{10, "a"}, {11, "b '\nc\n'"}}},
		{"here-document", block{"sh", 10, []string{"cat <<EOF", "x", "EOF"}}, []CommandLine{{10, "cat <<EOF\nx\nEOF"}}},
		{"session", block{"console", 10, []string{"$ a", "out", "$ b"}}, []CommandLine{{10, "a"}, {12, "b"}}},
		{"no session", block{"console", 10, []string{"a", "b"}}, []CommandLine{{10, "a"}, {11, "b"}}},
		{"prompt in bash", block{"bash", 10, []string{"$ a"}}, []CommandLine{{10, "a"}}},
		{"placeholders", block{"bash", 10, []string{"a <file>", "a [-x]", "a ...", "a {name}", "a /path/to/x", "a {baseDir}/x", "a < x"}}, []CommandLine{{15, "a {baseDir}/x"}, {16, "a < x"}}},
		{"construct in a session", block{"console", 10, []string{"$ for f in a; do b; done", "out"}}, []CommandLine{{10, "for f in a; do b; done"}}},
		{"construct after a prompt in bash", block{"bash", 10, []string{"$ for f in a; do", "b", "done"}}, []CommandLine{{10, "for f in a; do\nb\ndone"}}},
		{"comment after a tab", block{"bash", 10, []string{"a\t# don't", "b"}}, []CommandLine{{10, "a\t# don't"}, {11, "b"}}},
		{"comment with a quote", block{"bash", 10, []string{"a # don't", "b"}}, []CommandLine{{10, "a # don't"}, {11, "b"}}},
	}
	for _, tt := range tests {
		if got := tt.b.commands(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// FuzzScanPython looks for texts on which the views lose their shape.
func FuzzScanPython(f *testing.F) {
	for _, seed := range []string{"x = 'a' # b\n", "'''", `"\`, "\\", "f'{x!r:>{w}}'", "r'\\'", "([{)", "import a, b.c as d\nfrom .x import y"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := scanPython(text)
		for _, view := range [][]string{got.code, got.strings} {
			joined := strings.Join(view, "\n")
			if len(joined) != len(text) || strings.Count(joined, "\n") != strings.Count(text, "\n") {
				t.Fatalf("%q became %q", text, joined)
			}
		}
		lines := strings.Count(text, "\n") + 1
		for _, m := range pythonImports(text) {
			if m.line < 1 || m.line > lines || m.root() == "" {
				t.Fatalf("%q: %+v", text, m)
			}
		}
	})
}

// FuzzManifest looks for texts of SKILL.md that break the reading of blocks.
func FuzzManifest(f *testing.F) {
	for _, seed := range []string{"---\nname: x\n---\n```bash\na\n```\n", "```\n````\n```", "~~~sh\na \\\n", "`a` ``b``", "---\n---\n> ```sh\n> x\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		m := parseMarkdown(text)
		for _, b := range m.blocks {
			for _, cmd := range b.commands() {
				if cmd.Line <= m.body || cmd.Line > len(m.lines) {
					t.Fatalf("%q: a command in line %d", text, cmd.Line)
				}
			}
		}
		for _, s := range m.spans {
			if s.line <= m.body || s.line > len(m.lines) {
				t.Fatalf("%q: code in line %d", text, s.line)
			}
		}
	})
}
