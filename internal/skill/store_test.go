package skill

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A snapshot has fixed owners, permissions and times that do not depend on its folder.
func TestSnapshot(t *testing.T) {
	root, dir := skillDir(t, files{
		"private/run.py": "print()", "private/data": "x", "l": "-> private/data", "out": "-> /etc",
		"venv/bin/python": "-> /usr/bin/python3", ".git/config": "x", "__pycache__/x.pyc": "x", "empty/": "",
	})
	for p, mode := range map[string]os.FileMode{
		"private/run.py": 0o700, "private/data": 0o600, "private": 0o700, "empty": 0o777 | os.ModeSticky, "SKILL.md": 0o400,
	} {
		mustDo(t, os.Chmod(filepath.Join(dir, p), mode))
	}
	r := open(t, RegistryConfig{Roots: []string{root}})
	s := resolve(t, r, "demo")

	got := map[string]string{}
	mustDo(t, filepath.WalkDir(s.Dir, func(p string, d fs.DirEntry, err error) error {
		mustDo(t, err)
		fi, err := d.Info()
		mustDo(t, err)
		st := fi.Sys().(*syscall.Stat_t)
		if int(st.Uid) != owner.UID || int(st.Gid) != owner.GID || !fi.ModTime().Equal(snapshotTime) {
			t.Errorf("%s: owner %d:%d, time %v", p, st.Uid, st.Gid, fi.ModTime())
		}
		rel, _ := filepath.Rel(s.Dir, p)
		got[rel] = fi.Mode().String()
		if fi.Mode().Type() == fs.ModeSymlink {
			target, _ := os.Readlink(p)
			got[rel] = "-> " + target
		}
		return nil
	}))
	want := map[string]string{
		".": "drwxr-xr-x", "SKILL.md": "-rw-r--r--", "private": "drwxr-xr-x", "private/run.py": "-rwxr-xr-x",
		"private/data": "-rw-r--r--", "l": "-> private/data", "empty": "drwxr-xr-x",
		"venv": "drwxr-xr-x", "venv/bin": "drwxr-xr-x", "venv/bin/python": "-> /usr/bin/python3",
	}
	for _, p := range sortedKeys(want) {
		if got[p] != want[p] {
			t.Errorf("%s: %s, want %s", p, got[p], want[p])
		}
		delete(got, p)
	}
	if len(got) > 0 {
		t.Errorf("also there: %v", got)
	}
	if fi, err := os.Stat(filepath.Dir(s.Dir)); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("the directory above is %v, %v, want 0700", fi.Mode(), err)
	}
	if want := filepath.Join(r.store.dir, strings.TrimPrefix(s.Digest, "sha256:")); s.Dir != want {
		t.Errorf("dir = %s, want %s", s.Dir, want)
	}
	if s.FileCount != 3 || s.SizeBytes != int64(len(minimal)+8) {
		t.Errorf("%d files, %d bytes, want 3 and %d", s.FileCount, s.SizeBytes, len(minimal)+8)
	}
	// Read as a skill folder, the snapshot has the same files. Only the venv's link is
	// refused.
	if tr := mustScan(t, s.Dir); tr.files != 3 || len(tr.refused) != 1 {
		t.Errorf("the snapshot has %d files and refused %v", tr.files, tr.refused)
	}
}

