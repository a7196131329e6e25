package disktest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// An Ext4 is an ext4 file system of 16 MiB that is mounted at Dir until the test ends.
type Ext4 struct {
	Dir  string
	file string
}

// NewExt4 makes an Ext4. It skips the test if the machine can't have one.
func NewExt4(t testing.TB) *Ext4 {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a disk")
	}
	const mkfs = "/usr/sbin/mkfs.ext4"
	if _, err := os.Stat(mkfs); err != nil {
		t.Skipf("%v: the test needs a disk of its own", err)
	}
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 16<<20); err != nil {
		t.Fatal(err)
	}
	run(t, mkfs, "-q", "-m", "0", file)
	return mountExt4(t, file)
}

func mountExt4(t testing.TB, file string) *Ext4 {
	t.Helper()
	e := &Ext4{t.TempDir(), file}
	run(t, "mount", "-o", "loop", file, e.Dir)
	t.Cleanup(func() {
		if err := unix.Unmount(e.Dir, 0); err != nil {
			t.Errorf("unmount %s: %v", e.Dir, err)
		}
	})
	return e
}

// AfterCrash mounts a copy of the file system, as a crash of the machine now would leave it.
func (e *Ext4) AfterCrash(t testing.TB) *Ext4 {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	run(t, "cp", "--sparse=always", e.file, file)
	return mountExt4(t, file)
}

// CutPower makes the ext4 file system of a directory forget all data that is not on the disk yet, its journal included. Every
// later operation fails with EIO. See EXT4_IOC_SHUTDOWN and EXT4_GOING_FLAGS_NOLOGFLUSH in fs/ext4/ext4.h of Linux.
func CutPower(t testing.TB, dir string) {
	t.Helper()
	const shutdown, noLogFlush = 0x8004587d, 2
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := unix.IoctlSetPointerInt(int(d.Fd()), shutdown, noLogFlush); err != nil {
		t.Fatalf("shutdown of %s: %v", dir, err)
	}
}

func run(t testing.TB, command ...string) {
	t.Helper()
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
}
