package record

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// ballastBytes is the room for writes that must work on a full disk: the ends of
// running executions.
const ballastBytes = 16 << 20

// ballast is a file that holds disk space and nothing else. Once the disk is full the
// space is given up. The store then takes no output and no new executions until the
// file has its space again, so that the room goes to ends. After Open the file has no space
// until the first Create or Sweep.
// fallocate(2) reserves blocks without writing them; a sparse file would hold nothing. held
// is read without mu, because each Append asks for it.
type ballast struct {
	f    *os.File
	mu   sync.Mutex
	held atomic.Bool
}

// ReleaseBallast gives up the space that the last process reserved in the directory of a record. A start needs a little
// space before Open, and must work on a full disk: the daemon that starts can remove old executions. The first Create or
// Sweep takes the space again. No process may have the store open.
func ReleaseBallast(dir string) error {
	for _, name := range ballastNames {
		err := os.Truncate(filepath.Join(dir, name), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// openBallast opens or makes the file at path, without its space; fill takes that.
func openBallast(path string) (*ballast, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &ballast{f: f}, nil
}

// fill takes the space if it isn't held, and says why if it can't.
// Create and Sweep call it, so room that was freed in the meantime becomes ballast first.
func (b *ballast) fill() error {
	if b.held.Load() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := unix.Fallocate(int(b.f.Fd()), 0, 0, ballastBytes); err != nil {
		// Give a part of the space back: ends may need it.
		return errors.Join(&os.PathError{Op: "fallocate", Path: b.f.Name(), Err: err}, b.f.Truncate(0))
	}
	b.held.Store(true)
	return nil
}

// release gives the space up.
func (b *ballast) release() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held.Store(false)
	return b.f.Truncate(0)
}

func (b *ballast) close() error { return b.f.Close() }
