package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestPut(t *testing.T) {
	b := newBench(t)
	b.rules.Bytes = 100
	id := b.create(Settings{Files: 4})
	put := func(path, content string) (Version, error) {
		f := b.source(path, content)
		if err := b.CheckPut("a", id, f.Path, f.SizeBytes); err != nil {
			return Version{}, err
		}
		return b.Put(t.Context(), "a", id, Use{By: "the test"}, f)
	}
	for _, step := range []struct {
		path, content string
		version       int
	}{
		{"dir/a", "1", 1},
		{"b*", "2", 2},
		{"b*", "2", 2}, // as it is
		{"b", "2", 3},  // no longer executable
		{"dir/a", "", 4},
	} {
		v, err := put(step.path, step.content)
		if err != nil || v.Number != step.version {
			t.Errorf("%s=%s: got %+v, %v; want version %d", step.path, step.content, v, err, step.version)
		}
	}
	for _, path := range []string{"", "/b", "../b", "dir/../c", ".", "dir/", "a\x00b", "dir", "b/c", "dir/a/c/d", strings.Repeat("a", 256)} {
		_, err := put(path, "x")
		if bad, ok := errors.AsType[*PathError](err); !ok || bad.Path != path {
			t.Errorf("%q: got %v, want a *PathError", path, err)
		}
	}
	for quota, f := range map[string][2]string{QuotaBytes: {"b", strings.Repeat("x", 101)}, QuotaFiles: {"c/d", "x"}} {
		_, err := put(f[0], f[1])
		if full, ok := errors.AsType[*QuotaError](err); !ok || full.Quota != quota {
			t.Errorf("got %v, want a *QuotaError of %s", err, quota)
		}
	}
	w := b.acquire(id, 0)
	_, err := put("b", "3")
	if busy, ok := errors.AsType[*BusyError](err); !ok || busy.Writer != "the test" {
		t.Errorf("while somebody writes: got %v", err)
	}
	w.Release()
	if got, want := b.files(id, 0), []string{"b=2", "dir/a="}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	b.must(b.Delete("a", id))
	if err := b.CheckPut("a", id, "b", 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("a deleted session: %v", err)
	}
	if _, err := b.Put(t.Context(), "a", id, Use{By: "the test"}, b.source("b", "")); !errors.Is(err, ErrNotFound) {
		t.Errorf("a deleted session: %v", err)
	}
}

// A damaged version does not become the base of another one.
func TestPutOnDamage(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	b.commit(id, "a=1")
	b.must(b.Close())
	b.must(os.Truncate(versionPath(filepath.Join(b.dir, "a", id), 1), 10))
	b.open()
	if _, err := b.Put(t.Context(), "a", id, Use{By: "the test"}, b.source("b", "2")); !isDamaged(err, 1) {
		t.Errorf("got %v, want that version 1 is damaged", err)
	}
}

// A writer says which files its commit has changed.
func TestChanges(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	b.commit(id, "a=1", "dir/b=1", "dir/c=1", "same=1")
	w := b.acquire(id, 0)
	defer w.Release()
	if w.Changes() != nil {
		t.Errorf("before the commit: %v", w.Changes())
	}
	change := Change{Files: []NewFile{b.source("a", "22"), b.source("new", "333"), b.source("same", "1")}, Deleted: []string{"dir"}}
	if _, err := w.Commit(change); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range w.Changes() {
		got = append(got, fmt.Sprint(c.Kind, " ", c.Path, " ", c.SizeBytes))
	}
	b.check("changes", got, []string{"changed a 2", "deleted dir/b 1", "deleted dir/c 1", "added new 3"})
	b.check("paths of the base", slices.Collect(w.Paths()), []string{"a", "dir/b", "dir/c", "same"})
}

// Only a session that has no version and no writer counts as empty.
func TestDeleteEmpty(t *testing.T) {
	b := newBench(t)
	full, busy, empty := b.create(Settings{}), b.create(Settings{}), b.create(Settings{})
	b.commit(full, "a=1")
	w := b.acquire(busy, 0)
	for _, id := range []string{full, busy, empty, empty, "none"} {
		b.must(b.DeleteEmpty("a", id))
	}
	w.Release()
	for _, id := range []string{full, busy} {
		if _, err := b.Get("a", id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := b.Get("a", empty); !errors.Is(err, ErrNotFound) {
		t.Errorf("the empty session: %v", err)
	}
}
