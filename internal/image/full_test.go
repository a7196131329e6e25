package image

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/disktest"
)

// A disk that is full during a pull gives an error that says so and leaves nothing. After the
// operator made room, the same store pulls the image.
func TestDiskFullDuringAPull(t *testing.T) {
	d := newDepot(t)
	source := d.push(t, "base", imageWith(t,
		layerOf(t, item{name: "usr/"}, item{name: "usr/first", text: "1"}),
		layerOf(t, item{name: "usr/large", text: strings.Repeat("x", 512<<10)}, item{name: "usr/link", kind: '2', to: "first"}),
	))
	for name, options := range map[string]string{"bytes": "size=256k", "files": "size=4m,nr_inodes=8", "no file": "size=4m,nr_inodes=4"} {
		t.Run(name, func(t *testing.T) {
			disk := t.TempDir()
			resize := disktest.Mount(t, disk, options)
			dir := filepath.Join(disk, "images")
			s := openStore(t, dir, nil)
			for range 2 {
				_, err := s.Get(t.Context(), source)
				pull, ok := errors.AsType[*PullError](err)
				if !ok || !errors.Is(err, unix.ENOSPC) || pull.Reference != source.Reference {
					t.Fatalf("got %v, want a PullError of a full disk", err)
				}
				if !strings.Contains(err.Error(), "make room in "+dir) {
					t.Errorf("the error does not say what to do: %v", err)
				}
				if entries, _ := os.ReadDir(dir); len(entries) != 1 || entries[0].Name() != lockName {
					t.Errorf("left behind: %v", entries)
				}
			}
			resize("size=4m,nr_inodes=100")
			got, err := s.Get(t.Context(), source)
			if err != nil {
				t.Fatal(err)
			}
			if fi, err := os.Lstat(filepath.Join(got.Dir, "usr/large")); err != nil || fi.Size() != 512<<10 {
				t.Errorf("usr/large: %v, %v", fi, err)
			}
			if err := s.Prune(); err != nil {
				t.Error(err)
			}
		})
	}
}
