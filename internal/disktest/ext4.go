package disktest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// An Ext4 is an ext4 file system of 64 MiB that is mounted at Dir until the test ends. Only a sync writes to its disk.
type Ext4 struct {
	Dir    string
	Device *Device // the disk; nil after NewExt4
	file   string
}

// NewExt4 makes an Ext4. It skips the test if the machine can't have one.
func NewExt4(t testing.TB) *Ext4 {
	t.Helper()
	e := &Ext4{Dir: t.TempDir(), file: filepath.Join(t.TempDir(), "disk")}
	FormatExt4(t, e.file, 64)
	MountExt4(t, e.file, e.Dir)
	return e
}

// NewFailingExt4 is like NewExt4, but the disk can fail.
func NewFailingExt4(t testing.TB) *Ext4 {
	t.Helper()
	e := &Ext4{Dir: t.TempDir(), file: filepath.Join(t.TempDir(), "disk")}
	FormatExt4(t, e.file, 64)
	e.Device = NewDevice(t, e.file)
	MountExt4(t, e.Device.Path, e.Dir)
	return e
}

// FormatExt4 makes a file with an empty ext4 file system. It skips the test if the machine can't have one.
func FormatExt4(t testing.TB, file string, megabytes int64) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a disk")
	}
	for _, tool := range []string{mkfs, "/usr/sbin/losetup"} {
		if _, err := os.Stat(tool); err != nil {
			t.Skipf("%v: the test needs a disk of its own", err)
		}
	}
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, megabytes<<20)); err != nil {
		t.Fatal(err)
	}
	run(t, mkfs, "-q", "-m", "0", file)
}

const mkfs = "/usr/sbin/mkfs.ext4"

// MountExt4 mounts a file of FormatExt4 at a directory until the test ends. It skips the test if the machine has no
// loop device.
func MountExt4(t testing.TB, file, dir string) {
	t.Helper()
	MountLoop(t, file, dir, "commit=300") // the journal is not written before a sync
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
}

// MountLoop mounts a file at a directory, with a loop device and the options of mount(8). The caller unmounts it. It
// skips the test if the machine has no loop device.
//
// The file may be a Device. The loop device calls a write a success if a part of it was one (lo_complete_rq in
// drivers/block/loop.c of Linux), so each of its writes must be one request to the Device.
func MountLoop(t testing.TB, file, dir, options string) {
	t.Helper()
	if out, err := exec.Command("mount", "-o", "loop,"+options, file, dir).CombinedOutput(); err != nil {
		if strings.Contains(string(out), "loop device") {
			t.Skipf("no loop device: %s", out)
		}
		t.Fatalf("mount: %v\n%s", err, out)
	}
	bound := filepath.Join("/sys/block", Loop(t, dir), "queue/max_sectors_kb")
	if err := os.WriteFile(bound, []byte(strconv.Itoa(deviceRequest>>10)), 0); err != nil {
		t.Error(err)
	}
}

// Loop returns the name of the loop device that is mounted at a directory, without /dev.
func Loop(t testing.TB, dir string) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if i := strings.Index(line, " /dev/loop"); i > 0 && fields[4] == dir {
			return strings.Fields(line[i+len(" /dev/"):])[0]
		}
	}
	t.Fatalf("%s is no mount of a loop device", dir)
	return ""
}

// AfterCrash mounts a copy of the file system, as a crash of the machine now would leave it.
func (e *Ext4) AfterCrash(t testing.TB) *Ext4 {
	t.Helper()
	after := &Ext4{Dir: t.TempDir(), file: filepath.Join(t.TempDir(), "disk")}
	run(t, "cp", "--sparse=always", e.file, after.file)
	MountExt4(t, after.file, after.Dir)
	return after
}

// CutPower makes the ext4 file system of a directory forget all data that is not on the disk yet, its journal
// included. Every later operation fails with EIO. See EXT4_IOC_SHUTDOWN and EXT4_GOING_FLAGS_NOLOGFLUSH in
// fs/ext4/ext4.h of Linux.
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
