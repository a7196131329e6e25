package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/filelock"
)

// idLocks holds the locks of ids. Ids belong to the machine, so all daemons use this directory, whatever their
// configurations are.
const idLocks = "/run/lock/skillrun"

// openIDLocks opens the file of the locks of all ids, and makes its directory if it is missing.
func openIDLocks(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// Every user may make names in /run/lock. The owner of the directory could take the locks, or could have the file
	// made elsewhere by a link.
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || info.Mode().Type() != fs.ModeDir || info.Mode()&0o022 != 0 || st.Uid != uint32(os.Geteuid()) {
		return nil, fmt.Errorf("%s is not a directory to which only the daemon's user may write; remove it", dir)
	}
	return os.OpenFile(filepath.Join(dir, "ids"), os.O_CREATE|os.O_RDWR, 0o600)
}

// lockIDs locks a range of ids until locks, a file of openIDLocks, is closed, or until the daemon's death. The lock of an
// id is on the byte at its offset (open file description locks, fcntl_locking(2)). So two daemons never have an id in
// common, also if their configurations divide the ids differently. If another file has one of the locks, the error is an
// filelock.ErrHeld.
func lockIDs(locks *os.File, first, count uint32) error {
	err := unix.FcntlFlock(locks.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: int64(first), Len: int64(count)})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		err = filelock.ErrHeld
	}
	if err != nil {
		return fmt.Errorf("ids %d to %d: %w", first, first+count-1, err)
	}
	return nil
}
