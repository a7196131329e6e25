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

// ballastStep is the space that one write gets at most before it is tried again. Most ends are much smaller.
const ballastStep = 256 << 10

// ballast is a file that holds disk space and nothing else. Once the disk is full, an end gets a
// step of this space at the moment when it needs it. The rest stays reserved: programs and uploads fill each
// free block of a full disk. The store then takes no output and no new executions until the
// file has all of its space again. After Open that is so from the first Create or Sweep on.
// fallocate(2) reserves blocks without writing them; a sparse file would hold nothing. held
// is read without mu, because each Append asks for it.
type ballast struct {
	f    *os.File
	mu   sync.Mutex
	size int64       // of the space; mu guards it
	held atomic.Bool // the file has all of its space
}

// ReleaseBallast gives up the space that the last process reserved in the directory of a record. A start needs a little
// space before Open, and must work on a full disk: the daemon that starts can remove old executions. The first Create
// or Sweep takes the space again. No process may have the store open.
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
	fi, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &ballast{f: f, size: fi.Size()}, nil
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
		// Give back what fallocate has added: a write may need it now.
		return errors.Join(&os.PathError{Op: "fallocate", Path: b.f.Name(), Err: err}, b.f.Truncate(b.size))
	}
	b.size = ballastBytes
	b.held.Store(true)
	return nil
}

// use calls write. While the disk is full for it, use gives up a step of the space and calls write again.
func (b *ballast) use(write func() error) error {
	err := write()
	for isFull(err) {
		gave, rerr := b.release()
		if rerr != nil {
			return errors.Join(err, rerr)
		}
		if !gave {
			return err
		}
		err = write()
	}
	return err
}

// release gives up a step of the space, and reports whether there was one.
func (b *ballast) release() (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held.Store(false)
	if b.size == 0 {
		return false, nil
	}
	b.size = max(0, b.size-ballastStep)
	return true, b.f.Truncate(b.size)
}

func (b *ballast) close() error { return b.f.Close() }
