package manifest

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// fill repeats a piece n times. A %d in it becomes a number.
func fill(piece string, n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.ReplaceAll(piece, "%d", fmt.Sprint(i)))
	}
	return b.String()
}

// allocated is the memory that f allocates, in bytes.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// The work of an import grows with the length of a text, not with its square. The measure is the memory that the readers
// allocate: with the square, it is about 16 times as much for a text of four times the length.
func TestHostileTexts(t *testing.T) {
	for name, read := range map[string]func(t *testing.T, n int){
		"lines that go on": func(t *testing.T, n int) {
			readSkill(t, files{"SKILL.md": minimal + "```bash\n" + fill("x\\\n", n) + "```\n"})
		},
		"clauses of --with": func(t *testing.T, n int) {
			if _, _, err := ParseLaunch([]string{"uv", "run", "--with", "a" + fill(",.", n), "a.py"}); err == nil {
				t.Error("the requirement is accepted")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 16 << 10
			short, long := allocated(func() { read(t, n) }), allocated(func() { read(t, 4*n) })
			if long > 8*short {
				t.Errorf("reading took %d bytes of memory, and %d for a text of four times the length", short, long)
			}
		})
	}
}

// An alias of an alias of an alias was read to its end for each of them.
func TestNestedNodeAliases(t *testing.T) {
	if err := CheckNodePackage("a", fill("npm:a@", 100)+"1"); err == nil {
		t.Error("100 aliases in one another are accepted")
	}
	if err := CheckNodePackage("a", "npm:"+strings.Repeat("b", maxNodeName)+"@1.0.0"); err != nil {
		t.Error(err)
	}
}

// Refused requirements count as requirements: they would fill the daemon's memory otherwise.
func TestRefusedRequirementsAreBounded(t *testing.T) {
	needs, _ := readSkill(t, files{"requirements.txt": fill("a\x01\n", 3*maxRequirements)})
	if n := len(needs.Unreadable); n > maxRequirements+1 {
		t.Errorf("%d lines that can't be read are kept, want at most %d", n, maxRequirements+1)
	}
}
