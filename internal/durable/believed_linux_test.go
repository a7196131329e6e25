package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/disktest"
)

func TestBelieved(t *testing.T) {
	disk := disktest.NewExt4(t)
	for _, dir := range []string{disk.Dir, "/proc/self"} { // /proc has no such attributes
		d, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if err := Believed(d); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
	d, err := os.Open(disk.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	disktest.CutPower(t, disk.Dir)
	if err := Believed(d); !errors.Is(err, unix.EIO) {
		t.Errorf("a file system without its journal: got %v", err)
	}
}

// A power cut while many goroutines write files: each file whose WriteFile has returned nil is there afterwards.
func TestWriteFileAndPowerCut(t *testing.T) {
	for range 3 {
		disk := disktest.NewExt4(t)
		var mu sync.Mutex
		var written []string
		var writers sync.WaitGroup
		enough := make(chan struct{})
		for w := range 64 {
			writers.Go(func() {
				for n := 0; ; n++ {
					name := fmt.Sprintf("%d-%d", w, n)
					if WriteFile(filepath.Join(disk.Dir, name), []byte(name)) != nil {
						return // the power is cut
					}
					mu.Lock()
					if written = append(written, name); len(written) == 200 {
						close(enough)
					}
					mu.Unlock()
				}
			})
		}
		<-enough
		disktest.CutPower(t, disk.Dir)
		writers.Wait()
		after := disk.AfterCrash(t)
		for _, name := range written {
			if got, err := os.ReadFile(filepath.Join(after.Dir, name)); string(got) != name {
				t.Errorf("%s: got %q, %v", name, got, err)
			}
		}
	}
}
