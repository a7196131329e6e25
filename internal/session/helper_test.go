package session

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// owner is the owner of the files in tests. They run as root, which may give files away.
var owner = Owner{12345, 12345}

// A clock is a time that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// A bench is a store with its rules and its clock.
type bench struct {
	*Store
	t     testing.TB
	dir   string
	rules Rules
	clock clock
}

func newBench(t testing.TB) *bench {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files to another user")
	}
	b := &bench{t: t, dir: filepath.Join(t.TempDir(), "sessions")}
	b.clock.now = time.Unix(1_700_000_000, 0)
	b.open()
	t.Cleanup(func() { b.Store.Close() })
	return b
}

func (b *bench) config() Config {
	return Config{
		Dir: b.dir, Owner: owner, Now: b.clock.Now, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Rules: func(string) Rules { return b.rules },
	}
}

func (b *bench) open() {
	b.t.Helper()
	s, err := Open(b.config())
	b.must(err)
	b.Store = s
}

// restart closes the store and opens it again, as the next daemon does.
func (b *bench) restart() {
	b.t.Helper()
	b.must(b.Store.Close())
	b.open()
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) create(set Settings) string {
	b.t.Helper()
	i, err := b.Create("a", set)
	b.must(err)
	return i.ID
}

func (b *bench) acquire(id string, at int) *Writer {
	b.t.Helper()
	w, err := b.Acquire(context.Background(), "a", id, Use{By: "the test"})
	b.must(err)
	b.must(w.Open(at))
	return w
}

// openErr returns the error of a writer who opens a version.
func (b *bench) openErr(id string, at int) error {
	b.t.Helper()
	w, err := b.Acquire(context.Background(), "a", id, Use{By: "the test"})
	b.must(err)
	defer w.Release()
	return w.Open(at)
}

// source makes a file with a content for Commit. A "*" at the end of the path makes it executable.
func (b *bench) source(path, content string) NewFile {
	b.t.Helper()
	f, err := os.CreateTemp(b.t.TempDir(), "source-*")
	b.must(err)
	_, err = f.WriteString(content)
	b.must(err)
	b.must(f.Close())
	return NewFile{newFile(path, content), f.Name()}
}

func newFile(path, content string) File {
	path, exec := strings.CutSuffix(path, "*")
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(content)))
	return File{Path: path, SizeBytes: int64(len(content)), SHA256: sum, Executable: exec}
}

// change makes a Change from lines: "path=content" for a file, "-path" for a deletion.
func (b *bench) change(lines ...string) Change {
	b.t.Helper()
	var c Change
	for _, line := range lines {
		if path, ok := strings.CutPrefix(line, "-"); ok {
			c.Deleted = append(c.Deleted, path)
			continue
		}
		path, content, _ := strings.Cut(line, "=")
		c.Files = append(c.Files, b.source(path, content))
	}
	return c
}

// commit acquires, commits and releases.
func (b *bench) commit(id string, lines ...string) Committed {
	b.t.Helper()
	done, err := b.try(id, b.change(lines...))
	b.must(err)
	return done
}

func (b *bench) try(id string, c Change) (Committed, error) {
	b.t.Helper()
	w := b.acquire(id, 0)
	defer w.Release()
	return w.Commit(c)
}

// files returns a version as readers see it: "path=content", with "*" after the path of an executable.
func (b *bench) files(id string, version int) []string {
	b.t.Helper()
	v, err := b.Read("a", id, version)
	b.must(err)
	list := []string{}
	for _, f := range v.Files {
		file, err := v.Open(f)
		b.must(err)
		data, err := io.ReadAll(file)
		b.must(err)
		b.must(file.Close())
		if sum := fmt.Sprintf("%x", sha256.Sum256(data)); sum != f.SHA256 || int64(len(data)) != f.SizeBytes {
			b.t.Errorf("version %d: %q has another size or hash than the list says", version, f.Path)
		}
		list = append(list, line(f.Path, string(data), f.Executable))
	}
	return list
}

func line(path, content string, exec bool) string {
	if exec {
		path += "*"
	}
	return path + "=" + content
}

// lower lists a directory in the form of files, and checks owners and modes.
func (b *bench) lower(dir string) []string {
	b.t.Helper()
	found := map[string]string{}
	if dir == "" {
		return []string{}
	}
	b.must(filepath.Walk(dir, func(path string, fi os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		st := fi.Sys().(*syscall.Stat_t)
		if int(st.Uid) != owner.UID || int(st.Gid) != owner.GID {
			b.t.Errorf("%q belongs to %d:%d", rel, st.Uid, st.Gid)
		}
		if fi.IsDir() {
			if fi.Mode() != os.ModeDir|0o755 {
				b.t.Errorf("directory %q has mode %v", rel, fi.Mode())
			}
			if list, _ := os.ReadDir(path); len(list) == 0 {
				b.t.Errorf("directory %q is empty", rel)
			}
			return nil
		}
		data, err := os.ReadFile(path)
		if fi.Mode() != 0o644 && fi.Mode() != 0o755 {
			b.t.Errorf("%q has mode %v", rel, fi.Mode())
		}
		found[rel] = line(rel, string(data), fi.Mode() == 0o755)
		return err
	}))
	list := []string{}
	for _, p := range slices.Sorted(maps.Keys(found)) {
		list = append(list, found[p])
	}
	return list
}

// head returns the newest version as a program sees it.
func (b *bench) head(id string) []string {
	b.t.Helper()
	w := b.acquire(id, 0)
	defer w.Release()
	return b.lower(w.Lower())
}

func (b *bench) check(what string, got, want []string) {
	b.t.Helper()
	if !slices.Equal(got, want) {
		b.t.Errorf("%s:\ngot  %q\nwant %q", what, got, want)
	}
}

// objects returns the number of objects of a session.
func (b *bench) objects(id string) int {
	b.t.Helper()
	list, err := os.ReadDir(filepath.Join(b.dir, "a", id, objectsName))
	b.must(err)
	return len(list)
}

// checkUsage compares the counted bytes of the tenant with its files on disk.
func (b *bench) checkUsage(id string) {
	b.t.Helper()
	w := b.acquire(id, 0)
	defer w.Release()
	want := stored(w.x.kept)
	if _, got := b.Usage("a"); got != want {
		b.t.Errorf("usage: %d bytes, want %d", got, want)
	}
}