// An intact snapshot is used again. A damaged one is replaced, and programs that run from
// it keep their files.
func TestDamagedSnapshot(t *testing.T) {
	at := func(s *Skill, p string) string { return filepath.Join(s.Dir, p) }
	tests := []struct {
		name   string
		damage func(t *testing.T, s *Skill)
		fine   bool
	}{
		{"none", func(t *testing.T, s *Skill) {}, true},
		{"file missing", func(t *testing.T, s *Skill) { mustDo(t, os.Remove(at(s, "d/x"))) }, false},
		{"file missing, times put back", func(t *testing.T, s *Skill) {
			mustDo(t, os.Remove(at(s, "d/x")))
			mustDo(t, os.Chtimes(at(s, "d"), snapshotTime, snapshotTime))
		}, false},
		{"file added, everything put right", func(t *testing.T, s *Skill) {
			mustDo(t, os.WriteFile(at(s, "d/new"), nil, 0o644))
			mustDo(t, os.Lchown(at(s, "d/new"), owner.UID, owner.GID))
			mustDo(t, os.Chtimes(at(s, "d/new"), snapshotTime, snapshotTime))
			mustDo(t, os.Chtimes(at(s, "d"), snapshotTime, snapshotTime))
		}, false},
		{"file added", func(t *testing.T, s *Skill) { files{"new": "x"}.write(t, s.Dir) }, false},
		{"same size, other content", func(t *testing.T, s *Skill) {
			mustDo(t, os.WriteFile(at(s, "d/x"), []byte("y"), 0o644))
		}, false},
		{"truncated", func(t *testing.T, s *Skill) {
			mustDo(t, os.Truncate(at(s, "d/x"), 0))
			mustDo(t, os.Chtimes(at(s, "d/x"), snapshotTime, snapshotTime))
		}, false},
		{"permissions", func(t *testing.T, s *Skill) { mustDo(t, os.Chmod(at(s, "d/x"), 0o666)) }, false},
		{"setuid", func(t *testing.T, s *Skill) { mustDo(t, os.Chmod(at(s, "d/x"), 0o644|os.ModeSetuid)) }, false},
		{"owner", func(t *testing.T, s *Skill) { chown(t, at(s, "d"), 0, owner.GID) }, false},
		{"group", func(t *testing.T, s *Skill) { chown(t, at(s, "d"), owner.UID, 0) }, false},
		{"kind", func(t *testing.T, s *Skill) {
			mustDo(t, os.Remove(at(s, "d/x")))
			mustDo(t, os.Symlink("/etc/passwd", at(s, "d/x")))
		}, false},
		{"target", func(t *testing.T, s *Skill) {
			mustDo(t, os.Remove(at(s, "l")))
			mustDo(t, os.Symlink("/etc/passwd", at(s, "l")))
			mustDo(t, os.Lchown(at(s, "l"), owner.UID, owner.GID))
		}, false},
		{"half gone", func(t *testing.T, s *Skill) { mustDo(t, os.RemoveAll(at(s, "d"))) }, false},
		{"empty", func(t *testing.T, s *Skill) {
			mustDo(t, os.RemoveAll(s.Dir))
			mustDo(t, os.Mkdir(s.Dir, 0o755))
		}, false},
		{"a file instead", func(t *testing.T, s *Skill) {
			mustDo(t, os.RemoveAll(s.Dir))
			mustDo(t, os.WriteFile(s.Dir, nil, 0o644))
		}, false},
		{"gone", func(t *testing.T, s *Skill) { mustDo(t, os.RemoveAll(s.Dir)) }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root, _ := skillDir(t, files{"d/x": "x", "l": "-> d/x"})
			r := open(t, RegistryConfig{Roots: []string{root}})
			s := resolve(t, r, "demo")
			inode := inodeOf(t, s.Dir)
			running, err := os.Open(s.Dir)
			mustDo(t, err)
			defer running.Close()
			tt.damage(t, s)
			if _, err := r.Reload(context.Background()); err != nil {
				t.Fatal(err)
			}
			again := resolve(t, r, "demo")
			if err := verify(again.Dir, &again.tree, owner); err != nil {
				t.Errorf("after a reload: %v", err)
			}
			if text, err := os.ReadFile(filepath.Join(again.Dir, "d/x")); string(text) != "x" {
				t.Errorf("d/x = %q, %v", text, err)
			}
			if same := inodeOf(t, again.Dir) == inode; same != tt.fine {
				t.Errorf("the same snapshot: %t, want %t", same, tt.fine)
			}
			if again.Digest != s.Digest || again.Dir != s.Dir {
				t.Errorf("digest %s in %s, want %s in %s", again.Digest, again.Dir, s.Digest, s.Dir)
			}
		})
	}
}

