package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// staging holds the mounts of one sandbox. They all lie beneath one tmpfs, whose upper
// directory becomes the workspace's changes, so that one detach takes them away again.
type staging struct {
	dir    string // the tmpfs
	mount  string // the merged workspace
	points int    // mount points that there is room for
	upper  *os.Root
}

// stagingInodes are those that the staging itself needs on the tmpfs, beside lowers and
// mounts.
var stagingInodes = 10 + deviceInodes

// mapping is the user namespace through which the owners of m's files are shown.
func (m Mount) mapping(userns *os.File) *os.File {
	if m.Owned {
		return userns
	}
	return nil
}

// newStaging mounts the tmpfs at dir, with what is the same for every workspace of
// that size, and room for so many mount points.
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

// makeRoom gives the tmpfs so many mount points.
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

// overlay mounts the workspace in the initial user namespace: mounted by the
// sandbox, files of a lower layer could not be copied up. The lower layers are
// clones that show the script as the owner of what belongs to 1000 on disk.
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
	if len(lowers) == 0 { // an overlay needs one
		lowers = []string{filepath.Join(st.dir, "empty")}
	}
	// Without redirects and metadata-only copies the upper layer holds every
	// change whole, so it is the list of artifacts. The price is EXDEV when a
	// directory of a lower layer is renamed, which programs answer by copying.
	options := "redirect_dir=nofollow,metacopy=off,index=off,xino=off,lowerdir=" + strings.Join(lowers, ":") +
		",upperdir=" + filepath.Join(st.dir, "upper") + ",workdir=" + filepath.Join(st.dir, "work")
	if err := unix.Mount("overlay", st.mount, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("overlay workspace: %w", err)
	}
	return nil
}

// lowerName is where overlay mounts the clone of a lower layer.
func lowerName(i int) string { return fmt.Sprintf("lower%d", i) }

// clonePoints makes directories, beside the workspace and out of its reach, and returns
// a read-only mount of the first one, in which the others are.
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

// close takes the mounts out of this process's namespace and closes everything. It can be
// called again.
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
