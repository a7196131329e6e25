package workspace

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Defaults of CollectLimits.
const (
	DefaultArtifacts     = 10_000
	DefaultArtifactBytes = 256 << 20
	DefaultTotalBytes    = 512 << 20
	DefaultDepth         = 128
	DefaultEntries       = 100_000
)

// Bounds of what is said about the rest.
const (
	// MaxRefused bounds the lines of Collected.Refused.
	MaxRefused = 100
	// maxShownPath bounds the part of a path that such a line shows.
	maxShownPath = 256
	// MaxDeleted bounds Collected.Deleted.
	MaxDeleted = 100_000
)

// CollectLimits bounds what is kept of a workspace. Zero fields are the defaults.
type CollectLimits struct {
	// Files is how many artifacts there can be, FileBytes how large each,
	// TotalBytes how large all together. Holes of a file count as bytes; a file
	// that has two names is two artifacts.
	Files      int
	FileBytes  int64
	TotalBytes int64
	// Depth is how many components an artifact's path can have. It bounds the
	// descriptors that Collect holds, too.
	Depth int
	// Entries is how many names Collect looks at, of whatever kind. It bounds the
	// time and the memory that a workspace of nothing but names costs us.
	Entries int
}

func (l CollectLimits) withDefaults() CollectLimits {
	return CollectLimits{
		Files:      cmp.Or(l.Files, DefaultArtifacts),
		FileBytes:  cmp.Or(l.FileBytes, DefaultArtifactBytes),
		TotalBytes: cmp.Or(l.TotalBytes, DefaultTotalBytes),
		Depth:      cmp.Or(l.Depth, DefaultDepth),
		Entries:    cmp.Or(l.Entries, DefaultEntries),
	}
}

// Artifact is a regular file that the program made or changed.
type Artifact struct {
	// Path is relative to the workspace, in the exact bytes of its names.
	Path      string
	SizeBytes int64
	// SHA256 is 64 hex digits.
	SHA256 string
	// Executable is whether any execute bit is set.
	Executable bool
}

// Collected is what a program left of its workspace.
type Collected struct {
	// Artifacts, ordered by the bytes of their paths. The content of the one at
	// position i is the file i of the directory they were collected into.
	Artifacts []Artifact
	// Refused says what else is there and why it is no artifact: at most
	// MaxRefused lines "path: reason", the path quoted if it isn't plain.
	Refused []string
	// Deleted has the paths at which something of the lower layers is gone, in
	// the order of Artifacts; at most MaxDeleted. Of a directory that was deleted
	// and made again everything is gone, and what is in it now is new.
	Deleted []string
}

// Collect copies out of changes, the overlay's upper layer, each regular file
// whose content or executable bit is not what the lower layers show there; files
// that were only touched, or written as they were, are no artifacts. Every
// process of the sandbox must be dead; a file that changes all the same is
// refused. The copies are the caller's own, in files named 0, 1, 2, ... of the
// directory into, which is made once there is one. An error is ours, and then
// copies may be left.
func (w *Workspace) Collect(changes *os.Root, into string, l CollectLimits) (Collected, error) {
	c := &collector{limits: l.withDefaults(), lowerDirs: w.lower, into: into}
	defer c.close()
	top, err := changes.Open(".")
	if err != nil {
		return Collected{}, fmt.Errorf("collect: %w", err)
	}
	err = c.walk(top, nil, 1, false)
	if err = errors.Join(err, top.Close()); err != nil {
		return Collected{}, fmt.Errorf("collect: %w", err)
	}
	return c.result(), nil
}

// collector is one Collect on its way.
type collector struct {
	limits    CollectLimits
	lowerDirs []string
	lower     []*os.File // open once there is something to compare with them
	into      string
	made      bool // into is there
	buf       []byte
	other     []byte
	bytes     int64
	entries   int // looked at
	got       Collected
	refused   int // all of them, also those that have no line
}

func (c *collector) openLower() error {
	for _, dir := range c.lowerDirs {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		c.lower = append(c.lower, f)
	}
	return nil
}

func (c *collector) close() {
	for _, f := range c.lower {
		f.Close()
	}
}

// entry is one name in a directory.
type entry struct {
	name string
	stat unix.Stat_t
}

func (e *entry) is(kind uint32) bool { return e.stat.Mode&unix.S_IFMT == kind }

