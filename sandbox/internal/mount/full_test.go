package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Each step that makes files fails if the tmpfs has no inodes left, whichever file is the one too
// many, and it leaves no descriptor and no mount.
func TestNoInodesAreLeft(t *testing.T) {
	needsRoot(t)
	source := filepath.Join(t.TempDir(), "source")
	fill(t, source, map[string]string{"dir/file": "x", "file": "x"})
	if err := os.Symlink("file", filepath.Join(source, "link")); err != nil {
		t.Fatal(err)
	}
	onTmpfs := func(step func(dir string) error) func(string, int) error {
		return func(dir string, inodes int) error {
			err := Tmpfs(dir, fmt.Sprintf("mode=755,nr_inodes=%d", inodes))
			if err != nil {
				return err
			}
			return errors.Join(step(dir), Detach(dir))
		}
	}
	closing := func(tree int, err error) error {
		if err == nil {
			err = unix.Close(tree)
		}
		return err
	}
	for name, step := range map[string]func(dir string, inodes int) error{
		"devices": onTmpfs(func(dir string) error { return closing((&Staging{dir: dir}).deviceTree()) }),
		"links": onTmpfs(func(dir string) error {
			return closing((&Staging{dir: dir}).cloneLinks(map[string]string{LinksDir + "/x": "/usr/bin/env"}))
		}),
		"mount points":      onTmpfs(func(dir string) error { return closing((&Staging{dir: dir}).clonePoints([]string{"/a", "/a/b"})) }),
		"generated layer":   onTmpfs(func(dir string) error { return makeOver(dir, dir, map[string]string{"/opt/x/y": "z"}) }),
		"empty directories": onTmpfs(makeEmptyDirs),
		"generated files":   onTmpfs(func(dir string) error { return writeFiles(dir, madeUp) }),
		"copies":            onTmpfs(func(dir string) error { return copyHostFile(source, dir+"/copy") }),
		"workspace": func(dir string, inodes int) error {
			st, err := NewStaging(dir, Size{1 << 20, int64(inodes - stagingInodes - usualPoints)}, 1<<30)
			if err != nil {
				return err
			}
			return st.Close()
		},
		"bind": func(dir string, inodes int) error {
			e := Execution{Binds: []Bind{{Source: source, Target: "/skills/x"}}}
			st, err := NewStaging(dir, Size{1 << 20, int64(inodes - stagingInodes - 3)}, 1<<30)
			if err != nil {
				return err
			}
			l, err := st.Mounts(&Root{}, e, nil)
			l.Release()
			return errors.Join(err, st.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			const most = 64
			dir, before := t.TempDir(), openFiles(t)
			inodes, err := 1, error(nil)
			for ; inodes < most; inodes++ {
				if err = step(dir, inodes); err == nil {
					break
				}
				if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EINVAL) { // EINVAL: fewer than are in use
					t.Fatalf("with %d inodes: got %v", inodes, err)
				}
			}
			if err != nil || inodes == 1 {
				t.Errorf("with %d inodes: got %v, want that it fails at first, and then works", inodes, err)
			}
			if points, err := Points(dir); err != nil || len(points) > 0 {
				t.Errorf("mounts are left: %v, %v", points, err)
			}
			if after := openFiles(t); after != before {
				t.Errorf("%d files are open, %d were before", after, before)
			}
		})
	}
}

// A copy shows no more than a user of the machine can read. Links in a directory stay links.
func TestCopyHostFile(t *testing.T) {
	source, target := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	fill(t, source, map[string]string{"file": "text", "private": "secret", "closed/file": "secret", "dir/file": "deep"})
	err := errors.Join(os.Chmod(source, 0o755), os.Chmod(filepath.Join(source, "private"), 0o640), os.Chmod(filepath.Join(source, "closed"), 0o750),
		os.Chmod(filepath.Join(source, "file"), 0o775), os.Symlink("/etc/shadow", filepath.Join(source, "link")), unix.Mkfifo(filepath.Join(source, "pipe"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	if err := copyHostFile(source, target); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"file": "text", "dir/file": "deep"} {
		if got, err := os.ReadFile(filepath.Join(target, name)); string(got) != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
	if info, err := os.Lstat(filepath.Join(target, "file")); err != nil || info.Mode() != 0o755 {
		t.Errorf("file: got %v, %v, want a program", info, err)
	}
	if link, err := os.Readlink(filepath.Join(target, "link")); link != "/etc/shadow" || err != nil {
		t.Errorf("link: got %q, %v", link, err)
	}
	for _, name := range []string{"private", "closed", "pipe"} {
		if _, err := os.Lstat(filepath.Join(target, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: got %v, want no copy", name, err)
		}
	}
	if err := copyHostFile(filepath.Join(source, "none"), target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of nothing: got %v", err)
	}
}
