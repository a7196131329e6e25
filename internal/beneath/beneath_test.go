package beneath

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOpenStaysBeneath(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"file": filepath.Join(outside, "secret"), "dir": outside, "up": ".."} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	top, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	for _, name := range []string{"file", "dir", "dir/secret", "up", "..", "../x", outside, "/"} {
		if f, err := Open(top, name, unix.O_RDONLY); err == nil {
			t.Errorf("%q: opened %s", name, f.Name())
		}
		if f, err := Open(top, name, unix.O_WRONLY|unix.O_CREAT); err == nil {
			t.Errorf("%q: created %s", name, f.Name())
		}
	}
	f, err := Open(top, "new", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := f.Stat(); err != nil || fi.Mode() != 0o600 {
		t.Errorf("got %v, %v", fi, err)
	}
	if _, err := f.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	f.Close()
	if _, err := Open(top, "none/new", unix.O_RDONLY); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := OpenDir(top, "new"); !errors.Is(err, unix.ENOTDIR) {
		t.Error(err)
	}
}
