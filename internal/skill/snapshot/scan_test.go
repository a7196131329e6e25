package snapshot

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/skill/skilltest/folder"
)

// Refused entries are listed, and the rest of the skill is complete.
func TestRefused(t *testing.T) {
	_, dir := skillDir(t, files{"ok.py": "x", "abs": "-> /etc/passwd", "loop": "-> loop", "venv/bin/python3.11": "-> /usr/bin/python3.11", "venv/bin/pip": "-> /usr/bin/pip",
		".venv/bin/python": "-> /usr/bin/python3", "other/bin/python": "-> /usr/bin/python3", "x/venv/bin/python": "-> /usr/bin/python3",
	})
	at := func(p string) string { return filepath.Join(dir, p) }
	for name, mode := range map[string]os.FileMode{"suid": 0o755 | os.ModeSetuid, "sgid": 0o644 | os.ModeSetgid} {
		mustDo(t, os.WriteFile(at(name), []byte("x"), 0o755))
		mustDo(t, os.Chmod(at(name), mode))
	}
	mustDo(t, unix.Mkfifo(at("fifo"), 0o644))
	l, err := net.Listen("unix", at("socket"))
	mustDo(t, err)
	defer l.Close()
	for _, name := range []string{"new\nline", "bad\xffname", "esc\x1b[31m"} {
		mustDo(t, os.MkdirAll(filepath.Join(dir, name, "inner"), 0o755))
	}
	want := map[string]RefusedWhy{
		"abs": LeavesSkill, "loop": LinkLoop, "venv/bin/python3.11": VenvInterpreter, "venv/bin/pip": LeavesSkill,
		".venv/bin/python": VenvInterpreter, "other/bin/python": LeavesSkill, "x/venv/bin/python": LeavesSkill,
		"suid": SetID, "sgid": SetID, "fifo": NotRegular, "socket": NotRegular,
		`new\nline`: BadName, `bad\xffname`: BadName, `esc\x1b[31m`: BadName,
	}
	if os.Geteuid() == 0 {
		mustDo(t, unix.Mknod(at("device"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
		want["device"] = NotRegular
	}

	tr := mustScan(t, dir)
	got := map[string]Refused{}
	for _, r := range tr.Refused {
		got[r.Path] = r
		if r.Reason == "" {
			t.Errorf("%s: empty reason", r.Path)
		}
	}
	for p, why := range want {
		if got[p].Why != why {
			t.Errorf("%s: refused %q, want %q", p, got[p].Why, why)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d refused, want %d: %v", len(got), len(want), tr.Refused)
	}
	if got["suid"].Mode != 0o104755 || got["sgid"].Mode != 0o102644 {
		t.Errorf("modes %o and %o, want 104755 and 102644", got["suid"].Mode, got["sgid"].Mode)
	}
	if tr.FileCount != 2 || tr.SizeBytes != int64(len(minimal)+1) {
		t.Errorf("%d files, %d bytes, want 2 and %d", tr.FileCount, tr.SizeBytes, len(minimal)+1)
	}
}

// Entries that a normal user may not read are refused.
func TestRefusedUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything; see TestUnreadableAsAnotherUser")
	}
	_, dir := skillDir(t, files{"f": "x", "d/x": "x"})
	mustDo(t, os.Chmod(filepath.Join(dir, "f"), 0))
	mustDo(t, os.Chmod(filepath.Join(dir, "d"), 0))
	defer os.Chmod(filepath.Join(dir, "d"), 0o755)
	for _, r := range mustScan(t, dir).Refused {
		if r.Why != Unreadable {
			t.Errorf("%s: refused %q, want unreadable", r.Path, r.Why)
		}
	}
}

// The same as root, on a thread that gives up its privileges.
func TestUnreadableAsAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user; see TestRefusedUnreadable")
	}
	_, dir := skillDir(t, files{"f": "x", "d/x": "x"})
	for _, p := range []string{"f", "d"} {
		mustDo(t, os.Chmod(filepath.Join(dir, p), 0))
	}
	src, err := os.Open(dir)
	mustDo(t, err)
	defer src.Close()
	var tr *Tree
	asNobody(t, func() { tr, err = scanTree(context.Background(), Source{Dir: src}, nil, Bounds{}) })
	mustDo(t, err)
	if len(tr.Refused) != 2 || tr.Refused[0].Why != Unreadable || tr.Refused[1].Why != Unreadable {
		t.Errorf("refused %v, want d and f as unreadable", tr.Refused)
	}
}

