package skill

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	testfolder "github.com/skillrun/skillrun/internal/skill/skilltest/folder"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

type files = testfolder.Files

const minimal = testfolder.Minimal

func skillDir(t testing.TB, content files) (root, dir string) {
	t.Helper()
	return testfolder.Skill(t, content)
}

// owner owns the snapshots of these tests. A normal user can give files only to itself.
var owner = func() snapshot.Owner {
	if os.Geteuid() == 0 {
		return snapshot.Owner{UID: 1000, GID: 1000}
	}
	return snapshot.Owner{UID: os.Geteuid(), GID: os.Getegid()}
}()

// open opens a registry over roots. Without c.Dir it gets a new store.
func open(t testing.TB, c RegistryConfig) *Registry {
	t.Helper()
	c.Owner = owner
	if c.Dir == "" {
		c.Dir = filepath.Join(t.TempDir(), "snapshots")
	}
	r, err := OpenRegistry(context.Background(), c)
	if err != nil {
		t.Fatalf("OpenRegistry: %v", err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// load imports a skill "demo" and returns it.
func load(t *testing.T, content files) *Skill {
	t.Helper()
	root, _ := skillDir(t, content)
	r := open(t, RegistryConfig{Roots: Roots(root)})
	return resolve(t, r, "demo")
}

func resolve(t *testing.T, r *Registry, ref string) *Skill {
	t.Helper()
	s, err := r.Resolve(ref)
	if err != nil {
		t.Fatalf("Resolve(%q): %v; problems: %v", ref, err, r.Problems())
	}
	return s
}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
