package skill

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// A recursive root has skills at any level. Folders in a skill are the skill's own.
func TestRecursiveRoot(t *testing.T) {
	root := t.TempDir()
	deep := strings.Repeat("d/", maxRootDepth)
	files{
		"a/SKILL.md":                  named("a"),
		"plugins/x/skills/b/SKILL.md": named("b"), "plugins/x/README": "",
		"a/inner/SKILL.md":      named("inner"), // part of a
		".hidden/c/SKILL.md":    named("c"),
		"node_modules/SKILL.md": named("d"),
		deep + "e/SKILL.md":     named("e"),
		"link":                  "-> plugins",
		"text":                  "-> plugins/x/README",
	}.Write(t, root)
	r := open(t, RegistryConfig{Roots: []Root{{Dir: root, Recursive: true}}})
	if got, want := names(r.List()), []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("skills %v, want %v", got, want)
	}
	if !resolve(t, r, "a").Has("inner/SKILL.md") {
		t.Error("a lacks its own folder")
	}
	for at, want := range map[string]error{"link": ErrLinkedFolder, deep + "e": ErrTooDeep} {
		if p, _ := problemOf(r, filepath.Join(root, at)); !errors.Is(p.Err, want) {
			t.Errorf("%s: problem %+v, want %v", at, p, want)
		}
	}
	if got := r.Problems(); len(got) != 2 {
		t.Errorf("problems %v, want two", got)
	}
}

// If a directory can no longer be read, the skills beneath it stay loaded. If the directory is gone,
// they don't.
func TestRecursiveRootLosesADirectory(t *testing.T) {
	root := t.TempDir()
	files{"x/a/SKILL.md": named("a"), "y/b/SKILL.md": named("b")}.Write(t, root)
	r := open(t, RegistryConfig{Roots: []Root{{Dir: root, Recursive: true}}})
	l := &loading{registry: r, old: r.now.Load(), next: &snapshotOfRoots{}}
	l.lost(place{folder: filepath.Join(root, "x")}, os.ErrPermission)
	if len(l.found) != 1 || l.found[0].skill.Name != "a" {
		t.Errorf("kept %v, want a", l.found)
	}
	mustDo(t, os.RemoveAll(filepath.Join(root, "y")))
	_, err := r.Reload(context.Background())
	mustDo(t, err)
	if got, want := names(r.List()), []string{"a"}; !slices.Equal(got, want) {
		t.Errorf("skills %v, want %v", got, want)
	}
}

// In a recursive root a link to a file of the root counts as that file. Links to other files, to
// directories and to excluded files are refused, and so are all of them without recursion.
func TestLinksWithinARoot(t *testing.T) {
	base := t.TempDir()
	root := filepath.Join(base, "root")
	files{
		"shared/SKILL.md":        named("linked"),
		"shared/x.py":            "#!/usr/bin/env python3\nprint(1)\n",
		"shared/.git/config":     "secret",
		"skills/linked/SKILL.md": "-> ../../shared/SKILL.md",
		"skills/linked/x.py":     "-> ../../shared/x.py",
		"skills/linked/again.py": "-> x.py",
		"skills/linked/dir":      "-> ../../shared",
		"skills/linked/git":      "-> ../../shared/.git/config",
		"skills/linked/out":      "-> ../../../outside",
		"skills/linked/absolute": "-> " + base + "/outside",
		"skills/linked/none":     "-> ../../shared/none",
	}.Write(t, root)
	files{"outside": "secret"}.Write(t, base)
	r := open(t, RegistryConfig{Roots: []Root{{Dir: root, Recursive: true}}})
	s := resolve(t, r, "linked")
	for _, p := range []string{"SKILL.md", "x.py", "again.py"} {
		f, _, err := s.Open(p)
		mustDo(t, err)
		f.Close()
	}
	var refused []string
	for _, e := range s.Refused {
		refused = append(refused, e.Path)
	}
	if want := []string{"absolute", "dir", "git", "none", "out"}; !slices.Equal(refused, want) {
		t.Errorf("refused %v, want %v", refused, want)
	}
	if len(s.Scripts) != 1 || s.Scripts[0].Path != "x.py" {
		t.Errorf("scripts %v", s.Scripts)
	}

	// A change of the file is a change of the skill.
	files{"shared/x.py": "#!/usr/bin/env python3\nprint(2)\n"}.Write(t, root)
	c, err := r.Reload(context.Background())
	if err != nil || !slices.Equal(c.Updated, []string{"linked"}) {
		t.Errorf("changes %+v, %v", c, err)
	}

	flat := open(t, RegistryConfig{Roots: Roots(filepath.Join(root, "skills"))})
	if p, _ := problemOf(flat, filepath.Join(root, "skills/linked")); !errors.As(p.Err, new(*snapshot.PathError)) {
		t.Errorf("without recursion: problem %+v", p)
	}
}

