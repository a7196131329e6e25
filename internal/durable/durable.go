// Package durable makes files and directories survive a crash of the machine.
package durable

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
)

// WriteFile makes or replaces the file as a whole or not at all: rename(2) is atomic, and the sync of
// the directory makes it durable (fsync(2)). The file has mode 0600. A crash can leave a file .new-* in
// the directory, which no code reads.
func WriteFile(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(data)
	if err := errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes new, renamed and removed files in a directory durable; a sync of a file does not
// (fsync(2)). On Windows, where directories cannot be synced, it does nothing.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