// walk collects what is in dir, whose path, with a slash at its end, is prefix.
// depth is that of its entries. fresh says that no lower layer shows through.
func (c *collector) walk(dir *os.File, prefix []byte, depth int, fresh bool) error {
	entries, more, err := readDir(dir, c.limits.Entries-c.entries)
	if c.entries += len(entries); more {
		c.refuse(append(prefix[:len(prefix):len(prefix)], '.'), fmt.Sprintf("more than %d entries: the rest was not looked at", c.limits.Entries))
	}
	if err == nil && len(entries) > 0 && c.lower == nil {
		err = c.openLower()
	}
	if err != nil {
		return err
	}
	for i := range entries {
		e := &entries[i]
		path := append(prefix[:len(prefix):len(prefix)], e.name...)
		switch {
		case isWhiteout(&e.stat):
			c.delete(string(path))
		case len(path) > MaxPathBytes:
			c.refuse(path, fmt.Sprintf("path is longer than %d bytes", MaxPathBytes))
		case depth > c.limits.Depth:
			c.refuse(path, fmt.Sprintf("deeper than %d", c.limits.Depth))
		case e.is(unix.S_IFDIR):
			err = c.enter(dir, e, path, depth, fresh)
		case e.is(unix.S_IFREG):
			err = c.file(dir, e, path, fresh)
		default:
			c.refuse(path, kindName(e.stat.Mode))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// enter goes into a directory.
func (c *collector) enter(parent *os.File, e *entry, path []byte, depth int, fresh bool) error {
	dir, err := openSame(parent, e, unix.O_DIRECTORY)
	if errors.Is(err, errChanged) {
		c.refuse(path, err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	if isOpaque(dir) {
		c.delete(string(path))
		fresh = true
	}
	return errors.Join(c.walk(dir, append(path, '/'), depth+1, fresh), dir.Close())
}

// readDir returns the entries of dir in the order of the paths beneath it, where
// a directory's name goes on with a slash. Of more than most it returns any so many,
// and that there are more.
func readDir(dir *os.File, most int) (entries []entry, more bool, err error) {
	names, err := dir.Readdirnames(most + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	if more = len(names) > most; more {
		names = names[:most]
	}
	entries = make([]entry, 0, len(names))
	for _, name := range names {
		e := entry{name: name}
		err := unix.Fstatat(int(dir.Fd()), name, &e.stat, unix.AT_SYMLINK_NOFOLLOW)
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return nil, false, &os.PathError{Op: "stat", Path: strconv.Quote(name), Err: err}
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b entry) int { return comparePaths(&a, &b) })
	return entries, more, nil
}

func comparePaths(a, b *entry) int {
	n := min(len(a.name), len(b.name))
	if d := strings.Compare(a.name[:n], b.name[:n]); d != 0 {
		return d
	}
	return strings.Compare(a.rest(n), b.rest(n))
}

// rest is what follows the first n bytes of the entry's path.
func (e *entry) rest(n int) string {
	if e.is(unix.S_IFDIR) {
		return e.name[n:] + "/"
	}
	return e.name[n:]
}

// errChanged says that the tree isn't still any more.
var errChanged = errors.New("changed while it was read")

// openSame opens the entry of dir if it is still the one that was seen. The flags
// keep it from following a link and from waiting for a writer of a fifo.
func openSame(dir *os.File, e *entry, flags int) (*os.File, error) {
	flags |= unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	fd, err := unix.Openat(int(dir.Fd()), e.name, flags, 0)
	switch err {
	case nil:
	case unix.ENOENT, unix.ELOOP, unix.ENOTDIR, unix.ENXIO:
		return nil, errChanged
	default:
		return nil, &os.PathError{Op: "open", Path: strconv.Quote(e.name), Err: err}
	}
	f := os.NewFile(uintptr(fd), e.name)
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if now.Dev != e.stat.Dev || now.Ino != e.stat.Ino || now.Mode&unix.S_IFMT != e.stat.Mode&unix.S_IFMT {
		return nil, errors.Join(errChanged, f.Close())
	}
	return f, nil
}

// isWhiteout says whether a lower layer's entry was deleted here
// (Documentation/filesystems/overlayfs.rst, "whiteouts and opaque directories").
func isWhiteout(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

// isOpaque says whether dir hides the directories of the lower layers. Programs
// can't set the attribute: it takes CAP_SYS_ADMIN.
func isOpaque(dir *os.File) bool {
	var value [1]byte
	n, err := unix.Fgetxattr(int(dir.Fd()), "trusted.overlay.opaque", value[:])
	return err == nil && n == 1 && value[0] == 'y'
}

func kindName(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return "symbolic link"
	case unix.S_IFIFO:
		return "named pipe"
	case unix.S_IFSOCK:
		return "socket"
	default:
		return "device"
	}
}

func (c *collector) delete(path string) {
	if len(c.got.Deleted) < MaxDeleted {
		c.got.Deleted = append(c.got.Deleted, path)
	}
}

func (c *collector) refuse(path []byte, reason string) {
	if c.refused++; c.refused <= MaxRefused {
		c.got.Refused = append(c.got.Refused, show(path)+": "+reason)
	}
}

// show is a path on one line.
func show(path []byte) string {
	more := ""
	if len(path) > maxShownPath {
		path, more = path[:maxShownPath], "..."
	}
	quoted := strconv.Quote(string(path))
	if more == "" && bytes.Equal([]byte(quoted[1:len(quoted)-1]), path) {
		return string(path)
	}
	return quoted + more
}

func (c *collector) result() Collected {
	if more := c.refused - MaxRefused; more > 0 {
		c.got.Refused[MaxRefused-1] = fmt.Sprintf("and %d more", more+1)
	}
	return c.got
}
