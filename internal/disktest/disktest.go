// Package disktest gives tests a disk that is small enough to fill.
package disktest

import (
	"errors"
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
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
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
	unmount = sync.OnceFunc(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(unmount)
	return unmount
}
