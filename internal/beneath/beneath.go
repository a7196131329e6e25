// Package beneath opens files beneath a directory, in one system call for a path of any depth. An [os.Root] opens every
// component of a path, so that a tree of deep directories costs it seconds.
package beneath

import (
	"os"

	"golang.org/x/sys/unix"
)

// Open opens an entry of dir. RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS keep the kernel
// inside dir, RESOLVE_NO_XDEV refuses mounts (openat2(2)), and O_NONBLOCK makes the opening
// of a pipe return at once (fifo(7)). flags are the flags of open(2); a file that O_CREAT makes has mode 0600.
func Open(dir *os.File, name string, flags int) (*os.File, error) {
	how := unix.OpenHow{
		Flags:   uint64(unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC | flags),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	if flags&unix.O_CREAT != 0 {
		how.Mode = 0o600
	}
	fd, err := unix.Openat2(int(dir.Fd()), name, &how)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// OpenDir opens a directory beneath dir, to make and change entries of it.
func OpenDir(dir *os.File, name string) (*os.File, error) {
	return Open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
}
