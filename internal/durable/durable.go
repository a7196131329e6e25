// Package durable makes files and directories survive a crash of the machine.
package durable

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// WriteFile makes or replaces the file as a whole or not at all: rename(2) is atomic, and the sync of
// the directory makes it durable (fsync(2)). The file has mode 0600. A crash can leave a file in the directory, which
// RemoveUnfinished removes.
func WriteFile(path string, data []byte) error {
	return replace(path, func(tmp *os.File) error {
		_, err := tmp.Write(data)
		return err
	})
}

func replace(path string, write func(*os.File) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), unfinished) // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if err := errors.Join(write(tmp), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// unfinished is the pattern of the names of files that are not complete yet.
const unfinished = ".new-*"

// RemoveUnfinished removes the files that crashes in WriteFile and Renew have left in a directory, in which no process
// may write at the same time. It does nothing if the directory does not exist.
func RemoveUnfinished(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if is, _ := filepath.Match(unfinished, e.Name()); is && e.Type().IsRegular() {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// SyncDir makes new, renamed and removed files in a directory durable; a sync of a file does not
// (fsync(2)). It also vouches for earlier syncs of files on the same file system: see Believed. On Windows, where
// directories cannot be synced, it does nothing.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(syncAndBelieve(d), d.Close())
}

// syncAndBelieve syncs a directory, and returns nil only if this sync can be believed.
func syncAndBelieve(d *os.File) error {
	if err := d.Sync(); err != nil {
		return err
	}
	return Believed(d)
}

// Renew replaces a file by a synced copy. A sync of the file itself would not suffice after a write of cached pages has
// failed: the kernel has marked these pages as written, and ext4 does not write them in full even if they are changed
// again. A file that does not exist is not made. No process may write the file. A crash can leave a file, as with
// WriteFile.
func Renew(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return replace(path, func(tmp *os.File) error {
		_, err := io.Copy(tmp, f)
		return err
	})
}
