package session

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/disktest"
	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/scarcetest"
)

func isDamaged(err error, version int) bool {
	bad, ok := errors.AsType[*DamagedError](err)
	return ok && bad.Version == version
}

// A damaged version is said to be damaged. The versions before it can be read and continued, and the next
// commit makes the session whole.
func TestDamagedVersion(t *testing.T) {
	for name, damage := range map[string]func(b *bench, dir string){
		"a changed byte": func(b *bench, dir string) {
			data, err := os.ReadFile(versionPath(dir, 2))
			b.must(err)
			data[len(data)/2] ^= 1
			b.must(os.WriteFile(versionPath(dir, 2), data, 0o600))
		},
		"empty": func(b *bench, dir string) { b.must(os.WriteFile(versionPath(dir, 2), nil, 0o600)) },
		"another's": func(b *bench, dir string) {
			b.must(os.WriteFile(versionPath(dir, 2), mustRead(b, versionPath(dir, 1)), 0o600))
		},
		"cut":           func(b *bench, dir string) { b.must(os.Truncate(versionPath(dir, 2), 100)) },
		"not in a list": func(b *bench, dir string) { b.must(os.WriteFile(versionPath(dir, 2), []byte("x\n{}\n"), 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.rules.Versions = 3
			id := b.create(Settings{})
			b.commit(id, "f=1")
			b.commit(id, "f=2", "g=2")
			b.must(b.Close())
			damage(b, filepath.Join(b.dir, "a", id))
			b.open()
			if _, err := b.Read("a", id, 0); !isDamaged(err, 2) {
				t.Errorf("read: %v", err)
			}
			if err := b.openErr(id, 0); !isDamaged(err, 2) {
				t.Errorf("open: %v", err)
			}
			b.check("version 1", b.files(id, 1), []string{"f=1"})
			if n := b.objects(id); n != 3 {
				t.Errorf("%d objects; those of a damaged version must stay", n)
			}
			w := b.acquire(id, 1)
			done, err := w.Commit(b.change("h=3"))
			b.must(err)
			w.Release()
			if done.Version.Number != 3 {
				t.Errorf("got version %d, want 3", done.Version.Number)
			}
			b.check("version 3", b.head(id), []string{"f=1", "h=3"})
			b.commit(id, "h=4")
			b.commit(id, "h=5") // now version 2 is no longer kept
			b.restart()
			b.check("version 5", b.head(id), []string{"f=1", "h=5"})
			if n := b.objects(id); n != 4 {
				t.Errorf("%d objects, want 4", n)
			}
			b.checkUsage(id)
		})
	}
}

func mustRead(b *bench, path string) []byte {
	data, err := os.ReadFile(path)
	b.must(err)
	return data
}

func TestMissingObject(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	b.commit(id, "f=1")
	b.must(os.Remove(filepath.Join(b.dir, "a", id, objectsName, "1-0")))
	v, err := b.Read("a", id, 0)
	b.must(err)
	if _, err := v.Open(v.Files[0]); !errors.Is(err, ErrNotFound) {
		t.Errorf("open: %v", err)
	}
	b.restart()
	if err := b.openErr(id, 0); !isDamaged(err, 1) {
		t.Errorf("open: %v", err)
	}
}

// The tree is only a cache: a changed one is made again.
func TestDamagedTree(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	b.commit(id, "d/f=1", "g=1")
	b.must(os.RemoveAll(filepath.Join(b.dir, "a", id, treeName, "d")))
	b.commit(id, "d/f=2")
	b.check("after a commit", b.head(id), []string{"d/f=2", "g=1"})
	b.must(os.WriteFile(filepath.Join(b.dir, "a", id, treeName, "stray"), nil, 0o600))
	b.restart()
	b.check("after a restart", b.head(id), []string{"d/f=2", "g=1"})
}

// A session without readable settings is not listed and its files stay; other files are ignored. Each changed bit of the
// settings is noticed, also in a key, where it makes other valid JSON: such a session must not expire.
func TestUnreadableSession(t *testing.T) {
	b := newBench(t)
	b.rules.MaxTTL = time.Hour
	id, bad := b.create(Settings{}), b.create(Settings{})
	settings := filepath.Join(b.dir, "a", bad, metaName)
	whole := mustRead(b, settings)
	isBad := func(what string) {
		b.restart()
		if _, err := b.Get("a", bad); !isDamaged(err, 0) {
			t.Errorf("%s: got %v", what, err)
		}
		if _, err := os.Stat(settings); err != nil {
			t.Fatal(err)
		}
	}
	for at := range whole {
		b.must(os.WriteFile(settings, slices.Concat(whole[:at], []byte{whole[at] ^ 1}, whole[at+1:]), 0o600))
		isBad(fmt.Sprintf("a changed bit at %d of %q", at, whole))
	}
	b.must(os.WriteFile(settings, whole, 0o600))
	b.restart()
	if _, err := b.Get("a", bad); err != nil {
		t.Errorf("repaired: %v", err)
	}
	b.must(os.WriteFile(settings, []byte("{"), 0o600))
	isBad("a cut")
	stray := filepath.Join(b.dir, "a", id, ".new-1")
	b.must(os.WriteFile(stray, nil, 0o600))
	b.must(os.WriteFile(filepath.Join(b.dir, "a", id, versionsName, ".new-2"), nil, 0o600))
	b.restart()
	if list := b.List("a"); len(list) != 1 || list[0].ID != id {
		t.Errorf("list: got %+v", list)
	}
	b.commit(id, "f=1")
	if _, err := os.Stat(stray); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file of an interrupted update: %v", err)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "a", bad)); err != nil {
		t.Error(err)
	}
}

