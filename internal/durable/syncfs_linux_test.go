package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/disktest"
)

func openFS(t *testing.T, dir string) *FS {
	t.Helper()
	f, err := OpenFS(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestFS(t *testing.T) {
	dir := t.TempDir()
	if err := openFS(t, dir).Sync(); err != nil {
		t.Error(err)
	}
	if _, err := OpenFS(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v for a missing directory", err)
	}
	// syncfs(2) takes a descriptor of any file system; fsync(2) refuses one of /proc.
	if err := openFS(t, "/proc/self").Sync(); err == nil {
		t.Error("a directory that cannot be synced was synced")
	}
}

// The kernel reports a lost write to the first descriptor that syncs, and to every descriptor that was open at the loss.
func TestFSLearnsOfWritesThatAnotherHasLost(t *testing.T) {
	disk := disktest.NewFailingExt4(t)
	file := filepath.Join(disk.Dir, "file")
	mustSync := func() {
		t.Helper()
		if err := openFS(t, disk.Dir).Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	mustSync()
	own := openFS(t, disk.Dir)
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("lost"), 0); err != nil {
		t.Fatal(err)
	}
	// The first request has the page of the file: ext4 writes it before its journal.
	var requests atomic.Int64
	disk.Device.Fail(func() bool { return requests.Add(1) == 1 })
	if err := openFS(t, disk.Dir).Sync(); !errors.Is(err, unix.EIO) {
		t.Fatalf("the first sync: got %v, want EIO", err)
	}
	mustSync() // opened after the loss
	if err := own.Sync(); !errors.Is(err, unix.EIO) {
		t.Errorf("got %v, want EIO", err)
	}
	if err := own.Sync(); err != nil {
		t.Errorf("the next sync: %v", err)
	}
}
