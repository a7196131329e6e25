package lint

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// hostileSize is the length of the texts of TestHostileTexts. A rule whose work grows with the square of this length
// takes many minutes.
const hostileSize = 256 << 10

// fill repeats a piece up to hostileSize bytes. A %d in it becomes a number.
func fill(piece string) string {
	var b strings.Builder
	for i := 0; b.Len() < hostileSize; i++ {
		b.WriteString(strings.ReplaceAll(piece, "%d", fmt.Sprint(i)))
	}
	return b.String()
}

// The time of a check grows with the length of a text, not with its square. The deadline does not measure speed: without
// it, a failure of this test would take hours.
func TestHostileTexts(t *testing.T) {
	block := func(language, text string) string { return md("", "```"+language+"\n"+text+"\n```\n") }
	bash := func(text string) string {
		return md("allowed-tools: Bash(git:*)", "```bash\n"+text+"\n```\n")
	}
	tests := []struct {
		name string
		path string
		text string
	}{
		{"code in one line", "SKILL.md", md("", fill("`a` "))},
		{"paths in one line of a block", "SKILL.md", block("bash", fill(" scripts/x%d"))},
		{"paths in one piece of code", "SKILL.md", md("", "`"+fill(" scripts/x%d")+"`")},
		{"links in one line", "SKILL.md", md("", fill("[a](b%d.md \"c\") "))},
		{"begins of links", "SKILL.md", md("", fill("](a \""))},
		{"lines that go on", "SKILL.md", bash(fill("x\\\n"))},
		{"output without a prompt", "SKILL.md", strings.Replace(bash(fill("a\n")), "bash", "console", 1)},
		{"commands", "SKILL.md", bash(fill("a%d\n"))},
		{"fences", "SKILL.md", md("", fill("```\na\n```\n"))},
		{"import with many parts", "scripts/a.py", "import " + fill("a.") + "b\n"},
		{"imports of socket", "scripts/a.py", fill("import socket\n") + "AF_UNIX\n"},
		{"imports", "scripts/a.py", fill("import a%d\n")},
		{"names that a line binds", "scripts/a.py", fill("for a as b ")},
		{"steps to parents", "scripts/a.py", "x = " + fill("__file__.parent ")},
		{"names of directories", "scripts/a.py", "x = " + fill("dirname(")},
		{"quotes", "scripts/a.py", fill(`"""` + "\n' ")},
		{"requests", "scripts/a.js", fill("fetch ")},
		{"programs of git", "scripts/a.sh", fill("git -a ")},
	}
	m := machine(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := Dir(ctx, skillDir(t, files{tt.path: tt.text}), m); err != nil {
				t.Error(err)
			}
		})
	}
}

// A caller that goes away ends the look at its skill, in each part of it that can take long.
func TestSkillEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, content := range map[string]files{
		"programs": {"scripts/a.py": "print(1)\n"},
		"commands": {"SKILL.md": md("allowed-tools: Bash(git:*)", "```bash\nls\n```\n")},
	} {
		if list, err := Dir(ctx, skillDir(t, content), nil); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, %v, want the error of the context", name, list, err)
		}
	}
}

// A command line of very many lines is joined once, not again for each of its lines: the memory for four times the lines is about
// four times as much, not 16 times.
func TestLinesThatGoOn(t *testing.T) {
	allocated := func(n int) uint64 {
		b := block{"bash", 1, append(slices.Repeat([]string{`x\`}, n), "y")}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if got := b.commands(); len(got) != 1 || len(got[0].Text) != n+1 {
			t.Errorf("%d lines are %d commands", n, len(got))
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	const n = 8 << 10
	if short, long := allocated(n), allocated(4*n); long > 8*short {
		t.Errorf("reading took %d bytes of memory, and %d for four times the lines", short, long)
	}
}
