package snapshot

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestDetectScripts(t *testing.T) {
	const py = "#!/usr/bin/env python3\n"
	tests := []struct {
		path, text string
		language   string
		found      bool
	}{
		{"scripts/a.py", "", "python", true},
		{"scripts/A.PY", "", "python", true},
		{"scripts/a.sh", "", "bash", true},
		{"scripts/a.js", "", "node", true},
		{"scripts/a.rb", "", "ruby", true},
		{"scripts/a.pl", "", "perl", true},
		{"scripts/a.bat", "", "batch", true},
		{"scripts/a.cmd", "", "batch", true},
		{"scripts/a.ps1", "", "powershell", true},
		{"a.py", "", "python", true},
		{"scripts/1/2/3/4/5/a.py", "", "python", true},
		{"scripts/1/2/3/4/5/6/a.py", "", "", false},
		{"lib/a.py", "", "", false},
		{"scripts2/a.py", "", "", false},
		{"scripts/.hidden.py", "", "", false},
		{"scripts/.hidden/a.py", "", "", false},
		{".a.py", "", "", false},
		{"scripts/__pycache__/a.py", "", "", false},
		{"scripts/node_modules/a.js", "", "", false},
		{"scripts/venv/a.py", "", "", false},
		{"scripts/.venv/a.py", "", "", false},
		{"scripts/tool", py, "python", true},
		{"tool", "#!/bin/bash\n", "bash", true},
		{"scripts/tool*", "", "", true},
		{"scripts/tool", "", "", false},
		{"tool*", "", "", false},
		{"scripts/data.bin*", "", "", false},
		{"scripts/README.md", py, "", false},
		{"scripts/x.json", "", "", false},
		{"scripts/x.txt", py, "", false},
		{"scripts/x.mjs", "", "node", true},
		{"scripts/x.CJS", "", "node", true},
		{"scripts/x.ts", "", "node", true},
		{"scripts/x.mts", "", "node", true},
		{"scripts/x.d.ts", "", "", false},
		{"scripts/x.d.mts", "", "", false},
		{"scripts/d.ts", "", "node", true},
		{"scripts/x.py", "#!/bin/bash\n", "python", true}, // the extension wins
		{"scripts/link.py", "-> ../SKILL.md", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			_, dir := skillDir(t, files{tt.path: tt.text})
			got := mustScan(t, dir).Scripts
			if !tt.found {
				if len(got) != 0 {
					t.Errorf("got %v, want none", got)
				}
				return
			}
			if len(got) != 1 || got[0].Path != strings.TrimSuffix(tt.path, "*") || got[0].Language != tt.language {
				t.Errorf("got %v, want one in %q", got, tt.language)
			}
		})
	}
}

func TestShebang(t *testing.T) {
	tests := []struct {
		head, program, language string
		is                      bool
	}{
		{"#!/usr/bin/env python3\n", "python3", "python", true},
		{"#!/usr/bin/env -S python3.11 -u\n", "python3.11", "python", true},
		{"#!/usr/bin/env A=b node\n", "node", "node", true},
		{"#!/usr/bin/nodejs", "nodejs", "node", true},
		{"#! /bin/sh -e\n", "sh", "sh", true},
		{"#!/bin/dash\r\n", "dash", "sh", true},
		{"#!/usr/bin/perl5.36\n", "perl5.36", "perl", true},
		{"#!/usr/bin/ruby", "ruby", "ruby", true},
		{"#!/usr/bin/fish\n", "fish", "", true},
		{"#!\n", "", "", true},
		{"#!/usr/bin/env\n", "", "", true},
		{"# !/bin/sh\n", "", "", false},
		{"", "", "", false},
	}
	for _, tt := range tests {
		program, is := shebangProgram([]byte(tt.head))
		if program != tt.program || is != tt.is || languageOfProgram(program) != tt.language {
			t.Errorf("%q: got %q (%q), %t, want %q (%q), %t", tt.head, program, languageOfProgram(program), is, tt.program, tt.language, tt.is)
		}
	}
}

