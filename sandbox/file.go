package sandbox

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Files of the kernel's, in /proc and in cgroups, are read and written here by system
// calls alone. The runtime would announce each to its poller, which these files are
// always ready for, and would wake a thread to say so: three times the work of the
// read itself.

// readAll is what a file says, beneath the directory at, or absolute.
func readAll(at int, path string) (string, error) {
	fd, err := openFile(at, path, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var few [2048]byte
	b := few[:]
	for n := 0; ; {
		got, err := readOnce(fd, b[n:])
		if err != nil {
			return "", fmt.Errorf("read %s: %w", path, err)
		}
		if got == 0 { // less than asked for is not yet the end
			return string(b[:n]), nil
		}
		if n += got; n == len(b) {
			b = append(b, make([]byte, len(b))...)
		}
	}
}

// writeAll writes text to a file that must exist, as one write.
func writeAll(path, text string) error {
	fd, err := openFile(unix.AT_FDCWD, path, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for {
		switch n, err := unix.Write(fd, []byte(text)); {
		case err == unix.EINTR:
		case err != nil:
			return fmt.Errorf("write %s: %w", path, err)
		case n != len(text):
			return fmt.Errorf("write %s: %d bytes of %d", path, n, len(text))
		default:
			return nil
		}
	}
}

// openQuiet is a file that is passed on, or only held.
func openQuiet(path string, flags int) (*os.File, error) {
	fd, err := openFile(unix.AT_FDCWD, path, flags)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// openFile opens what exists, and closes it on exec.
func openFile(at int, path string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(at, path, flags|unix.O_CLOEXEC, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
		return fd, nil
	}
}

func readOnce(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// entries are the names in a directory, in no order.
func entries(at int, path string) ([]string, error) {
	fd, err := openFile(at, path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var names []string
	var b [4096]byte
	for {
		n, err := unix.ReadDirent(fd, b[:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", path, err)
		case n == 0:
			return names, nil
		}
		_, _, names = unix.ParseDirent(b[:n], -1, names)
	}
}

// readLink is where a link beneath the directory at points.
func readLink(at int, path string) (string, error) {
	var b [256]byte // more than any of the kernel's
	n, err := unix.Readlinkat(at, path, b[:])
	if err == nil && n == len(b) {
		err = unix.ENAMETOOLONG
	}
	if err != nil {
		return "", fmt.Errorf("read link %s: %w", path, err)
	}
	return string(b[:n]), nil
}
