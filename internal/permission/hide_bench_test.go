package permission

import (
	"fmt"
	"testing"

	"github.com/skillrun/skillrun/internal/skill/skilltest"
)

// BenchmarkHides is the check of a session of 1,000 files.
func BenchmarkHides(b *testing.B) {
	sk := skilltest.Load(b, map[string]string{"scripts/x.py": "1"})
	g, err := Policy{}.Check(who, sk, Source{Kind: Script, Script: "scripts/x.py"}, nil)
	if err != nil {
		b.Fatal(err)
	}
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("data/d%d/f%d.csv", i%10, i))
	}
	for b.Loop() {
		hides := g.Hides("", false)
		for _, name := range names {
			hides(name)
		}
	}
}
