package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// BoundError says that a skill exceeds one of its Bounds, or that a root has too many folders.
type BoundError struct {
	What string // "entries", "bytes", "folders" or boundNames
	Most int64  // of What
}

func (e *BoundError) Error() string {
	return fmt.Sprintf("skill has more than %d %s", e.Most, e.What)
}

const boundNames = "bytes of paths and link targets"

// scanBytes is the most that one read of a file returns.
const scanBytes = 128 << 10

// ErrChanging says that a skill's folder changed during the read.
var ErrChanging = errors.New("changed while it was read")

// scan reads a folder that other processes may change at the same time. Each name is opened
// relative to the descriptor of its directory, and no link is followed, so the scan never
// opens anything outside the folder, unless its Source has a root. Before it opens an entry it
// reads the entry's status, and compares it afterwards: a difference is ErrChanging.
type scan struct {
	ctx    context.Context
	src    Source
	bounds Bounds
	dst    *destination // to copy into; nil: only read
	tree   *Tree
	seen   int   // entries so far, refused ones too
	names  int64 // bytes of their paths and of the targets of links
	hash   hash.Hash
	buf    []byte
}

// Scan reads the folder src and copies nothing. It returns ErrChanging if the folder changed
// during the read, or a *BoundError.
func Scan(ctx context.Context, src Source, b Bounds) (*Tree, error) {
	return scanTree(ctx, src, nil, b)
}

// scanTree reads the folder src. If dst is not nil, it copies every entry there that is not
// refused.
func scanTree(ctx context.Context, src Source, dst *destination, b Bounds) (*Tree, error) {
	s := newScan(ctx, dst, b)
	s.src = src
	// Opened again, because reading names moves the offset of src.
	dir, err := openat(int(src.Dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	if err := s.dir(dir, "", 0); err != nil {
		return nil, err
	}
	s.tree.seal()
	if dst != nil {
		if err := s.finish(); err != nil {
			return nil, err
		}
	}
	return s.tree, nil
}

// newScan has one buffer and one hash for all files.
func newScan(ctx context.Context, dst *destination, b Bounds) *scan {
	return &scan{
		ctx: ctx, bounds: b.WithDefaults(), dst: dst,
		tree: new(Tree), hash: sha256.New(), buf: make([]byte, scanBytes),
	}
}

// dir reads the entries of a directory and closes fd.
func (s *scan) dir(fd int, prefix string, depth int) error {
	f := os.NewFile(uintptr(fd), prefix)
	defer f.Close()
	names, err := s.list(f)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := s.entry(fd, name, join(prefix, name), depth); err != nil {
			return err
		}
	}
	return s.ctx.Err()
}

// list lists a directory in byte order, without excluded names.
func (s *scan) list(f *os.File) ([]string, error) {
	var names []string
	for {
		some, err := f.Readdirnames(1024)
		for _, name := range some {
			if !Excluded(name) {
				names = append(names, name)
			}
		}
		if s.seen+len(names) > s.bounds.MaxFiles {
			return nil, &BoundError{"entries", int64(s.bounds.MaxFiles)}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	s.seen += len(names)
	slices.Sort(names)
	return names, nil
}

// entry reads one entry of the directory dir.
func (s *scan) entry(dir int, name, path string, depth int) error {
	if err := s.keep(path); err != nil {
		return err
	}
	switch {
	case badName(name):
		s.refuse(path, BadName, "has a name that is not UTF-8 or has control characters")
		return nil
	case len(path) > MaxPathBytes || depth >= MaxPathDepth:
		s.refuse(path, TooDeep, fmt.Sprintf("is nested deeper than %d levels or its path is longer than %d bytes", MaxPathDepth, MaxPathBytes))
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("%s: %w", path, orChanging(err))
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return s.subdir(dir, name, path, depth, &st)
	case unix.S_IFREG:
		return s.file(dir, name, path, &st)
	case unix.S_IFLNK:
		return s.link(dir, name, path)
	}
	s.refuse(path, NotRegular, "is neither a file, a directory nor a link")
	return nil
}

// keep counts a path or the target of a link, which the tree keeps in memory.
func (s *scan) keep(text string) error {
	if s.names += int64(len(text)); s.names > s.bounds.NameBytes() {
		return &BoundError{boundNames, s.bounds.NameBytes()}
	}
	return nil
}

// refuse notes an entry that must not be used. The scan goes on.
func (s *scan) refuse(path string, why RefusedWhy, reason string) {
	s.tree.Refused = append(s.tree.Refused, refuse(path, why, reason))
}

// subdir reads a directory. st is from before the open, so a directory that was swapped
// with another one is noticed.
func (s *scan) subdir(dir int, name, path string, depth int, st *unix.Stat_t) error {
	fd, err := openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, unix.EACCES) {
		s.refuse(path, Unreadable, "may not be read")
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, orChanging(err))
	}
	if err := same(fd, st); err != nil {
		unix.Close(fd)
		return fmt.Errorf("%s: %w", path, err)
	}
	s.tree.Entries = append(s.tree.Entries, Entry{Path: path, Kind: KindDir})
	if s.dst != nil {
		if err := os.Mkdir(filepath.Join(s.dst.dir, path), 0o755); err != nil {
			unix.Close(fd)
			return err
		}
	}
	return s.dir(fd, path, depth+1)
}

// link records a link's target as text. Whether it may be followed is decided in seal, when
// the whole tree is known. A link to a file elsewhere beneath the root counts as that file.
func (s *scan) link(dir int, name, path string) error {
	n, err := unix.Readlinkat(dir, name, s.buf[:unix.PathMax])
	if err != nil {
		return fmt.Errorf("%s: %w", path, orChanging(err))
	}
	target := string(s.buf[:n])
	if err := s.keep(target); err != nil {
		return err
	}
	if leaves(path, target) {
		if done, err := s.linked(path); done || err != nil {
			return err
		}
	}
	s.tree.Entries = append(s.tree.Entries, Entry{Path: path, Kind: KindLink, Target: target})
	return nil
}

// linked reads the file that a link out of the folder leads to. It reports whether the link leads to a file.
func (s *scan) linked(path string) (bool, error) {
	fd, err := s.src.openLinked(path)
	if err != nil {
		return false, nil
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
		return false, nil
	}
	if s.tree.SizeBytes+st.Size > s.bounds.MaxBytes {
		return false, &BoundError{"bytes", s.bounds.MaxBytes}
	}
	return true, s.opened(fd, path, &st)
}

// file reads a regular file, hashes it and, if dst is set, copies it in the same pass. The
// size is checked before anything is read, so that a huge sparse file costs nothing.
func (s *scan) file(dir int, name, path string, st *unix.Stat_t) error {
	if st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
		s.tree.Refused = append(s.tree.Refused, refusedSetID(path, st.Mode))
		return nil
	}
	if s.tree.SizeBytes+st.Size > s.bounds.MaxBytes {
		return &BoundError{"bytes", s.bounds.MaxBytes}
	}
	fd, err := openat(dir, name, openForReading)
	if errors.Is(err, unix.EACCES) {
		s.refuse(path, Unreadable, "may not be read")
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, orChanging(err))
	}
	defer unix.Close(fd)
	if err := same(fd, st); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return s.opened(fd, path, st)
}

