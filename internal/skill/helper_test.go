package skill

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// files maps the paths of a folder to their content. A path that ends in "/" is a
// directory, one that ends in "*" is executable, and a text that starts with "-> " is a
// link's target.
type files map[string]string

const minimal = "---\nname: demo\ndescription: Shows things.\n---\nDo it.\n"

// write puts files into dir.
func (fs files) write(t *testing.T, dir string) {
	t.Helper()
	for p, text := range fs {
		full, executable := strings.CutSuffix(filepath.Join(dir, p), "*")
		if strings.HasSuffix(p, "/") {
			mustDo(t, os.MkdirAll(full, 0o755))
			continue
		}
		mustDo(t, os.MkdirAll(filepath.Dir(full), 0o755))
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			mustDo(t, os.Symlink(target, full))
			continue
		}
		mode := os.FileMode(0o644)
		if executable {
			mode = 0o755
		}
		mustDo(t, os.WriteFile(full, []byte(text), mode))
	}
}

// skillDir makes a root with one skill folder, "demo", and returns both.
func skillDir(t *testing.T, content files) (root, dir string) {
	t.Helper()
	root = t.TempDir()
	dir = filepath.Join(root, "demo")
	if _, ok := content["SKILL.md"]; !ok {
		files{"SKILL.md": minimal}.write(t, dir)
	}
	content.write(t, dir)
	return root, dir
}

// owner owns the snapshots of these tests. A normal user can give files only to itself.
var owner = func() Owner {
	if os.Geteuid() == 0 {
		return Owner{UID: 1000, GID: 1000}
	}
	return Owner{UID: os.Geteuid(), GID: os.Getegid()}
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
	r := open(t, RegistryConfig{Roots: []string{root}})
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

// scanDir reads a folder without importing it.
func scanDir(t *testing.T, dir string, b Bounds) (*tree, error) {
	t.Helper()
	f, err := os.Open(dir)
	mustDo(t, err)
	defer f.Close()
	return scanTree(context.Background(), f, nil, b)
}

func mustScan(t *testing.T, dir string) *tree {
	t.Helper()
	tr, err := scanDir(t, dir, Bounds{})
	mustDo(t, err)
	return tr
}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
