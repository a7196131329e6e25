// Package disktest gives tests a disk that is small enough to fill.
package disktest

import (
	"os"
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
