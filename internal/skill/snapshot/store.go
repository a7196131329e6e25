package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/filelock"
	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// Store keeps snapshots: one directory for each, named by the hex digits of its digest. A
// snapshot gets this name when it is complete and on disk, and never changes afterwards.
// Directories with newPrefix are incomplete. Directories with oldPrefix hold damaged
// snapshots, which running programs may still use.
//
// Several processes may share a store. Each holds a shared flock(2) on the lock file while
// it uses the store. Only a process with an exclusive lock may remove all unused snapshots:
//
//	OpenStore   exclusive if no other process has the store open, else shared
//	Share       shared: other processes may open the store and add to it
//	Clean       exclusive for the time of a sweep, if the other processes are gone; then shared again
//
// A process may Remove a snapshot with a shared lock if it knows that no other process uses it.
type Store struct {
	dir   string
	owner Owner // of the entries of snapshots
	lock  *os.File

	mu    sync.Mutex
	aside map[string]bool // damaged snapshots that this Store moved aside; programs of this process may use them
}

const (
	newPrefix = "new-"
	oldPrefix = "old-"
	lockName  = "lock"
	lockRetry = 20 * time.Millisecond
	// cleanPatience bounds how long Clean waits for the lock of a process that dies.
	cleanPatience = 3 * time.Second
	ownersOnly    = 0o700
)

var snapshotName = lazyregexp.New(`^[0-9a-f]{64}$`)

// OpenStore creates or opens a store. alone says whether this process has the lock to
// itself. If so, the caller may call Sweep, and must then call Share.
func OpenStore(ctx context.Context, dir string, owner Owner) (s *Store, alone bool, err error) {
	if !owner.valid() {
		return nil, false, fmt.Errorf("%s: snapshots cannot belong to %d:%d", dir, owner.UID, owner.GID)
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, false, err
	}
	if err := os.MkdirAll(dir, ownersOnly); err != nil {
		return nil, false, err
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return nil, false, err
	}
	if !fi.IsDir() || fi.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		return nil, false, fmt.Errorf("%s: not a directory of the daemon's user", dir)
	}
	if err := os.Chmod(dir, ownersOnly); err != nil {
		return nil, false, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, false, err
	}
	s = &Store{dir: dir, owner: owner, lock: lock, aside: map[string]bool{}}
	if alone, err = s.acquire(ctx); err != nil {
		lock.Close()
		return nil, false, fmt.Errorf("%s: lock: %w", dir, err)
	}
	return s, alone, nil
}

// acquire takes the lock: exclusively if it is free, else shared. It waits only while
// another process holds it exclusively.
func (s *Store) acquire(ctx context.Context) (alone bool, err error) {
	for {
		for _, kind := range []filelock.Kind{filelock.Exclusive, filelock.Shared} {
			if err := filelock.Try(s.lock, kind); !errors.Is(err, filelock.ErrHeld) {
				return err == nil && kind == filelock.Exclusive, err
			}
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(lockRetry):
		}
	}
}

// Share turns an exclusive lock into a shared one, which lets other processes in.
func (s *Store) Share() error { return filelock.Lock(s.lock, filelock.Shared) }

// Close releases the lock. Another process may then remove the snapshots.
func (s *Store) Close() error { return s.lock.Close() }

// Staged is a complete snapshot under a temporary name.
type Staged struct{ tmp, final string }

// path returns the path of the snapshot of t.
func (s *Store) path(t *Tree) string {
	return filepath.Join(s.dir, strings.TrimPrefix(t.Digest, "sha256:"))
}

// Stage makes sure that the store has a copy of t, which was just read from src. dir is the
// final path of the snapshot. st is nil if the snapshot is already there; otherwise the
// caller must Publish or Discard it. If src has changed since, the error is
// ErrChanging.
func (s *Store) Stage(ctx context.Context, src Source, t *Tree, b Bounds) (dir string, st *Staged, err error) {
	final := s.path(t)
	if _, err := os.Lstat(final); err == nil {
		err := s.Verify(t)
		if err == nil || durable.MayPass(err) {
			return final, nil, err
		}
		if err := s.moveAside(final); err != nil {
			return "", nil, err
		}
	}
	tmp, err := os.MkdirTemp(s.dir, newPrefix)
	if err != nil {
		return "", nil, err
	}
	copied, err := scanTree(ctx, src, &destination{tmp, s.owner}, b)
	if err == nil && copied.Digest != t.Digest {
		err = ErrChanging
	}
	if err != nil {
		os.RemoveAll(tmp)
		return "", nil, err
	}
	return final, &Staged{tmp, final}, nil
}

// Discard removes a snapshot that was not published.
func (st *Staged) Discard() { os.RemoveAll(st.tmp) }

// Publish makes staged snapshots durable and gives them their final names. If one of them
// fails, some may be published; the caller discards all of them.
func (s *Store) Publish(all []*Staged) error {
	if err := s.flush(); err != nil {
		return err
	}
	for _, st := range all {
		if err := st.publish(); err != nil {
			return err
		}
	}
	return s.sync()
}

