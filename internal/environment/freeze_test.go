package environment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/hosttest"
	"github.com/skillrun/skillrun/internal/skill"
)

// freezeFiles freezes a tree that no sandbox has made. A text "-> x" is a link to x. A name with a slash at its end is a
// directory.
func freezeFiles(t *testing.T, p *plan, maxBytes int64, files map[string]string) (frozen, error) {
	t.Helper()
	dir := hosttest.Dir(t)
	into := filepath.Join(dir, "into")
	if err := os.Mkdir(into, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		at := filepath.Join(dir, builtDir, name)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		target, link := strings.CutPrefix(text, "-> ")
		switch {
		case strings.HasSuffix(name, "/"):
			err = errors.Join(err, os.MkdirAll(at, 0o755))
		case link:
			err = errors.Join(err, os.Symlink(target, at))
		default:
			err = errors.Join(err, os.WriteFile(at, []byte(text), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return freeze(t.Context(), root, into, p, maxBytes)
}

// Copying ends with the time of the build, also in the middle of the files.
func TestFreezeEndsInTime(t *testing.T) {
	t.Parallel()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := errors.Join(root.MkdirAll(builtDir, 0o755), root.WriteFile(builtDir+"/file", nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	p, late := &plan{skill: "s"}, &BuildError{Skill: "s", Reason: "late"}
	over, cancel := context.WithCancelCause(t.Context())
	cancel(late)
	into := t.TempDir()
	_, err = freeze(over, root, into, p, 1<<20)
	if got := buildFailure(p, err); got != error(late) {
		t.Errorf("got %v, want %v", got, late)
	}
	if left, err := os.ReadDir(into); err != nil || len(left) > 0 {
		t.Errorf("copied %v, %v", left, err)
	}
}

// Files, links and directories count with the blocks that they have on disk, however little is in them.
func TestEntriesCountAsOnDisk(t *testing.T) {
	t.Parallel()
	block := skill.DiskBytes(0)
	got, err := freezeFiles(t, &plan{}, 1<<20, map[string]string{
		"a/empty": "", "a/one": "1", "a/block": strings.Repeat("x", int(block)), "a/more": strings.Repeat("x", int(block)+1), "b/": "", "link": "-> a",
	})
	const entries = 2 + 1 + 1 + 1 + 2 + 1 // the directories, the files of a, and the link
	if err != nil || got.size != (entries+ownEntries)*block {
		t.Errorf("got %d bytes, %v; want %d", got.size, err, (entries+ownEntries)*block)
	}
	for kind, entry := range map[string]func(i int) (name, text string){
		"files":       func(i int) (string, string) { return fmt.Sprint(i), "1" },
		"empty files": func(i int) (string, string) { return fmt.Sprint(i), "" },
		"links":       func(i int) (string, string) { return fmt.Sprint(i), "-> ." },
		"directories": func(i int) (string, string) { return fmt.Sprint(i, "/"), "" },
	} {
		files := map[string]string{}
		for i := range 100 {
			name, text := entry(i)
			files[name] = text
		}
		fits := (100 + ownEntries) * block
		if got, err := freezeFiles(t, &plan{}, fits, files); err != nil || got.size != fits {
			t.Errorf("%s that fit: got %d bytes, %v; want %d", kind, got.size, err, fits)
		}
		if _, err := freezeFiles(t, &plan{}, fits-1, files); !oversize(err, "bytes", fits-1) {
			t.Errorf("%s beyond the bound: got %v, want %d bytes", kind, err, fits-1)
		}
	}
}

func oversize(err error, what string, limit int64) bool {
	over, ok := errors.AsType[*errOversize](err)
	return ok && *over == errOversize{what, limit}
}

// The daemon keeps the names of packages in memory and in the manifest, and sends them in one message.
func TestPackagesAreBounded(t *testing.T) {
	t.Parallel()
	dir := hosttest.Dir(t)
	for name, text := range map[string]string{
		"node_modules/one/package.json":                       `{"name": "one", "version": "1.0"}`,
		"lib/python3.11/site-packages/one.dist-info/METADATA": "Name: one\nVersion: 1.0\n",
	} {
		at := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	const one = "one==1.0"
	for kind, read := range map[string]func(*freezer) error{"node": (*freezer).readNodePackages, "python": (*freezer).readPackages} {
		with := func(packages, bytes int) *freezer {
			f := &freezer{into: dir, manifests: slices.Repeat([]string{"node_modules/one/package.json"}, 2), packages: map[string]string{}, named: bytes}
			for i := range packages {
				f.packages[fmt.Sprint(i)] = ""
			}
			return f
		}
		f := with(maxPackages-1, maxPackageBytes-len(one))
		if err := read(f); err != nil || len(f.packages) != maxPackages {
			t.Errorf("%s, as many as fit: got %d packages, %v", kind, len(f.packages), err)
		}
		if err := read(with(maxPackages, 0)); !oversize(err, "packages", maxPackages) {
			t.Errorf("%s: got %v, want too many packages", kind, err)
		}
		if err := read(with(0, maxPackageBytes-len(one)+1)); !oversize(err, "bytes of names of packages", maxPackageBytes) {
			t.Errorf("%s: got %v, want too long names", kind, err)
		}
	}
}

// The paths of all files, and the targets of all links, are in memory until the digest is computed.
func TestPathsAreBounded(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"file": "", "link": "-> ."} {
		dir, into := t.TempDir(), t.TempDir()
		at, bytes := filepath.Join(dir, name), len(name)
		err := os.WriteFile(at, nil, 0o644)
		if target, link := strings.CutPrefix(text, "-> "); link {
			err = errors.Join(os.Remove(at), os.Symlink(target, at))
			bytes += len(target)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, over := range []int{1, 0} {
			top, err := os.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer top.Close()
			f := &freezer{during: t.Context(), into: into, maxBytes: 1 << 20, paths: maxPathBytes - bytes + over}
			err = f.walk(top, "", 1)
			if over == 0 && err != nil || over == 1 && !oversize(err, "bytes of paths", maxPathBytes) {
				t.Errorf("%s, %d bytes beyond the bound: got %v", name, over, err)
			}
		}
	}
}
