package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Config says where images are kept and how large they may be.
type Config struct {
	// Dir holds the images and nothing else. It is made if need be, 0700.
	Dir string
	// Bytes and Files bound one image, unpacked, with what later layers take away
	// again. 0: DefaultBytes, DefaultFiles.
	Bytes int64
	Files int
	// Log gets the progress. Nil: none.
	Log *slog.Logger
}

// Defaults of Config.
const (
	DefaultBytes = 8 << 30
	DefaultFiles = 500_000
)

// Names in a store's directory.
const (
	lockName   = "lock"
	newPrefix  = "new-"
	lockSuffix = ".lock"
	rootName   = "rootfs"
	sourceName = "reference"
)

// A Store keeps unpacked images. One process at a time changes its directory, and
// several may use it.
type Store struct {
	config Config
	lock   *os.File // while images are added and removed
	used   map[string]*os.File
	stall  time.Duration
}

// Open opens a store: it waits until no other process changes it, and removes what
// a dead one left half unpacked. Settle ends the time of changes, Close the use.
func Open(ctx context.Context, c Config) (*Store, error) {
	if c.Bytes == 0 {
		c.Bytes = DefaultBytes
	}
	if c.Files == 0 {
		c.Files = DefaultFiles
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{config: c, used: map[string]*os.File{}, stall: stallPatience}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	var err error
	if s.lock, err = waitForLock(ctx, filepath.Join(c.Dir, lockName)); err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	if err := s.sweep(); err != nil {
		return nil, errors.Join(fmt.Errorf("images: %w", err), s.Close())
	}
	return s, nil
}

// sweep removes what was not finished. Nobody finishes it: the lock is ours.
func (s *Store) sweep() error {
	entries, err := os.ReadDir(s.config.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), newPrefix) {
			continue
		}
		s.config.Log.Info("removing an image that was not unpacked to its end", "dir", e.Name())
		if err := removeTree(filepath.Join(s.config.Dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// removeTree removes a tree, which nobody else changes, and follows no link in it.
func removeTree(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove %s: %w", filepath.Base(dir), err)
	}
	return nil
}

// An Unpacked is an image on disk. It stays while the Store is open.
type Unpacked struct {
	Dir    string // its root
	Digest string // that of the reference
}

// dirName is the directory of a source: an index means another image on another
// kind of machine.
func dirName(s Source) string {
	return strings.ReplaceAll(s.Digest(), ":", "-") + "-" + runtime.GOARCH
}

// Get returns an image, and pulls it if it is not there. The error is an
// *UnpinnedError, a *PullError, or ours.
func (s *Store) Get(ctx context.Context, source Source) (Unpacked, error) {
	if err := source.Pinned(ctx); err != nil {
		return Unpacked{}, err
	}
	name := dirName(source)
	dir := filepath.Join(s.config.Dir, name)
	_, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = s.pull(ctx, source, dir)
	}
	if err != nil {
		return Unpacked{}, err
	}
	if s.used[name] == nil {
		lock, err := lockFile(filepath.Join(s.config.Dir, name+lockSuffix), unix.LOCK_SH)
		if err != nil {
			return Unpacked{}, fmt.Errorf("images: %w", err)
		}
		s.used[name] = lock
	}
	return Unpacked{Dir: filepath.Join(dir, rootName), Digest: source.Digest()}, nil
}

// pull makes dir from a source.
func (s *Store) pull(ctx context.Context, source Source, dir string) (err error) {
	tmp, err := os.MkdirTemp(s.config.Dir, newPrefix)
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeTree(tmp))
		}
	}()
	root := filepath.Join(tmp, rootName)
	if err := errors.Join(os.Mkdir(root, 0o755), os.Chmod(root, 0o755)); err != nil {
		return fmt.Errorf("images: %w", err)
	}
	if err := s.fetch(ctx, source, root); err != nil {
		return &PullError{Reference: source.Reference, Err: err}
	}
	if err := os.WriteFile(filepath.Join(tmp, sourceName), []byte(source.Reference+"\n"), 0o600); err != nil {
		return fmt.Errorf("images: %w", err)
	}
	return s.publish(tmp, dir)
}

// publish gives a directory that is complete its name, on disk.
func (s *Store) publish(tmp, dir string) error {
	store, err := os.Open(s.config.Dir)
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	defer store.Close()
	if err := unix.Syncfs(int(store.Fd())); err != nil {
		return fmt.Errorf("images: write to disk: %w", err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("images: %w", err)
	}
	return store.Sync()
}

// Settle removes the images that nobody has asked for with Get, unless another
// process uses them, and lets others change the store.
func (s *Store) Settle() error {
	entries, err := os.ReadDir(s.config.Dir)
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	for _, e := range entries {
		if name := e.Name(); e.IsDir() && s.used[name] == nil {
			if err := s.drop(name); err != nil {
				return fmt.Errorf("images: %w", err)
			}
		}
	}
	s.lock.Close()
	s.lock = nil
	return nil
}

// drop removes an image that nobody uses. It loses its name first, so that what is
// left of it after a crash is swept.
func (s *Store) drop(name string) error {
	path := filepath.Join(s.config.Dir, name)
	lock, err := lockFile(path+lockSuffix, unix.LOCK_EX)
	if errors.Is(err, errLocked) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	s.config.Log.Info("removing an image that the configuration no longer names", "dir", name)
	sum := sha256.Sum256([]byte(name))
	gone := filepath.Join(s.config.Dir, newPrefix+"gone-"+hex.EncodeToString(sum[:8]))
	if err := os.Rename(path, gone); err != nil {
		return err
	}
	return errors.Join(removeTree(gone), os.Remove(path+lockSuffix))
}

// Close ends the use of all images.
func (s *Store) Close() error {
	for _, lock := range s.used {
		lock.Close()
	}
	if s.lock != nil {
		s.lock.Close()
		s.lock = nil
	}
	return nil
}

// errLocked means that another process has the lock.
var errLocked = errors.New("another process has it")

func lockFile(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errLocked
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

const lockPeriod = 20 * time.Millisecond

func waitForLock(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := lockFile(path, unix.LOCK_EX)
		if !errors.Is(err, errLocked) {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		case <-time.After(lockPeriod):
		}
	}
}
