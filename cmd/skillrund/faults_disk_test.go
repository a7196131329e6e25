package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/skillrun/skillrun/internal/disktest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A diskFault ends with a crash of the machine: the disk with the state keeps only what the file system has written to
// it by then. Before, the disk may fail for some requests. The next daemon has the disk as the crash left it. Every
// idempotency key and every version of a session that a client was told of is there. Outputs and outcomes may be lost,
// because they are not promised to survive: the execution is then lost, or the daemon says that its output is.
type diskFault struct {
	name   string
	times  int
	device bool // the disk is a disktest.Device
	harm   func(*faultDisk)
	errors int64 // refused requests before the daemon dies
}

var diskFaults = []diskFault{
	{"power cut", 10, false, (*faultDisk).cutPower, 0},
	{"failing disk, then a power cut", 4, false, (*faultDisk).cutPower, 30},
	{"disk whose writes fail", 4, true, (*faultDisk).failAll, 20},
	{"disk of which some writes fail", 4, true, (*faultDisk).failSome, 20},
	{"disk that becomes read-only", 4, false, (*faultDisk).makeReadOnly, 20},
}

func (f diskFault) inject(t *testing.T, row *faultRow) {
	random := rand.New(rand.NewPCG(18, 5))
	dir := newDir(t)
	writeHostileSkill(t, dir)
	disk := newFaultDisk(t, dir, 256, f.device)
	d := startDaemonIn(t, dir, faultConfig)
	l := &faultLoad{
		programs: faultPrograms, powerless: true, scarce: true,
		ends:     append(lostWithDaemon, pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED),
		refusals: []codes.Code{codes.Internal, codes.ResourceExhausted, codes.DataLoss},
	}
	l.start(t, d)
	for row.times < f.times {
		l.untilAnswers(1 + random.Int64N(60))
		dead := d.doomed()
		refused := l.refused.Load() + f.errors
		cut := time.Since(l.begun)
		f.harm(disk)
		t.Logf("harmed between %v and %v", cut, time.Since(l.begun))
		until(t, "no request is refused", func() bool { return l.refused.Load() >= refused })
		d.kill()
		row.times++
		disk.crash()
		d = startDaemonIn(t, dir, faultConfig)
		l.starts = append(l.starts, time.Since(l.begun))
		row.left += d.leftOf(dead)
	}
	endLoad(t, d, l, row)
}

// A faultDisk is an ext4 file system on a loop device, mounted at the state directory of a daemon.
type faultDisk struct {
	t         *testing.T
	dir       string // of the daemon
	file      string
	useDevice bool
	device    *disktest.Device // nil without useDevice
	copies    int
}

func newFaultDisk(t *testing.T, dir string, megabytes int64, useDevice bool) *faultDisk {
	t.Helper()
	k := &faultDisk{t: t, dir: dir, file: filepath.Join(dir, "disk"), useDevice: useDevice}
	disktest.FormatExt4(t, k.file, megabytes)
	k.mount()
	return k
}

func (k *faultDisk) state() string { return filepath.Join(k.dir, "state") }

func (k *faultDisk) mount() {
	k.t.Helper()
	path := k.file
	if k.useDevice {
		k.device = disktest.NewDevice(k.t, k.file)
		path = k.device.Path
	}
	if err := os.MkdirAll(k.state(), 0o755); err != nil {
		k.t.Fatal(err)
	}
	disktest.MountLoop(k.t, path, k.state(), "commit=300,errors=remount-ro")
	file := k.file
	k.t.Cleanup(func() {
		if file != k.file { // crash has unmounted it
			return
		}
		if err := unix.Unmount(k.state(), 0); err != nil {
			k.t.Errorf("unmount %s: %v", k.state(), err)
		}
	})
}

// crash mounts a copy of the disk in its place, because mounts of the dead daemon may still use the disk.
func (k *faultDisk) crash() {
	k.t.Helper()
	old := k.file
	if k.device != nil { // nothing more is written
		k.device.Fail(func() bool { return true })
	}
	k.copies++
	copied := fmt.Sprintf("%s/disk-%d", k.dir, k.copies)
	if out, err := exec.Command("cp", "--sparse=always", old, copied).CombinedOutput(); err != nil {
		k.t.Fatalf("%v\n%s", err, out)
	}
	if k.device != nil { // as at the start of a machine: not every write that failed can be made up for by the file system's journal
		out, err := exec.Command("/usr/sbin/e2fsck", "-fy", copied).CombinedOutput()
		if err != nil && err.(*exec.ExitError).ExitCode() > 2 { // 1 and 2: repaired, e2fsck(8)
			k.t.Fatalf("e2fsck: %v\n%s", err, out)
		}
		k.t.Logf("e2fsck:\n%s", out)
	}
	if err := unix.Unmount(k.state(), unix.MNT_DETACH); err != nil {
		k.t.Fatal(err)
	}
	if err := os.Remove(old); err != nil {
		k.t.Fatal(err)
	}
	k.file = copied
	k.mount()
}

// cutPower makes the file system forget all data that is not on the disk yet.
func (k *faultDisk) cutPower() { disktest.CutPower(k.t, k.state()) }

// failAll lets every write to the disk fail.
func (k *faultDisk) failAll() { k.device.Fail(func() bool { return true }) }

// failSome lets one of four writes to the disk fail.
func (k *faultDisk) failSome() { k.device.Fail(func() bool { return rand.IntN(4) == 0 }) }

// makeReadOnly lets the file system find an error. It then becomes read-only at once, as on a damaged disk. See
// trigger_fs_error in Documentation/ABI/testing/sysfs-fs-ext4 of Linux.
func (k *faultDisk) makeReadOnly() {
	k.t.Helper()
	path := filepath.Join("/sys/fs/ext4", disktest.Loop(k.t, k.state()), "trigger_fs_error")
	if err := os.WriteFile(path, []byte("a test"), 0); err != nil {
		k.t.Fatal(err)
	}
}
