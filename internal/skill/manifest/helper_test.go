package manifest

import (
	"os"
	"testing"

	"github.com/skillrun/skillrun/internal/skill/skilltest/folder"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

type files = folder.Files

const minimal = folder.Minimal

// readSkill parses the manifest of a folder with these files and collects its requirements. It
// returns all findings.
func readSkill(t *testing.T, content files) (Needs, []Finding) {
	t.Helper()
	_, path := folder.Skill(t, content)
	dir, err := os.Open(path)
	mustDo(t, err)
	defer dir.Close()
	tree, err := snapshot.Scan(t.Context(), snapshot.Source{Dir: dir}, snapshot.Bounds{})
	mustDo(t, err)
	text, err := os.ReadFile(path + "/SKILL.md")
	mustDo(t, err)
	d := Parse(text, Names[0], "demo")
	needs, found, err := ReadNeeds(d, tree, func(e snapshot.Entry) ([]byte, error) { return snapshot.ReadFile(snapshot.Source{Dir: dir}, e) })
	mustDo(t, err)
	return needs, append(d.List, found...)
}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
