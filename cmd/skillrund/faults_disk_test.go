package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A diskFault cuts the power of the disk with the state: what the file system has not written by then is lost.
// The daemon lives on for some requests, for which every access to the disk fails, or dies at once. The next daemon
// has the disk as the cut left it. Every idempotency key and every version of a session that a client was told of
// is there. Outputs and outcomes may be lost, because they are not promised to survive: the execution is then lost,
// or the daemon says that its output is.
type diskFault struct {
	name   string
	times  int
	errors int64 // refused requests before the daemon dies
}

var diskFaults = []diskFault{
	{"power cut", 10, 0},
	{"failing disk, then a power cut", 4, 30},
}

func (f diskFault) inject(t *testing.T, row *faultRow) {
	random := rand.New(rand.NewPCG(18, 5))
	dir := newDir(t)
	writeHostileSkill(t, dir)
	disk, state := filepath.Join(dir, "disk"), filepath.Join(dir, "state")
	newDisk(t, disk, state, 256)
	d := startDaemonIn(t, dir, faultConfig)
	l := startLoad(t, d, lostWithDaemon...)
	l.powerless = true
	for row.times < f.times {
		dead := d.instance()
		goal := l.answers.Load() + 1 + random.Int64N(60)
		until(t, "the load stands still", func() bool { return l.answers.Load() >= goal })
		refused := l.refused.Load() + f.errors
		cutPower(t, state)
		until(t, "no request is refused", func() bool { return l.refused.Load() >= refused })
		d.kill()
		row.times++
		disk = remount(t, disk, fmt.Sprintf("%s/disk-%d", dir, row.times), state)
		d = startDaemonIn(t, dir, faultConfig)
		row.left += d.leftOf(dead)
	}
	endLoad(t, d, l, row)
}

// cutPower lets a file system forget what it has not written, its journal, too. Every later operation
// fails with EIO. See EXT4_IOC_SHUTDOWN and EXT4_GOING_FLAGS_NOLOGFLUSH in fs/ext4/ext4.h of Linux.
func cutPower(t *testing.T, path string) {
	t.Helper()
	const shutdown, noLogFlush = 0x8004587d, 2
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.IoctlSetPointerInt(int(dir.Fd()), shutdown, noLogFlush); err != nil {
		t.Fatalf("shutdown of %s: %v", path, err)
	}
}

// remount mounts a copy of a disk in its place, because mounts of the dead daemon may still use the disk. It
// returns the copy.
func remount(t *testing.T, disk, copied, path string) string {
	t.Helper()
	if out, err := exec.Command("cp", "--sparse=always", disk, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(disk); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-o", "loop,commit=300", copied, path).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v\n%s", err, out)
	}
	return copied
}
