package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lockedDown are the attributes of every mount of a host directory.
const lockedDown = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// bindReadOnly mounts source and all mounts beneath it at target, which exists.
func bindReadOnly(source, target string) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("clone mount %s: %w", source, err)
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: lockedDown, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("make mount %s read-only: %w", source, err)
	}
	return attach(tree, target)
}

// bindMapped mounts the directory source read-only at target. The mount maps the owners
// of files by userns (mount_setattr(2), MOUNT_ATTR_IDMAP); nil maps nothing.
func bindMapped(source, target string, userns *os.File) error {
	tree, err := cloneMapped(source, userns)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return attach(tree, target)
}

// cloneMapped returns the mount for bindMapped as a descriptor. The last component of
// source may not be a link. Mounts beneath source are not cloned.
func cloneMapped(source string, userns *os.File) (int, error) {
	dir, err := unix.Open(source, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", source, err)
	}
	defer unix.Close(dir)
	tree, err := unix.OpenTree(dir, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return -1, fmt.Errorf("clone mount %s: %w", source, err)
	}
	attr := unix.MountAttr{Attr_set: lockedDown, Propagation: unix.MS_PRIVATE}
	if userns != nil {
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(userns.Fd())
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		unix.Close(tree)
		return -1, fmt.Errorf("map owners of mount %s: %w", source, err)
	}
	return tree, nil
}

// attach mounts a detached tree at target. The caller still closes the descriptor: the mount
// stays without it (move_mount(2)).
func attach(tree int, target string) error {
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount at %s: %w", target, err)
	}
	return nil
}

// mountTmpfs mounts a tmpfs of bounded size at target.
func mountTmpfs(target, options string) error {
	if err := unix.Mount("tmpfs", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("tmpfs at %s: %w", target, err)
	}
	return nil
}

// detach unmounts everything at and beneath path. The mounts are invisible at once; the
// kernel frees each after its last use (MNT_DETACH, umount(2)). It is no error if nothing
// is mounted there.
func detach(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return nil
}

// mountsBeneath lists the mount points at and beneath dir, newest first.
func mountsBeneath(dir string) ([]string, error) {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(info)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		// Our mount points have no character that mountinfo escapes.
		if p := fields[4]; p == dir || strings.HasPrefix(p, dir+"/") {
			found = append([]string{p}, found...)
		}
	}
	return found, nil
}

// privateMount keeps mounts beneath dir out of other mount namespaces, also in a
// process that did not call Isolate. It reports whether it had to mount dir on
// itself for that.
func privateMount(dir string) (bound bool, err error) {
	points, err := mountsBeneath(dir)
	if err != nil {
		return false, err
	}
	if len(points) == 0 || points[len(points)-1] != filepath.Clean(dir) {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			return false, fmt.Errorf("bind %s: %w", dir, err)
		}
		bound = true
	}
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		return bound, fmt.Errorf("make %s private: %w", dir, err)
	}
	return bound, nil
}