// chown gives a file to another user, which only root can do.
func chown(t *testing.T, path string, uid, gid int) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a file to another user; see TestSnapshotOfAnotherOwner")
	}
	mustDo(t, os.Lchown(path, uid, gid))
}

// A snapshot that belongs to other ids than the store's owner is not intact.
func TestSnapshotOfAnotherOwner(t *testing.T) {
	s := load(t, files{"x": "x"})
	for _, other := range []Owner{{owner.UID + 1, owner.GID}, {owner.UID, owner.GID + 1}} {
		if err := verify(s.Dir, &s.tree, other); err == nil {
			t.Errorf("a snapshot of %v was accepted for %v", owner, other)
		}
	}
	mustDo(t, verify(s.Dir, &s.tree, owner))
}

func inodeOf(t *testing.T, p string) uint64 {
	t.Helper()
	fi, err := os.Lstat(p)
	mustDo(t, err)
	return fi.Sys().(*syscall.Stat_t).Ino
}

// Only a registry with the exclusive lock removes anything, and only names of the store.
func TestSweep(t *testing.T) {
	root, dir := skillDir(t, nil)
	store := filepath.Join(t.TempDir(), "deep", "snapshots")
	config := RegistryConfig{Roots: []string{root}, Dir: store, Owner: owner}
	first := open(t, config)
	old := resolve(t, first, "demo")
	files{"new-1/x": "", "old-1/snapshot/x": "", "other": "", strings.Repeat("z", 64): ""}.write(t, store)

	// After an update, the former version's snapshot still exists.
	files{"more": "x"}.write(t, dir)
	if _, err := first.Reload(context.Background()); err != nil {
		t.Fatal(err)
	}
	current := resolve(t, first, "demo")
	stays := func(p string, want bool) {
		t.Helper()
		if _, err := os.Lstat(p); (err == nil) != want {
			t.Errorf("%s is there: %t, want %t", p, err == nil, want)
		}
	}
	stays(old.Dir, true)

	// A second registry opens while the first is open, as during the update of a daemon.
	second := open(t, config)
	stays(old.Dir, true)
	stays(filepath.Join(store, "new-1"), true)
	mustDo(t, second.Close())
	mustDo(t, first.Close())

	open(t, config)
	stays(old.Dir, false)
	stays(current.Dir, true)
	stays(filepath.Join(store, "new-1"), false)
	stays(filepath.Join(store, "old-1"), false)
	stays(filepath.Join(store, "other"), true)
	stays(filepath.Join(store, strings.Repeat("z", 64)), true)
}

