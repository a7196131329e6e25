package workspace

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// copyBytes is the number of bytes that are copied or compared at once. A block of zeroes
// becomes a hole in the copy.
const copyBytes = 128 << 10

// file makes an artifact of a regular file if it has changed and the limits allow it.
func (c *collector) file(dir *os.File, e *entry, path []byte, fresh bool) error {
	f, err := openSame(dir, e, 0)
	if errors.Is(err, errChanged) {
		c.lack(path, err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if !fresh {
		same, err := c.unchanged(f, e, path)
		if err != nil || same {
			return err
		}
	}
	if reason := c.overLimit(e.stat.Size); reason != "" {
		c.lack(path, reason)
		return nil
	}
	sum, err := c.copy(f, e.stat.Size)
	if errors.Is(err, errChanged) {
		c.lack(path, err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	c.bytes += e.stat.Size
	c.got.Artifacts = append(c.got.Artifacts, Artifact{
		Path: string(path), SizeBytes: e.stat.Size, SHA256: sum, Executable: e.stat.Mode&0o111 != 0,
	})
	return nil
}

// overLimit names the limit that one more artifact of this size would exceed, or is empty.
func (c *collector) overLimit(size int64) string {
	switch {
	case len(c.got.Artifacts) >= c.limits.Files:
		return fmt.Sprintf("more than %d artifacts", c.limits.Files)
	case size > c.limits.FileBytes:
		return fmt.Sprintf("larger than %d bytes", c.limits.FileBytes)
	case size > c.limits.TotalBytes-c.bytes:
		return fmt.Sprintf("artifacts are larger than %d bytes together", c.limits.TotalBytes)
	}
	return ""
}

// unchanged reports whether f equals the file that the lower layers show at its path. The first
// layer that has a file at the path decides: the overlay shows the topmost one.
func (c *collector) unchanged(f *os.File, e *entry, path []byte) (bool, error) {
	for _, layer := range c.lower {
		lower, err := openBeneath(layer, string(path))
		if errors.Is(err, unix.ENXIO) {
			return false, nil // a whiteout hides the layers below (Input.Whiteout)
		}
		if err != nil {
			return false, err
		}
		if lower == nil {
			continue
		}
		same, err := c.same(f, e, lower)
		return same, errors.Join(err, lower.Close())
	}
	return false, nil
}

// openBeneath opens a path in a lower layer without following links. It returns nil if the
// layer has no file there that could equal a regular file. The error is ENXIO for a device without a
// driver, such as a whiteout. openat2(2): RESOLVE_BENEATH and
// RESOLVE_NO_SYMLINKS hold for every component of the path.
func openBeneath(layer *os.File, path string) (*os.File, error) {
	fd, err := unix.Openat2(int(layer.Fd()), path, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch err {
	case nil:
		return os.NewFile(uintptr(fd), path), nil
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.ENAMETOOLONG:
		return nil, nil
	}
	return nil, &os.PathError{Op: "openat2", Path: strconv.Quote(path), Err: err}
}

// same compares type, executable bits and content. Owner, times and other bits of the mode make
// no difference.
func (c *collector) same(f *os.File, e *entry, lower *os.File) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(lower.Fd()), &st); err != nil {
		return false, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size != e.stat.Size || (st.Mode&0o111 != 0) != (e.stat.Mode&0o111 != 0) {
		return false, nil
	}
	c.buffers()
	for pos := int64(0); ; {
		n, err := f.ReadAt(c.buf, pos)
		if err != nil && err != io.EOF {
			return false, err
		}
		m, lerr := lower.ReadAt(c.other, pos)
		if lerr != nil && lerr != io.EOF {
			return false, lerr
		}
		if !bytes.Equal(c.buf[:n], c.other[:m]) {
			return false, nil
		}
		if pos += int64(n); err == io.EOF || lerr == io.EOF {
			return pos == st.Size, nil
		}
	}
}

// buffers allocates both buffers once: most workspaces have no changed file.
func (c *collector) buffers() {
	if c.buf == nil {
		c.buf, c.other = make([]byte, copyBytes), make([]byte, copyBytes)
	}
}

// copy copies size bytes of f to the file of the next artifact and returns their SHA-256.
// It returns errChanged if f has another size by now.
func (c *collector) copy(f *os.File, size int64) (sum string, err error) {
	c.buffers()
	if !c.made {
		if err := os.Mkdir(c.into, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
		c.made = true
	}
	name := filepath.Join(c.into, strconv.Itoa(len(c.got.Artifacts)))
	to, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	digest := sha256.New()
	err = errors.Join(c.copyTo(to, digest, f, size), to.Close())
	if err != nil {
		return "", errors.Join(err, os.Remove(name))
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}

// copyTo copies exactly size bytes and then checks that f ends there. Blocks of zeroes are
// skipped, and Truncate sets the final length, so the copy of a sparse file is sparse.
func (c *collector) copyTo(to *os.File, digest hash.Hash, f *os.File, size int64) error {
	clear(c.other) // zeroes, for finding holes
	for pos := int64(0); pos < size; {
		n, err := f.ReadAt(c.buf[:min(copyBytes, size-pos)], pos)
		if err == io.EOF && pos+int64(n) < size {
			return errChanged
		}
		if err != nil && err != io.EOF {
			return err
		}
		digest.Write(c.buf[:n])
		if !bytes.Equal(c.buf[:n], c.other[:n]) {
			if _, err := to.WriteAt(c.buf[:n], pos); err != nil {
				return err
			}
		}
		pos += int64(n)
	}
	if n, err := f.ReadAt(c.buf[:1], size); n != 0 || err != io.EOF {
		return errors.Join(errChanged, err)
	}
	return to.Truncate(size)
}
