package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
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
	how := unix.LOCK_EX
	if s.unadopted {
		how = unix.LOCK_SH
	}
	if err := flock(s.dir, how|unix.LOCK_NB); err != nil {
		return fmt.Errorf("%s: another process uses it; stop that one, or choose another state_dir: %w", s.config.Dir, err)
	}
	s.lock, err = os.OpenFile(filepath.Join(s.config.Dir, lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	// In a takeover the earlier process has released this lock in HandOver.
	if err := flock(s.lock, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("%s: another process uses it; stop that one, or choose another state_dir: %w", s.config.Dir, err)
	}
	// From here on the lock of the directory is shared, so that a next process can take it, too. If a plain Open of
	// another process has the directory now, this waits until that Open fails: it can't get the file lock.
	return flock(s.dir, unix.LOCK_SH)
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

// flock calls flock(2), again if a signal interrupts it.
func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// lockPatience bounds awaitFlock. The lock of a killed process can stay for a moment: its children have copies of
// its descriptors until their exec.
const lockPatience = 3 * time.Second

// awaitFlock calls flock(2) without blocking, again and again for at most lockPatience.
func awaitFlock(ctx context.Context, f *os.File, how int) error {
	for deadline := time.Now().Add(lockPatience); ; {
		err := flock(f, how|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}