// A file of a link that is exchanged for one outside the root is never imported.
func TestLinkSwappedOutOfTheRoot(t *testing.T) {
	base := t.TempDir()
	root := filepath.Join(base, "root")
	files{"shared/x": "public", "skills/demo/SKILL.md": minimal, "skills/demo/x": "-> ../../shared/x"}.Write(t, root)
	files{"x": "private"}.Write(t, filepath.Join(base, "private"))
	dir, err := os.Open(filepath.Join(root, "skills/demo"))
	mustDo(t, err)
	defer dir.Close()
	top, err := os.Open(root)
	mustDo(t, err)
	defer top.Close()
	src := snapshot.Source{Dir: dir, Root: top, Path: "skills/demo"}
	seen := func() string {
		tree, err := snapshot.Scan(t.Context(), src, snapshot.Bounds{})
		mustDo(t, err)
		e, err := tree.Lookup("x")
		if err != nil {
			return "refused"
		}
		text, err := snapshot.ReadFile(src, e)
		mustDo(t, err)
		return string(text)
	}
	if got := seen(); got != "public" {
		t.Errorf("saw %q, want the file of the root", got)
	}
	mustDo(t, os.Rename(filepath.Join(root, "shared"), filepath.Join(root, "was")))
	mustDo(t, os.Symlink(filepath.Join(base, "private"), filepath.Join(root, "shared")))
	if got := seen(); got != "refused" {
		t.Errorf("saw %q through a link out of the root", got)
	}
}

// countingHandler counts warnings.
type countingHandler struct {
	slog.Handler
	warnings *int
}

func (h countingHandler) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn {
		*h.warnings++
	}
	return nil
}

func (h countingHandler) Enabled(context.Context, slog.Level) bool { return true }

// More directories than may be watched are counted, and do not stop the others.
func TestMoreDirectoriesThanWatches(t *testing.T) {
	root := t.TempDir()
	for i := range maxWatches {
		mustDo(t, os.Mkdir(filepath.Join(root, fmt.Sprint(i)), 0o755))
	}
	warnings := 0
	r := &Registry{config: RegistryConfig{Roots: Roots(root), Log: slog.New(countingHandler{slog.DiscardHandler, &warnings})}}
	w, err := fsnotify.NewWatcher()
	mustDo(t, err)
	defer w.Close()
	unwatched, why := r.watch(w)
	if want := 2; unwatched != want || why == nil { // root and the directory above it are watched, too
		t.Errorf("%d unwatched directories (%v), want %d", unwatched, why, want)
	}
	for range 3 {
		r.sayUnwatched(unwatched, why)
	}
	if warnings != 1 {
		t.Errorf("%d warnings, want one", warnings)
	}
}

// Directories that are not watched are read again after a time.
func TestUnwatchedIsReadAgain(t *testing.T) {
	w, err := fsnotify.NewWatcher()
	mustDo(t, err)
	defer w.Close()
	r := &Registry{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	<-ctx.Done()
	if err := r.awaitChange(ctx, w, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("everything is watched: %v", err)
	}
	if err := r.awaitChange(t.Context(), w, time.Nanosecond); err != nil {
		t.Errorf("not everything is watched: %v", err)
	}
}
