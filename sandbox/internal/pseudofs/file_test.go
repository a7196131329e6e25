package pseudofs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReadAndWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := Write(path, "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("write to no file: got %v", err)
	}
	// More than one buffer, and exactly one.
	for _, size := range []int{0, 1, 2047, 2048, 2049, 100_000} {
		want := strings.Repeat("a", size)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Write(path, want); size > 0 && err != nil {
			t.Errorf("write %d bytes: %v", size, err)
		}
		if got, err := Read(path); got != want || err != nil {
			t.Errorf("%d bytes: got %d bytes, %v", size, len(got), err)
		}
	}
	if _, err := Read(path + ".none"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path+".none") {
		t.Errorf("read no file: got %v", err)
	}
	if _, err := Read(filepath.Dir(path)); !errors.Is(err, unix.EISDIR) || !strings.Contains(err.Error(), "read "+filepath.Dir(path)) {
		t.Errorf("read a directory: got %v", err)
	}
}

// A program that the daemon starts does not get the descriptors.
func TestOpenedFilesCloseOnExec(t *testing.T) {
	f, err := Open(os.DevNull, unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("got flags %d, %v", flags, err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none"), unix.O_RDONLY); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: got %v", err)
	}
}

func TestNames(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for n := range 300 { // more than one buffer
		name := strings.Repeat("n", n%100+1) + strings.Repeat("m", n/100)
		want = append(want, name)
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Names(dir)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || err != nil {
		t.Errorf("got %d names, %v, want %d", len(got), err, len(want))
	}
	if _, err := Names(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: got %v", err)
	}
}

func TestReadLink(t *testing.T) {
	dir := t.TempDir()
	for name, target := range map[string]string{"good": "pid:[4026531836]", "long": strings.Repeat("x", 256)} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	at, err := OpenFD(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(at)
	if got, err := ReadLink(at, "good"); got != "pid:[4026531836]" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := ReadLink(at, "long"); !errors.Is(err, unix.ENAMETOOLONG) {
		t.Errorf("a target that was cut: got %q, %v", got, err)
	}
	if _, err := ReadLink(at, "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no link: got %v", err)
	}
}