// Opening waits, within ctx, for a process that holds the lock exclusively.
func TestStoreWaits(t *testing.T) {
	dir := t.TempDir()
	s, alone, err := openStore(context.Background(), dir, owner)
	if err != nil || !alone {
		t.Fatalf("openStore: alone %t, %v", alone, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := openStore(ctx, dir, owner); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want context.Canceled", err)
	}
	mustDo(t, s.share())
	other, alone, err := openStore(context.Background(), dir, owner)
	if err != nil || alone {
		t.Fatalf("openStore: alone %t, %v, want shared", alone, err)
	}
	mustDo(t, other.close())
	mustDo(t, s.close())
}

func TestStoreDirectory(t *testing.T) {
	base := t.TempDir()
	files{"file": "", "link": "-> elsewhere", "elsewhere/": "", "open/": ""}.write(t, base)
	mustDo(t, os.Chmod(filepath.Join(base, "open"), 0o777))
	for name, ok := range map[string]bool{"new/dir": true, "open": true, "file": false, "link": false} {
		dir := filepath.Join(base, name)
		s, _, err := openStore(context.Background(), dir, owner)
		if (err == nil) != ok {
			t.Errorf("%s: err = %v, want success %t", name, err, ok)
		}
		if err != nil {
			continue
		}
		if fi, _ := os.Stat(dir); fi.Mode().Perm() != 0o700 {
			t.Errorf("%s is %v, want 0700", name, fi.Mode())
		}
		s.close()
	}
	if os.Geteuid() == 0 {
		dir := filepath.Join(base, "foreign")
		mustDo(t, os.Mkdir(dir, 0o755))
		mustDo(t, os.Lchown(dir, 1000, 1000))
		if _, _, err := openStore(context.Background(), dir, owner); err == nil {
			t.Error("a directory that belongs to another user was accepted")
		}
	}
}

// Two folders with the same content, staged at the same time, share one snapshot.
func TestPublishTwice(t *testing.T) {
	_, dir := skillDir(t, files{"x": "x"})
	s, _, err := openStore(context.Background(), t.TempDir(), owner)
	mustDo(t, err)
	defer s.close()
	src, err := os.Open(dir)
	mustDo(t, err)
	defer src.Close()
	tr := mustScan(t, dir)
	var two []*staged
	for range 2 {
		_, st, err := s.stage(context.Background(), src, tr, Bounds{})
		if err != nil || st == nil {
			t.Fatalf("stage = %v, %v", st, err)
		}
		two = append(two, st)
	}
	mustDo(t, s.flush())
	for _, st := range two {
		mustDo(t, s.publish(st))
	}
	mustDo(t, s.sync())
	mustDo(t, verify(two[0].final, tr, owner))
	if names := storeNames(t, s.dir); len(names) != 1 {
		t.Errorf("the store has %v, want one snapshot", names)
	}
	if _, st, err := s.stage(context.Background(), src, tr, Bounds{}); st != nil || err != nil {
		t.Errorf("staging an existing snapshot = %v, %v, want nothing to publish", st, err)
	}
}

// A failed import leaves no files.
func TestStageFails(t *testing.T) {
	_, dir := skillDir(t, files{"x": "x"})
	s, _, err := openStore(context.Background(), t.TempDir(), owner)
	mustDo(t, err)
	defer s.close()
	src, err := os.Open(dir)
	mustDo(t, err)
	defer src.Close()
	tr := mustScan(t, dir)
	files{"y": "changed since"}.write(t, dir)
	if _, _, err := s.stage(context.Background(), src, tr, Bounds{}); !errors.Is(err, ErrChanging) {
		t.Errorf("err = %v, want ErrChanging", err)
	}
	var be *BoundError
	if _, _, err := s.stage(context.Background(), src, tr, Bounds{MaxFiles: 1}); !errors.As(err, &be) {
		t.Errorf("err = %v, want a *BoundError", err)
	}
	if names := storeNames(t, s.dir); len(names) != 0 {
		t.Errorf("remaining files: %v", names)
	}
}

func storeNames(t *testing.T, dir string) []string {
	t.Helper()
	all, err := os.ReadDir(dir)
	mustDo(t, err)
	var names []string
	for _, d := range all {
		names = append(names, d.Name())
	}
	return slices.DeleteFunc(names, func(n string) bool { return n == lockName })
}

// manyFiles returns a root with one skill of n files.
func manyFiles(tb testing.TB, n int) string {
	root := tb.TempDir()
	dir := filepath.Join(root, "demo")
	for i := range n {
		sub := filepath.Join(dir, fmt.Sprintf("d%d", i%100))
		if i < 100 {
			mustDo(tb, os.MkdirAll(sub, 0o755))
		}
		mustDo(tb, os.WriteFile(filepath.Join(sub, fmt.Sprintf("f%d", i)), fmt.Append(nil, i), 0o644))
	}
	mustDo(tb, os.WriteFile(filepath.Join(dir, "SKILL.md"), []byte(minimal), 0o644))
	return root
}

func BenchmarkImport10000(b *testing.B) {
	root := manyFiles(b, 10_000)
	for b.Loop() {
		open(b, RegistryConfig{Roots: []string{root}})
	}
}

func BenchmarkReload10000(b *testing.B) {
	r := open(b, RegistryConfig{Roots: []string{manyFiles(b, 10_000)}})
	for b.Loop() {
		if _, err := r.Reload(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkResolve(b *testing.B) {
	r := open(b, RegistryConfig{Roots: []string{manyFiles(b, 1)}})
	for b.Loop() {
		if _, err := r.Resolve("demo"); err != nil {
			b.Fatal(err)
		}
	}
}
