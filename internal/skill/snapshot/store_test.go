package snapshot

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/scarcetest"
)

// Opening waits, within ctx, for a process that holds the lock exclusively.
func TestStoreWaits(t *testing.T) {
	dir := t.TempDir()
	s, alone, err := OpenStore(context.Background(), dir, owner)
	if err != nil || !alone {
		t.Fatalf("OpenStore: alone %t, %v", alone, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := OpenStore(ctx, dir, owner); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want context.Canceled", err)
	}
	mustDo(t, s.Share())
	other, alone, err := OpenStore(context.Background(), dir, owner)
	if err != nil || alone {
		t.Fatalf("OpenStore: alone %t, %v, want shared", alone, err)
	}
	mustDo(t, other.Close())
	mustDo(t, s.Close())
}

// Clean removes nothing while another process has the store open. It keeps snapshots that this process uses.
func TestStoreClean(t *testing.T) {
	dir := t.TempDir()
	earlier, _, err := OpenStore(t.Context(), dir, owner)
	mustDo(t, err)
	mustDo(t, earlier.Share())
	s, alone, err := OpenStore(t.Context(), dir, owner)
	if err != nil || alone {
		t.Fatalf("OpenStore: alone %t, %v", alone, err)
	}
	used, unused := strings.Repeat("a", 64), strings.Repeat("b", 64)
	files{used + "/": "", unused + "/": "", "new-1/": "", "other/": ""}.Write(t, dir)
	mustDo(t, s.moveAside(filepath.Join(dir, used)))
	mustDo(t, os.Mkdir(filepath.Join(dir, used), 0o755))
	inUse := map[string]bool{"sha256:" + used: true}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, alone, err := s.Clean(ctx, inUse); n != 0 || alone || !errors.Is(err, context.Canceled) {
		t.Errorf("beside another process: %d, %t, %v", n, alone, err)
	}
	mustDo(t, earlier.Close())
	if n, alone, err := s.Clean(t.Context(), inUse); n != 2 || !alone || err != nil {
		t.Errorf("alone: %d, %t, %v, want that two are removed", n, alone, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 4 { // lock, used, other, and what was moved aside
		t.Errorf("left: %v, %v", left, err)
	}
	if other, alone, err := OpenStore(t.Context(), dir, owner); err != nil || alone {
		t.Errorf("afterwards: alone %t, %v, want shared", alone, err)
	} else {
		mustDo(t, other.Close())
	}
	mustDo(t, s.Close())
}

func TestStoreDirectory(t *testing.T) {
	base := t.TempDir()
	files{"file": "", "link": "-> elsewhere", "elsewhere/": "", "open/": ""}.Write(t, base)
	mustDo(t, os.Chmod(filepath.Join(base, "open"), 0o777))
	for name, ok := range map[string]bool{"new/dir": true, "open": true, "file": false, "link": false} {
		dir := filepath.Join(base, name)
		s, _, err := OpenStore(context.Background(), dir, owner)
		if (err == nil) != ok {
			t.Errorf("%s: err = %v, want success %t", name, err, ok)
		}
		if err != nil {
			continue
		}
		if fi, _ := os.Stat(dir); fi.Mode().Perm() != 0o700 {
			t.Errorf("%s is %v, want 0700", name, fi.Mode())
		}
		s.Close()
	}
	if os.Geteuid() == 0 {
		dir := filepath.Join(base, "foreign")
		mustDo(t, os.Mkdir(dir, 0o755))
		mustDo(t, os.Lchown(dir, 1000, 1000))
		if _, _, err := OpenStore(context.Background(), dir, owner); err == nil {
			t.Error("a directory that belongs to another user was accepted")
		}
	}
}

// Two folders with the same content, staged at the same time, share one snapshot.
func TestPublishTwice(t *testing.T) {
	_, dir := skillDir(t, files{"x": "x"})
	s, _, err := OpenStore(context.Background(), t.TempDir(), owner)
	mustDo(t, err)
	defer s.Close()
	src, err := os.Open(dir)
	mustDo(t, err)
	defer src.Close()
	tr := mustScan(t, dir)
	var two []*Staged
	for range 2 {
		_, st, err := s.Stage(context.Background(), Source{Dir: src}, tr, Bounds{})
		if err != nil || st == nil {
			t.Fatalf("stage = %v, %v", st, err)
		}
		two = append(two, st)
	}
	mustDo(t, s.flush())
	for _, st := range two {
		mustDo(t, st.publish())
	}
	mustDo(t, s.sync())
	mustDo(t, s.Verify(tr))
	if names := storeNames(t, s.dir); len(names) != 1 {
		t.Errorf("the store has %v, want one snapshot", names)
	}
	if _, st, err := s.Stage(context.Background(), Source{Dir: src}, tr, Bounds{}); st != nil || err != nil {
		t.Errorf("staging an existing snapshot = %v, %v, want nothing to publish", st, err)
	}
}

// storeAndSkill returns the folder of a skill, as a source and scanned, and an empty store.
func storeAndSkill(t *testing.T) (dir string, s *Store, src Source, tr *Tree) {
	t.Helper()
	_, dir = skillDir(t, files{"x": "x"})
	s, _, err := OpenStore(context.Background(), t.TempDir(), owner)
	mustDo(t, err)
	t.Cleanup(func() { s.Close() })
	src.Dir, err = os.Open(dir)
	mustDo(t, err)
	t.Cleanup(func() { src.Dir.Close() })
	return dir, s, src, mustScan(t, dir)
}

// A failed import leaves no files.
func TestStageFails(t *testing.T) {
	dir, s, src, tr := storeAndSkill(t)
	files{"y": "changed since"}.Write(t, dir)
	if _, _, err := s.Stage(context.Background(), src, tr, Bounds{}); !errors.Is(err, ErrChanging) {
		t.Errorf("err = %v, want ErrChanging", err)
	}
	var be *BoundError
	if _, _, err := s.Stage(context.Background(), src, tr, Bounds{MaxFiles: 1}); !errors.As(err, &be) {
		t.Errorf("err = %v, want a *BoundError", err)
	}
	if names := storeNames(t, s.dir); len(names) != 0 {
		t.Errorf("remaining files: %v", names)
	}
}

// A snapshot that cannot be read for a moment stays in its place.
func TestSnapshotThatCannotBeReadForAMoment(t *testing.T) {
	_, s, src, tr := storeAndSkill(t)
	at, staged, err := s.Stage(t.Context(), src, tr, Bounds{})
	mustDo(t, err)
	mustDo(t, s.Publish([]*Staged{staged}))
	scarcetest.WithoutDescriptors(t, func() {
		if _, _, err := s.Stage(t.Context(), src, tr, Bounds{}); !durable.MayPass(err) {
			t.Errorf("err = %v, want the error of the system", err)
		}
	})
	if _, err := os.Stat(at); err != nil {
		t.Error(err)
	}
}

// A snapshot that belongs to other ids than the store's owner is not intact.
func TestSnapshotOfAnotherOwner(t *testing.T) {
	_, s, src, tr := storeAndSkill(t)
	_, st, err := s.Stage(context.Background(), src, tr, Bounds{})
	mustDo(t, err)
	mustDo(t, s.Publish([]*Staged{st}))
	mustDo(t, s.Verify(tr))
	for _, other := range []Owner{{owner.UID + 1, owner.GID}, {owner.UID, owner.GID + 1}} {
		if err := (&Store{dir: s.dir, owner: other}).Verify(tr); err == nil {
			t.Errorf("a snapshot of %v was accepted for %v", owner, other)
		}
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
