package record

import (
	"errors"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// extentBytes is what a young execution has room for.
	extentBytes = 64 << 10
	// maxExtents bounds the arena. Where there is none left an execution gets its
	// row and its spool at once.
	maxExtents = 4096
)

// An arena is a file of extents, each the place of one young execution: see young.go.
// What is in no use is zero, so that nothing that was there before can be taken for
// a part of what is there now.
type arena struct {
	f *os.File

	mu   sync.Mutex
	free []int64 // given back; the last one is taken first
	next int64   // from here on none was ever taken
}

// openArena opens or makes the file at path. Who recovers what is in it says from
// where on it is free.
func openArena(path string) (*arena, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	return &arena{f: f}, nil
}

// take returns where an extent of zeroes begins. ok is false if there is none.
func (a *arena) take() (at int64, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.free); n > 0 {
		at = a.free[n-1]
		a.free = a.free[:n-1]
		return at, true
	}
	if a.next >= maxExtents*extentBytes {
		return 0, false
	}
	at = a.next
	a.next += extentBytes
	return at, true
}

var zeroes [extentBytes]byte

// give takes an extent back of which used bytes were written. What begins it goes
// first, so that a death meanwhile leaves none. One that can't be cleared is never
// used again.
func (a *arena) give(at, used int64) error {
	if _, err := a.f.WriteAt(zeroes[:used], at); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.free = append(a.free, at)
	return nil
}

// write writes parts behind one another from pos on, with one system call unless
// the kernel takes only a part of them. What of them is there after an error is
// cleared again.
func (a *arena) write(parts [][]byte, pos int64) error {
	n, err := writeParts(a.f, parts, pos)
	if err != nil && n > 0 {
		_, cerr := a.f.WriteAt(zeroes[:n], pos)
		err = errors.Join(err, cerr)
	}
	return err
}

func (a *arena) close() error { return a.f.Close() }

// writeParts writes parts behind one another and returns how much of them is there.
func writeParts(f *os.File, parts [][]byte, pos int64) (written int64, err error) {
	parts = slices.DeleteFunc(parts, func(p []byte) bool { return len(p) == 0 })
	for len(parts) > 0 {
		n, err := unix.Pwritev(int(f.Fd()), parts, pos+written)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return written, &os.PathError{Op: "write", Path: f.Name(), Err: err}
		}
		written += int64(n)
		for len(parts) > 0 && n >= len(parts[0]) {
			n -= len(parts[0])
			parts = parts[1:]
		}
		if n > 0 {
			parts[0] = parts[0][n:]
		}
	}
	return written, nil
}
