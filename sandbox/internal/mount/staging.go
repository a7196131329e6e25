package mount

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A Staging holds the mounts of one sandbox. All are beneath one tmpfs, so one unmount
// removes them. The tmpfs's upper directory receives the workspace's changes.
type Staging struct {
	Upper  *os.Root // the upper layer of the workspace
	dir    string   // the tmpfs
	size   Size
	points int // mount points that there is room for
}

// A Size bounds the upper layer of a workspace.
type Size struct {
	Bytes int64
	Files int64 // inodes
}

// options are the tmpfs options for a workspace of this size and some mount points.
func (s Size) options(points int) string {
	return fmt.Sprintf("size=%d,nr_inodes=%d", s.Bytes, s.Files+int64(points+stagingInodes))
}

// stagingInodes is the number of inodes that the staging itself needs on the tmpfs, in
// addition to mount points.
var stagingInodes = 10 + deviceInodes

// usualPoints is the number of mount points for which a new Staging has inodes: one lower
// layer, and three for a skill (its mount, the directory above, its layer).
const usualPoints = 4

// NewStaging mounts the tmpfs at dir, which exists, and makes the directories that every
// workspace needs. script is the host's id of the script, who owns the workspace.
func NewStaging(dir string, size Size, script uint32) (_ *Staging, err error) {
	if err := Tmpfs(dir, "mode=711,"+size.options(usualPoints)); err != nil {
		return nil, err
	}
	st := &Staging{dir: dir, size: size, points: usualPoints}
	defer func() {
		if err != nil {
			st.Close()
		}
	}()
	for _, name := range []string{"upper", "work", "merged", "empty"} {
		if _, err := makeDir(dir, name); err != nil {
			return nil, err
		}
	}
	upper := filepath.Join(dir, "upper")
	if err := os.Chown(upper, int(script), int(script)); err != nil {
		return nil, err
	}
	st.Upper, err = os.OpenRoot(upper)
	return st, err
}

// Close removes the mounts from this process's mount namespace and closes Upper. It may be
// called more than once.
func (st *Staging) Close() error {
	if st.Upper != nil {
		st.Upper.Close()
	}
	return Detach(st.dir)
}

// makeRoom resizes the tmpfs for the given number of mount points, so that they take none of
// the inodes that belong to the workspace.
func (st *Staging) makeRoom(points int) error {
	if points == st.points {
		return nil
	}
	st.points = points
	err := unix.Mount("", st.dir, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, st.size.options(points))
	if err != nil {
		return fmt.Errorf("resize tmpfs at %s: %w", st.dir, err)
	}
	return nil
}

// merged is where overlay mounts the workspace.
func (st *Staging) merged() string { return filepath.Join(st.dir, "merged") }

// overlay mounts the workspace from the daemon's user namespace. If the sandbox mounted
// it, the kernel could not copy files of a lower layer up. The lower layers are id-mapped
// clones, which show the script as the owner of files that belong to its id on disk.
func (st *Staging) overlay(lower []string, userns *os.File) error {
	var lowers []string
	for i, source := range lower {
		target, err := makeDir(st.dir, lowerName(i))
		if err != nil {
			return err
		}
		if err := BindMapped(source, target, userns); err != nil {
			return err
		}
		lowers = append(lowers, target)
	}
	if len(lowers) == 0 { // an overlay needs a lower layer
		lowers = []string{filepath.Join(st.dir, "empty")}
	}
	// Without redirects and metadata-only copies the upper layer holds every changed
	// file whole, so it is the list of artifacts. The price: the rename of a directory
	// of a lower layer fails with EXDEV. mv and shutil.move then copy the directory;
	// os.rename, git mv and fs.renameSync fail. With redirect_dir=on, the files of a
	// renamed directory would be in no upper layer, so package workspace would have to
	// follow the redirects through the lower layers and their whiteouts.
	options := "redirect_dir=nofollow,metacopy=off,index=off,xino=off,lowerdir=" + strings.Join(lowers, ":") +
		",upperdir=" + filepath.Join(st.dir, "upper") + ",workdir=" + filepath.Join(st.dir, "work")
	if err := unix.Mount("overlay", st.merged(), "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("overlay workspace: %w", err)
	}
	return nil
}

