package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/filelock"
)

// lockDir takes the locks of Open: takeover.go says which process holds which. An error means that another process
// uses the directory.
func (s *Store) lockDir() (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, s.unlock())
		}
	}()
	if s.dir, err = os.Open(s.config.Dir); err != nil {
		return err
	}
	kind := filelock.Exclusive
	if s.unadopted {
		kind = filelock.Shared
	}
	if err := filelock.Try(s.dir, kind); err != nil {
		return fmt.Errorf("%s: another process uses it; stop that one, or choose another state_dir: %w", s.config.Dir, err)
	}
	s.lock, err = os.OpenFile(filepath.Join(s.config.Dir, lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	// In a takeover the earlier process has released this lock in HandOver.
	if err := filelock.Try(s.lock, filelock.Exclusive); err != nil {
		return fmt.Errorf("%s: another process uses it; stop that one, or choose another state_dir: %w", s.config.Dir, err)
	}
	// From here on the lock of the directory is shared, so that a next process can take it, too. If a plain Open of
	// another process has the directory now, this waits until that Open fails: it can't get the file lock.
	return filelock.Lock(s.dir, filelock.Shared)
}

// unlock releases the locks of Open.
func (s *Store) unlock() error {
	var errs []error
	for _, f := range []*os.File{s.lock, s.dir} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// lockPatience bounds awaitLock. The lock of a killed process can stay for a moment: its children have copies of
// its descriptors until their exec.
const lockPatience = 3 * time.Second

// awaitLock locks a file exclusively within lockPatience.
func awaitLock(ctx context.Context, f *os.File) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lockPatience, fmt.Errorf("for more than %s", lockPatience))
	defer cancel()
	return filelock.Await(ctx, f, filelock.Exclusive)
}
