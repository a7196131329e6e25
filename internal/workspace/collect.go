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

// How the upper layer is read. walk goes down one directory at a time, with an open descriptor
// for each level, and reads entries beneath that descriptor. So no path in the upper layer is
// resolved as a whole, and a link can't lead anywhere. An entry is looked at (readDir), opened
// (openSame) and checked to be the same inode; only then is it read.
//
// In an overlay's upper layer a deleted file is a character device 0:0, the whiteout, and a
// directory that was deleted and made again has the attribute trusted.overlay.opaque. A program
// can make neither: overlayfs refuses to create a whiteout (ovl_mknod in fs/overlayfs/dir.c), and
// trusted.* needs CAP_SYS_ADMIN (xattr(7)).

// Defaults of CollectLimits. Sizes are in bytes.
const (
	DefaultArtifacts     = 10_000
	DefaultArtifactBytes = 256 << 20
	DefaultTotalBytes    = 512 << 20
	DefaultDepth         = 128
	DefaultEntries       = 100_000
)

// Limits on the report of everything that is not an artifact.
const (
	// MaxRefused is the maximum number of lines in Collected.Refused.
	MaxRefused = 100
	// maxShownPath is how many bytes of a path such a line shows.
	maxShownPath = 256
	// MaxDeleted is the maximum number of paths in Collected.Deleted.
	MaxDeleted = 100_000
)

// CollectLimits limits what Collect keeps of a workspace. A zero field means its default.
type CollectLimits struct {
	// Files is the maximum number of artifacts, FileBytes the size of each, and
	// TotalBytes the size of all together. The holes of a sparse file count as bytes. A
	// file with two hard links is two artifacts.
	Files      int
	FileBytes  int64
	TotalBytes int64
	// Depth is the maximum number of components in an artifact's path. Collect holds one
	// open descriptor for each level.
	Depth int
	// Entries is the maximum number of directory entries, of any kind, that Collect
	// looks at. It limits the time and memory for a workspace full of names.
	Entries int
}

// withDefaults replaces zeros.
func (l CollectLimits) withDefaults() CollectLimits {
	return CollectLimits{
		Files:      cmp.Or(l.Files, DefaultArtifacts),
		FileBytes:  cmp.Or(l.FileBytes, DefaultArtifactBytes),
		TotalBytes: cmp.Or(l.TotalBytes, DefaultTotalBytes),
		Depth:      cmp.Or(l.Depth, DefaultDepth),
		Entries:    cmp.Or(l.Entries, DefaultEntries),
	}
}

// Artifact is a regular file that the program created or changed.
type Artifact struct {
	// Path is relative to the workspace. It has the exact bytes of the names on disk, which
	// need not be UTF-8.
	Path      string
	SizeBytes int64
	// SHA256 is the hash of the content, in 64 lowercase hex digits.
	SHA256 string
	// Executable is true if any execute bit is set.
	Executable bool
}

// Collected is the result of Collect.
type Collected struct {
	// Artifacts is sorted by the bytes of the paths. The content of Artifacts[i] is the
	// file named i in the directory that Collect copied to.
	Artifacts []Artifact
	// Refused has a line "path: reason" for each entry that is not an artifact and not
	// a directory, at most MaxRefused. Unusual paths are quoted as in Go source.
	Refused []string
	// Deleted has the paths of the inputs and skill files that the program deleted, in the
	// order of Artifacts, at most MaxDeleted. If a program deletes a directory and creates
	// it again, the directory is listed, and every file in it is an artifact.
	Deleted []string
	// Hiding has the paths of entries that are neither files nor directories. The program does not see an entry of a
	// lower layer at such a path.
	Hiding []string
	// Incomplete says that the lists lack a file or a deletion, because of a limit or a change during
	// Collect. Refused has the reason, except for deletions beyond MaxDeleted.
	Incomplete bool
}

// Collect copies regular files from changes, the overlay's upper layer, whose content or
// executable bits differ from the lower layers. A file that was only touched, or written
// with the same content, is not an artifact; nor is a file in a directory __pycache__.
//
// The copies are files named 0, 1, 2, ... in the directory into, which is created for the
// first one. They are new files, so a program cannot change them later. The caller must
// end every process of the sandbox first; Collect refuses a file that changes in spite of
// that. An error means that the daemon failed, and copies may remain in into.
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

// collector is the state of one Collect.
type collector struct {
	limits    CollectLimits
	lowerDirs []string
	lower     []*os.File // opened by the first directory that is not empty
	into      string
	made      bool // into exists
	// Two buffers of copyBytes, made by the first file and used for all.
	buf   []byte
	other []byte
	// Of the artifacts so far; compared with limits.TotalBytes.
	bytes   int64
	entries int // entries seen so far
	got     Collected
	refused int // refused entries so far, with and without a line
}

// openLower opens the lower layers. It runs only if the upper layer has entries, because
// most programs write nothing.
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

// entry is one name in a directory. stat is of the moment of readDir; openSame compares it with
// the open file.
type entry struct {
	name string
	stat unix.Stat_t
}

func (e *entry) is(kind uint32) bool { return e.stat.Mode&unix.S_IFMT == kind }

