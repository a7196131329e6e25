package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
	"github.com/skillrun/skillrun/sandbox/internal/preflight"
	"golang.org/x/sys/unix"
)

// The functions in this file tell, before Open, what Open or Probe would refuse about a path
// of Config. They change nothing on the machine.

// CheckRunDir returns an error if the processes of sandboxes could not reach Config.RunDir.
// They do so as users who own nothing, so each directory above it needs the search permission
// for others. Directories that don't exist pass: Open creates them with that permission.
func CheckRunDir(path string) error {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil && info.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("%s has mode %#o, so sandboxes can't reach %s in it; run chmod o+x %[1]s, or choose another directory", dir, info.Mode().Perm(), path)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// CheckStateDir returns an error if Config.StateDir is on overlayfs, for example in a container
// without a volume: overlayfs can't be id-mapped (mount_setattr(2)). Of a directory that
// doesn't exist it looks at the nearest one above.
func CheckStateDir(path string) error {
	dir, err := preflight.Existing(path)
	if err != nil {
		return err
	}
	var fsys unix.Statfs_t
	if err := unix.Statfs(dir, &fsys); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if fsys.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return fmt.Errorf("%s is on overlayfs, which does not support id-mapped mounts; use a directory on ext4, xfs or btrfs, in a container a volume", dir)
	}
	return nil
}

// CheckCgroupParent returns an error if cgroup v2 has no cgroup at Config.CgroupParent. On
// cgroup v1 a missing one is created.
func CheckCgroupParent(path string) error {
	h, err := cgroup.Open(path)
	if err != nil {
		return err
	}
	return h.Exists()
}
