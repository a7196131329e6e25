package skill

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// A folder that was exchanged during the read is read again, because an installer may still
// write to the folder that was read.
func TestExchangedFolderIsNotTheSame(t *testing.T) {
	at := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(at, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	f := folder{root: root, relative: "a", path: filepath.Join(at, "a")}
	dir, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := snapshot.Still(f.root, f.relative, dir); err != nil {
		t.Errorf("untouched: %v", err)
	}
	if err := snapshot.Still(root, ".", root); err != nil {
		t.Errorf("root as a skill folder: %v", err)
	}
	for _, step := range [][2]string{{"a", "old"}, {"b", "a"}} {
		if err := os.Rename(filepath.Join(at, step[0]), filepath.Join(at, step[1])); err != nil {
			t.Fatal(err)
		}
		if err := snapshot.Still(f.root, f.relative, dir); !errors.Is(err, snapshot.ErrChanging) {
			t.Errorf("after %s became %s: %v, want %v", step[0], step[1], err, snapshot.ErrChanging)
		}
	}
	if err := os.Rename(filepath.Join(at, "a"), filepath.Join(at, "b")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(at, "old"), filepath.Join(at, "a")); err != nil {
		t.Fatal(err)
	}
	if err := snapshot.Still(f.root, f.relative, dir); err != nil {
		t.Errorf("exchanged back: %v", err)
	}
}