// walk collects the entries of dir. prefix is the path of dir with a slash at its end,
// depth the number of components in the paths of its entries. fresh says that no lower
// layer is visible in dir. It calls itself at most limits.Depth times: a deeper entry is refused
// before enter.
func (c *collector) walk(dir *os.File, prefix []byte, depth int, fresh bool) error {
	entries, more, err := readDir(dir, c.limits.Entries-c.entries)
	if c.entries += len(entries); more {
		c.lack(append(prefix[:len(prefix):len(prefix)], '.'), fmt.Sprintf("more than %d entries: the rest was skipped", c.limits.Entries))
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
		case e.name == bytecodeDir && (e.is(unix.S_IFDIR) || isWhiteout(&e.stat)):
			// no artifact, and nothing of the skill's or an input's that the program deleted
		case isWhiteout(&e.stat):
			c.delete(string(path))
		case len(path) > MaxPathBytes:
			c.lack(path, fmt.Sprintf("path is longer than %d bytes", MaxPathBytes))
		case depth > c.limits.Depth:
			c.lack(path, fmt.Sprintf("deeper than %d", c.limits.Depth))
		case e.is(unix.S_IFDIR):
			err = c.enter(dir, e, path, depth, fresh)
		case e.is(unix.S_IFREG):
			err = c.file(dir, e, path, fresh)
		default:
			c.hide(string(path))
			c.refuse(path, kindName(e.stat.Mode))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// enter walks a subdirectory.
func (c *collector) enter(parent *os.File, e *entry, path []byte, depth int, fresh bool) error {
	dir, err := openSame(parent, e, unix.O_DIRECTORY)
	if errors.Is(err, errChanged) {
		c.lack(path, err.Error())
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

// readDir returns at most most entries of dir, and whether there are more. They are sorted
// by the paths beneath them, so a directory sorts as its name with a slash. If there are
// more, the selection is arbitrary. An entry that vanished between the two system calls is left
// out. That does not happen as long as no process of the sandbox lives.
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

// comparePaths orders entries like their full paths. "a.txt" comes before "a/b", since '.'
// is less than '/', although the name "a" alone is less than "a.txt".
func comparePaths(a, b *entry) int {
	n := min(len(a.name), len(b.name))
	if d := strings.Compare(a.name[:n], b.name[:n]); d != 0 {
		return d
	}
	return strings.Compare(a.rest(n), b.rest(n))
}

// rest returns the entry's path, with a slash after a directory, without its first n bytes.
func (e *entry) rest(n int) string {
	if e.is(unix.S_IFDIR) {
		return e.name[n:] + "/"
	}
	return e.name[n:]
}

// bytecodeDir is the name of a directory in which Python keeps compiled modules. A sandbox has
// PYTHONDONTWRITEBYTECODE=1, but python -E, python -I and py_compile write there anyway.
const bytecodeDir = "__pycache__"

// errChanged says that an entry changed during Collect.
var errChanged = errors.New("changed while it was read")

// openSame opens an entry of dir and returns errChanged unless it is the entry that readDir
// saw. O_NOFOLLOW refuses a link. O_NONBLOCK keeps the open from waiting for the writer of
// a FIFO.
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

// isWhiteout reports whether the program deleted an entry of a lower layer at this path.
// See "whiteouts and opaque directories" in Documentation/filesystems/overlayfs.rst.
func isWhiteout(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

// isOpaque reports whether dir hides the directories of the lower layers. A program cannot
// forge the attribute: setting trusted.* needs CAP_SYS_ADMIN, see xattr(7).
func isOpaque(dir *os.File) bool {
	var value [1]byte
	n, err := unix.Fgetxattr(int(dir.Fd()), "trusted.overlay.opaque", value[:])
	return err == nil && n == 1 && value[0] == 'y'
}

// kindName names a kind of file that is never an artifact.
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

// delete notes a deleted path. Beyond MaxDeleted it drops them.
func (c *collector) delete(path string) { c.note(&c.got.Deleted, path) }

// hide notes the path of an entry that is neither a file nor a directory.
func (c *collector) hide(path string) { c.note(&c.got.Hiding, path) }

func (c *collector) note(list *[]string, path string) {
	if len(*list) >= MaxDeleted {
		c.got.Incomplete = true
		return
	}
	*list = append(*list, path)
}

// lack refuses an entry that can be or hold an artifact.
func (c *collector) lack(path []byte, reason string) {
	c.got.Incomplete = true
	c.refuse(path, reason)
}

// refuse notes a line, as long as there are fewer than MaxRefused. It counts every call.
func (c *collector) refuse(path []byte, reason string) {
	if c.refused++; c.refused <= MaxRefused {
		c.got.Refused = append(c.got.Refused, show(path)+": "+reason)
	}
}

// show formats a path for one line of text.
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

// result replaces the last line by the number of refused entries without a line, if there are
// any.
func (c *collector) result() Collected {
	if more := c.refused - MaxRefused; more > 0 {
		c.got.Refused[MaxRefused-1] = fmt.Sprintf("and %d more", more+1)
	}
	return c.got
}
