package snapshot

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ReadFile reads a file of a folder that a scan has seen. It returns ErrChanging unless the content
// has the hash that the scan computed.
// The folder may change at any time, so only the hash decides whether the content is the one of the
// scan.
func ReadFile(src Source, e Entry) ([]byte, error) {
	fd, err := openBeneath(src.Dir, e.Path, openForReading, unix.RESOLVE_NO_SYMLINKS)
	if errors.Is(err, unix.ELOOP) {
		if fd, err = src.openLinked(e.Path); err != nil {
			err = ErrChanging
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Path, orChanging(err))
	}
	f := os.NewFile(uintptr(fd), e.Path)
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", e.Path, ErrChanging)
	}
	text, err := io.ReadAll(io.LimitReader(f, e.Size+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Path, err)
	}
	if hexSHA256(text) != e.SHA256 {
		return nil, fmt.Errorf("%s: %w", e.Path, ErrChanging)
	}
	return text, nil
}

// ErrBusy says that a file of a snapshot cannot be opened now because a process holds a
// lease on it (fcntl(2), F_SETLEASE). Try again later.
var ErrBusy = errors.New("file is busy")

// Open opens a file of the snapshot dir. It never blocks: a file with a lease gives ErrBusy.
// The caller closes the file. Another size shows damage of the disk or, in a folder that was read
// in place (skill.ReadDir), a change.
func Open(dir string, e Entry) (*os.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(e.Path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("%s: %w", e.Path, ErrBusy)
	}
	if err != nil {
		return nil, err
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() || fi.Size() != e.Size {
		f.Close()
		return nil, fmt.Errorf("%s differs from the imported file", e.Path)
	}
	return f, nil
}

// OpenDir opens a directory beneath root by its path and follows no link. "." is root itself.
func OpenDir(root *os.File, path string) (*os.File, error) {
	fd, err := openBeneath(root, path, unix.O_RDONLY|unix.O_DIRECTORY, unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Still returns ErrChanging if the path in root no longer leads to the directory that was read, or if
// that one was changed since. was is its status from before the read. A rename changes the time of the
// last change, so a directory that was away and is back has changed.
func Still(root *os.File, path string, was unix.Stat_t) error {
	now, err := OpenDir(root, path)
	if err != nil {
		return orChanging(err)
	}
	defer now.Close()
	var is unix.Stat_t
	if err := unix.Fstat(int(now.Fd()), &is); err != nil {
		return err
	}
	if is.Dev != was.Dev || is.Ino != was.Ino || is.Ctim != was.Ctim {
		return ErrChanging
	}
	return nil
}
