// Package skilltest imports skills for tests of other packages. Its tests need no root: the
// snapshots belong to the user that runs them.
package skilltest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/skilltest/folder"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// Owner returns an owner that this process can give snapshots to. For root it is the owner
// that package sandbox expects. A normal user can give files to no other user, so it is the
// user itself.
func Owner() snapshot.Owner {
	if os.Geteuid() == 0 {
		return snapshot.Owner{UID: 1000, GID: 1000}
	}
	return snapshot.Owner{UID: os.Geteuid(), GID: os.Getegid()}
}

// Load imports a skill named demo. files maps paths to contents: "-> target" is a link, and a
// text that starts with "#!" is executable. Without a SKILL.md, the skill gets the smallest one.
func Load(t testing.TB, files map[string]string) *skill.Skill {
	t.Helper()
	content := folder.Files{}
	for path, text := range files {
		if strings.HasPrefix(text, "#!") {
			path += "*"
		}
		content[path] = text
	}
	root, _ := folder.Skill(t, content)
	r, err := skill.OpenRegistry(t.Context(), skill.RegistryConfig{
		Roots: skill.Roots(root), Dir: filepath.Join(t.TempDir(), "snapshots"), Owner: Owner(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	sk, err := r.Resolve("demo")
	if err != nil {
		t.Fatalf("%v: %v", err, r.Problems())
	}
	return sk
}
