package durable

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// An FS makes files of one file system durable together, by one syncfs(2) instead of an fsync(2) for each of them. It
// also writes the unwritten files of other programs in this file system, so it pays only for many files.
//
// Open it before the first write: the kernel reports a lost write once to each descriptor that was open when the write
// was lost. To later descriptors it reports the loss only if no descriptor has got the report yet (errseq_sample in
// lib/errseq.c of Linux).
type FS struct{ dir *os.File }

// OpenFS returns the file system of a directory. The caller must close it.
func OpenFS(dir string) (*FS, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	return &FS{d}, nil
}

// Sync makes all files of the file system and its directories durable. The error may also be about a write of another
// program since OpenFS or the last Sync.
func (f *FS) Sync() error {
	return errors.Join(os.NewSyscallError("syncfs", unix.Syncfs(int(f.dir.Fd()))), syncAndBelieve(f.dir))
}

// Close frees the descriptor, and syncs nothing.
func (f *FS) Close() error { return f.dir.Close() }
