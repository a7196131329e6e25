package durable

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// SyncFS makes all files of dir and its directories durable, by one syncfs(2) instead of an fsync(2) for
// each of them. It also writes the unwritten files of other programs in this file system, so it pays
// only for many files.
func SyncFS(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(d.Fd())), syncAndBelieve(d), d.Close())
}