// A session that cannot be read for a moment is not damaged: it is back as soon as it can be read.
func TestSessionThatCannotBeReadForAMoment(t *testing.T) {
	b := newBench(t)
	id, other := b.create(Settings{}), b.create(Settings{})
	b.commit(id, "f=1")
	b.commit(other, "f=22")
	_, before := b.Usage("a")
	scarcetest.WithoutDescriptors(t, func() {
		b.read("a", id, nil) // as Open and Resume do
		b.read("a", other, nil)
		if _, err := b.Get("a", id); !durable.MayPass(err) || isDamaged(err, 0) {
			t.Errorf("get: got %v, want the error of the system", err)
		}
		if list := b.List("a"); len(list) != 0 {
			t.Errorf("list: got %+v", list)
		}
	})
	b.check("files", b.head(id), []string{"f=1"})
	if list := b.List("a"); len(list) != 2 {
		t.Errorf("list, again: got %+v", list)
	}
	if _, after := b.Usage("a"); after != before {
		t.Errorf("usage: got %d bytes, want %d", after, before)
	}

	b.must(os.Remove(filepath.Join(b.dir, "a", id, metaName)))
	b.restart()
	if _, err := b.Get("a", id); !isDamaged(err, 0) || strings.Contains(err.Error(), b.dir) {
		t.Errorf("without its settings: got %v, want damage without a path", err)
	}
}

func TestFind(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	b.commit(id, "a=1", "b/c=2")
	v, err := b.Read("a", id, 0)
	b.must(err)
	if f, err := v.Find("b/c"); err != nil || f.SizeBytes != 1 {
		t.Errorf("got %+v, %v", f, err)
	}
	for _, p := range []string{"", "b", "b/", "../a", "z"} {
		if _, err := v.Find(p); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", p, err)
		}
	}
}

// Whatever a version's file has: decode returns an error, or files that can be used and are encoded to
// the same bytes.
func FuzzDecode(f *testing.F) {
	m, err := newManifest(Version{Number: 2, Base: 1, By: "x"}, []File{
		{"a/b", 1, hex.EncodeToString(make([]byte, 32)), false, "1-0"}, {"\xff\n", 0, hex.EncodeToString(make([]byte, 32)), true, "2-1"},
	})
	if err != nil {
		f.Fatal(err)
	}
	good, err := m.encode()
	if err != nil {
		f.Fatal(err)
	}
	_, rest, _ := bytes.Cut(good, []byte{'\n'})
	f.Add(rest)
	f.Add([]byte("{}\n"))
	f.Add([]byte(`{"files":1,"dirs":1}` + "\n" + `{"p":"Li4vYQ==","s":0,"h":"","o":"1-0"}`))
	f.Fuzz(func(t *testing.T, rest []byte) {
		m, err := decode(durable.WithSum(rest))
		if err != nil {
			return
		}
		for _, f := range m.files {
			if f.check() != nil {
				t.Errorf("%+v", f)
			}
		}
		made, err := newManifest(Version{Number: m.Number, Base: m.Base, By: m.By, Created: m.Created, Stored: m.Stored}, m.files)
		if err != nil {
			t.Fatal(err)
		}
		data, err := made.encode()
		if err != nil {
			return // a year that JSON has no form for
		}
		again, err := decode(data)
		if err != nil || !reflect.DeepEqual(again.files, m.files) {
			t.Errorf("got %+v, %v; want %+v", again, err, m)
		}
	})
}

// Contents of another size than the list says are damage: a program does not get them, and no reader does.
func TestDamagedSize(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	b.commit(id, "f=1")
	b.commit(id, "f=22")
	b.must(b.Close())
	b.must(os.Truncate(filepath.Join(b.dir, "a", id, objectsName, objectName(2, 0)), 1))
	b.open()
	if err := b.openErr(id, 0); !isDamaged(err, 2) {
		t.Errorf("open: %v", err)
	}
	v, err := b.Read("a", id, 0)
	b.must(err)
	if _, err := v.Open(v.Files[0]); !isDamaged(err, 2) {
		t.Errorf("read: %v", err)
	}
	b.check("version 1", b.files(id, 1), []string{"f=1"})
}

// A file that can't be removed, or a tenant that can't be read, does not keep the store from starting.
func TestStartWithABadTenant(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	busy := filepath.Join(b.dir, "bad", oldPrefix+"1", "mounted")
	b.must(os.MkdirAll(busy, 0o700))
	disktest.Mount(t, busy, "size=64k")
	b.restart()
	b.commit(id, "f=1")
}

// A version whose commit was reported as failed, and that could not be removed, does not come back.
func TestFailedVersionIsRemoved(t *testing.T) {
	b := newBench(t)
	id := b.create(Settings{})
	b.commit(id, "f=1")
	before, err := b.Get("a", id)
	b.must(err)
	b.commit(id, "g=2")
	w := b.acquire(id, 0)
	b.Store.mu.Lock()
	w.x.head, w.x.loaded = before.Newest, false // as after a commit whose undo has failed
	b.Store.mu.Unlock()
	w.Release()
	if v, err := b.Versions("a", id); len(v) != 1 || err != nil {
		t.Errorf("versions before: %+v, %v", v, err)
	}
	if _, err := b.Read("a", id, 2); !errors.Is(err, ErrNotFound) {
		t.Errorf("read: %v", err)
	}
	if done := b.commit(id, "h=3"); done.Version.Number != 2 {
		t.Errorf("got %+v", done)
	}
	b.check("files", b.head(id), []string{"f=1", "h=3"})
	if v, err := b.Versions("a", id); len(v) != 2 || err != nil {
		t.Errorf("versions: %+v, %v", v, err)
	}
}
