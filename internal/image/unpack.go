package image

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limits on one entry.
const (
	maxDepth  = 128  // nested directories, also through links
	maxPath   = 4095 // PATH_MAX without the NUL, limits.h(0p)
	maxTarget = 4095 // the same; symlink(2) fails with ENAMETOOLONG beyond it
)

// An unpacker unpacks layers on top of each other into a directory.
//
// It creates every entry through a descriptor of the parent directory. The kernel finds
// that parent and resolves links on the way as if the image's directory were the root
// (RESOLVE_IN_ROOT, see openat2(2)). Whatever links an image has, no entry is therefore
// written, linked or removed outside it. The last component is never followed: an existing
// entry is removed, and the new one is created with O_EXCL.
//
// All files belong to root. Only the nine permission bits of their modes are kept.
type unpacker struct {
	root     *os.File
	real     string // root's path according to the kernel
	maxBytes int64
	maxFiles int // entries, directories and links included

	bytes int64 // bytes written so far
	files int   // entries so far, and directories made for them without an entry
	raw   int64 // bytes of archives that may still be read
	added map[pathSum]bool
	// cleared has directories in which the layer has left no entry of lower layers, so a further
	// whiteout there has nothing to do. Without it, an archive of n entries and n whiteouts would
	// have the unpacker read n*n names.
	cleared map[pathSum]bool
}

// A pathSum is the hash of a path in a layer. Paths are not stored themselves, because a
// small archive can have gigabytes of them.
type pathSum [sha256.Size]byte

func sumOf(path string) pathSum { return sha256.Sum256([]byte(path)) }

// count counts an inode and refuses one beyond the limit.
func (u *unpacker) count() error {
	if u.files++; u.files > u.maxFiles {
		return fmt.Errorf("more than %d entries; see pull.files in the configuration", u.maxFiles)
	}
	return nil
}

// dir must be empty and belong to this process. raw limits all bytes of the archives:
// contents, and headerBytes for each file.
func newUnpacker(dir string, maxBytes int64, maxFiles int) (*unpacker, error) {
	root, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	u := &unpacker{root: root, maxBytes: maxBytes, maxFiles: maxFiles, raw: maxBytes + int64(maxFiles)*headerBytes}
	if u.real, err = realPath(int(root.Fd())); err != nil {
		root.Close()
		return nil, err
	}
	return u, nil
}

func (u *unpacker) close() { u.root.Close() }

// realPath returns the path of a descriptor's file.
func realPath(fd int) (string, error) { return os.Readlink(fdPath(fd)) }

func fdPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// A place is a directory of the image and a name in it.
// The caller of find closes it. path is free of links, so two names of one directory give
// the same path, which note and whiteout compare.
type place struct {
	dir  int    // descriptor
	path string // path of the directory from the image's root, without links; "" is the root
	name string
}

func (p place) close() { unix.Close(p.dir) }

func (p place) full() string { return path.Join(p.path, p.name) }

// components splits an entry's name. The image's root has no components.
// Absolute names count from the image's root, as in other engines.
func components(name string) ([]string, error) {
	if len(name) > maxPath {
		return nil, fmt.Errorf("its name has %d bytes; at most %d", len(name), maxPath)
	}
	parts := slices.DeleteFunc(strings.Split(name, "/"), func(part string) bool { return part == "" || part == "." })
	if slices.Contains(parts, "..") {
		return nil, errors.New("its name has a .. in it, which could lead out of the image")
	}
	if strings.ContainsRune(name, 0) {
		return nil, errors.New("its name has a NUL in it")
	}
	return parts, nil
}

// find opens the directory of a name and follows links within the image. If create is set,
// it creates missing directories.
// parts has at least one element. The last one is not looked up.
func (u *unpacker) find(parts []string, create bool) (place, error) {
	dir := strings.Join(parts[:len(parts)-1], "/")
	p := place{name: parts[len(parts)-1]}
	var err error
	p.dir, err = u.open(dir)
	if errors.Is(err, fs.ErrNotExist) && create {
		if err = u.makeDirs(parts[:len(parts)-1]); err == nil {
			p.dir, err = u.open(dir)
		}
	}
	if err != nil {
		return place{}, err
	}
	if p.path, err = u.within(p.dir); err != nil {
		p.close()
		return place{}, err
	}
	return p, nil
}