// Trees that are built to be expensive are cheap to read.
func TestHostileTrees(t *testing.T) {
	t.Run("deep", func(t *testing.T) {
		dir := folder.InMemory(t)
		fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_RDONLY, 0)
		mustDo(t, err)
		for range 2000 { // deeper than PATH_MAX
			mustDo(t, unix.Mkdirat(fd, "ddd", 0o755))
			next, err := unix.Openat(fd, "ddd", unix.O_DIRECTORY|unix.O_RDONLY, 0)
			mustDo(t, err)
			unix.Close(fd)
			fd = next
		}
		unix.Close(fd)
		tr := mustScan(t, dir)
		if len(tr.Entries) != MaxPathDepth || len(tr.Refused) != 1 || tr.Refused[0].Why != TooDeep {
			t.Errorf("%d entries, refused %v, want %d and one too deep", len(tr.Entries), tr.Refused, MaxPathDepth)
		}
	})
	t.Run("long paths", func(t *testing.T) {
		dir := t.TempDir()
		long := strings.Repeat("n", 255)
		files{filepath.Join(long, long, long, long, "x"): ""}.Write(t, dir)
		tr := mustScan(t, dir)
		if len(tr.Refused) != 1 || tr.Refused[0].Why != TooDeep {
			t.Errorf("refused %v, want one too deep", tr.Refused)
		}
	})
	t.Run("link farm", func(t *testing.T) {
		dir := t.TempDir()
		f := files{"d/d/": ""}
		// Each link goes through the one before it, twice: 2^n paths.
		for i := 1; i < 100; i++ {
			f[fmt.Sprintf("l%d", i)] = fmt.Sprintf("-> l%d/../l%d", i-1, i-1)
		}
		f["l0"] = "-> d"
		// Long targets that do not exist.
		for i := range 500 {
			f[fmt.Sprintf("far%d", i)] = "-> " + strings.Repeat("d/../", 800) + "d"
		}
		f.Write(t, dir)
		tr := mustScan(t, dir)
		s := tr
		if _, err := s.Lookup("l99/x"); reason(err) != ReasonLoop {
			t.Errorf("Lookup(l99/x) = %v, want a loop", err)
		}
		if _, err := s.Lookup("far7"); reason(err) != ReasonLoop {
			t.Errorf("Lookup(far7) = %v, want a loop", err)
		}
		if _, err := s.Lookup("l1/d"); reason(err) != ReasonDirectory {
			t.Errorf("Lookup(l1/d) = %v, want a directory", err)
		}
	})
}

func reason(err error) Reason {
	var pe *PathError
	errors.As(err, &pe)
	if pe == nil {
		return 0
	}
	return pe.Reason
}

func TestBounds(t *testing.T) {
	_, dir := skillDir(t, files{"a": "12345", "d/b": "12345", "l": "-> a"}) // 5 entries with SKILL.md
	size := int64(len(minimal) + 10)
	tests := []struct {
		name   string
		bounds Bounds
		what   string
	}{
		{"just enough", Bounds{MaxFiles: 5, MaxBytes: size}, ""},
		{"too many entries", Bounds{MaxFiles: 4, MaxBytes: size}, "entries"},
		{"too many bytes", Bounds{MaxFiles: 5, MaxBytes: size - 1}, "bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := scanDir(t, dir, tt.bounds)
			var be *BoundError
			if errors.As(err, &be); (be != nil) != (tt.what != "") || be != nil && be.What != tt.what {
				t.Errorf("err = %v, want a bound of %q", err, tt.what)
			}
		})
	}
	t.Run("long links", func(t *testing.T) {
		_, dir := skillDir(t, files{})
		bound := Bounds{MaxFiles: 10_000}
		target := strings.Repeat("x", 4000)
		for i := range bound.NameBytes()/int64(len(target)) + 1 {
			mustDo(t, os.Symlink(target, filepath.Join(dir, fmt.Sprint(i))))
		}
		_, err := scanDir(t, dir, bound)
		var be *BoundError
		if !errors.As(err, &be) || be.Most != bound.NameBytes() {
			t.Errorf("err = %v, want a bound of %d bytes", err, bound.NameBytes())
		}
		if _, err := scanDir(t, dir, Bounds{MaxFiles: math.MaxInt, MaxBytes: math.MaxInt64}); err != nil {
			t.Errorf("without a bound: %v", err)
		}
	})
	t.Run("sparse file", func(t *testing.T) {
		mustDo(t, os.Truncate(filepath.Join(dir, "a"), 1<<40))
		_, err := scanDir(t, dir, Bounds{})
		var be *BoundError
		if !errors.As(err, &be) {
			t.Errorf("err = %v, want a *BoundError", err)
		}
	})
}

