package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockedDown are the attributes of every mount of a host directory.
const lockedDown = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// BindReadOnly mounts source and all mounts beneath it at target, which exists.
func BindReadOnly(source, target string) error {
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

// BindMapped mounts the directory source read-only at target. The mount maps the owners
// of files by userns (mount_setattr(2), MOUNT_ATTR_IDMAP); nil maps nothing.
func BindMapped(source, target string, userns *os.File) error {
	tree, err := cloneMapped(source, userns)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return attach(tree, target)
}

// cloneMapped returns the mount for BindMapped as a descriptor. The last component of
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

// cloneMount returns a detached clone of the mount at a path of the daemon.
func cloneMount(at string) (int, error) {
	tree, err := unix.OpenTree(unix.AT_FDCWD, at, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("clone mount %s: %w", at, err)
	}
	return tree, nil
}

// CloneReadOnly returns a detached clone of the mount at a path of the daemon: read-only,
// without setuid programs, without devices, and with the further attributes of
// mount_setattr(2). The caller closes the descriptor.
func CloneReadOnly(at string, further uint64) (int, error) {
	tree, err := cloneMount(at)
	if err != nil {
		return -1, err
	}
	if err := setAttributes(tree, at, unix.MountAttr{Attr_set: lockedDown | further}); err != nil {
		return -1, err
	}
	return tree, nil
}

// setAttributes sets attributes of a detached clone of the mount at a path, and makes it private.
// After an error the clone is closed.
func setAttributes(tree int, at string, attr unix.MountAttr) error {
	attr.Propagation = unix.MS_PRIVATE
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		unix.Close(tree)
		return fmt.Errorf("make mount of %s read-only: %w", at, err)
	}
	return nil
}

// attach mounts a detached tree at target. The caller still closes the descriptor: the mount
// stays without it (move_mount(2)).
func attach(tree int, target string) error {
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount at %s: %w", target, err)
	}
	return nil
}

// Tmpfs mounts a tmpfs at target. The options bound its size and its inodes (tmpfs(5)).
func Tmpfs(target, options string) error {
	if err := unix.Mount("tmpfs", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("tmpfs at %s: %w", target, err)
	}
	return nil
}

// ReadOnly makes the mount at dir read-only. It retries on EBUSY: a process that
// another thread just forked may hold a file there open for writing until its exec.
func ReadOnly(dir string) error {
	deadline := time.Now().Add(forkPatience)
	for {
		err := unix.MountSetattr(unix.AT_FDCWD, dir, 0, &unix.MountAttr{Attr_set: lockedDown})
		if err == nil {
			return nil
		}
		if err != unix.EBUSY || time.Now().After(deadline) {
			return fmt.Errorf("make %s read-only: %w", dir, err)
		}
		time.Sleep(time.Millisecond)
	}
}

const forkPatience = 2 * time.Second

// Detach unmounts everything at and beneath path. The mounts are invisible at once; the
// kernel frees each after its last use (MNT_DETACH, umount(2)). It is no error if nothing
// is mounted there.
func Detach(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return nil
}

// Points lists the mount points at and beneath dir, newest first.
func Points(dir string) ([]string, error) {
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

// Private keeps mounts beneath dir out of other mount namespaces, also in a process
// that shares its mount namespace with others. It reports whether it had to mount dir on itself
// for that.
func Private(dir string) (bound bool, err error) {
	points, err := Points(dir)
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

// OnThrowawayThread runs f in a new mount namespace, on a thread that ends with f. No other
// process or thread sees the mounts that f makes.
func OnThrowawayThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with this function
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "")
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}
