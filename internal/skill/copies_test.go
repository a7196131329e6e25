package skill

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
)

// edit changes the skill demo of a root and loads it.
func edit(t *testing.T, r *Registry, root, text string) {
	t.Helper()
	files{"which": text}.Write(t, filepath.Join(root, "demo"))
	_, err := r.Reload(t.Context())
	mustDo(t, err)
}

// However often a folder is edited, the store has its present version, the one before, and those that executions hold.
func TestFormerVersionsAreRemoved(t *testing.T) {
	shared, _ := skillDir(t, files{"which": "shared"})
	own, _ := skillDir(t, files{"which": "own"})
	var removed []string
	r := open(t, RegistryConfig{
		Roots: Roots(shared), Private: map[string][]Root{"acme": Roots(own)}, Removed: func(dir string) { removed = append(removed, dir) },
	})
	var held []string
	var releases []func()
	for _, tenant := range []string{"acme", "other"} {
		for range 2 { // each version has two users
			sk, release, err := r.For(tenant).Hold("demo")
			mustDo(t, err)
			held, releases = append(held, sk.Dir), append(releases, release)
		}
	}
	for i := range 20 {
		edit(t, r, shared, fmt.Sprint("shared ", i))
		edit(t, r, own, fmt.Sprint("own ", i))
	}
	// The two held versions; the present ones; and the private one that the last reload replaced.
	if names := storeNames(t, r.config.Dir); len(names) != 5 {
		t.Errorf("after 40 edits: %d versions, want 5", len(names))
	}
	if len(removed) != 37 || slices.Contains(removed, held[0]) || slices.Contains(removed, held[2]) {
		t.Errorf("told of %d removed versions, want 37 without the held ones", len(removed))
	}
	releases[0]()
	releases[0]() // twice is once
	releases[2]()
	edit(t, r, own, "more")
	stays(t, held[0], true)
	stays(t, held[2], true)
	releases[1]()
	releases[3]()
	edit(t, r, own, "more and more")
	stays(t, held[0], false)
	stays(t, held[2], false)

	// A version that comes back stays, whether it was removed or not.
	before := resolve(t, r, "demo")
	for _, between := range [][]string{{"x"}, {"x", "y", "z"}} {
		for _, text := range append(between, "shared 19", "shared 19", "shared 19") {
			edit(t, r, shared, text)
		}
		again := resolve(t, r, "demo")
		if err := r.store.Verify(&again.tree); err != nil || again.Digest != before.Digest {
			t.Errorf("after %v, the former version came back as %s, %v", between, again.Digest, err)
		}
	}
	// One that nobody held is gone for a caller that resolved it before two changes.
	edit(t, r, shared, "1")
	edit(t, r, shared, "2")
	if _, _, err := before.Open("which"); !errors.As(err, new(*NotFoundError)) {
		t.Errorf("a file of a removed version: %v", err)
	}
}

// Versions of removed folders and of removed roots go, too.
func TestVersionsOfRemovedRootsAreRemoved(t *testing.T) {
	root, _ := skillDir(t, files{"which": "shared"})
	own, _ := skillDir(t, files{"which": "own"})
	r := open(t, RegistryConfig{Roots: Roots(root), Private: map[string][]Root{"acme": Roots(own)}})
	theirs, release, err := r.For("acme").Hold("demo")
	mustDo(t, err)
	mustDo(t, r.SetPrivate(t.Context(), nil))
	for range 2 {
		_, err := r.Reload(t.Context())
		mustDo(t, err)
	}
	stays(t, theirs.Dir, true)
	release()
	_, err = r.Reload(t.Context())
	mustDo(t, err)
	stays(t, theirs.Dir, false)
	stays(t, resolve(t, r, "demo").Dir, true)
}

// A registry that shares its directory with another process removes nothing.
func TestSharedStoreKeepsFormerVersions(t *testing.T) {
	root, _ := skillDir(t, files{"which": "0"})
	config := RegistryConfig{Roots: Roots(root), Dir: filepath.Join(t.TempDir(), "snapshots")}
	first := open(t, config)
	second := open(t, config)
	theirs := resolve(t, first, "demo")
	for i := range 5 {
		edit(t, second, root, fmt.Sprint(i))
	}
	stays(t, theirs.Dir, true)
}

// Removals of former versions end with HandOver, and go on after Resume and Adopt.
func TestFormerVersionsInATakeover(t *testing.T) {
	b := newTenantBench(t)
	edit(t, b.now, b.root, "1")
	first := resolve(t, b.now, "demo").Dir
	edit(t, b.now, b.root, "2")
	next := b.next()
	stays(t, first, true)
	mustDo(t, b.now.HandOver(t.Context()))
	b.now.removeCopies([]string{"sha256:" + filepath.Base(first)}) // by a reload that began before HandOver
	stays(t, first, true)
	mustDo(t, next.now.Reread(t.Context()))
	used := resolve(t, next.now, "demo").Dir
	for i := range 3 {
		edit(t, next.now, b.root, fmt.Sprint("next ", i))
	}
	stays(t, first, true)
	stays(t, used, true)
	mustDo(t, b.now.Close())
	mustDo(t, next.now.Adopt(t.Context()))
	stays(t, first, false)
	stays(t, used, true) // as an execution may use it that began before Adopt
	edit(t, next.now, b.root, "last")
	stays(t, used, false)
	if names := storeNames(t, next.now.config.Dir); len(names) != 2 {
		t.Errorf("%d versions, want 2", len(names))
	}
}
