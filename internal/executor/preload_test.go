package executor

import (
	"testing"

	"github.com/skillrun/skillrun/internal/scarcetest"
	"github.com/skillrun/skillrun/internal/skill/skilltest"
)

// If the modules of a skill cannot be read, they count as ones that change the module path, but only for this execution.
func TestModulesThatCannotBeReadForAMoment(t *testing.T) {
	sk := skilltest.Load(t, map[string]string{"scripts/a.py": "import csv", "scripts/b.py": ""})
	scarcetest.WithoutDescriptors(t, func() {
		if !searchesElsewhere(sk) {
			t.Error("modules that cannot be read count as harmless")
		}
	})
	if of, err := (preload{skill: sk}).ofFile("scripts/a.py"); err != nil || of.Elsewhere {
		t.Errorf("got %v, %v; want that nothing changes the module path", of, err)
	}
}