// flush writes all staged snapshots to disk. One syncfs(2) replaces an fsync for each of
// thousands of files. It uses the descriptor of the lock, which is older than the snapshots: see durable.FS. Only one
// caller at a time stages and publishes.
func (s *Store) flush() error {
	if err := unix.Syncfs(int(s.lock.Fd())); err != nil {
		return fmt.Errorf("%s: sync: %w", s.dir, err)
	}
	return nil
}

// publish renames a snapshot to its final name, which is durable once sync has returned. If
// the name exists by now, another process or folder has published the same content, and the
// copy is removed.
func (st *Staged) publish() error {
	err := os.Rename(st.tmp, st.final)
	if errors.Is(err, fs.ErrExist) {
		return os.RemoveAll(st.tmp)
	}
	return err
}

// sync makes the final names of snapshots durable.
func (s *Store) sync() error { return durable.SyncDir(s.dir) }

// moveAside renames a damaged snapshot. Running programs keep their files; a later sweep
// removes them.
func (s *Store) moveAside(final string) error {
	old, err := os.MkdirTemp(s.dir, oldPrefix)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.aside[filepath.Base(old)] = true
	s.mu.Unlock()
	return os.Rename(final, filepath.Join(old, "snapshot"))
}

// Verify checks that the snapshot of t is unchanged, without reading contents. It checks the kind,
// owner, permissions, size and link target of every entry, the modification time, which any
// write would have changed, and that the snapshot has no other entries.
func (s *Store) Verify(t *Tree) error {
	dir := s.path(t)
	want := make(map[string]Entry, len(t.Entries)+1)
	for _, e := range t.Entries {
		want[e.Path] = e
	}
	for _, l := range t.links() {
		want[l.Path] = l
	}
	want["."] = Entry{Path: ".", Kind: KindDir}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		e, ok := want[rel]
		if !ok {
			return fmt.Errorf("%s: does not belong to the snapshot", p)
		}
		delete(want, rel)
		return verifyEntry(p, d, e, s.owner)
	})
	if err != nil {
		return err
	}
	for p := range want {
		return fmt.Errorf("%s: missing in the snapshot", filepath.Join(dir, p))
	}
	return nil
}

// verifyEntry compares one entry with its expected owner, time, mode, size and target.
func verifyEntry(p string, d fs.DirEntry, e Entry, owner Owner) error {
	fi, err := d.Info()
	if err != nil {
		return err
	}
	st := fi.Sys().(*syscall.Stat_t)
	ok := int(st.Uid) == owner.UID && int(st.Gid) == owner.GID && fi.ModTime().Equal(ModTime)
	switch e.Kind {
	case KindDir:
		ok = ok && fi.Mode() == fs.ModeDir|fs.FileMode(e.mode())
	case KindFile:
		ok = ok && fi.Mode() == fs.FileMode(e.mode()) && fi.Size() == e.Size
	case KindLink:
		target, err := os.Readlink(p)
		if durable.MayPass(err) {
			return err
		}
		ok = ok && err == nil && target == e.Target
	}
	if !ok {
		return fmt.Errorf("%s: differs from the imported file", p)
	}
	return nil
}

// Remove removes a snapshot that nothing uses any longer. It first takes the name away, so that a
// crash leaves no part of a snapshot under it.
func (s *Store) Remove(digest string) error {
	name := strings.TrimPrefix(digest, "sha256:")
	if !snapshotName.MatchString(name) {
		return fmt.Errorf("%q is no digest", digest)
	}
	old, err := os.MkdirTemp(s.dir, oldPrefix)
	if err != nil {
		return err
	}
	err = os.Rename(filepath.Join(s.dir, name), filepath.Join(old, "snapshot"))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(old))
}

// Clean is Sweep for a store that is in use. If another process has the store open, Clean does nothing and alone is
// false. The caller must make sure that no Stage is under way, and that no process opens the store during the call:
// the change from a shared to an exclusive lock frees the lock for a moment (flock(2)).
func (s *Store) Clean(ctx context.Context, inUse map[string]bool) (removed int, alone bool, err error) {
	// A process that dies closes its files one after the other. So its lock may still be held for a moment.
	for deadline := time.Now().Add(cleanPatience); ; {
		alone, err = s.acquire(ctx)
		if err != nil || alone || time.Now().After(deadline) {
			break
		}
		select {
		case <-ctx.Done():
			return 0, false, ctx.Err()
		case <-time.After(lockRetry):
		}
	}
	if err != nil || !alone {
		return 0, alone, err
	}
	removed, err = s.Sweep(inUse)
	return removed, true, errors.Join(err, s.Share())
}

// Sweep removes snapshots that are not in use, and incomplete and damaged ones. It keeps
// entries with other names, and damaged ones that this Store moved aside. The caller must hold the lock
// exclusively.
func (s *Store) Sweep(inUse map[string]bool) (removed int, err error) {
	names, err := os.ReadDir(s.dir)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, d := range names {
		name := d.Name()
		stray := strings.HasPrefix(name, newPrefix) || strings.HasPrefix(name, oldPrefix)
		unused := snapshotName.MatchString(name) && !inUse["sha256:"+name]
		s.mu.Lock()
		aside := s.aside[name]
		s.mu.Unlock()
		if !stray && !unused || aside {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.dir, name)); err != nil {
			errs = append(errs, err)
			continue
		}
		removed++
	}
	return removed, errors.Join(errs...)
}