// opened reads an open file, which becomes the skill's file at path.
func (s *scan) opened(fd int, path string, st *unix.Stat_t) error {
	e := Entry{Path: path, Kind: KindFile, Size: st.Size, Executable: st.Mode&0o111 != 0}
	out, err := s.create(e)
	if err != nil {
		return err
	}
	if out != nil {
		defer out.Close()
	}
	var head *scriptHead
	if mayBeScript(path) {
		head = new(scriptHead)
	}
	if err := s.content(fd, st, out, head); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	e.SHA256 = hex.EncodeToString(s.hash.Sum(nil))
	s.tree.Entries = append(s.tree.Entries, e)
	s.tree.FileCount++
	s.tree.SizeBytes += e.Size
	if head != nil {
		if sc, ok := detectScript(path, e.Executable, head.bytes); ok {
			s.tree.Scripts = append(s.tree.Scripts, sc)
		}
	}
	return nil
}

// content reads exactly st.Size bytes and then checks that the file has not changed since
// st was taken.
func (s *scan) content(fd int, st *unix.Stat_t, out *os.File, head *scriptHead) error {
	s.hash.Reset()
	left := st.Size
	for left > 0 {
		n, err := unix.Read(fd, s.buf[:min(int64(len(s.buf)), left)])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return orChanging(err)
		}
		if n == 0 {
			return ErrChanging
		}
		left -= int64(n)
		s.hash.Write(s.buf[:n])
		if head != nil {
			head.write(s.buf[:n])
		}
		if out != nil {
			if err := writeSparse(out, s.buf[:n]); err != nil {
				return err
			}
		}
		if err := s.ctx.Err(); err != nil {
			return err
		}
	}
	if out != nil {
		if err := out.Truncate(st.Size); err != nil { // the file may end with a hole
			return err
		}
	}
	return same(fd, st)
}

// zeroes is compared with copied blocks. One read returns at most scanBytes.
var zeroes [scanBytes]byte

// writeSparse appends a block to a new file. A block of zeroes becomes a hole, so that a
// sparse file of a skill costs no more disk in its snapshot.
func writeSparse(out *os.File, block []byte) error {
	if bytes.Equal(block, zeroes[:len(block)]) {
		_, err := out.Seek(int64(len(block)), io.SeekCurrent)
		return err
	}
	_, err := out.Write(block)
	return err
}

// openat opens one name in a directory. It follows no link and retries after EINTR.
func openat(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// same returns ErrChanging if an open file differs from what Fstatat saw. Of a directory only the
// identity counts: its times change with each entry.
func same(fd int, want *unix.Stat_t) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Dev != want.Dev || st.Ino != want.Ino || st.Mode&unix.S_IFMT != want.Mode&unix.S_IFMT {
		return ErrChanging
	}
	if st.Mode&unix.S_IFMT == unix.S_IFREG &&
		(st.Size != want.Size || st.Mode != want.Mode || st.Mtim != want.Mtim || st.Ctim != want.Ctim) {
		return ErrChanging
	}
	return nil
}

// orChanging returns ErrChanging if err says that an entry is gone or has become something
// else, else err.
func orChanging(err error) error {
	for _, e := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EINVAL, unix.ENXIO, unix.EAGAIN, unix.ESTALE} {
		if errors.Is(err, e) {
			return ErrChanging
		}
	}
	return err
}
