package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// staging holds the mounts of one sandbox. All are beneath one tmpfs, so one detach
// removes them. The tmpfs's upper directory receives the workspace's changes.
type staging struct {
	dir    string // the tmpfs
	mount  string // the merged workspace
	points int    // mount points that there is room for
	upper  *os.Root
}

// stagingInodes is the number of inodes that the staging itself needs on the tmpfs, in
// addition to mount points.
var stagingInodes = 10 + deviceInodes

// mapping is the user namespace through which the owners of m's files are shown.
func (m Mount) mapping(userns *os.File) *os.File {
	if m.Owned {
		return userns
	}
	return nil
}

// newStaging mounts the tmpfs at dir, with room for the given number of mount points, and
// makes the directories that every workspace needs.
func newStaging(dir string, w Workspace, points int, script uint32) (_ *staging, err error) {
	if err := mountTmpfs(dir, "mode=711,"+w.size(points)); err != nil {
		return nil, err
	}
	st := &staging{dir: dir, mount: filepath.Join(dir, "merged"), points: points}
	defer func() {
		if err != nil {
			st.close()
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
	st.upper, err = os.OpenRoot(upper)
	return st, err
}

// size is the tmpfs options that bound w.
func (w Workspace) size(points int) string {
	return fmt.Sprintf("size=%d,nr_inodes=%d", w.SizeBytes, w.Files+int64(points+stagingInodes))
}

// makeRoom resizes the tmpfs for the given number of mount points, so that they take none of the
// inodes that the Spec gives to the workspace. A prewarmed sandbox has room for usualPoints.
func (st *staging) makeRoom(w Workspace, points int) error {
	if points == st.points {
		return nil
	}
	st.points = points
	err := unix.Mount("", st.dir, "", unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, w.size(points))
	if err != nil {
		return fmt.Errorf("resize tmpfs at %s: %w", st.dir, err)
	}
	return nil
}

// overlay mounts the workspace from the daemon's user namespace. If the sandbox mounted
// it, the kernel could not copy files of a lower layer up. The lower layers are id-mapped
// clones, which show the script as the owner of files that belong to 1000 on disk.
func (st *staging) overlay(w Workspace, userns *os.File) error {
	var lowers []string
	for i, source := range w.Lower {
		target, err := makeDir(st.dir, lowerName(i))
		if err != nil {
			return err
		}
		if err := bindMapped(source, target, userns); err != nil {
			return err
		}
		lowers = append(lowers, target)
	}
	if len(lowers) == 0 { // an overlay needs a lower layer
		lowers = []string{filepath.Join(st.dir, "empty")}
	}
	// Without redirects and metadata-only copies the upper layer holds every changed
	// file whole, so it is the list of artifacts. The price: the rename of a directory
	// of a lower layer fails with EXDEV, and programs then copy the directory.
	options := "redirect_dir=nofollow,metacopy=off,index=off,xino=off,lowerdir=" + strings.Join(lowers, ":") +
		",upperdir=" + filepath.Join(st.dir, "upper") + ",workdir=" + filepath.Join(st.dir, "work")
	if err := unix.Mount("overlay", st.mount, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("overlay workspace: %w", err)
	}
	return nil
}

// lowerName is where overlay mounts the clone of a lower layer.
func lowerName(i int) string { return fmt.Sprintf("lower%d", i) }

// clonePoints makes directories on the tmpfs, outside the workspace. It returns a detached
// read-only mount of the first one, which contains the others.
func (st *staging) clonePoints(points []string) (int, error) {
	for _, point := range points {
		if _, err := makeDir(st.dir, point); err != nil {
			return -1, err
		}
	}
	tree, err := cloneMount(st.dir + points[0])
	if err != nil {
		return -1, err
	}
	attr := unix.MountAttr{Attr_set: lockedDown | unix.MOUNT_ATTR_NOEXEC, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		unix.Close(tree)
		return -1, fmt.Errorf("make mount of %s read-only: %w", points[0], err)
	}
	return tree, nil
}

// close removes the mounts from this process's mount namespace and closes the upper
// directory. It may be called more than once.
func (st *staging) close() error {
	if st.upper != nil {
		st.upper.Close()
	}
	return detach(st.dir)
}

func makeDir(parent, name string) (string, error) {
	path := filepath.Join(parent, name)
	if err := os.Mkdir(path, 0o755); err != nil {
		return "", err
	}
	return path, os.Chmod(path, 0o755) // whatever the umask
}
