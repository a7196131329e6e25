// Package skilltest imports skills for tests of other packages. Its tests need no root: the
// snapshots belong to the user that runs them.
package skilltest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/skill"
)

// Owner returns an owner that this process can give snapshots to: for root the owner that
// package sandbox expects, for a normal user that user, who can give files to nobody else.
func Owner() skill.Owner {
	if os.Geteuid() == 0 {
		return skill.Owner{UID: 1000, GID: 1000}
	}
	return skill.Owner{UID: os.Geteuid(), GID: os.Getegid()}
}

// Load imports a skill named demo. files maps paths to contents: "-> target" is a link, and a
// text that starts with "#!" is executable. Without a SKILL.md, the skill gets the smallest one.
func Load(t testing.TB, files map[string]string) *skill.Skill {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, "demo/SKILL.md"), "---\nname: demo\ndescription: d\n---\n")
	for path, text := range files {
		write(t, filepath.Join(root, "demo", path), text)
	}
	r, err := skill.OpenRegistry(t.Context(), skill.RegistryConfig{
		Roots: []string{root}, Dir: filepath.Join(t.TempDir(), "snapshots"), Owner: Owner(),
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

func write(t testing.TB, file, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			err = os.Symlink(target, file)
		} else if strings.HasPrefix(text, "#!") {
			err = os.WriteFile(file, []byte(text), 0o755)
		} else {
			err = os.WriteFile(file, []byte(text), 0o644)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
