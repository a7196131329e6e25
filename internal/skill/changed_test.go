package skill

import (
	"os"
	"path/filepath"
	"testing"
)

func TestChanged(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	r, err := OpenRegistry(t.Context(), RegistryConfig{Roots: Roots(root), Dir: dir, Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	changed := r.Changed()
	select {
	case <-changed:
		t.Fatal("closed before any reload")
	default:
	}
	if err := os.Mkdir(filepath.Join(root, "new"), 0o755); err != nil {
		t.Fatal(err)
	}
	text := "---\nname: new\ndescription: A skill.\n---\n"
	if err := os.WriteFile(filepath.Join(root, "new", "SKILL.md"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-changed
	if got := r.List(); len(got) != 1 {
		t.Errorf("the channel was closed before the skill was loaded: %v", got)
	}
	select {
	case <-r.Changed():
		t.Error("the next channel is already closed")
	default:
	}
}
