package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// lockAndRecover opens a journal as a process does at its start.
func lockAndRecover(path string, after uint64, found func(Entry) error) (*Journal, error) {
	j, err := Lock(path)
	if err != nil {
		return nil, err
	}
	if err := j.Recover(after, found); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// opened has the journal that reopen opened last, by path.
var opened = map[string]*Journal{}

// reopen opens the journal at path and returns the entries in it, as "seq data". The journal that was opened at
// path before loses its lock, as if its process had died.
func reopen(t testing.TB, path string, after uint64) (*Journal, []string) {
	t.Helper()
	if last := opened[path]; last != nil {
		if err := unix.Flock(int(last.f.Fd()), unix.LOCK_UN); err != nil {
			t.Fatal(err)
		}
	}
	var found []string
	j, err := lockAndRecover(path, after, func(e Entry) error {
		found = append(found, fmt.Sprintf("%d %s", e.Seq, e.Data))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	opened[path] = j
	t.Cleanup(func() {
		delete(opened, path)
		j.Close()
	})
	return j, found
}

func add(t testing.TB, j *Journal, data ...string) {
	t.Helper()
	for _, d := range data {
		if err := j.Append([]byte(d)); err != nil {
			t.Fatal(err)
		}
	}
}

func check(t testing.TB, when string, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("%s: got %q, want %q", when, got, want)
	}
}

func TestEntriesComeBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, found := reopen(t, path, 0)
	check(t, "new", found)
	add(t, j, "one", "", "three")
	j, found = reopen(t, path, 0)
	check(t, "again", found, "1 one", "2 ", "3 three")
	add(t, j, "four")
	if err := j.Reset(); err != nil {
		t.Fatal(err)
	}
	add(t, j, "five")
	j, found = reopen(t, path, 4)
	check(t, "after a reset", found, "5 five")
	if j.Last() != 5 {
		t.Errorf("the last is %d", j.Last())
	}
	if err := j.Reset(); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Size() != j.Size() || j.Size() == 0 {
		t.Errorf("it has %d bytes, not %d, %v", fi.Size(), j.Size(), err)
	}
	// The database knows of a later entry than the file does, as after a loss of power.
	j, found = reopen(t, path, 9)
	check(t, "reset", found)
	add(t, j, "ten")
	j, found = reopen(t, path, 20)
	check(t, "behind", found, "10 ten")
	add(t, j, "twenty-one")
	_, found = reopen(t, path, 20)
	check(t, "at last", found, "21 twenty-one")
}

// A write that was cut off at any byte, with any bytes after it, leaves the earlier
// entries. The journal continues after them.
func TestTornEntries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _ := reopen(t, path, 0)
	add(t, j, "one", "two")
	from := j.Size()
	add(t, j, "three")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var torn [][]byte
	for n := from; n < int64(len(whole)); n++ {
		flipped := bytes.Clone(whole)
		flipped[n] ^= 0x10
		torn = append(torn, whole[:n], append(bytes.Clone(whole[:n]), make([]byte, 100)...), flipped)
	}
	// An entry of an earlier round has another number.
	torn = append(torn, append(bytes.Clone(whole[:from]), whole[len(magic):]...))
	for i, b := range torn {
		if bytes.Equal(b[:min(len(b), len(whole))], whole) {
			continue // the zeroes changed nothing
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		j, found := reopen(t, path, 0)
		check(t, fmt.Sprint(i), found, "1 one", "2 two")
		if got, want := j.Dropped(), int64(len(b))-from; got != want {
			t.Errorf("%d: %d bytes dropped, want %d", i, got, want)
		}
		add(t, j, "again")
		_, found = reopen(t, path, 0)
		check(t, fmt.Sprint(i, " again"), found, "1 one", "2 two", "3 again")
	}
}

// A file that was cut off within its first bytes never had an entry.
func TestTornMagic(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	for n := range len(magic) {
		if err := os.WriteFile(path, []byte(magic[:n]), 0o600); err != nil {
			t.Fatal(err)
		}
		j, found := reopen(t, path, 0)
		check(t, fmt.Sprint(n), found)
		add(t, j, "one")
		_, found = reopen(t, path, 0)
		check(t, fmt.Sprint(n), found, "1 one")
	}
}

// A journal is open once at a time.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _ := reopen(t, path, 0)
	add(t, j, "one")
	if _, err := Lock(path); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v", err)
	}
	add(t, j, "two")
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	var found []string
	next, err := lockAndRecover(path, 0, func(e Entry) error { found = append(found, string(e.Data)); return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	check(t, "next", found, "one", "two")
}

// CheckVersion recognizes a journal of another version without taking the journal's lock.
func TestCheckVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	checkVersion := func(when string, want error) {
		t.Helper()
		if err := CheckVersion(path); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", when, err, want)
		}
	}
	checkVersion("none", nil)
	j, _ := reopen(t, path, 0)
	checkVersion("empty", nil)
	add(t, j, "one")
	checkVersion("with an entry", nil)
	if err := os.WriteFile(path, []byte("journal 0\nand more"), 0o600); err != nil {
		t.Fatal(err)
	}
	checkVersion("another", ErrVersion)
}

