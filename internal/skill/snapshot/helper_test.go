package snapshot

import (
	"context"
	"os"
	"testing"

	"github.com/skillrun/skillrun/internal/skill/skilltest/folder"
)

type files = folder.Files

const minimal = folder.Minimal

func skillDir(t testing.TB, content files) (root, dir string) {
	t.Helper()
	return folder.Skill(t, content)
}

// owner owns the snapshots of these tests. A normal user can give files only to itself.
var owner = func() Owner {
	if os.Geteuid() == 0 {
		return Owner{UID: 1000, GID: 1000}
	}
	return Owner{UID: os.Geteuid(), GID: os.Getegid()}
}()

// scanDir reads a folder without importing it.
func scanDir(t *testing.T, dir string, b Bounds) (*Tree, error) {
	t.Helper()
	f, err := os.Open(dir)
	mustDo(t, err)
	defer f.Close()
	return scanTree(context.Background(), Source{Dir: f}, nil, b)
}

func mustScan(t *testing.T, dir string) *Tree {
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
