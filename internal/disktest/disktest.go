// Package disktest gives tests a disk that is small enough to fill.
package disktest

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Mount mounts a disk at dir until the test ends. options are mount options of
// tmpfs(5), such as "size=64k,nr_inodes=12". The function that it returns changes them. Mount skips the test if
// it does not run as root.
func Mount(t testing.TB, dir, options string) (remount func(options string)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small disk")
	}
	mount := func(flags uintptr, options string) {
		t.Helper()
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|flags, options); err != nil {
			t.Fatal(err)
		}
	}
	mount(0, options)
	unmounting(t, dir)
	return func(options string) { mount(unix.MS_REMOUNT, options) }
}

// Fill writes a new file in dir until the disk is full, and returns the path of the file.
func Fill(t testing.TB, dir string) (path string) {
	t.Helper()
	f, err := os.CreateTemp(dir, "filler")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	return f.Name()
}

// MountBusy makes a directory that can't be removed until unmount, because a disk is mounted there. MountBusy skips the
// test if it does not run as root.
func MountBusy(t testing.TB, dir string) (unmount func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small disk")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=4k"); err != nil {
		t.Fatal(err)
	}
	return unmounting(t, dir)
}

// MountDead makes a directory that can't be read until unmount: the process that serves its file system (fuse(4)) has
// ended, and each operation fails with ENOTCONN. MountDead skips the test if it does not run as root, or if the kernel
// has no FUSE.
func MountDead(t testing.TB, dir string) (unmount func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a file system")
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("/dev/fuse: %v: a directory that can't be read needs FUSE", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)
	err = unix.Mount("skillrun-test", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options)
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		t.Fatal(err)
	}
	return unmounting(t, dir)
}

// unmounting returns a function that unmounts dir once. The end of the test calls it, too.
func unmounting(t testing.TB, dir string) (unmount func()) {
	t.Helper()
	unmount = sync.OnceFunc(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(unmount)
	return unmount
}