func TestOpenRefuses(t *testing.T) {
	for name, place := range map[string]func(path string) error{
		"another file": func(p string) error { return os.WriteFile(p, []byte("journal 0\nand more"), 0o600) },
		"directory":    func(p string) error { return os.Mkdir(p, 0o700) },
		"link":         func(p string) error { return os.Symlink("/etc/passwd", p) },
		"pipe":         func(p string) error { return unix.Mkfifo(p, 0o600) },
	} {
		path := filepath.Join(t.TempDir(), "journal")
		if err := place(path); err != nil {
			t.Fatal(err)
		}
		if j, err := lockAndRecover(path, 0, nil); err == nil {
			j.Close()
			t.Errorf("%s: opened", name)
		} else if name == "another file" && !errors.Is(err, ErrVersion) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// The caller's error ends Recover, and the entries stay.
func TestFoundFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _ := reopen(t, path, 0)
	add(t, j, "one")
	stop := errors.New("stop")
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	delete(opened, path)
	if _, err := lockAndRecover(path, 0, func(Entry) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	_, found := reopen(t, path, 0)
	check(t, "then", found, "1 one")
}

func TestAppendRefuses(t *testing.T) {
	j, _ := reopen(t, filepath.Join(t.TempDir(), "journal"), 0)
	if err := j.Append(make([]byte, MaxEntry+1)); err == nil || j.Last() != 0 {
		t.Errorf("got %v, the last is %d", err, j.Last())
	}
}

// On a full disk nothing of an entry stays, the entries before do, and a reset makes
// room.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small disk")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "journal")
	j, _ := reopen(t, path, 0)
	data := strings.Repeat("x", 10_000)
	var err error
	for err == nil {
		err = j.Append([]byte(data))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("got %v", err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Size() != j.Size() {
		t.Errorf("it has %d bytes, not %d, %v", fi.Size(), j.Size(), err)
	}
	n := j.Last()
	_, found := reopen(t, path, 0)
	if uint64(len(found)) != n || n < 5 {
		t.Errorf("got %d entries, want %d", len(found), n)
	}
	if err := j.Reset(); err != nil {
		t.Fatal(err)
	}
	add(t, j, data)
	_, found = reopen(t, path, n)
	check(t, "then", found, fmt.Sprint(n+1, " ", data))
}

// FuzzOpen writes any bytes as the remains of a crash. Recover must take the whole entries at the
// beginning of the file, and a second Recover must find the same entries.
func FuzzOpen(f *testing.F) {
	path := filepath.Join(f.TempDir(), "journal")
	j, _ := reopen(f, path, 0)
	add(f, j, "one", "", "three")
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(magic))
	f.Add([]byte(magic + "\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "journal")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		open := func() (found []string, err error) {
			j, err := lockAndRecover(path, 0, func(e Entry) error {
				found = append(found, fmt.Sprintf("%d %s", e.Seq, e.Data))
				return nil
			})
			if err == nil {
				j.Close()
			}
			return found, err
		}
		first, err := open()
		if err != nil {
			if !errors.Is(err, ErrVersion) || bytes.HasPrefix(b, []byte(magic)) {
				t.Fatal(err)
			}
			return
		}
		second, err := open()
		if err != nil {
			t.Fatal(err)
		}
		check(t, "again", second, first...)
	})
}