func TestDescribe(t *testing.T) {
	tests := []struct{ name, language, text, want string }{
		{"docstring", "python", "#!/usr/bin/env python3\n\"\"\"Adds numbers.\n\n    Usage: add.py\n\"\"\"\nimport sys\n", "Adds numbers.\n\nUsage: add.py"},
		{"docstring on one line", "python", "\"\"\"Adds.\"\"\"\n", "Adds."},
		{"single quotes", "python", "'''\nAdds.\n'''\n", "Adds."},
		{"docstring after code", "python", "import x\n\n\"\"\"Late.\"\"\"\n", "Late."},
		{"empty docstring", "python", "\"\"\"\"\"\"\n# Adds.\n", "Adds."},
		{"docstring not closed", "python", "\"\"\"Adds.\nmore", "Adds.\nmore"},
		{"stars in a docstring", "python", "\"\"\"List:\n* a\n\"\"\"", "List:\n* a"},
		{"comment", "python", "# Adds\n# numbers.\nx = 1\n# Later.\n", "Adds\nnumbers."},
		{"encoding", "python", "#!/usr/bin/python\n# -*- coding: utf-8 -*-\n# Adds.\n", "Adds."},
		{"BOM and CRLF", "python", "\ufeff# Adds\r\n# numbers.\r\n", "Adds\nnumbers."},
		{"shell", "bash", "#!/bin/bash\nset -e\n# Counts.\n#\n# Usage: c\necho\n", "Counts.\n\nUsage: c"},
		{"banner", "bash", "#####\n## Counts.\n#####\n", "Counts."},
		{"JSDoc", "node", "#!/usr/bin/env node\n/**\n * Shows.\n * @x y\n */\n", "Shows.\n@x y"},
		{"slashes", "node", "'use strict';\n// Shows\n// things.\n", "Shows\nthings."},
		{"block on one line", "node", "/* Shows. */ let x\n", "Shows."},
		{"ruby", "ruby", "=begin\nSorts.\n=end\n", "Sorts."},
		{"ruby comment", "ruby", "# Sorts.\n", "Sorts."},
		{"POD", "perl", "#!/usr/bin/perl\nuse strict;\n\n=pod\n\nGreps.\n\n=cut\n", "Greps."},
		{"batch", "batch", "@echo off\nREM Makes.\nrem more\n", "Makes.\nmore"},
		{"batch colons", "batch", ":: Makes.\n", "Makes."},
		{"powershell", "powershell", "<#\nLists.\n#>\n", "Lists."},
		{"no comment", "python", "x = 1\n", ""},
		{"nothing", "python", "", ""},
		{"too late", "python", strings.Repeat("x = 1\n", 50) + "# Late.\n", ""},
		{"just in time", "python", strings.Repeat("x = 1\n", 49) + "# Late.\n", "Late."},
		{"terminal control", "python", "# a\x1b[31mb\u009bc\td\n", "a[31mbc\td"},
		{"not UTF-8", "python", "# a\xffb\n", "a\ufffdb"},
		{"exactly 500", "python", "# " + strings.Repeat("é", 500), strings.Repeat("é", 500)},
		{"one long word", "python", "# " + strings.Repeat("é", 501), strings.Repeat("é", 500)},
		{"cut at a word", "python", "# " + strings.Repeat("word ", 120), strings.TrimSpace(strings.Repeat("word ", 99)) + " word"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := describe(tt.language, []byte(tt.text))
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if n := utf8.RuneCountInString(got); n > maxScriptDescription {
				t.Errorf("%d characters", n)
			}
		})
	}
}

// A binary has no description, even if it has a #. A long script is judged by its first
// bytes.
func TestScriptContent(t *testing.T) {
	_, dir := skillDir(t, files{
		"scripts/elf*":    "\x7fELF\x00\n# not a comment\n",
		"scripts/long.py": "# Long.\n" + strings.Repeat("x = 1\n", 100_000),
	})
	got := mustScan(t, dir).Scripts
	want := []Script{{Path: "scripts/elf"}, {Path: "scripts/long.py", Language: "python", Description: "Long."}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestManyScripts(t *testing.T) {
	f := files{}
	for i := range 50 {
		f["scripts/"+string(rune('a'+i%26))+strings.Repeat("x", i/26)+".py"] = "\"\"\"Does it.\"\"\"\n"
	}
	_, dir := skillDir(t, f)
	got := mustScan(t, dir).Scripts
	if len(got) != 50 {
		t.Fatalf("%d scripts, want 50", len(got))
	}
	for i := 1; i < len(got); i++ {
		if got[i-1].Path >= got[i].Path {
			t.Errorf("%s comes before %s", got[i-1].Path, got[i].Path)
		}
	}
}

func FuzzDescribe(f *testing.F) {
	f.Add("#!/usr/bin/env python3\n\"\"\"Doc.\n\"\"\"\n")
	f.Add("/**\n * x\n */")
	f.Add("=pod\nx\n=cut\n")
	f.Add("REM x\n<# y #>\n'''z")
	f.Fuzz(func(t *testing.T, text string) {
		for _, language := range append(slices.Sorted(maps.Keys(commentsOf)), "none") {
			d := describe(language, []byte(text))
			if n := len([]rune(d)); n > maxScriptDescription || strings.TrimSpace(d) != d {
				t.Errorf("%s: %d characters: %q", language, n, d)
			}
		}
	})
}
