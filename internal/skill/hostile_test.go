package skill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	testfolder "github.com/skillrun/skillrun/internal/skill/skilltest/folder"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// A skill folder is swapped again and again with a link to a skill that the folder's owner
// may not read. The linked skill is never imported.
func TestFolderSwappedForLink(t *testing.T) {
	base := t.TempDir()
	root, private, spare := filepath.Join(base, "root"), filepath.Join(base, "private"), filepath.Join(base, "spare")
	files{"demo/SKILL.md": minimal}.Write(t, root)
	files{"SKILL.md": named("private"), "secret": "x"}.Write(t, private)
	mustDo(t, os.Symlink(private, spare))
	r := open(t, RegistryConfig{Roots: Roots(root)})

	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				unix.Renameat2(unix.AT_FDCWD, filepath.Join(root, "demo"), unix.AT_FDCWD, spare, unix.RENAME_EXCHANGE)
			}
		}
	})
	for range 200 {
		if _, err := r.Reload(context.Background()); err != nil {
			t.Fatalf("Reload: %v", err)
		}
		for _, s := range r.List() {
			if s.Name != "demo" || s.Has("secret") {
				t.Fatalf("imported %s with %d files", s.Name, s.FileCount)
			}
		}
	}
	close(stop)
	swapping.Wait()
}

// The snapshot has no refused entries, and importing never opens them.
func TestRefusedIsNotImported(t *testing.T) {
	root, dir := skillDir(t, files{"out": "-> /etc/shadow", "loop": "-> loop", "outdir": "-> /etc", "ok": "x", "venv/bin/python": "-> /usr/bin/python3"})
	at := func(p string) string { return filepath.Join(dir, p) }
	mustDo(t, os.WriteFile(at("suid"), []byte("x"), 0o755))
	mustDo(t, os.Chmod(at("suid"), 0o755|os.ModeSetuid))
	mustDo(t, unix.Mkfifo(at("fifo"), 0o644)) // opening it would block
	mustDo(t, os.MkdirAll(at("bad\nname/inner"), 0o755))
	s := resolve(t, open(t, RegistryConfig{Roots: Roots(root)}), "demo")

	list, err := os.ReadDir(s.Dir)
	mustDo(t, err)
	var got []string
	for _, d := range list {
		got = append(got, d.Name())
	}
	if want := "SKILL.md ok venv"; strings.Join(got, " ") != want {
		t.Errorf("the snapshot has %q, want %s", got, want)
	}
	if len(s.Refused) != 7 || s.FileCount != 2 {
		t.Errorf("refused %v, %d files, want 7 and 2", s.Refused, s.FileCount)
	}
	for _, p := range []string{"out", "loop", "outdir", "suid", "fifo", "bad\nname", "bad\nname/inner", "venv/bin/python"} {
		if !s.Has(p) {
			t.Errorf("an input may be put at %q", p)
		}
	}
}

// A skill may have thousands of files.
func TestManyFiles(t *testing.T) {
	root := manyFiles(t, 1500)
	r := open(t, RegistryConfig{Roots: Roots(root)})
	s := resolve(t, r, "demo")
	if s.FileCount != 1501 {
		t.Errorf("%d files, want 1501", s.FileCount)
	}
	if e, err := s.Lookup("d42/f1242"); err != nil || e.Size != 4 {
		t.Errorf("Lookup = %+v, %v", e, err)
	}
	if _, err := r.Reload(context.Background()); err != nil || resolve(t, r, "demo") != s {
		t.Errorf("the skill was replaced: %v", err)
	}
}

// A root with too many names is a problem.
func TestCrowdedRoot(t *testing.T) {
	root := testfolder.InMemory(t)
	for i := range maxRootNames + 1 {
		mustDo(t, os.WriteFile(filepath.Join(root, fmt.Sprint(i)), nil, 0o644))
	}
	r := open(t, RegistryConfig{Roots: Roots(root)})
	var be *snapshot.BoundError
	if p, _ := problemOf(r, root); !errors.As(p.Err, &be) {
		t.Errorf("problem %+v, want a *snapshot.BoundError", p)
	}
}