// lowerName is where overlay mounts the clone of a lower layer.
func lowerName(i int) string { return fmt.Sprintf("lower%d", i) }

// RootTrees returns the mounts of a root in the order in which they are attached: "/",
// /dev, then the others (Root.Places). over are directories that hide files of "/", uppermost first; see
// [NewNameServers]. The list is valid after an error, too.
func (st *Staging) RootTrees(root *Root, over ...string) (*List, error) {
	l := &List{}
	for i, layer := range root.Layers {
		dirs := layer.Dirs
		if i == 0 {
			dirs = slices.Concat(over, dirs)
		}
		tree, err := st.layTree(dirs...)
		if err := l.add(tree, err, layer.Place); err != nil {
			return l, err
		}
		if i > 0 {
			continue
		}
		tree, err = st.deviceTree()
		if err := l.add(tree, err, "/dev"); err != nil {
			return l, err
		}
	}
	return l, nil
}

// layTree returns a detached overlay of dirs, uppermost first. It is read-only, and its
// inodes are in no other mount.
func (st *Staging) layTree(dirs ...string) (int, error) {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("overlay: %w", err)
	}
	defer unix.Close(fs)
	// Name the layers by descriptors, since fsconfig takes no more than 256 bytes. A
	// read-only overlay must have two layers.
	var lowers []string
	for _, dir := range append(slices.Clone(dirs), filepath.Join(st.dir, "empty")) {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, fmt.Errorf("open %s: %w", dir, err)
		}
		defer unix.Close(fd)
		lowers = append(lowers, fmt.Sprintf("/proc/self/fd/%d", fd))
	}
	// Otherwise the defaults depend on the kernel's configuration and on the parameters of the
	// overlay module (overlayfs.rst).
	options := [][2]string{
		{"source", "overlay"}, {"redirect_dir", "nofollow"}, {"metacopy", "off"}, {"index", "off"}, {"xino", "off"},
		{"lowerdir", strings.Join(lowers, ":")},
	}
	for _, o := range options {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return -1, fmt.Errorf("overlay of %s: %s: %w", strings.Join(dirs, ", "), o[0], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("overlay of %s: %w", strings.Join(dirs, ", "), err)
	}
	tree, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, lockedDown)
	if err != nil {
		return -1, fmt.Errorf("mount overlay of %s: %w", strings.Join(dirs, ", "), err)
	}
	return tree, nil
}

// RootDir is where ShowRoot attaches the root, and DevicesDir is where it attaches /dev.
// deviceTree makes the nodes in DevicesDir, too.
func (st *Staging) RootDir() string    { return filepath.Join(st.dir, "root") }
func (st *Staging) DevicesDir() string { return filepath.Join(st.dir, "dev") }

// ShowRoot attaches a root in this process's mount namespace, because libcontainer takes a path.
func (st *Staging) ShowRoot(l *List) error {
	if _, err := makeDir(st.dir, "root"); err != nil {
		return err
	}
	for i, tree := range l.Trees {
		target := st.RootDir() + l.Targets[i]
		if l.Targets[i] == "/dev" {
			target = st.DevicesDir()
		}
		if err := attach(tree, target); err != nil {
			return err
		}
	}
	return nil
}

// HideRoot undoes ShowRoot. A new mount namespace is a copy of the daemon's: each mount
// there makes the copy slower.
func (st *Staging) HideRoot() error {
	if err := Detach(st.RootDir()); err != nil {
		return err
	}
	return Detach(st.DevicesDir())
}

func makeDir(parent, name string) (string, error) {
	path := filepath.Join(parent, name)
	if err := os.Mkdir(path, 0o755); err != nil {
		return "", err
	}
	return path, os.Chmod(path, 0o755) // whatever the umask
}
