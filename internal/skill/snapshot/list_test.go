package snapshot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// walkDisk lists the files that a walk through the real folder finds, with links followed inside it
// and no directory entered twice on one way.
func walkDisk(t *testing.T, root, at string, trail []string) (found []string) {
	entries, err := os.ReadDir(filepath.Join(root, at))
	mustDo(t, err)
	for _, e := range entries {
		name := join(at, e.Name())
		real, err := filepath.EvalSymlinks(filepath.Join(root, name))
		if err != nil || real != root && !strings.HasPrefix(real, root+"/") {
			continue // leads nowhere, or out
		}
		if info, err := os.Stat(real); err != nil || !info.IsDir() {
			found = append(found, name)
		} else if !slices.Contains(trail, real) {
			found = append(found, walkDisk(t, root, name, append(slices.Clone(trail), real))...)
		}
	}
	return found
}

func TestFiles(t *testing.T) {
	content := files{"a/b-c": "1", "a/b/x": "2", "a/b0": "3", "a/b.d/y": "4", "ab": "5", "empty/__pycache__/x": "", "ring/one": "-> ../ring", "pair/l": "-> ../data", "data/back": "-> ../pair", "data/z": "6"}
	for name, text := range linked {
		content[name] = text
	}
	_, dir := skillDir(t, content)
	dir, err := filepath.EvalSymlinks(dir)
	mustDo(t, err)
	mustDo(t, os.RemoveAll(filepath.Join(dir, "empty/__pycache__"))) // Excluded
	mustDo(t, os.Remove(filepath.Join(dir, "back")))                 // refused, though it comes back
	tree := mustScan(t, dir)
	want := walkDisk(t, dir, "", []string{dir})
	slices.Sort(want)
	list, ok := tree.Files(len(want), "")
	var got []string
	for _, f := range list {
		got = append(got, f.Path)
		if e, err := tree.Lookup(f.Path); err != nil || e.Path != f.Entry.Path || f.Entry.Kind != KindFile || f.Entry.SHA256 == "" {
			t.Errorf("%s: entry %+v, Lookup gives %+v, %v", f.Path, f.Entry, e, err)
		}
	}
	if !ok || !slices.Equal(got, want) || len(want) < 20 {
		t.Errorf("got  %v, %v\nwant %v", got, ok, want)
	}
	if _, ok := tree.Files(len(want)-1, ""); ok {
		t.Error("one file too many is not noticed")
	}
	without, ok := tree.Files(len(want), "a")
	if want = slices.DeleteFunc(want, func(p string) bool { return strings.HasPrefix(p, "a/") }); !ok || len(without) != len(want) || without[0].Path != want[0] {
		t.Errorf("without a: %v, %v", without, ok)
	}
}

// Directories that link to each other multiply the ways, not the work.
func TestFilesAreBounded(t *testing.T) {
	content := files{"SKILL.md": minimal}
	for i := range 24 {
		content[fmt.Sprintf("d%02d/a", i)] = fmt.Sprintf("-> ../d%02d", i+1)
		content[fmt.Sprintf("d%02d/b", i)] = fmt.Sprintf("-> ../d%02d", i+1)
	}
	content["d24/deep/__pycache__/x"] = "" // no file at all
	_, dir := skillDir(t, content)
	if list, ok := mustScan(t, dir).Files(1000, ""); ok {
		t.Errorf("%d files, and no limit was exceeded", len(list))
	}
}

func TestChildren(t *testing.T) {
	content := files{"SKILL.md": minimal, "dir/__pycache__/x": ""}
	for i := range 10 {
		content[fmt.Sprintf("many/%d/x", i)] = ""
		content[fmt.Sprintf("many/%d-file", i)] = ""
	}
	for name, text := range linked {
		content[name] = text
	}
	_, dir := skillDir(t, content)
	tree := mustScan(t, dir)
	for _, most := range []int{1, 3, 7, 20, 100} {
		var got []string
		for after, end := "", false; !end; {
			list, next, err := tree.Children("many", after, most)
			mustDo(t, err)
			if len(list) > most {
				t.Fatalf("%d children, want at most %d", len(list), most)
			}
			after, end = next, next == ""
			for _, c := range list {
				got = append(got, c.Name)
				if isDir := c.Entry.Kind == KindDir; isDir == strings.HasSuffix(c.Name, "-file") {
					t.Errorf("%s: %+v", c.Name, c.Entry)
				}
			}
		}
		if len(got) != 20 || !slices.IsSorted(got) {
			t.Errorf("in pages of %d: %v", most, got)
		}
	}
	if list, next, err := tree.Children("dir", "", 10); len(list) != 0 || next != "" || err != nil {
		t.Errorf("an empty directory: %v, %q, %v", list, next, err)
	}
	for p, reason := range map[string]Reason{
		"nothing": ReasonNotFound, "data.csv": ReasonNotDirectory, "data.csv/x": ReasonNotDirectory, "in": ReasonNotDirectory, "home": ReasonLoop, "scripts/deep/nothing": ReasonNotFound,
		"outdir": ReasonEscapes, "loop1": ReasonLoop, "..": ReasonNotFound, "scripts/": ReasonNotFound, "scripts/../scripts": ReasonNotFound, "/scripts": ReasonNotFound, "a\x00": ReasonBadPath,
		strings.Repeat("x", MaxPathBytes+1): ReasonBadPath,
	} {
		_, _, err := tree.Children(p, "", 10)
		if at := (*PathError)(nil); !errors.As(err, &at) || at.Reason != reason || at.Path != p {
			t.Errorf("%.50q: %v, want reason %d", p, err, reason)
		}
	}
}
