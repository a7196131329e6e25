package lint

import (
	"os"
	"path/filepath"
	"testing"
)

// The skills that ship are clean wherever they run; make lint looks at them on a
// machine, too.
func TestShippedSkills(t *testing.T) {
	dirs, err := os.ReadDir("../../skills")
	if err != nil {
		t.Fatal(err)
	}
	if len(dirs) < 6 {
		t.Fatalf("%d skills: not the right folder", len(dirs))
	}
	for _, d := range dirs {
		list, err := Dir(t.Context(), filepath.Join("../../skills", d.Name()), nil)
		if err != nil || len(list) > 0 {
			t.Errorf("%s: %v, %v", d.Name(), list, err)
		}
	}
}

// A folder that is no skill has the findings that say so, and nothing breaks.
func TestDirWithoutSkill(t *testing.T) {
	list, err := Dir(t.Context(), t.TempDir(), nil)
	if err != nil || len(list) != 1 {
		t.Errorf("got %v, %v, want one finding", list, err)
	}
	if _, err := Dir(t.Context(), filepath.Join(t.TempDir(), "none"), nil); err == nil {
		t.Error("a folder that isn't there was checked")
	}
}

func TestThisMachine(t *testing.T) {
	m, err := ThisMachine(t.Context())
	if err != nil || len(m.Runtimes.List()) == 0 {
		t.Fatalf("got %v, %v", m, err)
	}
	c := &check{machine: m}
	if !c.program("sh") || c.program("no-such-program") {
		t.Error("sh is missing, or what doesn't exist is there")
	}
}
