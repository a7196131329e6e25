package mount

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
)

// deviceLinks are the links that programs expect in /dev.
var deviceLinks = map[string]string{
	"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
}

// deviceInodes is the number of inodes that deviceTree uses on the staging's tmpfs.
var deviceInodes = 2 + len(cgroup.Devices) + len(deviceLinks)

// deviceTree returns a detached mount of /dev. It makes new device nodes. An overlay of
// the machine's nodes would not do: on some kernels an overlay shows the inodes of its
// layers for device nodes.
func (st *Staging) deviceTree() (int, error) {
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
	}
	if err := setAttributes(tree, dev, attr); err != nil {
		return -1, err
	}
	return tree, nil
}