// maxTries is the number of attempts after EAGAIN. They take about 5 s, which is enough on
// a machine that renames and mounts all the time.
const maxTries = 5000

// open opens a directory of the image.
// RESOLVE_NO_XDEV and RESOLVE_NO_MAGICLINKS refuse other mounts, and links like the ones in
// /proc/PID/fd. The descriptor is O_PATH: it names a directory and can't read it. The caller
// closes it.
func (u *unpacker) open(dir string) (int, error) {
	if dir == "" {
		dir = "."
	}
	how := unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	fd, err := unix.Openat2(int(u.root.Fd()), dir, &how)
	// openat2 fails with EAGAIN for a path with .. if a rename or mount happens anywhere on
	// the machine at the same time, see openat2(2).
	for try := 0; (err == unix.EAGAIN || err == unix.EINTR) && try < maxTries; try++ {
		time.Sleep(time.Duration(min(try, 10)) * 100 * time.Microsecond)
		fd, err = unix.Openat2(int(u.root.Fd()), dir, &how)
	}
	switch err {
	case nil:
		return fd, nil
	case unix.ENOTDIR:
		return -1, fmt.Errorf("%s is not a directory", dir)
	case unix.ELOOP:
		return -1, fmt.Errorf("the links of %s form a loop", dir)
	}
	return -1, &os.PathError{Op: "open", Path: dir, Err: err}
}

// within returns the path of an open directory in the image and checks the limit of depth.
// The kernel's path in /proc/self/fd has no links (proc_pid_fd(5)), so cutting off the
// root's path gives the place in the image.
func (u *unpacker) within(fd int) (string, error) {
	at, err := realPath(fd)
	if err != nil {
		return "", err
	}
	rest, ok := strings.CutPrefix(at, u.real)
	if !ok || rest != "" && rest[0] != '/' {
		return "", errors.New("it leads out of the image") // cannot happen: openat2 prevents it
	}
	rest = strings.TrimPrefix(rest, "/")
	if depth := strings.Count(rest, "/") + 2; rest != "" && depth > maxDepth {
		return "", fmt.Errorf("it lies more than %d directories deep", maxDepth)
	}
	return rest, nil
}

