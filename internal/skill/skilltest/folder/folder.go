// Package folder writes skill folders for tests. It imports no package of skillrun, so the tests
// of package skill and of the packages that skill imports can use it, too.
package folder

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Minimal is the text of a small SKILL.md. Its skill is named demo.
const Minimal = "---\nname: demo\ndescription: Shows things.\n---\nDo it.\n"

// Files maps the paths of a folder to their content. A path that ends in "/" is a
// directory, one that ends in "*" is executable, and a text that starts with "-> " is a
// link's target.
type Files map[string]string

// Write puts the files into dir.
func (fs Files) Write(t testing.TB, dir string) {
	t.Helper()
	for p, text := range fs {
		if err := write(filepath.Join(dir, p), strings.HasSuffix(p, "/"), text); err != nil {
			t.Fatal(err)
		}
	}
}

func write(path string, isDir bool, text string) error {
	if isDir {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if target, ok := strings.CutPrefix(text, "-> "); ok {
		return os.Symlink(target, path)
	}
	mode := os.FileMode(0o644)
	path, executable := strings.CutSuffix(path, "*")
	if executable {
		mode = 0o755
	}
	return os.WriteFile(path, []byte(text), mode)
}

// Skill makes a root with one skill folder, "demo", and returns both. Without a SKILL.md, the
// skill gets the Minimal one.
func Skill(t testing.TB, content Files) (root, dir string) {
	t.Helper()
	root = t.TempDir()
	dir = filepath.Join(root, "demo")
	if _, ok := content["SKILL.md"]; !ok {
		Files{"SKILL.md": Minimal}.Write(t, dir)
	}
	content.Write(t, dir)
	return root, dir
}

// InMemory returns a directory in memory if the machine has one, for trees that would
// take long to write on disk.
func InMemory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "skill-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
