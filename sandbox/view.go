package sandbox

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
	"github.com/skillrun/skillrun/sandbox/internal/pid1"
)

// A program can watch (inotify) and lock (flock, fcntl) every file that it can open for
// reading. Both show the program how other processes use the same inode, which can be a
// file of the host or of a skill. So each sandbox sees shared files through its own
// read-only overlays. An overlay makes a new inode for each file of its layers, and no
// other mount has that inode. The pages stay shared.
//
// rootLayers is the table of these trees. All other file systems of a sandbox are its own.

// A layered tree is one overlay: directories of this process's mount namespace,
// uppermost first, and where in the sandbox it is mounted.
type layered struct {
	place string
	dirs  []string
}

// maxPlaces bounds the mounts of which a root consists. The zygote counts /dev as well.
const maxPlaces = pid1.MaxPlaces - 1

// rootLayers returns the trees of the root with the given name, outer mounts first.
func (h *Host) rootLayers(root string) []layered {
	if root != "" {
		made, below := layersOf(h.rootOf(root))
		return []layered{{"/", []string{made, below}}}
	}
	all := []layered{{"/", []string{h.rootfs()}}}
	for _, place := range h.beneath {
		all = append(all, layered{place, []string{h.rootfs() + place}})
	}
	return all
}

// places are where the mounts of the host's root go in a sandbox, in the order of
// rootTrees. Every other root has the first two.
func (h *Host) places() []string {
	places := []string{"/", "/dev"}
	return append(places, h.beneath...)
}

// directoriesMounted lists the directories that are mounted beneath dir, relative to dir,
// outer mounts first. Sandboxes do not see files that are mounted there, because a file
// can't be a layer of an overlay.
func directoriesMounted(dir string) ([]string, error) {
	points, err := mountsBeneath(dir)
	if err != nil {
		return nil, err
	}
	slices.Reverse(points) // oldest first
	var places []string
	for _, p := range points {
		info, err := os.Lstat(p)
		if err != nil {
			return nil, err
		}
		if place := strings.TrimPrefix(p, dir); place != "" && info.IsDir() && !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	if len(places) >= maxPlaces {
		return nil, fmt.Errorf("%d directories are mounted in /usr; at most %d are possible", len(places)-1, maxPlaces-2)
	}
	return places, nil
}

// layTree returns a detached overlay of dirs, uppermost first. It is read-only, and its
// inodes are in no other mount.
func (st *staging) layTree(dirs ...string) (int, error) {
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

// rootTrees returns the mounts of c's root.
func (c *sandbox) rootTrees() (*mountList, error) {
	l, err := c.staging.rootTrees(c.host.rootLayers(c.spec.Root))
	if err == nil {
		err = c.faults.change(c, l)
	}
	return l, err
}

// rootTrees returns the mounts of a root in the order in which they are attached: "/",
// /dev, then the others.
func (st *staging) rootTrees(all []layered) (*mountList, error) {
	l := &mountList{}
	for i, t := range all {
		tree, err := st.layTree(t.dirs...)
		if err := l.add(tree, err, t.place); err != nil {
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

// deviceLinks are the links that programs expect in /dev.
var deviceLinks = map[string]string{
	"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
}

// deviceInodes is the number of inodes that deviceTree uses on the staging's tmpfs.
var deviceInodes = 2 + len(cgroup.Devices) + len(deviceLinks)

// deviceTree returns a detached mount of /dev. It makes new device nodes. An overlay of
// the machine's nodes would not do: on some kernels an overlay shows the inodes of its
// layers for device nodes.
func (st *staging) deviceTree() (int, error) {
	dev, err := makeDir(st.dir, "dev")
	if err != nil {
		return -1, err
	}
	if _, err := makeDir(dev, "shm"); err != nil {
		return -1, err
	}
	for _, d := range cgroup.Devices {
		path := filepath.Join(dev, d.Name)
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, uint32(d.Minor)))); err != nil {
			return -1, fmt.Errorf("make device %s: %w", d.Name, err)
		}
		if err := os.Chmod(path, 0o666); err != nil { // whatever the umask
			return -1, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(deviceLinks)) {
		if err := os.Symlink(deviceLinks[name], filepath.Join(dev, name)); err != nil {
			return -1, err
		}
	}
	tree, err := cloneMount(dev)
	if err != nil {
		return -1, err
	}
	attr := unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC, Attr_clr: unix.MOUNT_ATTR_NODEV,
		Propagation: unix.MS_PRIVATE,
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		unix.Close(tree)
		return -1, fmt.Errorf("mount of devices: %w", err)
	}
	return tree, nil
}

// ownMount returns a detached mount of m's directory, made by layTree. If the directory is
// already mounted as a lower layer of the workspace, ownMount uses that mount.
func (st *staging) ownMount(w Workspace, i int, m Mount, userns *os.File) (int, error) {
	if at := slices.Index(w.Lower, m.Source); at >= 0 && m.Owned {
		return st.layTree(filepath.Join(st.dir, lowerName(at)))
	}
	target, err := makeDir(st.dir, fmt.Sprintf("below%d", i))
	if err != nil {
		return -1, err
	}
	if err := bindMapped(m.Source, target, m.mapping(userns)); err != nil {
		return -1, err
	}
	return st.layTree(target)
}

// linksIn makes the links of linksDir again, for a sandbox in which a mount hides the
// root's links. It returns the parent directory of linksDir.
func (st *staging) linksIn(links map[string]string) (string, error) {
	top := filepath.Join(st.dir, "links")
	own := map[string]string{}
	for path, target := range links {
		if filepath.Dir(path) == linksDir {
			own[path] = target
		}
	}
	if err := os.MkdirAll(top+linksDir, 0o755); err != nil {
		return "", err
	}
	return top + filepath.Dir(linksDir), placeLinks(top, own)
}

// linkInodes is the number of inodes that linksIn uses.
func linkInodes(links map[string]string) int { return 4 + len(links) }

// addServers adds the host's list of name servers, for a sandbox with the host's network.
func (st *staging) addServers(l *mountList) error {
	text, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return nil // without the file the machine has no name servers
	}
	path := filepath.Join(st.dir, "resolv.conf")
	if err := writeFile(path, string(text)); err != nil {
		return err
	}
	tree, err := cloneMount(path)
	if err == nil {
		err = lockMount(tree, lockedDown|unix.MOUNT_ATTR_NOEXEC)
	}
	return l.add(tree, err, "/etc/resolv.conf")
}
