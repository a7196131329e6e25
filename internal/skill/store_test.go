package skill

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/skillrun/skillrun/internal/skill/snapshot"
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
	r := open(t, RegistryConfig{Roots: Roots(root)})
	s := resolve(t, r, "demo")

	got := map[string]string{}
	mustDo(t, filepath.WalkDir(s.Dir, func(p string, d fs.DirEntry, err error) error {
		mustDo(t, err)
		fi, err := d.Info()
		mustDo(t, err)
		st := fi.Sys().(*syscall.Stat_t)
		if int(st.Uid) != owner.UID || int(st.Gid) != owner.GID || !fi.ModTime().Equal(snapshot.ModTime) {
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
	for _, p := range slices.Sorted(maps.Keys(want)) {
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
	if want := filepath.Join(r.config.Dir, strings.TrimPrefix(s.Digest, "sha256:")); s.Dir != want {
		t.Errorf("dir = %s, want %s", s.Dir, want)
	}
	if s.FileCount != 3 || s.SizeBytes != int64(len(minimal)+8) {
		t.Errorf("%d files, %d bytes, want 3 and %d", s.FileCount, s.SizeBytes, len(minimal)+8)
	}
	// Read as a skill folder, the snapshot has the same files. Only the venv's link is
	// refused.
	if again, _, err := ReadDir(s.Dir); err != nil || again.FileCount != 3 || len(again.Refused) != 1 {
		t.Errorf("%v, the snapshot has %d files and refused %v", err, again.FileCount, again.Refused)
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
			mustDo(t, os.Chtimes(at(s, "d"), snapshot.ModTime, snapshot.ModTime))
		}, false},
		{"file added, everything put right", func(t *testing.T, s *Skill) {
			mustDo(t, os.WriteFile(at(s, "d/new"), nil, 0o644))
			mustDo(t, os.Lchown(at(s, "d/new"), owner.UID, owner.GID))
			mustDo(t, os.Chtimes(at(s, "d/new"), snapshot.ModTime, snapshot.ModTime))
			mustDo(t, os.Chtimes(at(s, "d"), snapshot.ModTime, snapshot.ModTime))
		}, false},
		{"file added", func(t *testing.T, s *Skill) { files{"new": "x"}.Write(t, s.Dir) }, false},
		{"same size, other content", func(t *testing.T, s *Skill) {
			mustDo(t, os.WriteFile(at(s, "d/x"), []byte("y"), 0o644))
		}, false},
		{"truncated", func(t *testing.T, s *Skill) {
			mustDo(t, os.Truncate(at(s, "d/x"), 0))
			mustDo(t, os.Chtimes(at(s, "d/x"), snapshot.ModTime, snapshot.ModTime))
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
			r := open(t, RegistryConfig{Roots: Roots(root)})
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
			if err := r.store.Verify(&again.tree); err != nil {
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
		t.Skip("needs root, to give a file to another user; see snapshot.TestSnapshotOfAnotherOwner")
	}
	mustDo(t, os.Lchown(path, uid, gid))
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
	config := RegistryConfig{Roots: Roots(root), Dir: store, Owner: owner}
	first := open(t, config)
	old := resolve(t, first, "demo")
	files{"new-1/x": "", "old-1/snapshot/x": "", "other": "", strings.Repeat("z", 64): ""}.Write(t, store)

	// After an update, the former version's snapshot still exists.
	files{"more": "x"}.Write(t, dir)
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

func storeNames(t *testing.T, dir string) []string {
	t.Helper()
	all, err := os.ReadDir(dir)
	mustDo(t, err)
	var names []string
	for _, d := range all {
		names = append(names, d.Name())
	}
	return slices.DeleteFunc(names, func(n string) bool { return n == "lock" })
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
		open(b, RegistryConfig{Roots: Roots(root)})
	}
}

func BenchmarkReload10000(b *testing.B) {
	r := open(b, RegistryConfig{Roots: Roots(manyFiles(b, 10_000))})
	for b.Loop() {
		if _, err := r.Reload(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkResolve(b *testing.B) {
	r := open(b, RegistryConfig{Roots: Roots(manyFiles(b, 1))})
	for b.Loop() {
		if _, err := r.Resolve("demo"); err != nil {
			b.Fatal(err)
		}
	}
}
