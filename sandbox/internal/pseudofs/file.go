package pseudofs

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Read returns the content of a file. It reads until a read returns 0, since a file of /proc may
// give less than asked before its end.
func Read(path string) (string, error) {
	fd, err := OpenFD(path, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var few [2048]byte
	b := few[:]
	for n := 0; ; {
		got, err := ReadOnce(fd, b[n:])
		if err != nil {
			return "", fmt.Errorf("read %s: %w", path, err)
		}
		if got == 0 { // a short read is not yet the end
			return string(b[:n]), nil
		}
		if n += got; n == len(b) {
			b = append(b, make([]byte, len(b))...)
		}
	}
}

// Write writes text to a file that must exist, by one write(2): the kernel takes each write
// as one command.
func Write(path, text string) error {
	fd, err := OpenFD(path, unix.O_WRONLY)
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

// Open opens an existing file that its caller only holds or passes on, close-on-exec.
func Open(path string, flags int) (*os.File, error) {
	fd, err := OpenFD(path, flags)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// OpenFD opens an existing file, close-on-exec. The caller closes the descriptor.
func OpenFD(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
		return fd, nil
	}
}

// ReadOnce is read(2), again if a signal interrupted it: Go's runtime sends signals to its own threads to preempt
// them. Unlike the functions above, it is for any file. n is -1 after an error.
func ReadOnce(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// Names returns the names in a directory, in no particular order. "." and ".." are left out.
func Names(path string) ([]string, error) {
	fd, err := OpenFD(path, unix.O_RDONLY|unix.O_DIRECTORY)
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

// ReadLink returns the target of a link. path is absolute or beneath the directory at.
func ReadLink(at int, path string) (string, error) {
	var b [256]byte // longer than any link of the kernel's in /proc
	n, err := unix.Readlinkat(at, path, b[:])
	if err == nil && n == len(b) {
		err = unix.ENAMETOOLONG
	}
	if err != nil {
		return "", fmt.Errorf("read link %s: %w", path, err)
	}
	return string(b[:n]), nil
}