// makeDirs creates the missing directories of a path.
// Archives may leave out parents. These get mode 0755, and count as files against the limit:
// one entry may need maxDepth of them.
func (u *unpacker) makeDirs(parts []string) error {
	for i := range parts {
		at := parts[:i+1]
		fd, err := u.open(strings.Join(at, "/"))
		if err == nil {
			unix.Close(fd)
			continue
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := u.count(); err != nil {
			return err
		}
		p, err := u.find(at, false)
		if err != nil {
			return err
		}
		err = u.makeDir(p, 0o755)
		if errors.Is(err, fs.ErrExist) {
			err = danglingLink(p)
		}
		p.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// danglingLink is the error for a directory of an entry that can't be opened as one, although there is something of its
// name: a link whose target is missing. find has opened the directory above it.
func danglingLink(p place) error {
	target := make([]byte, maxTarget)
	n, err := unix.Readlinkat(p.dir, p.name, target)
	if err != nil {
		return &os.PathError{Op: "readlink", Path: p.full(), Err: err}
	}
	return fmt.Errorf("it lies beneath %.200q, a symbolic link to %.200q, which the image does not have",
		p.full(), target[:n])
}

// Names in an OCI layer that delete entries of lower layers (image-spec, layer.md).
const (
	whiteout       = ".wh."
	whiteoutOpaque = ".wh..wh..opq"
	whiteoutMeta   = ".wh..wh." // reserved for other engines
)

// entry unpacks one entry. r has its content.
// Names that begin with whiteoutMeta are skipped, apart from the opaque whiteout: they are
// records of AUFS and no files of the image.
func (u *unpacker) entry(h *tar.Header, r io.Reader) error {
	parts, err := components(h.Name)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		if h.Typeflag != tar.TypeDir {
			return errors.New("it would replace the image's root")
		}
		return nil
	}
	name := parts[len(parts)-1]
	above := parts[:len(parts)-1]
	if name != whiteoutOpaque && slices.ContainsFunc(parts, func(part string) bool { return strings.HasPrefix(part, whiteoutMeta) }) {
		return nil
	}
	if slices.ContainsFunc(above, func(part string) bool { return strings.HasPrefix(part, whiteout) }) {
		return errors.New("its directory has the name of a whiteout")
	}
	if strings.HasPrefix(name, whiteout) {
		return u.whiteout(parts, name)
	}
	p, err := u.find(parts, true)
	if err != nil {
		return err
	}
	defer p.close()
	switch h.Typeflag {
	case tar.TypeDir:
		err = u.dir(p, h)
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont:
		err = u.file(p, h, r)
	case tar.TypeSymlink:
		err = u.symlink(p, h)
	case tar.TypeLink:
		err = u.hardLink(p, h)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		err = u.special(p, h)
	default:
		err = fmt.Errorf("its type %q is not supported", h.Typeflag)
	}
	if err != nil {
		return err
	}
	u.note(p)
	return nil
}

// note records an entry of this layer and its parents. Whiteouts delete only entries of
// lower layers.
// It stops at the first known parent, because all parents of a known path are known.
func (u *unpacker) note(p place) {
	for at := p.full(); at != "." && at != "" && !u.added[sumOf(at)]; at = path.Dir(at) {
		u.added[sumOf(at)] = true
	}
}

// dir creates a directory or keeps an existing one.
// An existing directory keeps its entries and gets the new mode, as a later layer may only
// change the mode.
func (u *unpacker) dir(p place, h *tar.Header) error {
	mode := permissions(h)
	var st unix.Stat_t
	err := unix.Fstatat(p.dir, p.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return chmod(p, mode)
	}
	if err := u.remove(p); err != nil {
		return err
	}
	return u.makeDir(p, mode)
}

// makeDir creates one directory within the limit of depth.
// mkdirat(2) applies the umask, so it starts private and chmod sets the mode.
func (u *unpacker) makeDir(p place, mode uint32) error {
	if depth := strings.Count(p.full(), "/") + 1; depth > maxDepth {
		return fmt.Errorf("it lies more than %d directories deep", maxDepth)
	}
	if err := unix.Mkdirat(p.dir, p.name, 0o700); err != nil {
		return &os.PathError{Op: "mkdir", Path: p.full(), Err: err}
	}
	u.note(p)
	return chmod(p, mode)
}

// chmod sets the mode of a directory that was just found or created, regardless of the
// umask.
func chmod(p place, mode uint32) error {
	fd, err := unix.Openat(p.dir, p.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: p.full(), Err: err}
	}
	defer unix.Close(fd)
	return unix.Fchmod(fd, mode)
}

// permissions returns the mode without setuid, setgid and sticky bits.
func permissions(h *tar.Header) uint32 { return uint32(h.Mode) & 0o777 }

// remove removes an existing entry. It never follows links.
// os.Root stays beneath the directory while it walks down, so a link in the tree is removed
// and not followed. A missing entry is no error.
func (u *unpacker) remove(p place) error {
	dir, err := os.OpenRoot(fdPath(p.dir))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.RemoveAll(p.name)
}

// file writes a regular file. It removes an existing entry first and creates the new one
// with O_EXCL, so it never writes through a link or into a hard link of another name.
func (u *unpacker) file(p place, h *tar.Header, r io.Reader) error {
	// The full size counts, although a sparse archive leaves out the holes.
	if h.Size < 0 || h.Size > u.maxBytes-u.bytes {
		return errTooLarge
	}
	if err := u.remove(p); err != nil {
		return err
	}
	fd, err := unix.Openat(p.dir, p.name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &os.PathError{Op: "create", Path: p.full(), Err: err}
	}
	f := os.NewFile(uintptr(fd), p.full())
	n, err := io.Copy(f, io.LimitReader(r, h.Size))
	u.bytes += n
	if err == nil && n != h.Size {
		err = io.ErrUnexpectedEOF
	}
	return errors.Join(err, f.Chmod(fs.FileMode(permissions(h))), f.Close(), setTime(p, h.ModTime))
}

// setTime keeps the modification time of a file, because a Python bytecode cache is only
// valid for one modification time of its source.
func setTime(p place, at time.Time) error {
	if at.Unix() < 0 || at.Unix() > maxTime {
		return nil // not a plausible time
	}
	ts, err := unix.TimeToTimespec(at)
	if err != nil {
		return err
	}
	return unix.UtimesNanoAt(p.dir, p.name, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}

// maxTime is the year 2200 in Unix seconds, which every file system can store.
const maxTime = 7258118400

// symlink creates a symbolic link with any target, because only sandboxes resolve it.
func (u *unpacker) symlink(p place, h *tar.Header) error {
	if h.Linkname == "" || len(h.Linkname) > maxTarget || strings.ContainsRune(h.Linkname, 0) {
		return fmt.Errorf("a link whose target has %d bytes; want 1 to %d, none of them NUL", len(h.Linkname), maxTarget)
	}
	if err := u.remove(p); err != nil {
		return err
	}
	if err := unix.Symlinkat(h.Linkname, p.dir, p.name); err != nil {
		return &os.PathError{Op: "symlink", Path: p.full(), Err: err}
	}
	return nil
}

// hardLink gives a file of the image another name.
// The target is found like any name: within the image, and only among the entries that are
// already unpacked.
// linkat(2) without AT_SYMLINK_FOLLOW links a symbolic link itself.
func (u *unpacker) hardLink(p place, h *tar.Header) error {
	parts, err := components(h.Linkname)
	if err != nil {
		return fmt.Errorf("a hard link to %.200q: %w", h.Linkname, err)
	}
	if len(parts) == 0 {
		return errors.New("a hard link to the image's root")
	}
	to, err := u.find(parts, false)
	if err != nil {
		return fmt.Errorf("a hard link to %.200q: %w", h.Linkname, err)
	}
	defer to.close()
	var st unix.Stat_t
	if err := unix.Fstatat(to.dir, to.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("a hard link to %.200q: %w", h.Linkname, err)
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFLNK {
		return fmt.Errorf("a hard link to %.200q, which is not a file", h.Linkname)
	}
	if p.full() == to.full() {
		return nil // a link to itself changes nothing
	}
	if err := u.remove(p); err != nil {
		return err
	}
	if err := unix.Linkat(to.dir, to.name, p.dir, p.name, 0); err != nil {
		return &os.PathError{Op: "link", Path: p.full(), Err: err}
	}
	return nil
}

// ownDirs are top-level directories that a sandbox replaces, so entries there that cannot
// be unpacked are not missed.
var ownDirs = []string{"dev", "proc", "run", "sys", "tmp"}

// special refuses devices and pipes, except in ownDirs. Sandboxes of one image could
// communicate through a pipe.
func (u *unpacker) special(p place, h *tar.Header) error {
	if top, _, _ := strings.Cut(p.path, "/"); slices.Contains(ownDirs, top) {
		return u.remove(p)
	}
	if h.Typeflag == tar.TypeFifo {
		return errors.New("pipes are not allowed in an image")
	}
	return errors.New("devices are not allowed in an image outside of /dev")
}

// whiteout removes the entry with a name, or all entries of a directory, that lower layers
// have. Entries of this layer stay, in whatever order they come.
func (u *unpacker) whiteout(parts []string, name string) error {
	opaque := name == whiteoutOpaque
	victim := strings.TrimPrefix(name, whiteout)
	if !opaque && (victim == "" || victim == "." || victim == "..") {
		return errors.New("the whiteout names no entry")
	}
	p, err := u.find(parts, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // lower layers have no such entry
	}
	if err != nil {
		return err
	}
	defer p.close()
	dir, err := os.OpenRoot(fdPath(p.dir))
	if err != nil {
		return err
	}
	defer dir.Close()
	if opaque {
		return u.clear(dir, ".", p.path)
	}
	return u.clearOne(dir, victim, path.Join(p.path, victim))
}

// clear removes the entries of a directory that this layer has not added.
// name is the path from root, and at the path from the image's root.
func (u *unpacker) clear(root *os.Root, name, at string) error {
	sum := sumOf(at)
	if u.cleared[sum] {
		return nil
	}
	dir, err := root.Open(name)
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	dir.Close()
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := u.clearOne(root, path.Join(name, n), path.Join(at, n)); err != nil {
			return err
		}
	}
	u.cleared[sum] = true
	return nil
}

// clearOne removes an entry that this layer has not added. If the layer has added something
// beneath a directory, the directory stays and its other entries go.
func (u *unpacker) clearOne(root *os.Root, name, at string) error {
	if !u.added[sumOf(at)] {
		return root.RemoveAll(name)
	}
	info, err := root.Lstat(name)
	if err != nil || !info.IsDir() {
		return err
	}
	return u.clear(root, name, at)
}
