package disktest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDevice(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a file")
	}
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	d := NewDevice(t, file)
	f, err := os.OpenFile(d.Path, os.O_RDWR|unix.O_SYNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := bytes.Repeat([]byte("written\n"), 50_000) // more than one request
	if _, err := f.WriteAt(want, 4096); err != nil {
		t.Fatal(err)
	}
	d.Fail(func() bool { return true })
	if _, err := f.WriteAt([]byte("lost"), 0); !errors.Is(err, unix.EIO) || d.Failed() == 0 {
		t.Errorf("a write that fails: %v, and %d requests have failed", err, d.Failed())
	}
	d.Fail(nil)
	if err := f.Sync(); err != nil && !errors.Is(err, unix.EIO) { // the kernel may report the lost write again
		t.Error(err)
	}
	for _, path := range []string{file, d.Path} {
		got, err := os.ReadFile(path)
		if err != nil || len(got) != 1<<20 || !bytes.Equal(got[4096:][:len(want)], want) {
			t.Errorf("%s: got %d bytes, %v; want what was written", path, len(got), err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got[:4], make([]byte, 4)) {
		t.Errorf("the failed write is in the file: %q, %v", got[:4], err)
	}
}

// A write to the loop device of a Device fails if the Device loses a part of it.
func TestLoopReportsLostParts(t *testing.T) {
	disk := NewFailingExt4(t)
	f, err := os.OpenFile(filepath.Join("/dev", Loop(t, disk.Dir)), os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pages, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON) // for O_DIRECT
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(pages)
	var blocks [][]byte // of different pages, as a file system writes them
	for at := 0; at < len(pages); at += 4096 {
		blocks = append(blocks, pages[at:][:1024])
	}
	defer disk.Device.Fail(nil)
	for _, parts := range [][][]byte{{pages}, blocks} {
		for at := int64(60 << 20); at < 60<<20+4096; at += 512 { // requests that begin with a page, and others
			for failing := int64(1); ; failing++ {
				var requests atomic.Int64
				disk.Device.Fail(func() bool { return requests.Add(1) == failing })
				_, err := unix.Pwritev(int(f.Fd()), parts, at)
				if requests.Load() < failing {
					if err != nil || failing < 3 {
						t.Errorf("%d parts at %d, none of %d requests fails: %v", len(parts), at, requests.Load(), err)
					}
					break
				}
				if !errors.Is(err, unix.EIO) {
					t.Errorf("%d parts at %d, request %d of %d fails: %v", len(parts), at, failing, requests.Load(), err)
				}
			}
		}
	}
}
