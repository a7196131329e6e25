package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The format in tree.go, written out by hand. It must never change.
func TestDigestFormat(t *testing.T) {
	dir := t.TempDir()
	files{
		"SKILL.md": "hello", "a/run*": "x", "a.txt": "", "empty/": "", "l": "-> a/run",
		"out": "-> /etc", "venv/bin/python": "-> /usr/bin/python3",
	}.Write(t, dir)
	mustDo(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	mustDo(t, os.WriteFile(filepath.Join(dir, "set"), nil, 0o755))
	mustDo(t, os.Chmod(filepath.Join(dir, "set"), 0o755|os.ModeSetuid))

	sum := func(s string) string {
		h := sha256.Sum256([]byte(s))
		return hex.EncodeToString(h[:])
	}
	text := strings.Join([]string{
		"skillrun tree 1",
		"file", "SKILL.md", sum("hello"),
		"dir", "a", "",
		"file", "a.txt", sum(""),
		"exec", "a/run", sum("x"),
		"dir", "empty", "",
		"refused", "fifo", "not-regular",
		"link", "l", "a/run",
		"refused", "out", "leaves-skill:/etc",
		"refused", "set", "set-id",
		"dir", "venv", "",
		"dir", "venv/bin", "",
		"refused", "venv/bin/python", "venv-interpreter:/usr/bin/python3",
		"",
	}, "\x00")
	if got, want := mustScan(t, dir).Digest, "sha256:"+sum(text); got != want {
		t.Errorf("digest = %s, want %s", got, want)
	}
}

// The digest depends on these properties, and on no others.
func TestDigestCovers(t *testing.T) {
	base := files{"SKILL.md": minimal, "run.sh*": "true", "d/x": "x", "l": "-> d/x", "out": "-> /a", "e/": ""}
	at := func(dir, p string) string { return filepath.Join(dir, p) }
	relink := func(t *testing.T, p, target string) {
		mustDo(t, os.Remove(p))
		mustDo(t, os.Symlink(target, p))
	}
	tests := []struct {
		name   string
		change func(t *testing.T, dir string)
		same   bool
	}{
		{"nothing", func(t *testing.T, dir string) {}, true},
		{"mtime", func(t *testing.T, dir string) {
			mustDo(t, os.Chtimes(at(dir, "d/x"), time.Unix(1, 0), time.Unix(1, 0)))
		}, true},
		{"private permissions", func(t *testing.T, dir string) {
			mustDo(t, os.Chmod(at(dir, "run.sh"), 0o700))
			mustDo(t, os.Chmod(at(dir, "d/x"), 0o600))
			mustDo(t, os.Chmod(at(dir, "d"), 0o700))
			mustDo(t, os.Chmod(dir, 0o700))
		}, true},
		{"open permissions, sticky, setgid directory", func(t *testing.T, dir string) {
			mustDo(t, os.Chmod(at(dir, "run.sh"), 0o777|os.ModeSticky))
			mustDo(t, os.Chmod(at(dir, "d"), 0o777|os.ModeSetgid))
		}, true},
		{"excluded", func(t *testing.T, dir string) {
			files{".git/config": "x", "d/__pycache__/x.pyc": "x", ".DS_Store": "x", "d/.git": "gitdir: x"}.Write(t, dir)
		}, true},
		{"hard link", func(t *testing.T, dir string) {
			mustDo(t, os.Link(at(dir, "d/x"), at(t.TempDir(), "y")))
		}, true},
		{"content", func(t *testing.T, dir string) { mustDo(t, os.WriteFile(at(dir, "d/x"), []byte("y"), 0o644)) }, false},
		{"executable bit", func(t *testing.T, dir string) { mustDo(t, os.Chmod(at(dir, "run.sh"), 0o644)) }, false},
		{"executable for one", func(t *testing.T, dir string) { mustDo(t, os.Chmod(at(dir, "d/x"), 0o645)) }, false},
		{"setuid", func(t *testing.T, dir string) { mustDo(t, os.Chmod(at(dir, "run.sh"), 0o755|os.ModeSetuid)) }, false},
		{"path", func(t *testing.T, dir string) { mustDo(t, os.Rename(at(dir, "d/x"), at(dir, "d/y"))) }, false},
		{"target", func(t *testing.T, dir string) { relink(t, at(dir, "l"), "run.sh") }, false},
		{"target, other text", func(t *testing.T, dir string) { relink(t, at(dir, "l"), "./d/x") }, false},
		{"refused target", func(t *testing.T, dir string) { relink(t, at(dir, "out"), "/b") }, false},
		{"kind", func(t *testing.T, dir string) {
			mustDo(t, os.Remove(at(dir, "l")))
			mustDo(t, os.WriteFile(at(dir, "l"), []byte("x"), 0o644))
		}, false},
		{"empty directory", func(t *testing.T, dir string) { mustDo(t, os.Remove(at(dir, "e"))) }, false},
		{"new file", func(t *testing.T, dir string) { files{"new": ""}.Write(t, dir) }, false},
		{"dependencies", func(t *testing.T, dir string) { files{"node_modules/x/index.js": ""}.Write(t, dir) }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, before := skillDir(t, base)
			_, after := skillDir(t, base)
			tt.change(t, after)
			if same := mustScan(t, before).Digest == mustScan(t, after).Digest; same != tt.same {
				t.Errorf("same digest: %t, want %t", same, tt.same)
			}
		})
	}
}

// Moving bytes between a path and its value changes the digest.
func TestDigestIsUnambiguous(t *testing.T) {
	seen := map[string]int{}
	for i, f := range []files{
		{"a": "-> bc"}, {"ab": "-> c"}, {"a": "-> b", "c": "-> d"}, {"a": "bc"}, {"ab": "c"},
		{"a/b": ""}, {"a/": "", "b": ""}, {"a/b/": ""}, {},
	} {
		dir := t.TempDir()
		f.Write(t, dir)
		d := mustScan(t, dir).Digest
		if j, ok := seen[d]; ok {
			t.Errorf("trees %d and %d have the same digest", i, j)
		}
		seen[d] = i
	}
}