// same and content notice a file that changes between the Fstatat and the end of the read.
func TestChangeIsNoticed(t *testing.T) {
	tests := []struct {
		name   string
		change func(t *testing.T, p string)
	}{
		{"grown", func(t *testing.T, p string) { mustDo(t, os.WriteFile(p, []byte("longer than before"), 0o644)) }},
		{"shrunk", func(t *testing.T, p string) { mustDo(t, os.Truncate(p, 1)) }},
		{"replaced", func(t *testing.T, p string) {
			mustDo(t, os.WriteFile(p+"2", []byte("12345"), 0o644))
			mustDo(t, os.Rename(p+"2", p))
		}},
		{"gone", func(t *testing.T, p string) { mustDo(t, os.Remove(p)) }},
		{"link", func(t *testing.T, p string) {
			mustDo(t, os.Remove(p))
			mustDo(t, os.Symlink("/etc/passwd", p))
		}},
		{"FIFO", func(t *testing.T, p string) {
			mustDo(t, os.Remove(p))
			mustDo(t, unix.Mkfifo(p, 0o644))
		}},
		{"socket", func(t *testing.T, p string) {
			mustDo(t, os.Remove(p))
			l, err := net.Listen("unix", p)
			mustDo(t, err)
			t.Cleanup(func() { l.Close() })
		}},
		{"directory", func(t *testing.T, p string) {
			mustDo(t, os.Remove(p))
			mustDo(t, os.Mkdir(p, 0o755))
		}},
		{"setuid", func(t *testing.T, p string) { mustDo(t, os.Chmod(p, 0o755|os.ModeSetuid)) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			files{"f": "12345"}.Write(t, dir)
			fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_RDONLY, 0)
			mustDo(t, err)
			defer unix.Close(fd)
			var st unix.Stat_t
			mustDo(t, unix.Fstatat(fd, "f", &st, unix.AT_SYMLINK_NOFOLLOW))
			tt.change(t, filepath.Join(dir, "f"))
			s := newScan(context.Background(), nil, Bounds{})
			if err := s.file(fd, "f", "f", &st); !errors.Is(err, ErrChanging) {
				t.Errorf("err = %v, want ErrChanging", err)
			}
			if len(s.tree.Entries) != 0 {
				t.Errorf("entries %v, want none", s.tree.Entries)
			}
		})
	}
}

// A directory is swapped again and again with a link out of the skill while the skill is
// read.
// The result never has content from outside.
func TestSwappedWhileRead(t *testing.T) {
	root, dir := skillDir(t, files{"cur/secret.txt": "harmless", "real/": ""})
	files{"outside/secret.txt": "stolen"}.Write(t, root)
	cur, spare := filepath.Join(dir, "cur"), filepath.Join(root, "spare")
	mustDo(t, os.Symlink(filepath.Join(root, "outside"), spare))

	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				unix.Renameat2(unix.AT_FDCWD, cur, unix.AT_FDCWD, spare, unix.RENAME_EXCHANGE)
			}
		}
	})
	stolen := hexSHA256([]byte("stolen"))
	for range 300 {
		tr, err := scanDir(t, dir, Bounds{})
		if err != nil {
			if !errors.Is(err, ErrChanging) {
				t.Errorf("err = %v, want ErrChanging", err)
			}
			continue
		}
		for _, e := range tr.Entries {
			if e.SHA256 == stolen {
				t.Errorf("%s has content from outside", e.Path)
			}
		}
	}
	close(stop)
	swapping.Wait()
}

func TestScanStopsWithContext(t *testing.T) {
	_, dir := skillDir(t, files{"a": "x"})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	f, err := os.Open(dir)
	mustDo(t, err)
	defer f.Close()
	if _, err := scanTree(ctx, Source{Dir: f}, nil, Bounds{}); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want context.Canceled", err)
	}
}

// asNobody runs f on a thread with uid and gid 65534. The thread ends with f.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends
		// Raw system calls change the ids of this thread only.
		if _, _, e := syscall.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); e != 0 {
			t.Errorf("setresuid: %v", e)
			return
		}
		f()
	})
	wg.Wait()
}
