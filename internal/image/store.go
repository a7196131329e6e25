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

	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/filelock"
)

// Config says where images are stored and how large they may be.
type Config struct {
	// Dir holds the images and nothing else. It is created if missing, with mode 0700.
	Dir string
	// Bytes and Files limit each unpacked image, counting files that later layers remove.
	// 0: DefaultBytes and DefaultFiles.
	Bytes int64
	Files int
	// Log receives the progress. Nil: no log.
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

// A Store keeps unpacked images. Several processes may use its directory, but only one at a
// time may change it.
// Two kinds of flock(2) guard the directory. An exclusive one on lockName, from Open to
// Prune, belongs to the process that adds and removes images. A shared one on an image's
// lock file, from Get to Close, keeps other processes' Prune from removing it.
// So a daemon that takes over can open the store, pull and prune while the earlier daemon
// still runs executions in its images. It calls Adopt when the earlier daemon has ended.
type Store struct {
	config Config
	lock   *os.File // held until Prune
	// used has the locked file of each image that Get returned, by directory name.
	used  map[string]*os.File
	stall time.Duration
}

// Open opens a store. It waits until no other process changes the directory, and then
// removes images that a dead process left half unpacked. After Open, call Get for each
// image, then Prune, which lets other processes change the directory. Close ends the use
// of the images.
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
	if s.lock, err = filelock.AwaitOpen(ctx, filepath.Join(c.Dir, lockName), filelock.Exclusive); err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	if err := s.sweep(); err != nil {
		return nil, errors.Join(fmt.Errorf("images: %w", err), s.Close())
	}
	return s, nil
}

// sweep removes incomplete images. The exclusive lock guarantees that no process is
// unpacking them.
// It also removes images that drop had renamed when its process died.
func (s *Store) sweep() error {
	entries, err := os.ReadDir(s.config.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), newPrefix) {
			continue
		}
		s.config.Log.Info("removing an incomplete image", "dir", e.Name())
		if err := removeTree(filepath.Join(s.config.Dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// removeTree removes a tree without following links. No other process may change the tree.
func removeTree(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove %s: %w", filepath.Base(dir), err)
	}
	return nil
}

// An Unpacked is an image on disk. It stays until the Store is closed.
type Unpacked struct {
	Dir    string // the image's root directory
	Digest string // digest of the reference
}

// dirName returns the directory name of a source. It includes the architecture, because an
// index stands for another image on another architecture.
func dirName(s Source) string {
	return strings.ReplaceAll(s.Digest(), ":", "-") + "-" + runtime.GOARCH
}

// Get returns an image, and pulls it first if necessary. The error is an *UnpinnedError, a
// *PullError, or an error of the daemon.
func (s *Store) Get(ctx context.Context, source Source) (Unpacked, error) {
	if err := source.Pinned(ctx); err != nil {
		return Unpacked{}, err
	}
	name := dirName(source)
	dir := filepath.Join(s.config.Dir, name)
	_, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err = s.pull(ctx, source, dir); err != nil {
			err = &PullError{Reference: source.Reference, Dir: s.config.Dir, Err: err}
		}
	}
	if err != nil {
		return Unpacked{}, err
	}
	if s.used[name] == nil {
		// Only drop takes this lock exclusively, and drop needs the store's lock, which this
		// process holds. So the attempt can't meet a removal.
		lock, err := filelock.Open(filepath.Join(s.config.Dir, name+lockSuffix), filelock.Shared)
		if err != nil {
			return Unpacked{}, fmt.Errorf("images: %w", err)
		}
		s.used[name] = lock
	}
	return Unpacked{Dir: filepath.Join(dir, rootName), Digest: source.Digest()}, nil
}

// pull creates dir from a source.
// After an error nothing is left. The file reference is for the operator: the name of the
// directory doesn't show the registry.
func (s *Store) pull(ctx context.Context, source Source, dir string) (err error) {
	tmp, err := os.MkdirTemp(s.config.Dir, newPrefix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeTree(tmp))
		}
	}()
	written, err := durable.OpenFS(s.config.Dir)
	if err != nil {
		return err
	}
	defer written.Close()
	root := filepath.Join(tmp, rootName)
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(root, 0o755); err != nil { // whatever the umask
		return err
	}
	if err := s.fetch(ctx, source, root); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, sourceName), []byte(source.Reference+"\n"), 0o600); err != nil {
		return err
	}
	return s.publish(tmp, dir, written)
}

// publish writes a complete directory to disk and renames it to its final name.
// The sync of all files comes before the rename, and the sync of the directory after it. So a name is on
// disk only if the files are, even after a power cut.
func (s *Store) publish(tmp, dir string, written *durable.FS) error {
	if err := written.Sync(); err != nil {
		return fmt.Errorf("write to disk: %w", err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	return durable.SyncDir(s.config.Dir)
}

// Prune removes the images that were not requested with Get, unless another process uses
// them. It then lets other processes change the store.
// Call it once, after the last Get. If it fails the daemon does not start; the lock ends
// with Close.
func (s *Store) Prune() error {
	if _, err := s.dropUnused(); err != nil {
		return fmt.Errorf("images: %w", err)
	}
	s.lock.Close()
	s.lock = nil
	return nil
}

// adoptPatience is how long Adopt waits for the locks of a process that dies.
const adoptPatience = 5 * time.Second

// adoptPause is the time between two attempts of Adopt.
const adoptPause = 20 * time.Millisecond

// Adopt removes the images that only the earlier daemon of a takeover has used. Call it after Prune, when the earlier
// daemon has ended. After an error it can be called again.
func (s *Store) Adopt(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, adoptPatience)
	defer cancel()
	lock, err := filelock.AwaitOpen(ctx, filepath.Join(s.config.Dir, lockName), filelock.Exclusive)
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	defer lock.Close()
	for {
		// A process that dies closes its files one after the other, so an image may be locked for a moment after the
		// process has closed its connections.
		locked, err := s.dropUnused()
		if err == nil && locked == "" {
			return nil
		}
		if err != nil {
			return fmt.Errorf("images: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("images: remove %s: %w", locked, filelock.ErrHeld)
		case <-time.After(adoptPause):
		}
	}
}

// dropUnused removes the images that were not requested with Get and that no other process uses. locked is one that
// another process uses. The caller holds the exclusive lock of the store.
func (s *Store) dropUnused() (locked string, err error) {
	entries, err := os.ReadDir(s.config.Dir)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		name := e.Name()
		if !e.IsDir() || s.used[name] != nil {
			continue
		}
		switch err := s.drop(name); {
		case errors.Is(err, filelock.ErrHeld):
			locked = name
		case err != nil:
			return "", err
		}
	}
	return locked, nil
}

// drop removes an image, unless another process uses it (filelock.ErrHeld). It renames the image first, so that sweep
// removes the rest after a crash.
func (s *Store) drop(name string) error {
	path := filepath.Join(s.config.Dir, name)
	lock, err := filelock.Open(path+lockSuffix, filelock.Exclusive)
	if err != nil {
		return err
	}
	defer lock.Close()
	s.config.Log.Info("removing an image that is no longer configured", "dir", name)
	sum := sha256.Sum256([]byte(name))
	gone := filepath.Join(s.config.Dir, newPrefix+"gone-"+hex.EncodeToString(sum[:8]))
	if err := os.Rename(path, gone); err != nil {
		return err
	}
	return errors.Join(removeTree(gone), os.Remove(path+lockSuffix))
}

// Close ends the use of all images.
// Another process may then remove the images, so Close comes after the last sandbox has
// ended.
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
